//! One rank of a large machine: what it takes to plan, compile and bind, by what serves by default and by every logarithmic
//! algorithm. The only test of its binary, so that the memory is its own.

use std::time::{Duration, Instant};

use bruckner_algorithms::lower::{OnNode, Room};
use bruckner_algorithms::{Task, plan};
use bruckner_runtime::readback::deeds;
use bruckner_runtime::{Limits, Target, compile};
use bruckner_schedule::Collective::{self, Allgather, Allreduce, Alltoall, ReduceScatter};
use bruckner_schedule::{Counts, Problem, Rank};

const ALGORITHMS: &[(Collective, &str)] = &[
    (Allgather, "locality(node)"),
    (Allreduce, "locality(node)"),
    (Alltoall, "locality(node)"),
    (Allgather, "sparbit"),
    (Allgather, "bruck(2)"),
    (Allgather, "recursive-doubling"),
    (Allgather, "leader(node, between=bruck(2))"),
    (Allgather, "lanes(node, between=sparbit)"),
    (ReduceScatter, "recursive-halving"),
    (ReduceScatter, "locality(node)"),
    (ReduceScatter, "bruck(2)"),
    (Allreduce, "recursive-doubling"),
    (Allreduce, "rabenseifner"),
    (Allreduce, "leader(node, between=recursive-doubling)"),
    (Alltoall, "bruck(2)"),
];

#[test]
fn one_rank_of_many() {
    for nodes in [64, 250, 1000, 10_000] {
        let topology: bruckner_schedule::Topology = format!("{nodes}x128").parse().unwrap();
        for &(collective, text) in ALGORITHMS {
            if collective == Alltoall && nodes > 250 {
                continue;
            }
            let expression = text.parse().unwrap();
            let rank = Rank(topology.ranks() / 2 + 5);
            let start = Instant::now();
            let task = Task::new(collective, topology.clone());
            let plan = plan(&task, &expression).unwrap().for_every_size();
            let code = plan.code(rank, &expression, OnNode::Segment, Room::Shared).unwrap();
            let lowered = start.elapsed();
            let target = Target { topology: &topology, even: true, orders_memory: true };
            let compiled = compile(&plan.problem, rank, &code, &target).unwrap();
            let made = start.elapsed();
            let problem = Problem { counts: Counts::Equal(plan.problem.pieces * 3), element: 8, ..plan.problem.clone() };
            let start = Instant::now();
            let bound = deeds(&compiled, &problem, &Limits::MEASURED);
            let new_size: Duration = start.elapsed();
            println!("{topology} {collective} {text}: {} actions, lowered {lowered:?}, compiled {made:?}, bound {new_size:?}", bound.len());
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("there is a peak");
    println!("peak {peak}");
}

//! Plans one rank of a large machine with the default algorithms, and with algorithms that need a logarithmic number of rounds. Checks the
//! number of actions of each plan and the memory that planning takes. Times are only printed; `cargo testbed instructions` checks them.
//! This is the only test in this file, so that the peak memory of the process is that of planning.

use std::time::{Duration, Instant};

use bruckner_algorithms::lower::{LineMemory, OnNode};
use bruckner_algorithms::planning_work::{self, planning_work};
use bruckner_algorithms::{Expression, Task, plan};
use bruckner_runtime::readback::bound_actions;
use bruckner_runtime::{Compiled, Limits, Target, compile};
use bruckner_schedule::Collective::{self, Allgather, Allreduce, Alltoall, ReduceScatter};
use bruckner_schedule::{Counts, Problem, Rank, Topology};

/// The default algorithms, and algorithms that need a logarithmic number of rounds.
const ALGORITHMS: &[(Collective, &str)] = &[
    (Allgather, "locality(node)"),
    (Allreduce, "locality(node)"),
    (Allgather, "sparbit"),
    (Allgather, "bruck(2)"),
    (Allgather, "bruck(16)"),
    (Allgather, "recursive-doubling"),
    (Allgather, "leader(node, between=bruck(2))"),
    (Allgather, "lanes(node, between=sparbit)"),
    (Allgather, "pipeline(4, locality(node))"),
    (ReduceScatter, "recursive-halving"),
    (ReduceScatter, "locality(node)"),
    (ReduceScatter, "bruck(2)"),
    (ReduceScatter, "sparbit"),
    (ReduceScatter, "lanes(node, between=bruck(2))"),
    (Allreduce, "recursive-doubling"),
    (Allreduce, "rabenseifner"),
    (Allreduce, "leader(node, between=recursive-doubling)"),
    (Allreduce, "lanes(node, between=rabenseifner)"),
    (Allreduce, "lanes(node, between=recursive-doubling)"),
    (Alltoall, "locality(node)"),
    (Alltoall, "bruck(2)"),
];

/// Returns a rank's compiled program for a task, the problem of the program, and the time that planning and compiling took.
fn made(task: &Task, expression: &Expression, rank: Rank) -> (Compiled, Problem, Duration) {
    let start = Instant::now();
    let plan = plan(task, expression).unwrap().for_every_size();
    let code = plan.code(rank, expression, OnNode::Segment, LineMemory::Shared).unwrap();
    let target = Target { topology: &task.topology, even: true, orders_memory: true };
    let compiled = compile(&plan.problem, rank, &code, &target).unwrap();
    let time = start.elapsed();
    let counts = Counts::Equal(3 * plan.problem.pieces);
    (compiled, Problem { counts, ..plan.problem }, time)
}

#[test]
fn one_rank_of_many() {
    let mut stops: Vec<String> = Vec::new();
    for nodes in [64, 250, 1000, 10_000] {
        let topology: Topology = format!("{nodes}x128").parse().unwrap();
        for &(collective, text) in ALGORITHMS {
            let expression: Expression = text.parse().unwrap();
            let bound = planning_work(collective, &expression, &topology);
            if bound > planning_work::MAX_RUNS {
                // Only alltoall, where each rank has data for every other rank, exceeds the limit.
                assert_eq!(collective, Alltoall, "{text} on {topology}: {bound}");
                stops.push(format!("{collective} {text} on {topology}"));
                continue;
            }
            let task = Task::new(collective, topology.clone());
            let rank = Rank(topology.ranks() / 2 + 5);
            let (compiled, problem, time) = made(&task, &expression, rank);
            let mut bound_to = bound_actions(&compiled, &problem, &Limits::MEASURED);
            let actions = bound_to.len() as u64;
            let other = Problem { counts: Counts::Equal(5 * problem.pieces), ..problem };
            let start = Instant::now();
            bound_to.bind(&compiled, &other, &Limits::MEASURED);
            let new_size = start.elapsed();
            println!(
                "{topology} {collective} {text}: {actions} of at most {bound} actions, made in {time:?}, bound in {new_size:?}"
            );
            assert!(actions <= bound, "{text} on {topology}: {actions} actions, not {bound}");
        }
    }
    println!("not planned: {}", stops.join("; "));
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("there is a peak");
    let peak: u64 = peak.trim().trim_end_matches("kB").trim().parse().expect("in kB");
    println!("peak of the whole process: {peak} kB");
    assert!(peak <= 16 * 1024, "{peak} kB");
}

//! One rank of a large machine: what it takes to plan, compile and bind, by what serves by default and by every logarithmic
//! algorithm. The only test of its binary, so that the memory is its own.

use std::time::{Duration, Instant};

use bruckner_algorithms::lower::{OnNode, Room};
use bruckner_algorithms::work::{self, work};
use bruckner_algorithms::{Expression, Task, plan};
use bruckner_runtime::readback::deeds;
use bruckner_runtime::{Compiled, Limits, Target, compile};
use bruckner_schedule::Collective::{self, Allgather, Allreduce, Alltoall, ReduceScatter};
use bruckner_schedule::{Counts, Problem, Rank, Topology};

/// What serves by default, and logarithmic algorithms.
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

/// How long making a plan may take.
const LIMIT: Duration = Duration::from_millis(20);

/// What a rank runs for a task, and how long it took to make it.
fn made(task: &Task, expression: &Expression, rank: Rank) -> (Compiled, Problem, Duration) {
    let start = Instant::now();
    let plan = plan(task, expression).unwrap().for_every_size();
    let code = plan.code(rank, expression, OnNode::Segment, Room::Shared).unwrap();
    let target = Target { topology: &task.topology, even: true, orders_memory: true };
    let compiled = compile(&plan.problem, rank, &code, &target).unwrap();
    let time = start.elapsed();
    let counts = Counts::Equal(3 * plan.problem.pieces);
    (compiled, Problem { counts, ..plan.problem }, time)
}

fn best(times: impl Iterator<Item = Duration>) -> Duration {
    times.min().unwrap()
}

#[test]
fn one_rank_of_many() {
    let mut stops: Vec<String> = Vec::new();
    for nodes in [64, 250, 1000, 10_000] {
        let topology: Topology = format!("{nodes}x128").parse().unwrap();
        for &(collective, text) in ALGORITHMS {
            let expression: Expression = text.parse().unwrap();
            let bound = work(collective, &expression, &topology);
            if bound > work::MOST {
                // Only where every rank has something to say to every other.
                assert_eq!(collective, Alltoall, "{text} on {topology}: {bound}");
                stops.push(format!("{collective} {text} on {topology}"));
                continue;
            }
            let task = Task::new(collective, topology.clone());
            let rank = Rank(topology.ranks() / 2 + 5);
            let (compiled, problem, _) = made(&task, &expression, rank);
            // The best of a few, and of more while it is not below the limit: other work on the machine is not what is measured.
            let mut time = best((0..3).map(|_| made(&task, &expression, rank).2));
            for _ in 0..200 {
                if time < LIMIT {
                    break;
                }
                time = time.min(made(&task, &expression, rank).2);
            }
            let mut bound_to = deeds(&compiled, &problem, &Limits::MEASURED);
            let actions = bound_to.len() as u64;
            let most = Duration::from_nanos(5_000 + 10 * actions);
            let mut new_size = Duration::MAX;
            for more in 0..20_000 {
                let pieces = problem.pieces;
                let problem = Problem { counts: Counts::Equal((4 + more) * pieces), ..problem.clone() };
                let start = Instant::now();
                bound_to.bind(&compiled, &problem, &Limits::MEASURED);
                new_size = new_size.min(start.elapsed());
                if more > 100 && new_size < most {
                    break;
                }
            }
            println!(
                "{topology} {collective} {text}: {actions} of at most {bound} actions, made in {time:?}, bound in {new_size:?}"
            );
            assert!(actions <= bound, "{text} on {topology}: {actions} actions, not {bound}");
            if !cfg!(debug_assertions) {
                assert!(time < LIMIT, "{text} on {topology} took {time:?}");
                assert!(new_size < most, "{text} on {topology} took {new_size:?} for a new size");
            }
        }
    }
    println!("not planned: {}", stops.join("; "));
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("there is a peak");
    let peak: u64 = peak.trim().trim_end_matches("kB").trim().parse().expect("in kB");
    println!("peak of the whole process: {peak} kB");
    assert!(peak <= 16 * 1024, "{peak} kB");
}

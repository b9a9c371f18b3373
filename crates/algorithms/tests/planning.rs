//! Plans single ranks of 2^20 by every logarithmic algorithm, and checks that schedules have few runs and planning needs little memory.
//! The time is printed; `cargo testbed instructions` guards it. The only test of its binary, so that the memory is its own.

use std::time::{Duration, Instant};

use bruckner_algorithms::{Task, plan};
use bruckner_schedule::Collective::{self, Allgather, Allreduce, Alltoall, ReduceScatter};
use bruckner_schedule::{LocalOp, Place, Rank};

/// Collective, algorithm, and the most runs that any rank's schedule may have.
const LOGARITHMIC: &[(Collective, &str, usize)] = &[
    (Allgather, "locality(node)", 500),
    (Allgather, "locality(node, lanes=paper)", 500),
    (Allgather, "locality(node, inside=bruck(2))", 500),
    (Allgather, "sparbit", 500),
    (Allgather, "bruck(2)", 500),
    (Allgather, "bruck(16)", 400),
    (Allgather, "recursive-doubling", 500),
    (Allgather, "1048576(31 31 31 31)", 600),
    (Allgather, "leader(node, between=bruck(2))", 500),
    (Allgather, "leader(node, between=65536(15 15 15 15))", 500),
    (Allgather, "lanes(node, between=sparbit)", 500),
    (Allgather, "pipeline(4, locality(node))", 1600),
    (ReduceScatter, "recursive-halving", 500),
    (ReduceScatter, "bruck(2)", 500),
    (ReduceScatter, "sparbit", 500),
    (ReduceScatter, "locality(node)", 500),
    (ReduceScatter, "lanes(node, between=bruck(2))", 500),
    (Allreduce, "recursive-doubling", 500),
    (Allreduce, "rabenseifner", 500),
    (Allreduce, "locality(node)", 500),
    (Allreduce, "leader(node, between=recursive-doubling)", 500),
    (Allreduce, "leader(node, between=65536(-15 -15 -15 -15) 65536(15 15 15 15))", 1000),
    (Allreduce, "lanes(node, between=rabenseifner)", 500),
    (Allreduce, "lanes(node, between=recursive-doubling)", 500),
    (Allreduce, "1048576(1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1)", 500),
    (Allreduce, "1048576(-1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1)", 1000),
    (Allreduce, "1048576(-31 -31 -31 -31) 1048576(31 31 31 31)", 1500),
    (Allreduce, "1048576(-31 31 31 31 31)", 10_000),
    (Allreduce, "1024(-31 -31) 1024(31 31) 1024(31 31)", 1500),
    (Allreduce, "1024(-1 31 31) 1024(31 31)", 5000),
    (Alltoall, "bruck(2)", 500),
    (Alltoall, "bruck(1024)", 15_000),
];

#[test]
fn one_rank_of_a_million() {
    let (mut slowest, mut which) = (Duration::ZERO, "");
    for &(collective, expression, most) in LOGARITHMIC {
        let task = Task::new(collective, "65536x16".parse().unwrap());
        for rank in [0, 5, 524_287, 1_048_575].map(Rank) {
            let plan_one = || plan(&task, &expression.parse().unwrap()).unwrap().rounds(rank);
            let start = Instant::now();
            let rounds = plan_one();
            let time = start.elapsed();
            let messages = rounds.iter().flat_map(|round| &round.messages).flat_map(|m| m.places.iter());
            let local = rounds.iter().flat_map(|round| &round.local).flat_map(LocalOp::places);
            let runs: usize = messages.chain(local).map(|place: &Place| place.set.runs().len()).sum();
            assert!(runs <= most, "{expression} for {collective}, rank {rank}: {runs} runs");
            if time > slowest {
                (slowest, which) = (time, expression);
            }
        }
    }
    println!("slowest: {which}, {slowest:?}");
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("there is a peak");
    let peak: u64 = peak.trim().trim_end_matches("kB").trim().parse().expect("in kB");
    println!("peak of the whole process: {peak} kB");
    assert!(peak <= 16 * 1024, "{peak} kB");
}

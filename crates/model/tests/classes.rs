//! Simulating one rank of each class gives the same times for every rank as simulating every rank.

use bruckner_algorithms::catalogue::kinds;
use bruckner_algorithms::{Task, TaskPlan, plan};
use bruckner_model::{Machine, Simulation};
use bruckner_schedule::{Collective, Rank, Topology};

const COLLECTIVES: [Collective; 4] =
    [Collective::Allgather, Collective::ReduceScatter, Collective::Allreduce, Collective::Alltoall];

/// Prepares a simulation in which every rank is a class of its own, by arrival times that differ by a negligible amount.
fn every_rank(plan: &TaskPlan) -> Simulation {
    let played = Simulation::with_arrivals(plan, |rank| f64::from(rank.0) * 1e-30).unwrap();
    assert_eq!(played.classes() as u32, plan.topology.ranks());
    played
}

#[test]
fn classes_say_the_same_as_ranks() {
    let mut fewer = 0;
    for topology in ["8x4", "16x1", "4x2x3", "1x8", "3,2,2,1", "8x4:cyclic", "9x4"] {
        let topology: Topology = topology.parse().unwrap();
        for collective in COLLECTIVES {
            for expression in kinds(collective, &topology) {
                for bytes in [8, 20_000] {
                    let task = Task::new(collective, topology.clone()).bytes(bytes);
                    let Ok(plan) = plan(&task, &expression) else { continue };
                    let (classes, ranks) = (Simulation::of(&plan).unwrap(), every_rank(&plan));
                    fewer += usize::from(classes.classes() < ranks.classes());
                    for machine in [Machine::builtin("lassen").unwrap(), Machine::postal(1e-6, 1e-9)] {
                        let (one, all) = (classes.run(&machine).unwrap(), ranks.run(&machine).unwrap());
                        for rank in (0..topology.ranks()).map(Rank) {
                            let (one, all) = (one.end(rank), all.end(rank));
                            assert!(
                                (one - all).abs() <= 1e-9 * all,
                                "{expression} on {topology}, {bytes} bytes, {}: rank {} ends at {one}, or {all}",
                                machine.name,
                                rank.0
                            );
                        }
                    }
                }
            }
        }
    }
    assert!(fewer > 100, "only {fewer} plans have classes");
}

/// Two ranks wait for flags 0 and 1 of the same two partners, but with the partners exchanged: classes must depend on the flag, not only
/// on its owner.
#[test]
fn flags_tell_ranks_apart() {
    use bruckner_model::steps::{CostStep, LocalWork, Partner, Steps};
    use bruckner_schedule::{Flag, Tag};
    let late = CostStep::Work(LocalWork { copied_bytes: 1000, ..LocalWork::default() });
    let [first, second] = [Flag(0), Flag(1)].map(CostStep::Signal);
    let wait = |flag| CostStep::Wait { flag, before: 0 };
    let steps_of = |rank: Rank| {
        let (node, partner) = (rank.0 / 4 * 4, |rank| Partner { rank: Rank(rank), tag: Tag(0) });
        match rank.0 % 4 {
            0 => Steps { steps: vec![first, second, late], partners: vec![] },
            1 => Steps { steps: vec![second, late, first], partners: vec![] },
            own => Steps {
                steps: vec![wait(Flag(0)), wait(Flag(1))],
                partners: vec![partner(node + own - 2), partner(node + 3 - own)],
            },
        }
    };
    let mut machine = Machine::postal(1e-6, 1e-9);
    (machine.rank.copy, machine.rank.flag) = (1e-6, Some(1e-7));
    let topology: Topology = "16x4".parse().unwrap();
    let played = Simulation::new(&topology, steps_of, |_| 0.0).unwrap();
    let outcome = played.run(&machine).unwrap();
    for node in 0..16 {
        let ends = [2, 3].map(|rank| outcome.end(Rank(4 * node + rank)));
        assert!((ends[0] - 1e-7).abs() < 1e-12 && (ends[1] - 1.0001e-3).abs() < 1e-12, "{ends:?}");
    }
}

/// A rate limit holds even if messages would take no transfer time without it.
#[test]
fn what_a_node_sends_is_limited_whatever_its_messages_could_use() {
    use bruckner_model::Model;
    use bruckner_model::machine::Injection;
    use bruckner_model::steps_of;
    let time = |algorithm: &str, bytes: u64, per_byte: f64| {
        let task = Task::new(Collective::Allgather, "16x1".parse().unwrap()).bytes(bytes);
        let plan = plan(&task, &algorithm.parse().unwrap()).unwrap();
        let mut machine = Machine::postal(1e-6, per_byte);
        machine.injection = Some(Injection { rate: 1e9, source: String::new() });
        let simulated = Simulation::of(&plan).unwrap().run(&machine).unwrap().last();
        let formula = Model::MaxRate.cost(&machine, &steps_of(&plan, Rank(0)).steps, 1);
        (simulated, formula)
    };
    for per_byte in [0.0, 1e-15, 1e-10] {
        // 15 blocks of 1 MB leave a node at 1 GB/s: all at once, or in several rounds.
        for (algorithm, rounds) in [("spread-out", 1.0), ("bruck(4)", 2.0), ("ring", 15.0)] {
            let (simulated, formula) = time(algorithm, 1_000_000, per_byte);
            let expected = 15e-3 + rounds * 1e-6;
            for found in [simulated, formula] {
                assert!((found / expected - 1.0).abs() < 1e-6, "{algorithm}, {per_byte}: {found}");
            }
        }
    }
}

/// A node sends and receives no more than its links carry, and neither does a rank, even if the machine file has no limit.
#[test]
fn the_wire_has_two_ends() {
    use bruckner_schedule::Counts;
    let ethernet = Machine::builtin("gigabit-ethernet").unwrap();
    assert_eq!(ethernet.injection, None);
    let per_byte = ethernet.network.protocol(1 << 20).per_byte;
    let time = |collective, topology: &str, counts| {
        let task = Task { element: 1, ..Task::new(collective, topology.parse().unwrap()) }.counts(counts);
        let plan = plan(&task, &"spread-out".parse().unwrap()).unwrap();
        Simulation::of(&plan).unwrap().run(&ethernet).unwrap().last()
    };
    // A node sends 15 blocks in an alltoall, and 16 ranks of a node send 16 each to the other node.
    for (topology, blocks) in [("16x1", 15.0), ("2x16", 256.0)] {
        let found = time(Collective::Alltoall, topology, Counts::Equal(1 << 20));
        let least = blocks * f64::from(1 << 20) * per_byte;
        assert!(found > least && found < 1.1 * least, "{topology}: {found}, not {least}");
    }
    // The root of a reduction receives the vectors of 63 nodes.
    let vector = Counts::Root { root: Rank(5), count: 1 << 24 };
    let (found, least) = (time(Collective::ReduceScatter, "64x1", vector), 63.0 * f64::from(1 << 24) * per_byte);
    assert!(found > least && found < 1.1 * least, "{found}, not {least}");
}

/// Messages without data are not sent, unless they order accesses to shared memory.
#[test]
fn nothing_takes_no_time() {
    for algorithm in ["recursive-doubling", "rabenseifner", "ring"] {
        let task = Task::new(Collective::Allreduce, "2x2".parse().unwrap()).bytes(0);
        let plan = plan(&task, &algorithm.parse().unwrap()).unwrap();
        let outcome = Simulation::of(&plan).unwrap();
        assert_eq!(outcome.run(&Machine::postal(1e-6, 1e-9)).unwrap().last(), 0.0, "{algorithm}");
    }
}

/// A late rank delays only the ranks that need its data, and by no more than its own delay.
#[test]
fn who_comes_late_delays_those_who_wait_for_it() {
    let task = Task::new(Collective::Allgather, "8x1".parse().unwrap()).bytes(8);
    let plan = plan(&task, &"bruck(2)".parse().unwrap()).unwrap();
    let machine = Machine::postal(1e-6, 0.0);
    let late = Simulation::with_arrivals(&plan, |rank| if rank == Rank(3) { 5e-6 } else { 0.0 }).unwrap();
    let outcome = late.run(&machine).unwrap();
    assert!((outcome.last() - 8e-6).abs() < 1e-12, "{}", outcome.last());
    // The late rank finds the data of the others waiting when it arrives, so it finishes before the ranks that it delays.
    assert!(outcome.end(Rank(3)) < outcome.last());
}

#[test]
fn a_million_ranks_that_do_alike_are_few_classes() {
    for (collective, algorithm, classes) in [
        (Collective::Allgather, "bruck(2)", 16),
        (Collective::Allgather, "locality(node)", 3),
        (Collective::Allreduce, "recursive-doubling", 1),
    ] {
        let task = Task::new(collective, "1024x16".parse().unwrap()).bytes(8);
        let plan = plan(&task, &algorithm.parse().unwrap()).unwrap();
        assert_eq!(Simulation::of(&plan).unwrap().classes(), classes, "{algorithm}");
    }
}

//! Playing one of each class says the same of every rank as playing every rank.

use bruckner_algorithms::catalogue::kinds;
use bruckner_algorithms::{Plan, Task, plan};
use bruckner_model::{Machine, Played};
use bruckner_schedule::{Collective, Rank, Topology};

const COLLECTIVES: [Collective; 4] =
    [Collective::Allgather, Collective::ReduceScatter, Collective::Allreduce, Collective::Alltoall];

/// Ranks that come at different times are never in one class; these come as good as at once.
fn every_rank(plan: &Plan) -> Played {
    let played = Played::late(plan, |rank| f64::from(rank.0) * 1e-30).unwrap();
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
                    let (classes, ranks) = (Played::of(&plan).unwrap(), every_rank(&plan));
                    fewer += usize::from(classes.classes() < ranks.classes());
                    for machine in [Machine::known("lassen").unwrap(), Machine::plain(1e-6, 1e-9)] {
                        let (one, all) = (classes.on(&machine).unwrap(), ranks.on(&machine).unwrap());
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

/// What a single late rank delays: those who need something from it, and only by as much.
#[test]
fn who_comes_late_delays_those_who_wait_for_it() {
    let task = Task::new(Collective::Allgather, "8x1".parse().unwrap()).bytes(8);
    let plan = plan(&task, &"bruck(2)".parse().unwrap()).unwrap();
    let machine = Machine::plain(1e-6, 0.0);
    let late = Played::late(&plan, |rank| if rank == Rank(3) { 5e-6 } else { 0.0 }).unwrap();
    let outcome = late.on(&machine).unwrap();
    assert!((outcome.last() - 8e-6).abs() < 1e-12, "{}", outcome.last());
    // The rank itself finds all else there, and has only its own rounds to go through.
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
        assert_eq!(Played::of(&plan).unwrap().classes(), classes, "{algorithm}");
    }
}

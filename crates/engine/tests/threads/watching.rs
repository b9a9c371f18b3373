//! Online tuning and calibration: results stay right, ranks stay together, and order-sensitive reductions keep their algorithm.

use crate::common::{Collective, SUM_OF_FLOATS, Type, perform, perform_anew, profile};
use bruckner_choose::Name;
use bruckner_engine::EntryPoint;
use bruckner_engine::backend::Communicators as _;
use bruckner_engine::mpi::Function;
use bruckner_threads::{Options, run};

/// Returns an allgather of `count` numbers for each rank.
fn gather(count: usize) -> Collective {
    Collective { function: Function::Allgather, of: Type::I64, count, ..SUM_OF_FLOATS }
}

fn settings(text: &str) -> Options {
    Options { settings: text.to_owned(), ..Options::default() }
}

/// Results stay right for calls of several kinds and sizes, each repeated until it is tuned, on one node and on several, with late ranks.
#[test]
fn results_stay_right() {
    for topology in ["1x4", "2x2", "3,1"] {
        run(
            topology,
            |_| settings("BRUCKNER_AFTER=0"),
            |engine, rank| {
                let world = rank.comm_world();
                for call in 0..700u64 {
                    if rank.number() == 0 && call % 97 == 0 {
                        std::thread::sleep(std::time::Duration::from_micros(300));
                    }
                    let count = [1, 2, 300][call as usize % 3];
                    perform(engine, rank, world, &gather(count), call, EntryPoint::Mpi);
                    let sum = Collective { of: Type::I64, ..SUM_OF_FLOATS };
                    perform(engine, rank, world, &sum, call, EntryPoint::Mpi);
                }
                assert!(rank.native_calls() > 0, "the MPI's own function was never looked at");
            },
        );
    }
}

/// The two halves of the world are calibrated separately, so the world has no calibration that all ranks share, and does without one. A
/// second communicator of the same ranks uses the calibration of the first.
#[test]
fn what_was_measured_is_shared_or_left() {
    run(
        "4x2",
        |_| settings("BRUCKNER_AFTER=0"),
        |engine, rank| {
            let half = rank.split(rank.comm_world(), u32::from(rank.number() >= 4));
            perform(engine, rank, half, &gather(4), 1, EntryPoint::Api);
            perform(engine, rank, rank.comm_world(), &gather(4), 2, EntryPoint::Api);
            let again = rank.split(half, 0);
            perform(engine, rank, again, &gather(4), 3, EntryPoint::Api);
            let alone = rank.split(rank.comm_world(), rank.number());
            perform(engine, rank, alone, &gather(4), 4, EntryPoint::Api);
        },
    );
}

/// A floating-point sum keeps its first algorithm, and so does any call if online tuning is switched off.
#[test]
fn what_rounds_is_not_watched() {
    for (text, call) in [("", SUM_OF_FLOATS), ("BRUCKNER_ONLINE_TUNING=off", gather(4))] {
        run(
            "2x2",
            |_| settings(&format!("BRUCKNER_AFTER=0\n{text}")),
            |engine, rank| {
                let world = rank.comm_world();
                perform(engine, rank, world, &call, 0, EntryPoint::Mpi);
                let name = if call == SUM_OF_FLOATS { Name::Allreduce } else { Name::Allgather };
                let by = engine.algorithm_of(world, name).unwrap();
                let natives = rank.native_calls();
                for number in 0..1200 {
                    perform(engine, rank, world, &call, number, EntryPoint::Mpi);
                }
                assert_eq!(engine.algorithm_of(world, name).unwrap(), by);
                let expected = if by.as_deref() == Some("native") { natives + 1200 } else { natives };
                assert_eq!(rank.native_calls(), expected);
            },
        );
    }
}

/// A call for which there is too little memory is passed through, and later calls are handled as before: on ranks that recognise them from
/// the cache, and on one that does not. The call may also be the first of a trial.
#[test]
fn a_call_that_does_not_fit_changes_nothing_for_others() {
    let profile = profile("1x4", "allgather", &[(131_072, "bruck(2)"), (262_144, "bruck(2)")]);
    for watch in ["on", "off"] {
        // The number of earlier calls: before any trial, and so that the call is the first of a trial.
        for before in [12, 256] {
            run(
                "1x4",
                |_| Options {
                    profile: profile.clone(),
                    ..settings(&format!("BRUCKNER_AFTER=0\nBRUCKNER_MEMORY=450K\nBRUCKNER_ONLINE_TUNING={watch}"))
                },
                |engine, rank| {
                    let world = rank.comm_world();
                    let call = |count, round| match rank.number() {
                        0 => perform_anew(engine, rank, world, &gather(count), round),
                        _ => perform(engine, rank, world, &gather(count), round, EntryPoint::Mpi),
                    };
                    (0..before).for_each(|round| call(25_000, round));
                    let natives = rank.native_calls();
                    call(32_500, before);
                    assert_eq!(rank.native_calls(), natives + 1, "it was to be too much");
                    (before..before + 12).for_each(|round| call(25_000, round));
                    assert_eq!(rank.native_calls(), natives + 1);
                },
            );
        }
    }
}

/// Ranks that alternate between the fast path and the pipeline stay together through trials.
#[test]
fn looks_are_counted_on_every_way() {
    for topology in ["1x4", "2x2"] {
        run(
            topology,
            |_| settings("BRUCKNER_AFTER=0"),
            |engine, rank| {
                let world = rank.comm_world();
                for round in 0..1100u64 {
                    let count = if round % 5 == 0 { 3 } else { 4 };
                    match (round + u64::from(rank.number())) % 3 {
                        0 => perform_anew(engine, rank, world, &gather(count), round),
                        _ => perform(engine, rank, world, &gather(count), round, EntryPoint::Mpi),
                    }
                }
            },
        );
    }
}

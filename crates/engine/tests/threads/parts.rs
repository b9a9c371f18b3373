//! Compositions: a collective as two of the MPI's own collectives.

use crate::common::{Collective, Type, perform};
use bruckner_choose::Name;
use bruckner_engine::EntryPoint;
use bruckner_engine::backend::Communicators as _;
use bruckner_engine::mpi::Function;
use bruckner_threads::{Options, run};

fn settings(text: &str) -> Options {
    Options { settings: format!("BRUCKNER_AFTER=0\nBRUCKNER_ALGORITHM={text}"), ..Options::default() }
}

/// Results are right for all types, in place and not, with fewer elements than ranks and with counts that cannot be cut evenly.
#[test]
fn results_are_right() {
    for topology in ["1x2", "1x5", "2x3"] {
        for (function, name, way) in [
            (Function::Allreduce, Name::Allreduce, "native-rooted"),
            (Function::Allreduce, Name::Allreduce, "native-rsag"),
            (Function::Allgather, Name::Allgather, "native-rooted"),
        ] {
            run(
                topology,
                |_| settings(&format!("{name}={way}")),
                |engine, rank| {
                    let world = rank.comm_world();
                    let mut round = 0;
                    for of in Type::ALL {
                        for count in [1, 3, 4, 17] {
                            for in_place in [false, true] {
                                let call = Collective { in_place, ..Collective::new(function, of, count) };
                                if !call.is_defined() {
                                    continue;
                                }
                                round += 1;
                                perform(engine, rank, world, &call, round, EntryPoint::Mpi);
                                // Compositions are not used with user-defined operations.
                                let foreign = of == Type::Pair && function == Function::Allreduce;
                                let by = engine.algorithm_of(world, name).unwrap();
                                assert_eq!(by.as_deref() == Some(way), !foreign, "{by:?} {call:?}");
                            }
                        }
                    }
                },
            );
        }
    }
}

/// A composition that does not fit a collective is not used for it.
#[test]
fn what_does_not_fit_is_native() {
    run(
        "1x3",
        |_| settings("allgather=native-rooted; alltoall=native-rooted; reduce_scatter=native-rsag"),
        |engine, rank| {
            let world = rank.comm_world();
            for (round, function) in
                [Function::Allgatherv, Function::Alltoall, Function::ReduceScatter].into_iter().enumerate()
            {
                let call = Collective::new(function, Type::I64, 3);
                perform(engine, rank, world, &call, round as u64, EntryPoint::Mpi);
            }
            for name in [Name::Allgather, Name::Alltoall, Name::ReduceScatter] {
                let by = engine.algorithm_of(world, name).unwrap().unwrap();
                assert!(!by.starts_with("native-"), "{by}");
            }
        },
    );
}

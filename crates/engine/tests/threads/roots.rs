//! Collectives with a root: which ranks wait for others, and which plans are kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Collective, Type, always, perform};
use bruckner_engine::EntryPoint;
use bruckner_engine::backend::Communicators as _;
use bruckner_engine::mpi::Function;
use bruckner_threads::run;

/// Time after which a rank is taken to hang: longer than any machine takes for a few calls.
const HANGS: Duration = Duration::from_secs(100);

/// The root of a broadcast runs ahead of ranks that have not entered yet, and the other ranks of a reduce run ahead of its root: by as
/// many calls as the ring has slots.
#[test]
fn nobody_waits_for_those_from_whom_it_needs_nothing() {
    const AHEAD: u64 = 60;
    let cases = [
        ("1x3", "bcast=shm; reduce=shm"),
        ("2x2", "bcast=locality(node); reduce=locality(node)"),
        ("3,2", "bcast=leader(node, between=sparbit); reduce=leader(node, between=ring)"),
    ];
    for (topology, rules) in cases {
        let ahead = Arc::new(AtomicU32::new(0));
        run(
            topology,
            |_| always(),
            move |engine, rank| {
                let world = rank.comm_world();
                engine.set_algorithms(world, rules).unwrap();
                let others = rank.size(world).unwrap() - 1;
                let of = |function| Collective { root: 1, ..Collective::new(function, Type::I64, 5) };
                let barrier = of(Function::Barrier);
                for (function, goes_ahead, how_many) in
                    [(Function::Bcast, rank.number() == 1, 1), (Function::Reduce, rank.number() != 1, others)]
                {
                    let before = rank.native_calls();
                    perform(engine, rank, world, &of(function), 0, EntryPoint::Mpi);
                    ahead.store(0, Ordering::Relaxed);
                    perform(engine, rank, world, &barrier, 0, EntryPoint::Mpi);
                    if !goes_ahead {
                        let began = Instant::now();
                        while ahead.load(Ordering::Relaxed) < how_many {
                            assert!(began.elapsed() < HANGS, "a rank waits: {function:?}");
                            std::thread::yield_now();
                        }
                    }
                    (0..AHEAD).for_each(|round| {
                        perform(engine, rank, world, &of(function), round, EntryPoint::Mpi);
                    });
                    ahead.fetch_add(1, Ordering::Relaxed);
                    perform(engine, rank, world, &barrier, 0, EntryPoint::Mpi);
                    assert_eq!(rank.native_calls(), before, "all of it is served");
                }
            },
        );
    }
}

/// Plans of a reduce are not used for a reduce_scatter, nor plans of a broadcast for an allgather, although algorithms treat them as the
/// same collectives.
#[test]
fn a_root_has_plans_of_its_own() {
    let rules = [
        "reduce=A; reduce_scatter=A; bcast=A; allgather=A".replace('A', "locality(node, lanes=paper)"),
        "reduce=A; reduce_scatter=A; bcast=A; allgather=A".replace('A', "leader(node, between=ring, leaders=2)"),
    ];
    for topology in ["3,1,1", "4,1", "1x5"] {
        run(
            topology,
            |_| always(),
            |engine, rank| {
                for rules in &rules {
                    engine.set_algorithms(rank.comm_world(), rules).unwrap();
                    let comm = rank.split(rank.comm_world(), 0);
                    engine.set_algorithms(comm, rules).unwrap();
                    let functions = [Function::Reduce, Function::ReduceScatter, Function::Bcast, Function::Allgatherv];
                    for round in 0..40 {
                        for function in functions {
                            if rank.number() == round as u32 % 5 {
                                std::thread::sleep(Duration::from_micros(100));
                            }
                            let one = Collective { root: 2, ..Collective::new(function, Type::I64, 3) };
                            perform(engine, rank, comm, &one, round, EntryPoint::Mpi);
                        }
                    }
                    rank.comm_free(comm);
                }
            },
        );
    }
}

//! Events around collectives: communicators are made and freed, plans are kept and evicted, operations are started in any order, several
//! threads call, and ranks fail.

use std::cell::Cell;
use std::collections::VecDeque;

use crate::common::{
    Collective, Prepared, SUM_OF_FLOATS, Type, always, make, perform, perform_anew, persistent, profile,
};
use bruckner_config::ProfileFile;
use bruckner_engine::backend::{Backend as _, Communicators as _, Fault};
use bruckner_engine::mpi::Function;
use bruckner_engine::{Call, Engine, EntryPoint, Error, Name};
use bruckner_report::Report;
use bruckner_runtime::{Peer, Transport as _};
use bruckner_threads::{F64, I64, Options, SUM, ThreadRank, run};

fn all_kinds() -> [Collective; 4] {
    [
        SUM_OF_FLOATS,
        Collective::new(Function::Allgatherv, Type::I64, 2),
        Collective::new(Function::Alltoall, Type::Pair, 3),
        Collective { root: 1, ..Collective::new(Function::Bcast, Type::Gap, 9) },
    ]
}

/// The library handles calls without calling the MPI's own function.
#[test]
fn algorithms_serve() {
    run(
        "2x2",
        |_| always(),
        |engine, rank| {
            let before = rank.native_calls();
            for round in 0..20 {
                all_kinds()
                    .iter()
                    .for_each(|kind| perform(engine, rank, rank.comm_world(), kind, round, EntryPoint::Mpi));
            }
            assert_eq!(rank.native_calls(), before);
            let by = engine.algorithm_of(rank.comm_world(), Name::Allreduce).unwrap();
            assert!(by.is_some_and(|by| by != "native"));
        },
    );
}

/// By default the first calls on a communicator are passed through (BRUCKNER_AFTER) are passed through, except floating-point sums.
#[test]
fn first_calls_are_native_but_for_sums_that_round() {
    run(
        "1x3",
        |_| Options::default(),
        |engine, rank| {
            let whole = Collective { of: Type::I64, ..SUM_OF_FLOATS };
            let natives = |collective: &Collective, round| {
                let before = rank.native_calls();
                perform(engine, rank, rank.comm_world(), collective, round, EntryPoint::Mpi);
                rank.native_calls() - before
            };
            let first: Vec<u64> = (0..5).map(|round| natives(&whole, round)).collect();
            assert_eq!(first, [1, 1, 1, 0, 0]);
            let comm = rank.split(rank.comm_world(), 0);
            let before = rank.native_calls();
            perform(engine, rank, comm, &SUM_OF_FLOATS, 9, EntryPoint::Mpi);
            assert_eq!(rank.native_calls(), before);
        },
    );
}

/// A handle that is used again means another communicator.
#[test]
fn communicators_come_and_go() {
    run(
        "2x2",
        |_| always(),
        |engine, rank| {
            let mut handles = Vec::new();
            for round in 0..12u32 {
                // The halves alternate between two ways of splitting, so that the same handle has other members.
                let color = if round % 2 == 0 { rank.number() / 2 } else { rank.number() % 2 };
                let comm = rank.split(rank.comm_world(), color);
                handles.push(comm);
                for collective in all_kinds() {
                    let collective = Collective { count: collective.count + round as usize % 3, ..collective };
                    perform(engine, rank, comm, &collective, round.into(), EntryPoint::Mpi);
                    perform(engine, rank, comm, &collective, round.into(), EntryPoint::Mpi);
                }
                rank.comm_free(comm);
                // All ranks have freed the communicator before any of them makes the next one.
                perform(
                    engine,
                    rank,
                    rank.comm_world(),
                    &Collective::new(Function::Barrier, Type::Byte, 0),
                    0,
                    EntryPoint::Mpi,
                );
            }
            // Ranks 0 and 3 are first or last in each split: they get one handle for communicators of two kinds.
            if [0, 3].contains(&rank.number()) {
                assert!(handles.iter().all(|handle| *handle == handles[0]), "{handles:?}");
            }
        },
    );
}

/// Calls with fewer and with more orders of counts than an algorithm keeps plans for, each order twice.
#[test]
fn plans_are_evicted_alike() {
    run(
        "1x5",
        |_| always(),
        |engine, rank| {
            engine.set_algorithms(rank.comm_world(), "allgather=reorder(bruck(2))").unwrap();
            let mut round = 0;
            for orders in [40, 55, 60, 62, 63, 64, 65, 66, 70, 120] {
                for order in (0..orders).chain(0..orders) {
                    // Permutation number `order` of five sizes.
                    let (mut left, mut code) = ((0..5).collect::<Vec<i64>>(), order);
                    let next = |n: usize| {
                        let at = code % n;
                        code /= n;
                        left.remove(at)
                    };
                    let counts: Vec<i64> = (1..=5).rev().map(next).collect();
                    gather(engine, rank, &counts, round);
                    round += 1;
                }
            }
        },
    );
}

fn gather(engine: &Engine<ThreadRank>, rank: &ThreadRank, counts: &[i64], round: u64) {
    let me = rank.number() as usize;
    let number = |rank: usize, at: i64| (round * 100 + rank as u64 * 10 + at as u64) as i64;
    let mine: Vec<i64> = (0..counts[me]).map(|at| number(me, at)).chain([0]).collect();
    let starts: Vec<i64> = counts.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n))).collect();
    let mut all = vec![0i64; counts.iter().sum::<i64>() as usize];
    let mut lists = bruckner_engine::call::Lists::default();
    let (list, at) = (lists.keep(counts), lists.keep(&starts));
    let call = Call::allgatherv(mine.as_ptr().cast(), counts[me], I64, all.as_mut_ptr().cast(), list, at, I64);
    // SAFETY: buffers and lists are as long as the call says.
    assert_eq!(unsafe { make(engine, &call, rank.comm_world(), EntryPoint::Mpi) }, Ok(0));
    let expected: Vec<i64> = (0..counts.len()).flat_map(|r| (0..counts[r]).map(move |at| number(r, at))).collect();
    assert_eq!(all, expected);
}

/// Ranks start and await their operations in different orders, with blocking collectives in between.
#[test]
fn operations_are_started_in_opposite_orders() {
    for topology in ["1x4", "2x2", "4x1"] {
        run(
            topology,
            |_| always(),
            |engine, rank| {
                let world = rank.comm_world();
                let kinds = all_kinds();
                let operations: Vec<_> = kinds.iter().map(|kind| persistent(engine, rank, world, kind, 3)).collect();
                for round in 0..6u64 {
                    let mut order: Vec<usize> = (0..operations.len()).collect();
                    if (u64::from(rank.number()) + round) % 2 == 1 {
                        order.reverse();
                    }
                    // SAFETY: the buffers live as long as the operations.
                    order.iter().for_each(|at| unsafe { operations[*at].0.start() }.unwrap());
                    perform(engine, rank, world, &SUM_OF_FLOATS, round, EntryPoint::Api);
                    order.rotate_left(rank.number() as usize);
                    for at in order {
                        match at % 2 {
                            0 => operations[at].0.wait().unwrap(),
                            _ => while !operations[at].0.test().unwrap() {},
                        }
                        operations[at].1.check(&kinds[at], "persistent");
                    }
                }
            },
        );
    }
}

thread_local! {
    /// Number of messages that this rank has sent, and of native collectives that it has called.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// Returns the result of `what`, and the number of messages and native collectives that the engine made meanwhile.
fn leaving<R>(what: impl FnOnce() -> R) -> (R, u64) {
    let before = LEFT.get();
    let result = what();
    (result, LEFT.get() - before)
}

/// An operation takes over the plan, tags and memory of a freed one of the same kind: making it costs one agreement, which is two messages
/// among four ranks.
#[test]
fn operations_take_over_what_freed_ones_leave() {
    for topology in ["1x4", "2x2", "4x1"] {
        run(
            topology,
            |_| Options { on_leave: Some(|| LEFT.set(LEFT.get() + 1)), ..always() },
            |engine, rank| {
                let world = rank.comm_world();
                for round in 0..12 {
                    for kind in all_kinds() {
                        // Memory grows with sizes, so the first operations are the largest.
                        let kind = Collective { count: kind.count + 2 - round as usize % 3, ..kind };
                        let (made, left) = leaving(|| persistent(engine, rank, world, &kind, round));
                        assert!(round == 0 || left == 2, "{left} messages for {kind:?} on {topology}");
                        for _ in 0..2 {
                            // SAFETY: the buffers live as long as the operation.
                            unsafe { made.0.run() }.unwrap();
                            made.1.check(&kind, "taken over");
                        }
                    }
                }
            },
        );
    }
}

/// Ranks free operations at different times, and only resources that are free on all ranks are taken over. There are more operations than
/// slots, and in the end their tags are given to others.
#[test]
fn operations_are_freed_in_any_order() {
    run(
        "2x2",
        |_| Options { tags: 3000, ..always() },
        |engine, rank| {
            let world = rank.comm_world();
            let mut held = VecDeque::new();
            for round in 0..200u64 {
                let kind = all_kinds()[round as usize % 4];
                let (operation, prepared) = persistent(engine, rank, world, &kind, round);
                assert!(!operation.is_native(), "operation {round} is served");
                // SAFETY: the buffers live as long as the operation.
                unsafe { operation.start() }.unwrap();
                operation.wait().unwrap();
                prepared.check(&kind, "held");
                held.push_back((operation, prepared));
                let most = if round < 100 { 20 * rank.number() as usize + 20 } else { rank.number() as usize };
                match rank.number() % 2 {
                    0 => held.drain(..held.len().saturating_sub(most)).for_each(drop),
                    _ => held.truncate(most),
                }
            }
            drop(held);
            let rules = ["allreduce=ring", "allreduce=recursive-doubling", "allreduce=locality(node)"];
            for round in 0..150u64 {
                engine.set_algorithms(world, rules[round as usize % 3]).unwrap();
                let (operation, prepared) = persistent(engine, rank, world, &SUM_OF_FLOATS, round);
                assert!(!operation.is_native(), "operation {round} has tags");
                // SAFETY: the buffers live as long as the operation.
                unsafe { operation.run() }.unwrap();
                prepared.check(&SUM_OF_FLOATS, "others' tags");
            }
            let comm = rank.split(world, 0);
            perform(engine, rank, comm, &SUM_OF_FLOATS, 1, EntryPoint::Mpi);
            rank.comm_free(comm);
        },
    );
}

/// An operation for which a rank has no memory is the MPI's own; the next one is handled if there is memory again.
#[test]
fn memory_that_was_lacking_may_be_there_for_the_next_operation() {
    run(
        "2x2",
        |_| always(),
        |engine, rank| {
            for round in 0..6u64 {
                let fault = (rank.number() == 1 && round % 2 == 0).then_some(Fault::Memory);
                rank.set_options(|options| options.fault = fault);
                let (operation, prepared) = persistent(engine, rank, rank.comm_world(), &SUM_OF_FLOATS, round);
                assert_eq!(operation.is_native(), round == 0, "in round {round}");
                // SAFETY: the buffers live as long as the operation.
                unsafe { operation.run() }.unwrap();
                prepared.check(&SUM_OF_FLOATS, "with memory or without");
            }
        },
    );
}

/// A started operation is active until it is awaited or tested as done, even if it is already done on this rank.
#[test]
fn an_operation_is_active_until_it_is_awaited() {
    run(
        "2x2",
        |_| always(),
        |engine, rank| {
            let (operation, prepared) = persistent(engine, rank, rank.comm_world(), &SUM_OF_FLOATS, 1);
            for round in 0..6 {
                // SAFETY: the buffers live as long as the operation.
                unsafe { operation.start() }.unwrap();
                if round % 2 == 0 {
                    // The operation completes without being tested.
                    while engine.advance(false) {
                        std::thread::yield_now();
                    }
                }
                assert!(operation.is_active());
                // SAFETY: the operation is active, so both calls are refused.
                let again = [unsafe { operation.start() }, unsafe { operation.run() }];
                for refused in again {
                    assert_eq!(refused.unwrap_err().to_string(), "the plan is already active: wait for it first");
                }
                if round % 3 == 0 {
                    while !operation.test().unwrap() {}
                } else {
                    operation.wait().unwrap();
                }
                assert!(!operation.is_active());
                prepared.check(&SUM_OF_FLOATS, "once");
            }
        },
    );
}

/// An operation that is the MPI's own advances beside others.
#[test]
fn native_operations_run_beside_others() {
    run(
        "2x1",
        |_| Options::default(),
        |engine, rank| {
            let world = rank.comm_world();
            let kind = Collective::new(Function::Alltoallv, Type::I64, 3);
            let (operation, prepared) = persistent(engine, rank, world, &kind, 1);
            assert!(operation.is_native());
            for _ in 0..3 {
                // SAFETY: the buffers live as long as the operation.
                unsafe { operation.start() }.unwrap();
                perform(engine, rank, world, &SUM_OF_FLOATS, 4, EntryPoint::Api);
                operation.wait().unwrap();
                prepared.check(&kind, "native");
            }
            // A named algorithm that cannot handle the call is refused.
            let sum = Prepared::new(&SUM_OF_FLOATS, 0, rank.number() as usize, 2);
            // SAFETY: the buffers outlive the call, which is refused.
            let refused = unsafe { engine.persistent(sum.call, world, "8(1 1 1)") }.err().unwrap();
            assert!(
                refused
                    .to_string()
                    .starts_with("algorithm `8(1 1 1)` cannot handle this allreduce on this communicator"),
                "{refused}"
            );
        },
    );
}

/// Two threads of each rank run collectives, each on a communicator of its own.
#[test]
fn threads_do_not_disturb_each_other() {
    run(
        "2x2",
        |_| always(),
        |engine, rank| {
            let comms = [rank.split(rank.comm_world(), 0), rank.split(rank.comm_world(), 0)];
            std::thread::scope(|scope| {
                for (at, comm) in comms.into_iter().enumerate() {
                    scope.spawn(move || {
                        for round in 0..40 {
                            let kind = all_kinds()[(round as usize + at) % 4];
                            perform(engine, rank, comm, &kind, round, EntryPoint::Mpi);
                        }
                    });
                }
            });
        },
    );
}

/// If one rank panics while planning or lacks memory, all ranks do without the plan.
#[test]
fn a_fault_on_one_rank_is_everybodys() {
    for fault in [Fault::Plan, Fault::Memory] {
        for topology in ["1x3", "3x1", "2,1"] {
            let options = |rank| Options { fault: (rank == 1).then_some(fault), ..always() };
            run(topology, options, |engine, rank| {
                for round in 0..3 {
                    for kind in all_kinds() {
                        perform(engine, rank, rank.comm_world(), &kind, round, EntryPoint::Api);
                    }
                }
                if fault == Fault::Plan {
                    assert_eq!(
                        engine.algorithm_of(rank.comm_world(), Name::Allreduce).unwrap().as_deref(),
                        Some("native")
                    );
                }
                // A communicator without that rank works as usual.
                let comm = rank.split(rank.comm_world(), u32::from(rank.number() == 1));
                let before = rank.native_calls();
                perform(engine, rank, comm, &SUM_OF_FLOATS, 7, EntryPoint::Api);
                assert_eq!(rank.native_calls() - before, u64::from(rank.number() == 1));
            });
        }
    }
}

/// Only rank 0's settings are used.
#[test]
fn a_rank_whose_settings_differ() {
    let settings = |rank: u32| match rank {
        0 => "BRUCKNER=always\nBRUCKNER_ALGORITHM=allreduce=recursive-doubling".to_owned(),
        1 => "BRUCKNER=off".to_owned(),
        _ => "BRUCKNER_ALGORITHM=allreduce=ring".to_owned(),
    };
    run(
        "1x4",
        |rank| Options { settings: settings(rank), ..Options::default() },
        |engine, rank| {
            perform(engine, rank, rank.comm_world(), &SUM_OF_FLOATS, 1, EntryPoint::Mpi);
            let by = engine.algorithm_of(rank.comm_world(), Name::Allreduce).unwrap();
            assert_eq!(by.as_deref(), Some("recursive-doubling"));
        },
    );
}

/// An unexpected message of the user's is pending while ranks agree, plan and run.
#[test]
fn an_unexpected_message_disturbs_nobody() {
    run(
        "2x2",
        |_| always(),
        |engine, rank| {
            let own = rank.split(rank.comm_world(), 0);
            let wire = rank.wire(own, 0, true);
            let (mut requests, mut data) = (wire.requests(1), [u64::from(rank.number())]);
            let peer = |rank| Peer { rank, tag: 1 };
            if rank.number() == 3 {
                // SAFETY: the data lives until the request is finished.
                unsafe { wire.send(&mut requests, 0, data.as_ptr().cast(), 8, peer(0)) }.unwrap();
            }
            for round in 0..5 {
                all_kinds()
                    .iter()
                    .for_each(|kind| perform(engine, rank, rank.comm_world(), kind, round, EntryPoint::Mpi));
            }
            if rank.number() == 0 {
                // SAFETY: the data lives until the request is finished.
                unsafe { wire.recv(&mut requests, 0, data.as_mut_ptr().cast(), 8, peer(3)) }.unwrap();
            }
            wire.finish(&mut requests, 0..1).unwrap();
            assert_eq!(data[0], if rank.number() == 0 { 3 } else { rank.number().into() });
        },
    );
}

/// Callbacks call collectives on a communicator that is being freed; the next communicator has its handle and other ranks.
#[test]
fn nothing_is_kept_for_what_is_being_freed() {
    // Callbacks run inside the call that frees, or later, as in MPICH.
    for deferred in [false, true] {
        run(
            "2x2",
            |_| Options { settings: "BRUCKNER_AFTER=2".into(), ..Options::default() },
            |engine, rank| {
                let sum = |comm, round| perform(engine, rank, comm, &SUM_OF_FLOATS, round, EntryPoint::Mpi);
                for round in 0..12 {
                    let first = rank.split(rank.comm_world(), 0);
                    (0..round % 4).for_each(|call| sum(first, call));
                    let (before, after) = if rank.number() % 2 == 0 { (2, 5) } else { (5, 2) };
                    let natives = rank.native_calls();
                    let callbacks = || {
                        let call = |times: u64| (0..times).for_each(|_| sum(first, round));
                        rank.comm_free_with(first, || call(before), || call(after));
                    };
                    if deferred {
                        assert_eq!(engine.free(first, || 0), 0);
                        callbacks();
                    } else {
                        engine.free(first, || {
                            callbacks();
                            0
                        });
                    }
                    assert_eq!(rank.native_calls(), natives + 7, "all of them are the MPI's own");
                    let second = rank.split(rank.comm_world(), rank.number() % 2);
                    (0..6).for_each(|call| sum(second, call));
                    engine.free(second, || {
                        rank.comm_free(second);
                        0
                    });
                }
            },
        );
    }
}

/// A communicator that the MPI refuses to free is handled as before, even if only one rank has tried.
#[test]
fn what_cannot_be_freed_is_served_as_before() {
    run(
        "1x3",
        |_| always(),
        |engine, rank| {
            let call = |round| perform(engine, rank, rank.comm_world(), &SUM_OF_FLOATS, round, EntryPoint::Mpi);
            (0..3).for_each(call);
            if rank.number() == 1 {
                assert_eq!(engine.free(rank.comm_world(), || 5), 5);
            }
            let natives = rank.native_calls();
            (3..9).for_each(call);
            assert_eq!(rank.native_calls(), natives);
        },
    );
}

/// A user's callback refuses. The MPI has deleted the attributes before it, which are different ones on each rank.
#[test]
fn what_a_callback_keeps_from_being_freed_is_served_as_before() {
    run(
        "2x2",
        |_| always(),
        |engine, rank| {
            for calls in 0..6 {
                let comm = rank.split(rank.comm_world(), 0);
                let call = |round| perform(engine, rank, comm, &SUM_OF_FLOATS, round, EntryPoint::Mpi);
                (0..calls).for_each(call);
                let refused = engine.free(comm, || {
                    if rank.number() % 2 == 1 {
                        rank.detach(comm);
                    }
                    5
                });
                assert_eq!(refused, 5);
                let natives = rank.native_calls();
                (6..12).for_each(call);
                assert_eq!(rank.native_calls(), natives, "served from the first call on, as reductions that round are");
                engine.free(comm, || {
                    rank.comm_free(comm);
                    0
                });
            }
        },
    );
}

/// All ranks wait for a late rank, which is another one in each round.
#[test]
fn late_ranks_are_waited_for() {
    run(
        "2x2",
        |_| always(),
        |engine, rank| {
            for round in 0..8 {
                if round % 4 == u64::from(rank.number()) {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                all_kinds()
                    .iter()
                    .for_each(|kind| perform(engine, rank, rank.comm_world(), kind, round, EntryPoint::Mpi));
            }
        },
    );
}

/// A GPU runtime is loaded late: buffers are staged, and at the next agreement all calls are passed through from then on.
#[test]
fn device_memory_is_noticed_late() {
    run(
        "1x3",
        |_| always(),
        |engine, rank| {
            let world = rank.comm_world();
            (0..3).for_each(|round| perform(engine, rank, world, &SUM_OF_FLOATS, round, EntryPoint::Mpi));
            if rank.number() == 1 {
                rank.set_options(|options| options.device = true);
            }
            (3..6).for_each(|round| perform(engine, rank, world, &SUM_OF_FLOATS, round, EntryPoint::Mpi));
            let before = rank.native_calls();
            for (round, kind) in (6..).zip(all_kinds()) {
                perform(engine, rank, world, &kind, round, EntryPoint::Mpi);
            }
            assert!(rank.native_calls() > before);
        },
    );
}

/// When tags run out, further communicators are passed through, on all ranks.
#[test]
fn tags_run_out_for_all() {
    run(
        "1x2",
        |_| Options { tags: 2000, ..always() },
        |engine, rank| {
            let comms: Vec<u64> = (0..100).map(|_| rank.split(rank.comm_world(), 0)).collect();
            for comm in &comms {
                perform(engine, rank, *comm, &SUM_OF_FLOATS, *comm, EntryPoint::Mpi);
            }
            let served = |comm: &&u64| engine.algorithm_of(**comm, Name::Allreduce).unwrap().is_some();
            let count = comms.iter().filter(served).count();
            assert!(count > 10 && count < 100, "{count} are served");
            comms.iter().for_each(|comm| rank.comm_free(*comm));
            let again = rank.split(rank.comm_world(), 0);
            perform(engine, rank, again, &SUM_OF_FLOATS, 1, EntryPoint::Mpi);
            assert!(engine.algorithm_of(again, Name::Allreduce).unwrap().is_some());
        },
    );
}

/// Ranks that make calls of different sizes get an error, and none hangs.
#[test]
fn different_sizes_are_an_error() {
    run(
        "1x3",
        |_| always(),
        |engine, rank| {
            let (mine, mut sum) = ([1.0f64; 9], [0.0f64; 9]);
            let count = if rank.number() == 2 { 9 } else { 4 };
            let call = Call::allreduce(mine.as_ptr().cast(), sum.as_mut_ptr().cast(), count, F64, SUM);
            // SAFETY: the buffers are as long as the call says.
            let result = unsafe { engine.run(&call, rank.comm_world(), EntryPoint::Api) };
            assert!(matches!(result, Err(Error::Mpi(_))), "{result:?}");
            perform(engine, rank, rank.comm_world(), &SUM_OF_FLOATS, 1, EntryPoint::Api);
        },
    );
}

/// Returns the report of a run on two nodes of two ranks.
fn reported(name: &str, settings: &str, body: impl Fn(&Engine<ThreadRank>, &'static ThreadRank) + Sync) -> Report {
    let file = std::env::temp_dir().join(format!("bruckner-{name}-{}.json", std::process::id()));
    let settings = format!("{settings}\nBRUCKNER_REPORT={}", file.display());
    run("2x2", |_| Options { settings: settings.clone(), ..Options::default() }, body);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    Report::read(&text).unwrap()
}

/// Every call is compared with the native result, and counted.
#[test]
fn results_are_compared_and_reported() {
    let report = reported("compared", "BRUCKNER=always\nBRUCKNER_CHECK=1", |engine, rank| {
        for round in 0..3 {
            all_kinds().iter().for_each(|kind| perform(engine, rank, rank.comm_world(), kind, round, EntryPoint::Mpi));
        }
    });
    assert_eq!((report.calls, report.handled), (12, 12));
    let checks = &report.communicators[0].checks;
    assert_eq!((checks.compared, checks.differed), (12, 0));
}

/// If the library is switched off, calls are still counted, and sampled calls begin with a barrier that measures waiting.
#[test]
fn what_is_off_is_counted() {
    let report = reported("off", "BRUCKNER=off", |engine, rank| {
        engine.init().unwrap();
        (0..200).for_each(|round| {
            perform(engine, rank, rank.comm_world(), &SUM_OF_FLOATS, round, EntryPoint::Mpi);
        });
    });
    assert_eq!((report.calls, report.handled, report.mode.as_str()), (200, 0, "off"));
    let spent = report.in_collectives.unwrap();
    assert!(spent.waiting.is_some_and(|waiting| waiting <= spent.mean), "{spent:?}");
}

/// Functions that bypass the engine by default are not handled if calls are counted, either; with `BRUCKNER=always` they are.
#[test]
fn what_is_left_alone_would_not_be_served() {
    for function in [Function::Bcast, Function::Reduce, Function::Alltoallv] {
        for mode in ["on", "always"] {
            let report = reported(&format!("{function:?}"), &format!("BRUCKNER={mode}"), |engine, rank| {
                // The first kind of call makes the library handle the communicator.
                for kind in [SUM_OF_FLOATS, Collective::new(function, Type::I64, 3)] {
                    (0..20).for_each(|round| {
                        perform(engine, rank, rank.comm_world(), &kind, round, EntryPoint::Mpi);
                    });
                }
            });
            let rows = report.communicators[0].rows.iter().filter(|row| row.collective != "allreduce");
            let served = rows.filter(|row| row.algorithm != "native").map(|row| row.calls).sum::<u64>();
            assert_eq!((report.calls, served), (40, if mode == "on" { 0 } else { 20 }), "{function:?}");
        }
    }
}

/// The report says so if a named algorithm cannot be planned, for any algorithm that is used instead.
#[test]
fn what_was_asked_for_and_does_not_fit_is_told() {
    for (name, mode) in [("unfit-on", "on"), ("unfit-always", "always")] {
        let settings =
            format!("BRUCKNER={mode}\nBRUCKNER_AFTER=0\nBRUCKNER_ALGORITHM=allgather=reorder(recursive-halving)");
        let report = reported(name, &settings, |engine, rank| {
            let call = Collective::new(Function::Allgather, Type::I64, 3);
            (0..20).for_each(|round| perform(engine, rank, rank.comm_world(), &call, round, EntryPoint::Mpi));
        });
        let why =
            "`reorder(recursive-halving)` was selected by the user, but cannot be planned for this communicator; ";
        let rows = &report.communicators[0].rows;
        assert!(!rows.is_empty() && rows.iter().all(|row| row.reason.matches(why).count() == 1), "{rows:?}");
    }
}

/// Each execution of an operation is counted once, however the program learns that it is done; further tests and waits are not counted.
#[test]
fn executions_of_operations_are_counted() {
    let report = reported("operations", "BRUCKNER=always", |engine, rank| {
        let (operation, prepared) = persistent(engine, rank, rank.comm_world(), &SUM_OF_FLOATS, 1);
        for _ in 0..3 {
            // SAFETY: the buffers live as long as the operation.
            unsafe { operation.start() }.unwrap();
            operation.wait().unwrap();
            operation.wait().unwrap();
            // SAFETY: the buffers live as long as the operation.
            unsafe { operation.start() }.unwrap();
            while !operation.test().unwrap() {}
            assert!(operation.test().unwrap());
            // SAFETY: the buffers live as long as the operation.
            unsafe { operation.run() }.unwrap();
            prepared.check(&SUM_OF_FLOATS, "counted");
        }
    });
    assert_eq!((report.calls, report.handled), (9, 9));
    let [row] = &report.communicators[0].rows[..] else { panic!("{report:?}") };
    assert!(row.persistent && row.collective == "allreduce" && row.algorithm != "native", "{row:?}");
    assert!(row.bytes > 0 && row.seconds > 0.0, "{row:?}");
    // An execution that begins and ends in one call is time in collectives.
    assert!(report.in_collectives.unwrap().least > 0.0);
}

/// Counts that can be cut evenly and others alternate, on ranks that recognise calls from the cache and on ranks that do not.
#[test]
fn counts_in_turn_are_cut_alike_on_all_ranks() {
    for algorithm in ["shm-rotate", "pipeline(3, recursive-doubling)", "rabenseifner"] {
        run(
            "1x4",
            |_| Options {
                settings: format!("BRUCKNER_AFTER=0\nBRUCKNER_ALGORITHM=allreduce={algorithm}"),
                ..Options::default()
            },
            |engine, rank| {
                let world = rank.comm_world();
                for round in 0..400u64 {
                    let count = 600 - (round as usize * 7) % 90;
                    let call = Collective { count, ..SUM_OF_FLOATS };
                    match (round + u64::from(rank.number())) % 3 {
                        0 => perform_anew(engine, rank, world, &call, round),
                        _ => perform(engine, rank, world, &call, round, EntryPoint::Mpi),
                    }
                }
                let by = engine.algorithm_of(world, Name::Allreduce).unwrap();
                assert_eq!(by.as_deref(), Some(algorithm));
            },
        );
    }
}

/// Lists of counts of all kinds alternate, on ranks that recognise calls from the cache and on ranks that do not: with empty blocks, with
/// gaps between blocks, in place, and for algorithms that order ranks by their counts, or cut blocks.
#[test]
fn lists_in_turn_are_served_alike_on_all_ranks() {
    let algorithms = [
        ("1x4", "allgather=shm; reduce_scatter=shm"),
        ("1x4", "allgather=reorder(ring); reduce_scatter=reorder(ring)"),
        ("2x2", "allgather=locality(node); reduce_scatter=pairwise"),
        ("2x2", "allgather=pipeline(2, ring); reduce_scatter=pipeline(2, ring)"),
        ("3,2", "allgather=native; reduce_scatter=native"),
        ("3,2", "allgather=bruck(2); reduce_scatter=bruck(2)"),
    ];
    for (topology, algorithms) in algorithms {
        run(
            topology,
            |_| Options {
                settings: format!("BRUCKNER_AFTER=0\nBRUCKNER_ALGORITHM={algorithms}"),
                ..Options::default()
            },
            |engine, rank| {
                let world = rank.comm_world();
                for round in 0..600u64 {
                    let function = [Function::Allgatherv, Function::ReduceScatter][(round / 2) as usize % 2];
                    let count = (round as usize * 5) % 17;
                    let in_place = round % 7 < 2;
                    let call = Collective { in_place, ..Collective::new(function, Type::I64, count) };
                    match (round + u64::from(rank.number())) % 3 {
                        0 => perform_anew(engine, rank, world, &call, round),
                        _ => perform(engine, rank, world, &call, round, EntryPoint::Mpi),
                    }
                }
            },
        );
    }
}

/// A cached zero-byte call is passed through if it is intercepted, and handled if it is made by the library's own API.
#[test]
fn calls_of_nothing_go_by_the_door_that_they_come_in_by() {
    run(
        "1x4",
        |_| always(),
        |engine, rank| {
            let world = rank.comm_world();
            for function in [Function::Allreduce, Function::Allgather, Function::Allgatherv] {
                let of = |count| Collective::new(function, Type::I64, count);
                (0..3).for_each(|round| perform(engine, rank, world, &of(4), round, EntryPoint::Mpi));
                (0..2).for_each(|round| perform_anew(engine, rank, world, &of(0), round));
                let nothing = Prepared::new(&of(0), 0, rank.number() as usize, 4);
                assert!(engine.is_cached_native(&nothing.call, world), "{function:?}");
                // SAFETY: the buffers are as long as the call says.
                assert!(unsafe { engine.run_cached(&nothing.call, world) }.is_none(), "{function:?}");
                // Calls with data are handled as before.
                let some = Prepared::new(&of(4), 0, rank.number() as usize, 4);
                assert!(!engine.is_cached_native(&some.call, world), "{function:?}");
            }
        },
    );
}

/// A call of a dense user-defined datatype is recognised by its number of bytes, with any datatype. One with gaps is not, even if a call
/// with as many bytes of another datatype came before.
#[test]
fn types_of_the_users_take_the_short_way() {
    run(
        "1x4",
        |_| Options { settings: "BRUCKNER=always\nBRUCKNER_ALGORITHM=alltoall=native".into(), ..always() },
        |engine, rank| {
            let (world, me) = (rank.comm_world(), rank.number() as usize);
            for function in [Function::Allgather, Function::Bcast, Function::Alltoall] {
                let of = |of, count| Collective { root: 1, ..Collective::new(function, of, count) };
                perform(engine, rank, world, &of(Type::Pair, 6), 0, EntryPoint::Mpi);
                for (round, (kind, count)) in
                    [(Type::Pair, 6), (Type::Gap, 12), (Type::Pair, 5), (Type::Byte, 64), (Type::Gap, 8)]
                        .into_iter()
                        .enumerate()
                {
                    let collective = of(kind, count);
                    let prepared = Prepared::new(&collective, round as u64, me, 4);
                    let natives = rank.native_calls();
                    // SAFETY: the buffers are as long as the call says.
                    let again = unsafe { engine.run_cached(&prepared.call, world) };
                    let native = function == Function::Alltoall;
                    assert_eq!(rank.native_calls() - natives, u64::from(native), "{collective:?}");
                    match kind == Type::Gap && !native {
                        true => assert!(again.is_none(), "{collective:?}"),
                        false => {
                            assert!(matches!(again, Some(Ok(0))), "{collective:?} {again:?}");
                            prepared.check(&collective, "again");
                        }
                    }
                    perform(engine, rank, world, &collective, round as u64, EntryPoint::Mpi);
                }
            }
        },
    );
}

/// Two lists with the same largest count may need different amounts of memory.
#[test]
fn lists_in_turn_have_the_room_that_they_need() {
    for (topology, algorithm) in [("1x4", "shm"), ("2x2", "bruck(2)"), ("2x2", "locality(node)")] {
        run(
            topology,
            |_| always(),
            |engine, rank| {
                engine.set_algorithms(rank.comm_world(), &format!("allgather={algorithm}")).unwrap();
                let mut lists = [[0i64; 4]; 6];
                lists[1..].iter_mut().enumerate().for_each(|(at, list)| list[..at].fill(5000));
                lists.iter_mut().for_each(|list| list[3] = 5000);
                for (round, counts) in lists.iter().chain(&lists).enumerate() {
                    gather(engine, rank, counts, round as u64);
                }
            },
        );
    }
}

/// The cache recognises a call with lists of any counts, unless blocks have gaps or arguments are invalid.
#[test]
fn lists_take_the_short_way() {
    run(
        "1x4",
        |_| always(),
        |engine, rank| {
            let (world, me) = (rank.comm_world(), rank.number() as usize);
            // A new plan clears the cache, so each function is called once first.
            for function in [Function::ReduceScatter, Function::Allgatherv] {
                let of = |count| Collective::new(function, Type::I64, count);
                perform(engine, rank, world, &of(42), 0, EntryPoint::Mpi);
                for (round, count) in [42, 40, 6, 42, 38].into_iter().enumerate() {
                    let prepared = Prepared::new(&of(count), round as u64, me, 4);
                    // SAFETY: buffers and lists are as long as the call says.
                    let again = unsafe { engine.run_cached(&prepared.call, world) };
                    assert!(matches!(again, Some(Ok(0))), "{function:?} {count} {again:?}");
                    prepared.check(&of(count), "again");
                }
            }
            let apart = Prepared::new(&Collective::new(Function::Allgatherv, Type::I64, 41), 0, me, 4);
            // SAFETY: buffers and lists are as long as the call says.
            assert!(unsafe { engine.run_cached(&apart.call, world) }.is_none());
            let (given, mut got) = ([7i64; 16], [0i64; 64]);
            let mut lists = bruckner_engine::call::Lists::default();
            let mut call = |counts: [i64; 4], at: [i64; 4], given_count: i64| {
                let (counts, at) = (lists.keep(&counts), lists.keep(&at));
                let got = got.as_mut_ptr().cast();
                Call::allgatherv(given.as_ptr().cast(), given_count, I64, got, counts, at, I64)
            };
            let wrong = [
                call([9; 4], [0, 9, 18, 27], 10),
                call([9; 4], [0, 9, 18, 27], -9),
                call([9, 9, -9, 9], [0, 9, 18, 9], 9),
                call([9; 4], [0, 18, 9, 27], 9),
                call([9; 4], [1, 10, 19, 28], 9),
            ];
            for call in wrong {
                // SAFETY: lists have one number for each rank, and the cache refuses the call before it accesses a buffer.
                assert!(unsafe { engine.run_cached(&call, world) }.is_none(), "{call:?}");
            }
            let right = call([9; 4], [0, 9, 18, 27], 9);
            // SAFETY: buffers and lists are as long as the call says.
            assert!(matches!(unsafe { engine.run_cached(&right, world) }, Some(Ok(0))));
            assert!(got.iter().enumerate().all(|(at, got)| *got == if at < 36 { 7 } else { 0 }), "{got:?}");
        },
    );
}

/// A tuning result in the profile is used on communicators of its topology at the sizes that were measured. An invalid line is reported
/// and ignored.
#[test]
fn a_profile_counts() {
    let profile = profile("1x4", "allreduce", &[(8, "rabenseifner"), (32, "rabenseifner"), (64, "rnig")]);
    run(
        "1x4",
        |rank| Options {
            profile: if rank == 0 { profile.clone() } else { ProfileFile::Missing },
            ..Options::default()
        },
        |engine, rank| {
            let world = rank.comm_world();
            let by = || engine.algorithm_of(world, Name::Allreduce).unwrap().unwrap();
            for count in [1, 2, 4] {
                perform(engine, rank, world, &Collective { count, ..SUM_OF_FLOATS }, 1, EntryPoint::Api);
                assert_eq!(by(), "rabenseifner");
            }
            perform(engine, rank, world, &SUM_OF_FLOATS, 2, EntryPoint::Api);
            assert_ne!(by(), "rabenseifner");
            let told = engine.findings().unwrap().complaints;
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].starts_with("p.toml, line 14: `rnig`: "), "{told:?}");
        },
    );
}

/// Algorithms and the topology can be changed between calls.
#[test]
fn what_is_chosen_can_be_changed() {
    run(
        "1x4",
        |_| Options::default(),
        |engine, rank| {
            let world = rank.comm_world();
            let by = || engine.algorithm_of(world, Name::Allreduce).unwrap().unwrap();
            perform(engine, rank, world, &SUM_OF_FLOATS, 1, EntryPoint::Api);
            assert_eq!(by(), "shm");
            engine.set_topology(world, "2x2").unwrap();
            perform(engine, rank, world, &SUM_OF_FLOATS, 2, EntryPoint::Api);
            // On two nodes of two ranks, recursive doubling is nearly as good as the best algorithm, so native is used.
            assert_eq!(by(), "native");
            engine.set_algorithms(world, "allreduce=rabenseifner").unwrap();
            perform(engine, rank, world, &SUM_OF_FLOATS, 3, EntryPoint::Api);
            assert_eq!(by(), "rabenseifner");
            let wrong = engine.set_algorithms(world, "allreduce=rnig").unwrap_err();
            assert!(wrong.to_string().starts_with("`allreduce=rnig`"));
            assert!(engine.set_topology(world, "3x3").is_err());
        },
    );
}

/// The algorithm `direct` gives the same results whether or not ranks may read each other's memory.
#[test]
fn reads_can_be_forbidden() {
    for (setting, reads) in [("", true), ("BRUCKNER_READ=off", false)] {
        let settings = format!("BRUCKNER=always\nBRUCKNER_ALGORITHM=allreduce=direct;alltoall=direct\n{setting}");
        run(
            "1x4",
            |_| Options { settings: settings.clone(), ..Options::default() },
            |engine, rank| {
                let world = rank.comm_world();
                assert_eq!(engine.findings().unwrap().reads, reads);
                for round in 0..5 {
                    all_kinds().iter().for_each(|kind| perform(engine, rank, world, kind, round, EntryPoint::Mpi));
                }
                for name in [Name::Allreduce, Name::Alltoall] {
                    assert_eq!(engine.algorithm_of(world, name).unwrap().as_deref(), Some("direct"));
                }
            },
        );
    }
}

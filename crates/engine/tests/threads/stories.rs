//! Random sequences of steps: communicators are made and freed, collectives of every kind are called and started on them, ranks are late,
//! and all results must be right. A sequence that fails is shrunk to the shortest one that fails.

use std::time::Duration;

use crate::common::{Collective, Type, perform, persistent};
use bruckner_engine::backend::{Communicators as _, Fault};
use bruckner_engine::mpi::Function;
use bruckner_engine::{Engine, EntryPoint};
use bruckner_threads::{Options, ThreadRank, run};
use proptest::prelude::*;
use proptest::sample::select;

/// The next step of all ranks. Communicators are given by their index among those that exist.
#[derive(Clone, Debug)]
enum Step {
    Call {
        comm: usize,
        collective: Collective,
        api: bool,
    },
    /// Several operations at once; every second rank starts them in reverse order, and each rank awaits them in another order.
    Together {
        comm: usize,
        collectives: Vec<Collective>,
        executions: usize,
        /// Ranks, as bits, that free the operations only after the next `Together` step has made its own.
        hold: u32,
    },
    Split {
        comm: usize,
        colors: u32,
    },
    /// Frees a communicator while callbacks of the user's attributes call collectives on it or on the world. Some attributes are deleted
    /// before the engine's and some after it; which ones differs between ranks.
    Free {
        comm: usize,
        calls: (usize, usize),
        collective: Collective,
        on_world: bool,
    },
    /// Injects a fault on a rank from now on, or removes it.
    Fault {
        rank: u32,
        fault: Option<Fault>,
    },
    /// A rank loads a GPU runtime.
    Device {
        rank: u32,
    },
    /// A rank is delayed before its next step.
    Late {
        rank: u32,
        micros: u64,
    },
    Algorithms {
        comm: usize,
        rules: &'static str,
    },
}

fn collective() -> impl Strategy<Value = Collective> {
    let (functions, types) = (select(Function::ALL.to_vec()), select(Type::ALL.to_vec()));
    let counts = prop_oneof![3 => 0usize..4, 2 => 4usize..20, 1 => 20usize..300];
    let made = (functions, types, counts, any::<bool>(), 0u32..9, any::<bool>());
    made.prop_map(|(function, of, count, in_place, root, maximum)| Collective {
        function,
        of,
        count,
        in_place,
        root,
        maximum,
    })
    .prop_filter("it must mean something", Collective::is_defined)
}

fn step() -> impl Strategy<Value = Step> {
    let rules = [
        "bcast=locality(node); reduce=leader(node, between=sparbit)",
        "bcast=lanes(node, between=ring); reduce=locality(node); allreduce=leader(node, between=ring)",
        "allreduce=recursive-doubling; allgather=ring; alltoall=bruck(2); bcast=ring",
        "allreduce=rabenseifner; allgather=reorder(bruck(2)); reduce_scatter=ring; reduce=ring",
        "allreduce=pipeline(3, recursive-doubling); allgather=leader(node, between=ring); alltoall=leader(node, between=pairwise)",
        "allreduce=lanes(node, between=ring); allgather=lanes(node, between=sparbit); reduce_scatter=lanes(node, between=ring)",
    ];
    prop_oneof![
        8 => (0usize..4, collective(), any::<bool>()).prop_map(|(comm, collective, api)| Step::Call { comm, collective, api }),
        3 => (0usize..4, prop::collection::vec(collective(), 1..4), 1usize..3, any::<u32>())
            .prop_map(|(comm, collectives, executions, hold)| Step::Together { comm, collectives, executions, hold }),
        2 => (0usize..4, 1u32..3).prop_map(|(comm, colors)| Step::Split { comm, colors }),
        2 => (1usize..4, 0usize..4, 0usize..6, collective(), any::<bool>()).prop_map(|(comm, before, after, collective, on_world)|
            Step::Free { comm, calls: (before, after), collective, on_world }),
        1 => (0u32..4, select(vec![None, Some(Fault::Plan), Some(Fault::Memory)]))
            .prop_map(|(rank, fault)| Step::Fault { rank, fault }),
        1 => (0u32..9).prop_map(|rank| Step::Device { rank }),
        1 => (0u32..9, 1u64..2000).prop_map(|(rank, micros)| Step::Late { rank, micros }),
        1 => (0usize..4, select(rules.to_vec())).prop_map(|(comm, rules)| Step::Algorithms { comm, rules }),
    ]
}

/// Runs a sequence of steps on one rank.
fn play(engine: &Engine<ThreadRank>, rank: &'static ThreadRank, steps: &[Step]) {
    let mut comms = vec![rank.comm_world()];
    let mut held = Vec::new();
    for (round, step) in steps.iter().enumerate() {
        let round = round as u64;
        match step {
            Step::Call { comm, collective, api } => {
                let entry_point = if *api { EntryPoint::Api } else { EntryPoint::Mpi };
                perform(engine, rank, comms[comm % comms.len()], collective, round, entry_point);
            }
            Step::Together { comm, collectives, executions, hold } => {
                let comm = comms[comm % comms.len()];
                let made: Vec<_> =
                    collectives.iter().map(|collective| persistent(engine, rank, comm, collective, round)).collect();
                for execution in 0..*executions {
                    let mut order: Vec<usize> = (0..made.len()).collect();
                    if (rank.number() as usize + execution) % 2 == 1 {
                        order.reverse();
                    }
                    // All ranks start the MPI's own collectives in the same order.
                    order.sort_by_key(|at| if made[*at].0.is_native() { 1 + at } else { 0 });
                    for at in &order {
                        // The first execution of an in-place collective overwrites its input.
                        if execution == 0 || !collectives[*at].in_place {
                            // SAFETY: the buffers live as long as the operations.
                            unsafe { made[*at].0.start() }.unwrap();
                        }
                    }
                    order.rotate_left(rank.number() as usize % made.len());
                    for at in order {
                        made[at].0.wait().unwrap();
                        made[at].1.check(&collectives[at], "together");
                    }
                }
                let holds = hold >> rank.number() & 1 == 1;
                held.clear();
                held.extend(made.into_iter().filter(|_| holds));
            }
            Step::Split { comm, colors } => {
                let from = comms[comm % comms.len()];
                let made = rank.split(from, rank.number() % colors);
                if comms.len() < 4 {
                    comms.push(made);
                } else {
                    rank.comm_free(made);
                }
            }
            Step::Free { comm, calls, collective, on_world } => {
                if *comm < comms.len() {
                    let ends = comms.remove(*comm);
                    let on = if *on_world { rank.comm_world() } else { ends };
                    let call = |times: usize| {
                        (0..times).for_each(|_| perform(engine, rank, on, collective, round, EntryPoint::Mpi));
                    };
                    let swapped = rank.number() % 2 == 1;
                    let (before, after) = if swapped { (calls.1, calls.0) } else { *calls };
                    let freed = engine.free(ends, || {
                        rank.comm_free_with(ends, || call(before), || call(after));
                        0
                    });
                    assert_eq!(freed, 0);
                }
            }
            Step::Fault { rank: on, fault } => {
                if rank.number() == *on {
                    rank.set_options(|options| options.fault = *fault);
                }
            }
            Step::Device { rank: on } => {
                if rank.number() == *on {
                    rank.set_options(|options| options.device = true);
                }
            }
            Step::Late { rank: late, micros } => {
                if rank.number() == *late {
                    std::thread::sleep(Duration::from_micros(*micros));
                }
            }
            Step::Algorithms { comm, rules } => {
                engine.set_algorithms(comms[comm % comms.len()], rules).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_time: 30_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_story_ends_well(
        topology in select(vec!["1x2", "2x1", "1x3", "2x2", "2x2:cyclic", "3,1", "2,2,1", "2x3"]),
        settings in select(vec!["", "BRUCKNER=always", "BRUCKNER=always\nBRUCKNER_SHM=off", "BRUCKNER_AFTER=1\nBRUCKNER_CHECK=2"]),
        steps in prop::collection::vec(step(), 1..25),
    ) {
        let options = |_| Options { settings: settings.to_owned(), ..Options::default() };
        run(topology, options, |engine, rank| play(engine, rank, &steps));
    }
}

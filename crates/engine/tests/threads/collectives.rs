//! Tests of all collectives through the whole engine, with ranks as threads and without an MPI.

use crate::common::{Collective, Type, always, perform};
use bruckner_engine::EntryPoint;
use bruckner_engine::backend::Communicators as _;
use bruckner_engine::mpi::Function;
use bruckner_threads::run;

/// Runs every function with every type, out of place and in place, with some sizes and roots, each three times: planned, recognised by the
/// cache, and with another size.
fn everything(topology: &str) {
    run(
        topology,
        |_| always(),
        |engine, rank| {
            let (world, mut round) = (rank.comm_world(), 0);
            for function in Function::ALL {
                for of in Type::ALL {
                    for in_place in [false, true] {
                        for (count, root, maximum) in [(1, 0, false), (3, 1, true), (0, 0, false), (70, 2, false)] {
                            let collective = Collective { function, of, count, in_place, root, maximum };
                            if !collective.is_defined() {
                                continue;
                            }
                            for more in [0, 0, 1] {
                                let collective = Collective { count: count + more, ..collective };
                                let entry_point = if round % 2 == 0 { EntryPoint::Api } else { EntryPoint::Mpi };
                                perform(engine, rank, world, &collective, round, entry_point);
                                round += 1;
                            }
                        }
                    }
                }
            }
        },
    );
}

macro_rules! on {
    ($($name:ident = $topology:literal),* $(,)?) => {$(
        #[test]
        fn $name() {
            everything($topology);
        }
    )*};
}

on! {
    one_rank = "1x1",
    two_ranks = "1x2",
    two_nodes = "2x1",
    three_ranks = "1x3",
    four_cyclic = "2x2:cyclic",
    five_uneven = "3,2",
    six_permuted = "2x3:permuted=7",
    seven_uneven = "4,2,1",
    eight_on_two_levels = "2x2x2",
    nine_ranks = "3x3",
}

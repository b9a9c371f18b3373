//! Additional work of MPIs' implementations of an algorithm, besides the messages, copies and reductions of ours. The sources are those of
//! Open MPI 4.1 (`ompi/mca/coll/base`), from which the authors of the measurements copied most of their own code.

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_schedule::Collective;

/// Size from which the C library takes memory from the kernel at each allocation (`M_MMAP_THRESHOLD`, at most 32 MiB), so that each call
/// faults every page.
pub(super) const NEW_PAGES_FROM: u64 = 32 << 20;

/// Least size from which it may do so (`DEFAULT_MMAP_THRESHOLD`, which the C library raises as it sees larger allocations).
pub(super) const LEAST_NEW_PAGES_FROM: u64 = 128 << 10;

/// Additional work of an implementation.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Additional {
    /// Parts of the vector that it copies; negative if it copies less than ours.
    pub(super) copied: f64,
    /// Size of the temporary memory that it allocates and touches in each call, as a part of the vector.
    pub(super) allocated: f64,
}

/// Returns the additional work of an algorithm among `ranks` ranks.
pub(super) fn additional(collective: Collective, algorithm: &Expression, ranks: u32) -> Additional {
    let Expression::Plain(plain) = algorithm else {
        return match collective {
            // `coll_base_allgather.c`: two copies rotate the blocks at the end.
            Collective::Allgather => Additional { copied: 2.0, allocated: 1.0 },
            // `coll_base_alltoall.c`: rotations, and a packed buffer.
            _ => Additional { copied: 1.0, allocated: 1.0 },
        };
    };
    let allocated = match (collective, plain) {
        // `coll_base_allreduce.c`: a copy of the vector.
        (Collective::Allreduce, Plain::RecursiveDoubling) => 1.0,
        // Half of the buffer receives the first message.
        (Collective::Allreduce, Plain::Rabenseifner) => 0.5,
        // `coll_base_reduce_scatter.c`: a copy of the vector, and a buffer for what is received.
        (Collective::ReduceScatter, Plain::RecursiveHalving | Plain::RecursiveDoubling) => 1.5,
        (Collective::ReduceScatter, Plain::Ring) => 1.0,
        _ => 0.0,
    };
    // Ours copies the vector before each exchange; Open MPI exchanges the roles of two buffers.
    let rounds = f64::from(ranks.next_power_of_two().ilog2());
    let swaps = collective == Collective::Allreduce && *plain == Plain::RecursiveDoubling;
    Additional { copied: if swaps { -rounds } else { 0.0 }, allocated }
}

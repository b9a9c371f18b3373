//! Kinds of calls: the parameters by which algorithms are selected, with message sizes grouped into ranges.

use bruckner_schedule::{Collective, Order, Problem};

use crate::name::Name;

/// The parameters of a call by which an algorithm is selected. Equal on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Collective that the program called.
    pub name: Name,
    /// Collective operation with its counts, element size and reduction order.
    pub problem: &'a Problem,
    /// Whether the result may depend on the order of operands although the operation is commutative, as in a floating-point sum.
    pub is_order_sensitive: bool,
}

impl Question<'_> {
    /// Returns the bytes of the largest block, or of the vector in an allreduce.
    pub fn bytes(&self) -> u64 {
        self.problem.largest_block() * u64::from(self.problem.element)
    }
}

/// Message size of a call, as far as it matters for selecting an algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SizeClass {
    /// Index of a size range in the decision table of the collective (see [`DecisionTables`](crate::DecisionTables)).
    Range(u16),
    /// Size of a call in which each rank has its own count and the total in bytes exceeds a C integer, if the MPI has no functions for
    /// larger counts.
    Beyond,
}

/// A class of calls that are handled alike: the parameters of a call, with a size range instead of the exact size. Equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Kind {
    /// Collective that the program called.
    pub name: Name,
    /// Collective by which algorithms implement the call: a broadcast, for example, is an allgather in which only the root has data.
    pub collective: Collective,
    /// Whether operands may be reduced in any order or only in rank order.
    pub order: Order,
    /// Whether the result may depend on the order of operands although the operation is commutative.
    pub shows_order: bool,
    /// Whether each rank knows only its own message sizes, as in `MPI_Alltoallv`.
    pub local: bool,
    /// Size range to which the call's message size belongs.
    pub size: SizeClass,
}

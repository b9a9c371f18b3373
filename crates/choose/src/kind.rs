//! Kinds of calls: all that algorithms are chosen by, with sizes in classes.

use bruckner_schedule::{Collective, Order, Problem};

use crate::name::Name;

/// What all ranks share of a call, as far as algorithms are chosen by it.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The collective.
    pub name: Name,
    /// What is to be done.
    pub problem: &'a Problem,
    /// Whether the order of operands may show in the result, though the operation is commutative.
    pub shows_order: bool,
}

impl Question<'_> {
    /// Bytes of the largest block, or of the vector.
    pub fn bytes(&self) -> u64 {
        self.problem.largest() * u64::from(self.problem.element)
    }
}

/// How much data a call has, as far as algorithms are chosen by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Size {
    /// Of the classes that the [menu](crate::Menus) of its collective has, this one.
    Class(u16),
    /// More than the MPI has a function for.
    Beyond,
}

/// A call without its size. Equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Kind {
    /// The collective.
    pub name: Name,
    /// What it is to algorithms.
    pub collective: Collective,
    /// Whether operands may be reduced in any order.
    pub order: Order,
    /// Whether the order of operands may show in the result.
    pub shows_order: bool,
    /// Whether each rank knows only its own sizes.
    pub local: bool,
    /// How much data there is.
    pub size: Size,
}

//! A selected algorithm, and the user's settings for the selection.

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;

use crate::reason::Reason;

/// A selected algorithm with the reason for its selection.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// Expression of the algorithm.
    pub expression: Expression,
    /// Reason for selecting the algorithm.
    pub reason: Reason,
}

impl Choice {
    /// Makes a choice of the MPI's own function.
    pub fn native(reason: Reason) -> Choice {
        Choice { expression: native(), reason }
    }

    /// Whether the choice is the MPI's own function.
    pub fn is_native(&self) -> bool {
        self.expression == native()
    }
}

/// User settings for selecting algorithms. Equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// Whether the library handles every call that it supports, even if the MPI's own function is predicted to be faster.
    pub always: bool,
    /// Whether ranks may get differently rounded copies of one floating-point result.
    pub fast_math: bool,
}

pub(crate) fn native() -> Expression {
    Expression::Plain(Plain::Native)
}

//! A choice, and what the settings say about choosing.

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;

use crate::reason::Reason;

/// An algorithm, and why it.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// The algorithm.
    pub expression: Expression,
    /// Why it.
    pub reason: Reason,
}

impl Choice {
    /// The MPI's own function.
    pub fn native(reason: Reason) -> Choice {
        Choice { expression: native(), reason }
    }

    /// Whether it is the MPI's own function.
    pub fn is_native(&self) -> bool {
        self.expression == native()
    }
}

/// What the settings say about choosing; the same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// Every call that any right algorithm can serve is served.
    pub always: bool,
    /// Ranks may get different roundings of one floating-point result.
    pub fast_math: bool,
}

pub(crate) fn native() -> Expression {
    Expression::Plain(Plain::Native)
}

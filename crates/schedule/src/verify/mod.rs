//! The verifier: proves that a program is correct for every order in which its ranks may run.
//!
//! It executes the program on *expressions* instead of data. A value is an input chunk of a rank, or a tree of reductions over such
//! chunks. The result does not depend on timing, because messages are matched in order and any pair of accesses that could race is
//! rejected. So one symbolic execution covers all possible executions.
//!
//! # The invariants
//!
//! Each has a name, which errors contain. In `filetests/verify` each has a text that satisfies it and one that violates it.
//!
//! | name | what must be true |
//! |---|---|
//! | `bounds` | every rank is there, peers exist, chunk numbers are the problem's, `in` is never written, each rank touches only its own input, output and segments, a flag's owner is on the same node, the ranks of a region leave its segment all or none, and once, tags are at most 32767 |
//! | `shape` | a place names no slot twice; the two sides of a copy or reduction have equally many chunks of equal sizes; a reduction combines equal chunk numbers, in a collective that reduces |
//! | `placed` | every slot that is used has exactly one address; the two sides of a copy or reduction do not overlap |
//! | `request` | a request is not posted again before it is finished, and every request is finished, once |
//! | `match` | every send meets exactly one receive with as many chunks of the same sizes, in order |
//! | `deadlock` | all ranks reach their end even if no message is ever buffered |
//! | `written` | nothing is read before it was written in this execution, nor after something else overwrote it |
//! | `in-flight` | until a message is finished, its send slots are not overwritten and its receive slots are not accessed |
//! | `length` | where sizes are known only locally, a slot's length has arrived before its data is received, is that data's, and the slot is private |
//! | `race` | two accesses to a segment, one of them a write, are ordered by messages, signals and barriers |
//! | | accesses of two executions to the same part of a segment are ordered: the next program may have other offsets |
//! | | a ring is accessed only between entering and leaving |
//! | `result` | at the end every output holds exactly what MPI requires |
//! | `once` | a reduction contains every rank's contribution exactly once |
//! | `consistent` | where claimed: all ranks compute the same expression, operands in the same order |
//! | `ordered` | where claimed, or where the operation needs it: expressions keep rank order |
//! | `claim` | messages, elements sent and temporary memory do not exceed the claims |
//!
//! # Executions
//!
//! A program that shares memory is executed three times in a row. The results of a repeated execution are those of the first: within an
//! execution the order of accesses is the same each time, and accesses of two executions to the same part of a segment must be ordered. So
//! repeated executions are checked only for that order, and three are enough, because the halves of a segment repeat after two.
//!
//! A ring of slots (`enter`, `leave`) may have any length, and executions of other programs may come between two that use the same slot.
//! So every access to a ring must come before the rank's `leave` and after an `enter` in the same execution, of this rank or of one that
//! has synchronised with it. `enter` waits until all ranks have left the slot: nothing else orders two executions there, and this order
//! counts only for the ring. Deadlock is checked with a ring of one slot; on a longer one no rank waits for more.
//!
//! `consistent` and `ordered` are also reported for programs that do not claim them: see [`Verification`].
//!
//! ```
//! use bruckner_schedule::{read, verify::{verify, Invariant}};
//! let text = "\
//! schedule
//! problem allgather ranks 2 counts equal 1 element 8
//! topology 2x1
//! rank 0
//!   round
//!     recv out[1] from 1
//!     copy out[0] <- in[0]
//! rank 1
//!   round
//!     send in[1] to 0
//!     copy out[1] <- in[1]
//! ";
//! let report = verify(&read(text).unwrap().document.to_program());
//! assert_eq!(report.violations[0].invariant, Invariant::Result, "rank 1 never gets chunk 0");
//! ```

mod clock;
mod expr;
mod layout;
mod local;
mod machine;
mod memory;
mod messages;
mod node;
mod open;
mod outcome;
mod places;
mod rings;

use std::fmt;

use crate::{Level, Program, Rank};

/// Invariants that the verifier checks; the module documentation defines each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "the module's table documents them, once")]
pub enum Invariant {
    Bounds,
    Shape,
    Placed,
    Request,
    Match,
    Deadlock,
    Written,
    InFlight,
    Length,
    Race,
    Result,
    Once,
    Consistent,
    Ordered,
    Claim,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Invariant::Bounds => "bounds",
            Invariant::Shape => "shape",
            Invariant::Placed => "placed",
            Invariant::Request => "request",
            Invariant::Match => "match",
            Invariant::Deadlock => "deadlock",
            Invariant::Written => "written",
            Invariant::InFlight => "in-flight",
            Invariant::Length => "length",
            Invariant::Race => "race",
            Invariant::Result => "result",
            Invariant::Once => "once",
            Invariant::Consistent => "consistent",
            Invariant::Ordered => "ordered",
            Invariant::Claim => "claim",
        })
    }
}

/// Location of a violation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Site {
    /// Rank whose program violates the invariant.
    pub rank: Rank,
    /// Number of the execution, counted from 0.
    pub execution: u32,
    /// Index of the instruction in the rank's program; `None` for the end of the program.
    pub instr: Option<u32>,
}

/// A violation of an invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The violated invariant.
    pub invariant: Invariant,
    /// Location of the violation, if it has one.
    pub site: Option<Site>,
    /// Description of the violation.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.invariant)?;
        if let Some(site) = self.site {
            write!(f, "rank {}", site.rank)?;
            if site.execution > 0 {
                write!(f, ", execution {}", site.execution + 1)?;
            }
            match site.instr {
                Some(at) => write!(f, ", instruction {at}: ")?,
                None => f.write_str(", at its end: ")?,
            }
        }
        f.write_str(&self.message)
    }
}

/// Messages and elements that one rank sends, by topological distance.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Number of messages for each level: those that leave the region of that level but no larger one. The last entry counts the messages
    /// within the innermost region.
    pub messages: Vec<u64>,
    /// Number of elements sent, by the same levels as `messages`; 0 if sizes are known only locally.
    pub elements: Vec<u64>,
}

impl Traffic {
    /// Returns the number of messages to other nodes.
    pub fn internode_messages(&self) -> u64 {
        self.messages.get(usize::from(Level::NODE.0)).copied().unwrap_or(0)
    }
}

/// Result of the verification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verification {
    /// Violations found, at most [`MOST_VIOLATIONS`]; empty if the program is proven correct.
    pub violations: Vec<Violation>,
    /// Whether all ranks compute the same expression. Valid only if there are no violations.
    pub consistent: bool,
    /// Whether operands are combined in rank order. Valid only if there are no violations.
    pub ordered: bool,
    /// Messages and elements that each rank sends in one execution.
    pub traffic: Vec<Traffic>,
    /// Largest number of elements of temporary memory on any rank; 0 if there are violations.
    pub memory: u64,
}

impl Verification {
    /// Whether the program is proven correct.
    pub fn is_correct(&self) -> bool {
        self.violations.is_empty()
    }
}

/// Number of violations after which the verifier stops.
pub const MOST_VIOLATIONS: usize = 40;

/// Verifies a program: in one execution, or in three back to back if it uses shared memory.
pub fn verify(program: &Program) -> Verification {
    if machine::shares_memory(program) {
        verify_sequence(&[program, program, program])
    } else {
        verify_sequence(&[program])
    }
}

/// Verifies programs that run one after another on the same ranks and segments. The properties and the traffic in the report are those of
/// the first program.
///
/// # Panics
/// If the sequence is empty, or its programs are not for one topology.
pub fn verify_sequence(programs: &[&Program]) -> Verification {
    assert!(programs.windows(2).all(|w| w[0].topology == w[1].topology), "one topology");
    let run = machine::Machine::new(programs).run();
    outcome::check(programs, run)
}

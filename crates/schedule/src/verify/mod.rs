//! The verifier: proves that a program is correct for every order in which its ranks may run.
//!
//! It executes the program on *expressions* instead of data. An expression is an input chunk of a rank, or a tree of reductions over such
//! chunks. The result does not depend on timing, because messages are matched in order, and any two accesses whose order is not fixed are
//! reported as a race. So one symbolic execution covers all possible executions.
//!
//! # The invariants
//!
//! Each invariant has a name, which errors contain. `filetests/verify` has, for each, a text that satisfies it and a text that violates
//! it.
//!
//! | name | what must be true |
//! |---|---|
//! | `bounds` | the text has a program for every rank; peers and chunk numbers exist; tags are at most 32767 |
//! | | `in` and other ranks' buffers are never written; a rank accesses only its own buffers and segments, |
//! | | except that it may read the opened buffers of other ranks of its node and wait for their flags |
//! | | a rank opens its buffers at most once; all ranks of a region leave its segment, exactly once, or none does |
//! | `shape` | a place names no slot twice; the two sides of a copy or reduction have equally many chunks of equal sizes; a reduction combines equal chunk numbers, in a collective that reduces |
//! | `placed` | every slot that is used has exactly one address; the two sides of a copy or reduction do not overlap |
//! | `request` | a request is not posted again before it is finished, and every request is finished, once |
//! | `match` | every send is matched with exactly one receive, which has as many chunks of the same sizes, in order |
//! | `deadlock` | all ranks reach their end even if no message is ever buffered |
//! | `written` | a slot is read only after it was written in this execution, and not after another slot overwrote a part of it |
//! | `in-flight` | until a message is finished, its send slots are not overwritten and its receive slots are not accessed |
//! | `length` | if sizes are known only locally: data is received only into private slots of known length, which is the data's |
//! | `race` | two accesses to shared memory, at least one a write, are ordered by messages, signals and barriers |
//! | | a rank's buffers are read by others only between its `open` and its end |
//! | | accesses in two executions to one part of a segment are ordered at any offsets: the next program may have others |
//! | | a segment of a program with `leave` (a ring) is accessed only between `enter` and `leave` |
//! | `result` | at the end every output holds exactly what MPI requires |
//! | `once` | a reduction contains every rank's contribution exactly once |
//! | `consistent` | where claimed: all ranks compute the same expression, operands in the same order |
//! | `ordered` | where claimed, or where the operation needs it: expressions keep rank order |
//! | `claim` | messages, elements sent and temporary memory do not exceed the claims |
//!
//! # Executions
//!
//! A program that shares memory is executed three times in a row. A repeated execution has the same results as the first: accesses within
//! an execution have the same order each time, and accesses of two executions to the same part of a segment must be ordered anyway. So in
//! repeated executions only the order between executions is checked. Three executions are enough, because programs with `alternate` use
//! the two halves of a segment in turn.
//!
//! A program with `enter` and `leave` uses a segment as a *ring*: a number of equal parts (slots of the ring), which consecutive
//! executions use in turn. The number is not known to the verifier, and executions of other programs may come between two that use the
//! same part. So every access to a ring must come before the rank's `leave`, and after an `enter` in the same execution, either by this
//! rank or by a rank that has synchronised with it. `enter` waits until all ranks have left the part; no other synchronisation between the
//! two executions is needed, but this order counts only for accesses to the ring. Deadlock is checked with a ring of one part, where ranks
//! have to wait longest.
//!
//! The properties `consistent` and `ordered` are also determined for programs that do not claim them (see [`Verification`]).
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

/// Invariants that the verifier checks, as defined in the module documentation.
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
    /// Index of the instruction in the rank's program. `None` for the end of the program, and for errors outside its instructions.
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

/// Messages and elements that one rank sends, by the distance to the receiver.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Number of messages by level, outermost first: messages to another region of this level within the same region of the next outer
    /// level. The last entry counts the messages within the innermost region.
    pub messages: Vec<u64>,
    /// Number of elements sent, by level as in `messages`; 0 if sizes are known only locally.
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
    /// Number of elements of temporary memory on the rank with the most; 0 if there are violations.
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

/// Verifies a program in one execution, or in three consecutive executions if it uses shared memory.
pub fn verify(program: &Program) -> Verification {
    if machine::shares_memory(program) {
        verify_sequence(&[program, program, program])
    } else {
        verify_sequence(&[program])
    }
}

/// Verifies programs that run one after another on the same ranks and segments. The result has the properties and the traffic of the first
/// program.
///
/// # Panics
/// If there is no program, or the programs have different topologies.
pub fn verify_sequence(programs: &[&Program]) -> Verification {
    assert!(programs.windows(2).all(|w| w[0].topology == w[1].topology), "one topology");
    let run = machine::Machine::new(programs).run();
    outcome::check(programs, run)
}

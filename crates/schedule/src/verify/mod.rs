//! The verifier: proves a program right, for every order in which its ranks may run.
//!
//! It carries out the program on *expressions* instead of data. A value is the chunk of a rank, or a tree of
//! reductions over such; what an execution computes does not depend on timing, because messages are matched
//! in order and every pair of accesses that could race is refused. So one execution speaks for all.
//!
//! # The invariants
//!
//! Each has a name, which errors carry, and in `filetests/verify` a text that holds and one that breaks it.
//!
//! | name | what must be true |
//! |---|---|
//! | `bounds` | every rank is there, peers exist, chunk numbers are the problem's, `in` is never written, each rank touches only its own input, output and segments, a flag's owner is on the same node, the ranks of a region leave its segment all or none, and once, tags are at most 32767 |
//! | `shape` | a place names no slot twice; the two sides of a copy or reduction have equally many chunks of equal sizes; a reduction combines equal chunk numbers, in a collective that reduces |
//! | `placed` | every slot that is used has a place, and no slot two; the two sides of a copy or reduction do not lie on each other |
//! | `request` | a request is not posted again before it is finished, and every request is finished, once |
//! | `match` | every send meets exactly one receive with as many chunks of the same sizes, in order |
//! | `deadlock` | all ranks reach their end though no message is ever buffered |
//! | `written` | nothing is read before it was written in this execution, nor after something else overwrote it |
//! | `in-flight` | what a message carries is not overwritten, and what it fills is not touched, until it is finished |
//! | `length` | where sizes are known only locally, a slot's length has arrived before its data is received, is that data's, and the slot is private |
//! | `race` | two accesses to a segment, one of them a write, are ordered by messages, signals and barriers; a ring is touched only between entering and leaving; of two executions, any two accesses to the same part of a segment are, because the next may be of another program that lies differently and touches it at once |
//! | `result` | afterwards every output holds exactly what MPI says |
//! | `once` | in a reduction every rank's contribution is there exactly once |
//! | `consistent` | where claimed: all ranks compute the same expression, operands in the same order |
//! | `ordered` | where claimed, or where the operation needs it: expressions keep rank order |
//! | `claim` | messages, elements sent and temporary memory are at most what is claimed |
//!
//! # Executions
//!
//! A program that shares memory is looked at three times in a row. What a repeated execution computes is known from the
//! first: within an execution the order of accesses is the same each time, and no access of one execution may meet one
//! of another in the same part of a segment without being ordered. So of repeated executions only that order is looked
//! at, and three are enough, because halves take turns after two.
//!
//! A ring of slots (`enter`, `leave`) may have any length, and executions of other programs may come between two that use the
//! same slot. So of a ring it is asked that every touch come after an `enter` of the same execution that the rank knows of,
//! and before it leaves. Whoever enters waits until all have left the slot: nothing else orders two executions there, and what
//! entering tells counts for nothing else. That nobody waits for ever is looked at with a ring of one slot; on a longer
//! one nobody waits for more.
//!
//! `consistent` and `ordered` are also reported for programs that do not claim them: see [`Report`].
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

/// The names of what the verifier checks; the module documentation says what each means.
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

/// Where something went wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Site {
    /// On which rank.
    pub rank: Rank,
    /// In which execution, counted from 0.
    pub execution: u32,
    /// At which of the rank's instructions; `None` at its end.
    pub instr: Option<u32>,
}

/// An invariant that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// Where, if at a place.
    pub site: Option<Site>,
    /// What, for a person.
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

/// What one rank sends, by how far it goes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// For each level the messages that leave the region of that level but no larger one; last, those that
    /// stay in the innermost region.
    pub messages: Vec<u64>,
    /// Likewise the elements, where sizes are shared knowledge.
    pub elements: Vec<u64>,
}

impl Traffic {
    /// Messages to other nodes.
    pub fn nonlocal(&self) -> u64 {
        self.messages.get(usize::from(Level::NODE.0)).copied().unwrap_or(0)
    }
}

/// What the verifier found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// What does not hold; empty for a program that is proven right. At most [`MOST_VIOLATIONS`].
    pub violations: Vec<Violation>,
    /// Whether all ranks compute the same expression. Only said of programs that are right.
    pub consistent: bool,
    /// Whether expressions keep rank order. Only said of programs that are right.
    pub ordered: bool,
    /// What each rank sends in one execution.
    pub traffic: Vec<Traffic>,
    /// The most elements of temporary memory of any rank.
    pub memory: u64,
}

impl Report {
    /// Whether everything holds.
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }
}

/// After so many violations the verifier stops looking.
pub const MOST_VIOLATIONS: usize = 40;

/// Proves a program, alone and, where it uses shared memory, three times back to back.
pub fn verify(program: &Program) -> Report {
    if machine::shares_memory(program) {
        verify_sequence(&[program, program, program])
    } else {
        verify_sequence(&[program])
    }
}

/// Proves programs that run one after another on the same ranks and segments. The report's properties and
/// traffic are those of the first.
///
/// # Panics
/// If the sequence is empty, or its programs are not for one topology.
pub fn verify_sequence(programs: &[&Program]) -> Report {
    assert!(programs.windows(2).all(|w| w[0].topology == w[1].topology), "one topology");
    let run = machine::Machine::new(programs).run();
    outcome::judge(programs, run)
}

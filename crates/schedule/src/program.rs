//! Programs: the form of a collective that is executed. A program is a list of instructions without branches, and every slot has an
//! address in a buffer.
//!
//! Lowering makes a program from a schedule: messages are posted and finished one by one and carry tags, and each line of slots has an
//! offset in the temporary buffer (`t…`) or in the region's shared segment (`node.…`).

use std::collections::BTreeMap;
use std::fmt;

use crate::schedule::{Area, LocalOp, Message, Place, RankCode, Round, Schedule};
use crate::{Level, Problem, Request, Set};

/// One instruction of a program.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Instr {
    /// `3: send …`: posts a message, which is in flight until its request is finished.
    Post(Request, Message),
    /// `finish 0..4`: waits until requests 0 to 3 are complete.
    Finish(Set),
    /// A local operation: a copy, a reduction, or synchronisation within the node.
    Local(LocalOp),
}

impl fmt::Display for Instr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Instr::Post(request, message) => write!(f, "{request}: {message}"),
            Instr::Finish(requests) => write!(f, "finish {requests}"),
            Instr::Local(local) => local.fmt(f),
        }
    }
}

/// Address of the slots of a line, which are contiguous from an offset on. Offsets count elements if all ranks know all counts. Otherwise
/// ([`Counts::Local`](crate::Counts::Local)) they count cells, one for each slot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Placement {
    /// The line, private or shared, and those of its slots that have an address, in the order of storage.
    pub place: Place,
    /// Offset of the first slot.
    pub at: u64,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "place {} at {}", self.place, self.at)
    }
}

/// Addresses of a program's slots.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Layout {
    /// No addresses yet: each slot is a separate piece of memory.
    Unplaced,
    /// Slots have offsets in buffers. In the segment of a region, ordinary programs use one part. Programs with `alternate` use two
    /// halves, in turn from execution to execution. Programs with `enter` and `leave` use a ring of parts ([`LocalOp::Enter`]).
    Buffers {
        /// Addresses of the lines; no slot has two.
        placed: Vec<Placement>,
        /// Levels in whose segments the program uses the two halves in turn.
        alternate: Vec<Level>,
    },
}

/// The program of one rank.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Code {
    /// Addresses of the slots.
    pub layout: Layout,
    /// Instructions in execution order.
    pub instrs: Vec<Instr>,
}

/// A collective as instructions for each rank.
pub type Program = RankCode<Code>;

impl Code {
    /// Returns the size of the private temporary memory, in the units of [`Placement`]. If slots have no addresses, every slot in use
    /// counts once.
    pub fn memory(&self, problem: &Problem) -> u64 {
        match &self.layout {
            Layout::Buffers { placed, .. } => {
                let private = placed.iter().filter(|p| matches!(p.place.area, Area::Line(_)));
                private.map(|p| p.at + size_in_units(problem, &p.place.set)).max().unwrap_or(0)
            }
            Layout::Unplaced => {
                let mut lines: BTreeMap<u32, Vec<&Set>> = BTreeMap::new();
                for place in self.instrs.iter().flat_map(Instr::places) {
                    if let Area::Line(line) = place.area {
                        lines.entry(line).or_default().push(&place.set);
                    }
                }
                lines.values().map(|sets| size_in_units(problem, &Set::union(sets, u64::MAX))).sum()
            }
        }
    }
}

impl Instr {
    /// Returns all places in the instruction.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        let (listed, local): (&[Place], Option<&LocalOp>) = match self {
            Instr::Post(_, message) => (&message.places, None),
            Instr::Finish(_) => (&[], None),
            Instr::Local(local) => (&[], Some(local)),
        };
        listed.iter().chain(local.into_iter().flat_map(LocalOp::places))
    }
}

/// Returns the size of a set of slots, in the units of [`Placement`].
pub fn size_in_units(problem: &Problem, set: &Set) -> u64 {
    problem.elements_of(set).unwrap_or_else(|| set.len())
}

impl Schedule {
    /// Converts the rounds directly to a program whose slots have no addresses: the messages of a round are posted together, and all are
    /// awaited before its local operations.
    pub fn flatten(&self) -> Program {
        self.map(|_, rounds| Code { layout: Layout::Unplaced, instrs: flatten(rounds.clone()) })
    }
}

/// Converts the rounds of one rank to instructions, as [`Schedule::flatten`] does for all ranks.
pub fn flatten(rounds: Vec<Round>) -> Vec<Instr> {
    let mut instrs = Vec::with_capacity(rounds.iter().map(|r| r.messages.len() + 1 + r.local.len()).sum());
    for round in rounds {
        let count = round.messages.len() as u64;
        let posts = round.messages.into_iter().enumerate();
        instrs.extend(posts.map(|(i, message)| Instr::Post(Request(i as u32), message)));
        if count > 0 {
            instrs.push(Instr::Finish(Set::from(0..count)));
        }
        instrs.extend(round.local.into_iter().map(Instr::Local));
    }
    instrs
}

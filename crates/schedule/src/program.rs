//! Programs: what really runs. Straight-line instructions, and every slot has its place in a buffer.
//!
//! A program is a schedule after lowering: messages are posted and finished one by one, carry tags, and lines
//! lie at offsets of a temporary buffer (`t…`) or of a region's segment (`node.…`). There is no branch.

use std::collections::BTreeMap;
use std::fmt;

use crate::schedule::{Area, Local, Message, Place, Round, Schedule, Whole};
use crate::{Level, Problem, Request, Set};

/// One instruction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Instr {
    /// `3: send …`: starts a message; it runs until its request is finished.
    Post(Request, Message),
    /// `finish 0..4`: until these requests are done.
    Finish(Set),
    /// Work of this rank or its node.
    Local(Local),
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

/// Slots of a line, laid one behind the other from an offset on. Offsets count elements where counts are
/// shared knowledge, and cells of unknown size where they are not.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Placed {
    /// A private or shared line, and which of its slots.
    pub place: Place,
    /// Where the first of them starts.
    pub at: u64,
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "place {} at {}", self.place, self.at)
    }
}

/// Where lines lie.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Layout {
    /// Nowhere yet: each slot is a place of its own.
    Virtual,
    /// In buffers. A region's segment has three parts: one for programs that do not alternate, and two halves
    /// for those that do, used in turn from one of their executions to the next.
    Buffers {
        /// The lines, each once.
        placed: Vec<Placed>,
        /// Levels on whose segment the program alternates.
        alternate: Vec<Level>,
    },
}

/// What one rank runs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Code {
    /// Where its slots are.
    pub layout: Layout,
    /// What it does.
    pub instrs: Vec<Instr>,
}

/// A collective as instructions for each rank.
pub type Program = Whole<Code>;

impl Code {
    /// Elements (or cells) of temporary memory. Slots without place are counted each by itself.
    pub fn memory(&self, problem: &Problem) -> u64 {
        match &self.layout {
            Layout::Buffers { placed, .. } => {
                let private = placed.iter().filter(|p| matches!(p.place.area, Area::Line(_)));
                private.map(|p| p.at + extent(problem, &p.place.set)).max().unwrap_or(0)
            }
            Layout::Virtual => {
                let mut lines: BTreeMap<u32, Vec<&Set>> = BTreeMap::new();
                for place in self.instrs.iter().flat_map(Instr::places) {
                    if let Area::Line(line) = place.area {
                        lines.entry(line).or_default().push(&place.set);
                    }
                }
                lines.values().map(|sets| extent(problem, &Set::union(sets, u64::MAX))).sum()
            }
        }
    }
}

impl Instr {
    /// All places that it names.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        let (listed, local): (&[Place], Option<&Local>) = match self {
            Instr::Post(_, message) => (&message.places, None),
            Instr::Finish(_) => (&[], None),
            Instr::Local(local) => (&[], Some(local)),
        };
        listed.iter().chain(local.into_iter().flat_map(Local::places))
    }
}

/// The room that a set of slots takes, in the units of [`Placed`].
pub fn extent(problem: &Problem, set: &Set) -> u64 {
    problem.elements_of(set).unwrap_or_else(|| set.len())
}

impl Schedule {
    /// The plain reading of the rounds as a program on slots without place.
    pub fn flatten(&self) -> Program {
        self.map(|_, rounds| Code { layout: Layout::Virtual, instrs: flatten(rounds.clone()) })
    }
}

/// The plain reading of one rank's rounds.
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

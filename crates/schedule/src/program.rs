//! Programs: what really runs. Straight-line instructions, and every slot has its place in a buffer.
//!
//! A program is a schedule after lowering: messages are posted and finished one by one, carry tags, and lines
//! lie at offsets of a temporary buffer (`t…`) or of a region's segment (`node.…`). There is no branch.

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
                let mut slots = std::collections::HashSet::new();
                for place in self.instrs.iter().flat_map(Instr::places) {
                    if let Area::Line(line) = place.area {
                        let there = place.set.iter().take_while(|&chunk| chunk < problem.chunks());
                        slots.extend(there.map(|chunk| (line, chunk)));
                    }
                }
                slots.iter().map(|(_, chunk)| problem.elements(*chunk).unwrap_or(1)).sum()
            }
        }
    }
}

impl Instr {
    /// All places that it names.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        let (listed, pair): (&[Place], [Option<&Place>; 2]) = match self {
            Instr::Post(_, message) => (&message.places, [None, None]),
            Instr::Local(Local::Copy { to, from }) => (&[], [Some(to), Some(from)]),
            Instr::Local(Local::Reduce { into, with }) => (&[], [Some(into), Some(with)]),
            _ => (&[], [None, None]),
        };
        listed.iter().chain(pair.into_iter().flatten())
    }
}

/// The room that a set of slots takes, in the units of [`Placed`].
pub fn extent(problem: &Problem, set: &Set) -> u64 {
    problem.elements_of(set).unwrap_or_else(|| set.len())
}

impl Schedule {
    /// The plain reading of the rounds as a program on slots without place.
    pub fn flatten(&self) -> Program {
        self.map(|_, rounds| Code { layout: Layout::Virtual, instrs: flatten(rounds) })
    }
}

fn flatten(rounds: &[Round]) -> Vec<Instr> {
    let mut instrs = Vec::new();
    for round in rounds {
        for (i, message) in round.messages.iter().enumerate() {
            instrs.push(Instr::Post(Request(i as u32), message.clone()));
        }
        if !round.messages.is_empty() {
            instrs.push(Instr::Finish(Set::from(0..round.messages.len() as u64)));
        }
        instrs.extend(round.local.iter().cloned().map(Instr::Local));
    }
    instrs
}

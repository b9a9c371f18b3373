//! Pipelining: any algorithm on parts of its data, one part behind the other.
//!
//! Every chunk is cut into n parts, and each part goes through all rounds, one round behind the part before it; or, where
//! ranks are not in step, all parts go through a round before any goes through the next. Rounds may overlap: a part's message
//! starts as soon as what it carries is there, so while it is on its way the parts behind it are put, met over and reduced.
//!
//! ```text
//! pipeline(3, ring), root 0      part 0   0 ─► 1 ─► 2 ─► 3
//!                                part 1        0 ─► 1 ─► 2 ─► 3
//!                                part 2             0 ─► 1 ─► 2 ─► 3
//! ```
//!
//! Cost: n times the messages, the same data. A broadcast along the ring takes p + n − 2 steps of m/n instead of p − 1
//! of m.

use bruckner_schedule::{Flag, Place, Problem, Rank, Round, Topology};

use crate::builder::renamed;
use crate::{Algorithm, Builder};

/// The combinator.
pub struct Pipelined {
    /// Into how many parts each chunk is cut.
    pub parts: u32,
    /// What each part does.
    pub of: Box<dyn Algorithm>,
}

impl Algorithm for Pipelined {
    fn pieces(&self, topology: &Topology) -> u64 {
        u64::from(self.parts) * self.of.pieces(topology)
    }

    /// The rounds of all other parts that lie between two of one part; and where parts are staggered as many again, so that a
    /// message is expected a round before it comes.
    fn overlap(&self) -> u32 {
        let others = self.parts - 1 + self.parts * self.of.overlap();
        if self.of.in_step() { others + self.parts } else { others }
    }

    /// Staggered, a rank that has a round more on its node than another is a round behind in every part.
    fn in_step(&self) -> bool {
        false
    }

    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let parts = u64::from(self.parts);
        let whole = Problem { pieces: problem.pieces / parts, ..problem.clone() };
        let rounds = self.of.rounds(&whole, topology, rank);
        let staggered = self.of.in_step();
        let mut b = Builder::new();
        let mut add = |round: &Round, part: u32| {
            let place = |place: Place| Place::new(place.area, place.set.scaled(parts, part.into()));
            let flag = |flag: Flag| Flag(flag.0 * self.parts + part);
            let mut round = renamed(round, |rank| rank, place, flag);
            // Where ranks are in different rounds when their messages meet, each part has a channel of its own.
            for message in round.messages.iter_mut().filter(|_| staggered) {
                message.tag.0 = message.tag.0 * self.parts + part;
            }
            b.add(round);
        };
        if staggered {
            for time in 0..rounds.len() + self.parts as usize {
                let behind = |part: &u32| time.checked_sub(*part as usize).and_then(|at| rounds.get(at));
                (0..self.parts).for_each(|part| behind(&part).into_iter().for_each(|round| add(round, part)));
            }
        } else {
            rounds.iter().for_each(|round| (0..self.parts).for_each(|part| add(round, part)));
        }
        b.finish()
    }
}

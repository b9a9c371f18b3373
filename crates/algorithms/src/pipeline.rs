//! Pipelining: any algorithm on parts of its data, one part behind the other.
//!
//! Every chunk is cut into n parts, and each part goes through all rounds, one round behind the part before it. If ranks are not in step
//! ([`Algorithm::in_step`]), all parts go through one round before any part enters the next. Rounds may overlap: the message of a part
//! starts as soon as its data is ready, and while it is in flight, ranks copy, synchronise and reduce the next parts.
//!
//! ```text
//! pipeline(3, ring), root 0      part 0   0 ─► 1 ─► 2 ─► 3
//!                                part 1        0 ─► 1 ─► 2 ─► 3
//!                                part 2             0 ─► 1 ─► 2 ─► 3
//! ```
//!
//! Cost: n times as many messages with the same data in total. A broadcast of m bytes along the ring takes p + n − 2 steps of m/n bytes
//! instead of p − 1 steps of m bytes.

use bruckner_schedule::{Flag, Place, Problem, Rank, Round, Topology};

use crate::builder::renamed;
use crate::{Algorithm, Builder};

/// Runs an algorithm on parts of its data, pipelined.
pub struct Pipelined {
    /// Number of parts into which each chunk is cut.
    pub parts: u32,
    /// Algorithm that each part runs.
    pub of: Box<dyn Algorithm>,
}

impl Algorithm for Pipelined {
    fn pieces(&self, topology: &Topology) -> u64 {
        u64::from(self.parts) * self.of.pieces(topology)
    }

    /// Returns the number of rounds of other parts between two rounds of one part, by which a message may then start early. If each part
    /// runs one round behind the part before, the number of parts is added, so that a receive is posted one round of its part before its
    /// message comes.
    fn overlap(&self) -> u32 {
        let others = self.parts - 1 + self.parts * self.of.overlap();
        if self.of.in_step() { others + self.parts } else { others }
    }

    /// Returns false: a rank with one more on-node round than another rank is one round behind in every part, so round numbers differ
    /// between ranks.
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
            // If parts run one behind the other, ranks may be in different rounds when they exchange messages, so each part has tags of
            // its own.
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

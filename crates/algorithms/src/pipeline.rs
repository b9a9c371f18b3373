//! Pipelining: any algorithm on parts of its data, one part behind the other.
//!
//! Every chunk is cut into n parts. Each round becomes n, one for each part, and rounds may overlap: a part's message
//! starts as soon as what it carries is there, while those of the parts behind it are still on their way, and a part is
//! reduced while the next one arrives.
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

    fn overlap(&self) -> u32 {
        self.parts - 1
    }

    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let parts = u64::from(self.parts);
        let whole = Problem { pieces: problem.pieces / parts, ..problem.clone() };
        let mut b = Builder::new();
        for round in &self.of.rounds(&whole, topology, rank) {
            for part in 0..parts {
                let place = |place: Place| Place::new(place.area, place.set.scaled(parts, part));
                let flag = |flag: Flag| Flag(flag.0 * self.parts + part as u32);
                b.embed(round.clone(), |rank| rank, place, flag);
            }
        }
        b.finish()
    }
}

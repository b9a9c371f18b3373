//! Allreduce through one node's shared memory, pieces in rotation (Jocksch et al., section 4, long messages).
//!
//! One line of the segment is filled by all ranks together, each with its own piece. Then, p − 1 times, they meet, and
//! each combines its data with the next piece. Data is touched once, and there is room for one vector instead of p; the
//! price is p barriers.
//!
//! ```text
//! rank i    put piece i ── barrier ── piece i+1 ⊕= ── barrier ── piece i+2 ⊕= ── … ── barrier ── out = line
//! ```

use bruckner_schedule::{Area, Level, Place, Problem, Rank, Round, Set, Topology};

use crate::{Algorithm, Builder};

/// The algorithm; it has no parameters.
pub struct ShmRotate;

impl Algorithm for ShmRotate {
    fn pieces(&self, topology: &Topology) -> u64 {
        topology.ranks().into()
    }

    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let (p, me) = (topology.ranks(), topology.position(rank));
        let line = |piece: u32| Place::new(Area::Shared(Level::NODE, 0), Set::one(piece.into()));
        let own = |piece: u32| Place::new(Area::In, Set::one(piece.into()));
        let all = Set::from(0..problem.chunks());
        let mut b = Builder::new();
        b.copy(line(me), own(me));
        for step in 1..p {
            let piece = (me + step) % p;
            b.barrier(Level::NODE);
            b.reduce(line(piece), own(piece));
        }
        b.barrier(Level::NODE);
        b.copy(Place::new(Area::Out, all.clone()), Place::new(Area::Shared(Level::NODE, 0), all));
        b.finish()
    }
}

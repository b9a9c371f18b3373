//! Allreduce through one node's shared memory, where each rank reduces a piece (Jocksch et al., section 4, short messages).
//!
//! Every rank copies its vector of n elements into a line of the segment. After a barrier it reduces one piece over all p lines, and after
//! a second barrier it copies the pieces of all ranks. A rank reduces n/p elements of each line instead of n, which takes more barriers
//! but less arithmetic than [`crate::shm`], so this algorithm suits many ranks and longer vectors.
//!
//! ```text
//! rank i    put line i ── barrier ── piece i of line p = line 0 ⊕ (line 1 ⊕ …) ── barrier ── out = line p
//! ```

use bruckner_schedule::{Area, Level, Place, Problem, Rank, Round, Set, Topology};

use crate::{Algorithm, Builder};

/// Allreduce in which each rank reduces one piece of the vector; it has no parameters.
pub struct ShmSplit;

impl Algorithm for ShmSplit {
    fn pieces(&self, topology: &Topology) -> u64 {
        topology.ranks().into()
    }

    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let (p, me) = (topology.ranks(), topology.position(rank));
        let line = |at: u32| Area::Shared(Level::NODE, at);
        let (all, own) = (Set::from(0..problem.chunks()), Set::one(me.into()));
        let mut b = Builder::new();
        b.copy(Place::new(line(me), all.clone()), Place::new(Area::In, all.clone()));
        b.barrier(Level::NODE);
        let lines: Vec<Area> = (0..p).map(line).collect();
        b.reduce_all(Area::Out, &lines, &own);
        b.copy(Place::new(line(p), own.clone()), Place::new(Area::Out, own));
        b.barrier(Level::NODE);
        let others: Set = (0..u64::from(p)).filter(|&piece| piece != u64::from(me)).collect();
        b.copy(Place::new(Area::Out, others.clone()), Place::new(line(p), others));
        b.finish()
    }
}

//! Allreduce through one node's shared memory (Jocksch et al., section 4, short messages).
//!
//! Every rank puts its vector into a line of the segment and raises a flag; once it has seen the flags of all
//! others it reduces all lines by itself, in rank order. One put, one flag, no message.
//!
//! ```text
//! rank i    put line i ── signal ── wait for all ── out = line 0 ⊕ (line 1 ⊕ …)
//! ```
//!
//! A fast rank may put its next vector while a slow one still reads: the closing barrier prevents that, and
//! lowering replaces it by two halves of the segment used in turn.

use bruckner_schedule::{Area, Flag, Level, Place, Problem, Rank, Round, Set, Topology};

use crate::{Algorithm, Builder};

/// The algorithm; it has no parameters.
pub struct ShmAllreduce;

impl Algorithm for ShmAllreduce {
    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let me = topology.position(rank);
        let all = Set::from(0..problem.chunks());
        let line = |at: u32| Area::Shared(Level::NODE, at);
        let mut b = Builder::new();
        b.copy(Place::new(line(me), all.clone()), Place::new(Area::In, all.clone()));
        b.signal(Flag(0));
        for at in (0..topology.ranks()).filter(|&at| at != me) {
            b.wait(Flag(0), topology.rank_at(at));
        }
        let lines: Vec<Area> = (0..topology.ranks()).map(line).collect();
        b.reduce_all(Area::Out, &lines, &all);
        b.finish()
    }
}

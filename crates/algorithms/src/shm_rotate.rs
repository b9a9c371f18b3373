//! Allreduce through one node's shared memory, pieces in rotation (Jocksch et al., section 4, long messages).
//!
//! All ranks together fill one line of the segment, each with one piece of its vector. Then, p − 1 times, each rank combines its data with
//! the next piece, which the rank after it has just released; it waits for no other rank. Every rank reads its vector only once, and the
//! segment holds one vector instead of p. While other ranks finish their last pieces, a rank copies its finished piece to its output.
//!
//! ```text
//! rank i    put piece i ── signal ── wait for i+1 ── piece i+1 ⊕= ── signal ── wait for i+1 ── piece i+2 ⊕= ── …
//!             … piece i−1 ⊕= ── done ── out[i−1] = line[i−1] ── wait until i+1 is done ── out[i] = line[i] ── …
//! ```

use bruckner_schedule::{Area, Flag, Level, Place, Problem, Rank, Round, Set, Topology};

use crate::{Algorithm, Builder};

/// Allreduce with pieces in rotation; it has no parameters.
pub struct ShmRotate;

/// Flag raised when a rank releases a piece to the rank before it.
const RELEASED: Flag = Flag(0);
/// Flag raised when a rank has finished its last piece.
const DONE: Flag = Flag(1);

impl Algorithm for ShmRotate {
    fn pieces(&self, topology: &Topology) -> u64 {
        topology.ranks().into()
    }

    fn rounds(&self, _: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let (p, me) = (topology.ranks(), topology.position(rank));
        let behind = |distance: u32| (me + distance) % p;
        let place = |area: Area, piece: u32| Place::new(area, Set::one(piece.into()));
        let line = |piece: u32| place(Area::Shared(Level::NODE, 0), piece);
        let mut b = Builder::new();
        b.copy(line(me), place(Area::In, me));
        for step in 1..p {
            b.signal(RELEASED);
            b.wait(RELEASED, topology.rank_at(behind(1)));
            b.reduce(line(behind(step)), place(Area::In, behind(step)));
        }
        b.signal(DONE);
        for step in 0..p {
            if step > 0 {
                b.wait(DONE, topology.rank_at(behind(step)));
            }
            let finished = behind(step + p - 1);
            b.copy(place(Area::Out, finished), line(finished));
        }
        b.finish()
    }
}

//! On one node, every rank reads what it needs where it lies: in the buffers of the others.
//!
//! Shared memory costs two copies, one into the segment and one out of it. Where the kernel lets a process read another's
//! memory, one is enough. Every rank opens its buffers and says so, and nobody ends before all have read: then the user may
//! change them.
//!
//! ```text
//! allgather        open ── signal ── wait for all ── out[j] = in of rank j ── barrier
//! allreduce        open ── signal ── wait for all ── piece i of out = in₁ ⊕ (in₂ ⊕ … own) ── signal
//!                       ── wait for all ── out[j] = piece j of the output of rank j ── barrier
//! ```
//!
//! Each starts with the rank behind it, so that not all read from one at a time. For long messages: a flag costs less than a
//! microsecond, asking the kernel about one.

use bruckner_schedule::{Area, Collective, Flag, Level, Place, Problem, Rank, Round, Set, Topology};

use crate::{Algorithm, Builder};

/// The algorithm, for any collective that has no root: a root would wait for all who read.
pub struct ReadDirect(pub Collective);

/// Raised when buffers are open.
const OPEN: Flag = Flag(0);
/// Raised when a rank's piece of an allreduce is in its output.
const REDUCED: Flag = Flag(1);

impl Algorithm for ReadDirect {
    fn pieces(&self, topology: &Topology) -> u64 {
        if self.0 == Collective::Allreduce { topology.ranks().into() } else { 1 }
    }

    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let p = topology.ranks();
        let others = || (1..p).map(|distance| Rank((rank.0 + distance) % p));
        let mut b = Builder::new();
        b.open();
        b.signal(OPEN);
        // What one rank needs of another.
        let needed = |of: Rank, by: Rank| match problem.collective {
            Collective::Alltoall | Collective::ReduceScatter => problem.block(by),
            Collective::Allgather => problem.block(of),
            Collective::Allreduce => Set::one(by.0.into()),
        };
        match problem.collective {
            Collective::Allgather | Collective::Alltoall => {
                let place = |of: Rank| Place::new(Area::Out, problem.block(of));
                b.copy(place(rank), Place::new(Area::In, needed(rank, rank)));
                for of in others() {
                    b.wait(OPEN, of);
                    b.copy(place(of), Place::new(Area::InOf(of), needed(of, rank)));
                }
            }
            Collective::ReduceScatter | Collective::Allreduce => {
                for of in others() {
                    b.wait(OPEN, of);
                }
                // Its own first: in place, that is what the output would overwrite.
                let inputs: Vec<Area> = others().map(Area::InOf).chain([Area::In]).collect();
                b.reduce_all(Area::Out, &inputs, &needed(rank, rank));
            }
        }
        if problem.collective == Collective::Allreduce {
            b.signal(REDUCED);
            for of in others() {
                let piece = Set::one(of.0.into());
                b.wait(REDUCED, of);
                b.copy(Place::new(Area::Out, piece.clone()), Place::new(Area::OutOf(of), piece));
            }
        }
        // The others have read what they need, and have seen these flags.
        b.barrier(Level::NODE);
        b.finish()
    }
}

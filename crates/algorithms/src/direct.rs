//! Collectives on one node in which every rank reads its data directly from the buffers of the other ranks.
//!
//! Shared memory costs two copies, one into the segment and one out of it. If the kernel lets a process read another process's memory, one
//! copy is enough. Every rank opens its buffers and raises a flag. No rank returns before all ranks have read, because the user may change
//! the buffers afterwards.
//!
//! ```text
//! allgather        open ── signal ── wait for all ── out[j] = in of rank j ── barrier
//! allreduce        open ── signal ── wait for all ── piece i of out = in₁ ⊕ (in₂ ⊕ … own) ── signal
//!                       ── wait for all ── out[j] = piece j of the output of rank j ── barrier
//! ```
//!
//! Each rank starts with the rank after it, so that not all read from the same rank at once. Direct reads suit long messages only, because
//! a kernel call takes about one microsecond, and a flag takes less.

use bruckner_schedule::{Area, Collective, Flag, Level, Place, Problem, Rank, Round, Set, Topology};

use crate::{Algorithm, Builder};

/// A collective in which ranks read each other's buffers directly. Collectives with a root are not supported, since the root would wait
/// for all ranks that read from it.
pub struct ReadDirect(pub Collective);

/// Flag that a rank raises once its buffers are open.
const OPEN: Flag = Flag(0);
/// Flag that a rank raises once its piece of an allreduce is in its output.
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
        // Returns the chunks of rank `of` that rank `by` needs.
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
                // This rank's input is the last operand, which `reduce_all` copies to the output first. With MPI_IN_PLACE, copying any
                // other operand first would overwrite this input.
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
        // When this barrier ends, all ranks have read what they need and seen the flags.
        b.barrier(Level::NODE);
        b.finish()
    }
}

//! Direct alltoall(v): every rank sends every block directly to its destination.
//!
//! Sender and receiver know the size of every block, even if sizes are known only locally (alltoallv).
//!
//! Cost: p − 1 messages of one block, all at once (spread-out) or one partner per step (pairwise).

use bruckner_schedule::{Area, Place, Problem, Rank, Round, Set, Topology};

use crate::patterns::{Parcel, Pattern};
use crate::{Algorithm, Builder};

/// Direct alltoall: in each step of the pattern, sends the peers their blocks and receives this rank's blocks from the peers.
pub struct Direct(pub Box<dyn Pattern>);

impl Algorithm for Direct {
    fn rounds(&self, problem: &Problem, _: &Topology, rank: Rank) -> Vec<Round> {
        let block = |area, peer: u32| Place::new(area, problem.nonempty(&Set::one(peer.into())));
        let mut b = Builder::new();
        b.copy(block(Area::Out, rank.0), block(Area::In, rank.0));
        for step in self.0.steps(problem.ranks, rank.0) {
            b.round();
            for Parcel { peer, .. } in step.sends {
                b.send(block(Area::In, peer), Rank(peer));
            }
            for Parcel { peer, .. } in step.recvs {
                b.recv(block(Area::Out, peer), Rank(peer));
            }
        }
        b.finish()
    }
}

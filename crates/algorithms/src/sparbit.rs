//! Sparbit allgather (Loch and Koslovski 2021).
//!
//! Every rank is the root of a binomial tree that carries its block, all trees at once, each shifted by its
//! root's rank. Bruck doubles the distance while the data grows; Sparbit halves it, so the large messages go
//! to near ranks, and every block lands where it belongs without a last rotation.
//!
//! For 5 ranks, distances 4, 2, 1, and the blocks of rank 0 travel
//!
//! ```text
//! d = 4   0 ────────────────► 4
//! d = 2   0 ────────► 2
//! d = 1   0 ───► 1    2 ───► 3
//! ```
//!
//! Cost: ⌈log2 p⌉ rounds, p − 1 blocks. At distance d a rank sends ⌈p/d⌉ − ⌈p/2d⌉ blocks.

use bruckner_schedule::{Area, Place, Problem, Rank, Round, Set, Topology};

use crate::{Algorithm, Builder};

/// The algorithm; it has no parameters.
pub struct Sparbit;

impl Algorithm for Sparbit {
    fn rounds(&self, problem: &Problem, _: &Topology, rank: Rank) -> Vec<Round> {
        let (p, me) = (u64::from(problem.ranks), u64::from(rank.0));
        let peer = |distance: u64| Rank(((me + distance) % p) as u32);
        let mut b = Builder::new();
        b.copy(Place::new(Area::Out, Set::one(me)), Place::new(Area::In, Set::one(me)));
        let mut d = p.next_power_of_two() / 2;
        while d >= 1 {
            let blocks = p.div_ceil(d) - p.div_ceil(2 * d);
            // Block me − 2jd goes d further; block me − (2j+1)d arrives.
            let every = |start: u64| Set::cyclic_run(start, 1, -2 * d as i64, blocks, p);
            b.round();
            b.send(Place::new(Area::Out, every(me)), peer(d));
            b.recv(Place::new(Area::Out, every((me + p - d) % p)), peer(p - d));
            d /= 2;
        }
        b.finish()
    }
}

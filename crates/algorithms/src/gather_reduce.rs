//! Allreduce by gathering every contribution and reducing them in rank order.
//!
//! Each rank's vector is one block, stored in a line of its own; once a rank has all vectors it reduces them locally. All ranks combine
//! the vectors in the same way, in rank order, so results have the same bits everywhere and non-commutative operations are correct. The
//! algorithm suits short vectors only, since each rank receives p − 1 vectors.
//!
//! Cost: an allgather, and p − 1 local reductions.

use bruckner_schedule::{Area, Place, Problem, Rank, Round, Set, Topology};

use crate::gather::{Gather, Group, Numbering};
use crate::{Algorithm, Builder};

/// Allreduce by this gathering algorithm and a local reduction.
pub struct GatherReduce(pub Box<dyn Gather>);

impl Algorithm for GatherReduce {
    fn in_step(&self) -> bool {
        self.0.in_step()
    }

    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let group = Group::world(topology, Numbering::Ranks);
        let all = Set::from(0..problem.chunks());
        let line = |of: u64| Place::new(Area::Line(of as u32), all.clone());
        let mut b = Builder::new();
        b.copy(line(rank.0.into()), Place::new(Area::In, all.clone()));
        self.0.gather(&mut b, &group, rank.0, &|members: &Set| members.iter().map(line).collect());
        let lines: Vec<Area> = (0..problem.ranks).map(Area::Line).collect();
        b.reduce_all(Area::Out, &lines, &all);
        b.finish()
    }
}

//! Allreduce with one leader a region: Jocksch's node-level form, and the hierarchical allreduce of most MPIs.
//!
//! The leader reduces its region's contributions in order, any allreduce runs among the leaders, and the region takes the
//! result.
//!
//! ```text
//! leader(node, between=8(1 1 1))        put ── leader reduces ── 8(1 1 1) among leaders ── leader puts ── all get
//! ```
//!
//! Cost: that of the allreduce among n regions, and two meetings of the region.

use bruckner_schedule::{Area, Level, Place, Problem, Rank, Round, Set, Topology};

use crate::gather::Group;
use crate::{Algorithm, Builder};

/// The combinator.
pub struct LeaderAllreduce {
    /// What is near.
    pub level: Level,
    /// What leaders run.
    pub between: Box<dyn Algorithm>,
}

impl Algorithm for LeaderAllreduce {
    fn pieces(&self, topology: &Topology) -> u64 {
        self.between.pieces(&Topology::flat(topology.regions(self.level)))
    }

    fn overlap(&self) -> u32 {
        self.between.overlap()
    }

    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let me = topology.position(rank);
        let mine = topology.region_at(self.level, me);
        let own = Group::region(topology, self.level, mine);
        let all = Set::from(0..problem.chunks());
        let place = |area| Place::new(area, all.clone());
        let line = |at: u32| Area::Shared(self.level, at - own.span.start);
        let result = Area::Shared(self.level, own.span.len() as u32);
        let (alone, leads) = (own.span.len() == 1, me == own.span.start);
        let mut b = Builder::new();
        if !alone {
            b.copy(place(line(me)), place(Area::In));
            b.barrier(self.level);
        }
        let partial = if alone { Area::In } else { Area::Line(0) };
        if leads && !alone {
            let lines: Vec<Area> = own.span.clone().map(line).collect();
            b.reduce_all(partial, &lines, &all);
        }
        let leaders = Topology::flat(topology.regions(self.level));
        let among = Problem { ranks: leaders.ranks(), ..problem.clone() };
        let area = |area| match area {
            Area::In => partial,
            Area::Line(n) => Area::Line(n + 1),
            other => other,
        };
        let leader = |of: Rank| Group::region(topology, self.level, of.0).server(0);
        for round in self.between.rounds(&among, &leaders, Rank(mine)) {
            // The others are idle as long.
            let round = if leads { round } else { Round::default() };
            b.embed(round, leader, |place| Place { area: area(place.area), ..place }, |flag| flag);
        }
        if !alone {
            if leads {
                b.copy(place(result), place(Area::Out));
            }
            b.barrier(self.level);
            if !leads {
                b.copy(place(Area::Out), place(result));
            }
        }
        b.finish()
    }
}

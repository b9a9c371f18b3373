//! Allreduce with k leaders per region: Jocksch's node-level form, the hierarchical allreduce of most MPIs, and multi-lane.
//!
//! The vector is cut into k shares, one for each leader of a region. Each leader reduces the region's contributions to its share in order,
//! runs any allreduce with the leaders of the same share in other regions, and puts the result into the segment; then every rank copies
//! the shares that it does not have.
//!
//! ```text
//! leader(node, between=8(1 1 1))        put ── leader reduces ── 8(1 1 1) among leaders ── leader puts ── all get
//! lanes(node, between=rabenseifner)     put ── each reduces its share ── Rabenseifner in every lane ── all put ── all get
//! ```
//!
//! With as many leaders as ranks, every rank is the leader of one share: this is the multi-lane algorithm. Leaders are virtual: in a
//! region with fewer ranks than leaders, one rank acts as several.
//!
//! Cost: an allreduce among n regions on 1/k of the vector, and two barriers within the region.

use bruckner_schedule::{Area, Level, Place, Problem, Rank, Round, Set, Topology};

use crate::builder::renamed;
use crate::gather::Group;
use crate::leader::Leaders;
use crate::{Algorithm, Builder};

/// Allreduce through segments inside regions, and by another allreduce between the leaders.
pub struct LeaderAllreduce {
    /// Level of the regions.
    pub level: Level,
    /// Allreduce between regions, which the leaders of the same share of the vector run with each other.
    pub between: Box<dyn Algorithm>,
    /// Number of leaders per region.
    pub leaders: Leaders,
}

impl LeaderAllreduce {
    fn regions(&self, topology: &Topology) -> Topology {
        Topology::flat(topology.regions(self.level))
    }
}

impl Algorithm for LeaderAllreduce {
    fn pieces(&self, topology: &Topology) -> u64 {
        let leaders = self.leaders.count(topology, self.level);
        u64::from(leaders) * self.between.pieces(&self.regions(topology))
    }

    fn overlap(&self) -> u32 {
        self.between.overlap()
    }

    fn in_step(&self) -> bool {
        self.between.in_step()
    }

    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let me = topology.position(rank);
        let mine = topology.region_at(self.level, me);
        let own = Group::region(topology, self.level, mine);
        let leaders = self.leaders.count(topology, self.level);
        let pieces = problem.pieces / u64::from(leaders);
        let shares = |of: &mut dyn Iterator<Item = u32>| -> Set {
            let mut set = Set::new();
            of.for_each(|share| set.extend(&Set::from(0..pieces).shifted(u64::from(share) * pieces)));
            set
        };
        let led: Vec<u32> = own.lanes_of(me, leaders).collect();
        let lead = shares(&mut led.iter().copied());
        let others = shares(&mut (0..leaders).filter(|share| !led.contains(share)));
        let line = |at: u32| Area::Shared(self.level, at - own.span.start);
        let result = Area::Shared(self.level, own.span.len() as u32);
        let alone = own.span.len() == 1;
        let partial = if alone { Area::In } else { Area::Line(0) };
        let mut b = Builder::new();
        if !alone {
            b.copy(Place::new(line(me), others.clone()), Place::new(Area::In, others.clone()));
            b.barrier(self.level);
            let contribution = |at: u32| if at == me { Area::In } else { line(at) };
            let contributions: Vec<Area> = own.span.clone().map(contribution).collect();
            b.reduce_all(partial, &contributions, &lead);
        }
        let regions = self.regions(topology);
        let among = Problem { ranks: regions.ranks(), pieces, ..problem.clone() };
        let area = |area| match area {
            Area::In => partial,
            Area::Line(n) => Area::Line(n + 1),
            other => other,
        };
        for round in self.between.rounds(&among, &regions, Rank(mine)) {
            // A rank that leads several shares runs the same round for each of them at once; a rank that leads no share is idle in this
            // round.
            let mut all = Round::default();
            for &lane in &led {
                let leader = |of: Rank| Group::region(topology, self.level, of.0).rank_of_lane(lane);
                let place = |place: Place| Place::new(area(place.area), place.set.shifted(u64::from(lane) * pieces));
                let round = renamed(&round, leader, place, |flag| flag);
                all.messages.extend(round.messages);
                all.local.extend(round.local);
            }
            b.add(all);
        }
        if !alone {
            b.copy(Place::new(result, lead.clone()), Place::new(Area::Out, lead));
            b.barrier(self.level);
            b.copy(Place::new(Area::Out, others.clone()), Place::new(result, others));
        }
        b.finish()
    }
}

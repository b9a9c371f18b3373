//! Node-aware parallel allreduce (Bienz, Olson and Gropp 2019), for any regions.
//!
//! First each region reduces its own contributions. Then regions combine in groups. A group has up to k *parts*, which are single regions
//! in the first step, and all regions of a part hold the same partial result. Each rank (lane) of a region exchanges this partial result
//! with one other part of its group, the region gathers the results that its lanes received, and every rank reduces the results of all
//! parts in order. The next step combines groups into larger groups. If two parts differ in size by one region, one region of the smaller
//! part sends to two regions of the larger, so any number of regions works without extra steps before and after.
//!
//! ```text
//! 16 regions of 4, lanes=paper, k = 4.  Step 1: rank 9 (region 2, lane 1) ◄──► rank 6 (region 1, lane 2)
//!                                       Step 2: rank 9 (part 0, lane 1)   ◄──► rank 24 (part 1, lane 0)
//! ```
//!
//! k is the number of lanes, plus one with `lanes=all`, where no lane is reserved for the region itself; with `ports=N` every rank acts as
//! N lanes. Every reduction is over parts in region order, so all ranks compute the same expression, and with ranks in block placement it
//! keeps rank order.
//!
//! Cost: ⌈log_k n⌉ rounds, each with one non-local message of the whole vector per rank, or N with `ports=N`.

use std::ops::Range;

use bruckner_schedule::{Area, Level, Place, Places, Problem, Rank, Round, Set, Topology};

use crate::expression::Lanes;
use crate::gather::{Gather, Group};
use crate::{Algorithm, Builder};

/// Node-aware parallel allreduce.
pub struct Nap {
    /// Level of the regions.
    pub level: Level,
    /// Gathering algorithm inside a region.
    pub inside: Box<dyn Gather>,
    /// Which lanes of a region send and receive.
    pub lanes: Lanes,
}

/// The parts of a group of regions: ranges of regions, where all regions of a part hold the same partial result.
struct Parts(Vec<Range<u32>>);

impl Parts {
    /// Splits regions into the fewest nearly equal parts of at most `largest` regions.
    fn split(regions: &Range<u32>, largest: u32) -> Parts {
        let (n, parts) = (regions.len() as u32, (regions.len() as u32).div_ceil(largest));
        let start = |i: u32| regions.start + (u64::from(i) * u64::from(n) / u64::from(parts)) as u32;
        Parts((0..parts).map(|i| start(i)..start(i + 1)).collect())
    }

    fn containing(&self, region: u32) -> usize {
        self.0.iter().position(|part| part.contains(&region)).expect("parts cover the group")
    }
}

impl Nap {
    /// Returns the lane by which a region of part number `mine` exchanges with part number `other` of the same group.
    fn lane(&self, mine: usize, other: usize) -> u32 {
        match self.lanes {
            Lanes::Paper => other as u32,
            Lanes::PerRank(_) => (if other < mine { other } else { other - 1 }) as u32,
        }
    }

    /// Returns the groups that a region belongs to, smallest first.
    fn groups_of(&self, region: u32, regions: u32, k: u32) -> Vec<Parts> {
        let (mut range, mut largest) = (0..regions, 1u32);
        while largest.saturating_mul(k) < regions {
            largest *= k;
        }
        let mut groups = Vec::new();
        while range.len() > 1 {
            let parts = Parts::split(&range, largest);
            range = parts.0[parts.containing(region)].clone();
            if parts.0.len() > 1 {
                groups.push(parts);
            }
            largest = (largest / k).max(1);
        }
        groups.reverse();
        groups
    }
}

impl Algorithm for Nap {
    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let me = topology.position(rank);
        let mine = topology.region_at(self.level, me);
        let own = Group::region(topology, self.level, mine);
        let all = Set::from(0..problem.chunks());
        let place = |area| Place::new(area, all.clone());
        let regions = topology.regions(self.level);
        let k = match self.lanes {
            Lanes::PerRank(_) => self.lanes.of(topology.largest(self.level), regions) + 1,
            Lanes::Paper => topology.largest(self.level).max(2),
        };
        let groups = self.groups_of(mine, regions, k);
        let mut b = Builder::new();

        // Reduction within the region; the contribution of member i is in line i.
        let line = |at: u32| Area::Line(at - own.span.start);
        let mut lines: Vec<Area> = own.span.clone().map(line).collect();
        b.copy(place(line(me)), place(Area::In));
        self.inside
            .gather(&mut b, &own, me, &|members: &Set| members.iter().map(|at| place(line(at as u32))).collect());
        let mut next = topology.largest(self.level);
        let result = |last: bool, next: &mut u32| {
            *next += 1;
            if last { Area::Out } else { Area::Line(*next - 1) }
        };
        let mut partial = result(groups.is_empty(), &mut next);
        b.reduce_all(partial, &lines, &all);

        for (step, group) in groups.iter().enumerate() {
            let (a, parts) = (group.containing(mine), &group.0);
            let x = mine - parts[a].start;
            lines = (0..parts.len() as u32).map(|other| Area::Line(next + other)).collect();
            next += k;
            let others = || (0..parts.len()).filter(|&other| other != a);
            b.round();
            for other in others() {
                if own.rank_of_lane(self.lane(a, other)) != rank {
                    continue;
                }
                let part = &parts[other];
                let peer =
                    |at: u32| Group::region(topology, self.level, part.start + at).rank_of_lane(self.lane(other, a));
                // Region number x of this part sends to the regions y of the other part with y mod (size of this part) = x, and receives
                // from region x mod (size of the other part).
                for y in (x..part.len() as u32).step_by(parts[a].len()) {
                    b.send(place(partial), peer(y));
                }
                b.recv(place(lines[other]), peer(x % part.len() as u32));
            }
            let heard = |members: &Set| -> Places {
                let served = others().filter(|&other| {
                    let server = own.rank_of_lane(self.lane(a, other));
                    members.position(topology.position(server).into()).is_some()
                });
                served.map(|other| place(lines[other])).collect()
            };
            self.inside.gather(&mut b, &own, me, &heard);
            lines[a] = partial;
            partial = result(step + 1 == groups.len(), &mut next);
            b.reduce_all(partial, &lines, &all);
        }
        b.finish()
    }
}

/// Runs an algorithm as if every rank were a region of its own, in rank order: with [`Nap`], recursive doubling for any number of ranks.
pub struct RankPerRegion<A>(pub A);

impl<A: Algorithm> Algorithm for RankPerRegion<A> {
    fn pieces(&self, topology: &Topology) -> u64 {
        self.0.pieces(topology)
    }

    fn rounds(&self, problem: &Problem, _: &Topology, rank: Rank) -> Vec<Round> {
        self.0.rounds(problem, &Topology::flat(problem.ranks), rank)
    }
}

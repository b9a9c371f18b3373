//! Gathering through leaders, which exchange data on behalf of their regions: hierarchical (SMP) algorithms with one or several leaders
//! per region, and multi-lane algorithms (Träff and Hunold 2020).
//!
//! The blocks of a region are assigned to its k leaders in turn; the blocks of one leader are its *share*. Leader j copies its share from
//! the segment, gathers the shares of the leaders j of all other regions with any pattern, and puts these into the segment; then every
//! rank copies the blocks that it does not have.
//!
//! ```text
//! leader(node, between=ring)            put ── leader gets ── ring among leaders ── leader puts ── all get
//! lanes(node, between=ring)             ring among the first ranks, among the second ranks, … ── put ── all get
//! ```
//!
//! With as many leaders as ranks, each leader carries only its own block and copies nothing from the segment first: this is the multi-lane
//! algorithm. Leaders are virtual: in a region with fewer ranks than leaders, one rank acts as several.
//!
//! Cost: for each leader the pattern among n regions, with the blocks of p/(n·k) ranks per region, and two barriers within the region.

use bruckner_schedule::{End, Flag, Level, Message, Payload, Place, Places, Run, Set, Tag, Topology};

use crate::Builder;
use crate::exchange::Exchange;
use crate::gather::{Gather, Group, Held, OWN, ShmGather, members};
use crate::patterns::{Parcel, Pattern};

/// Number of leaders per region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaders {
    /// This number of leaders in each region, but not more than the largest region has ranks.
    Fixed(u32),
    /// As many leaders in each region as the largest region has ranks.
    All,
}

impl Leaders {
    pub(crate) fn count(self, topology: &Topology, level: Level) -> u32 {
        match self {
            Leaders::Fixed(leaders) => leaders.min(topology.largest(level)),
            Leaders::All => topology.largest(level),
        }
    }
}

/// Gathering through segments inside regions, and by a pattern between the leaders.
pub struct LeaderGather {
    /// Level of the regions.
    pub level: Level,
    /// Pattern between regions, which leaders with the same number run with each other.
    pub between: Box<dyn Pattern>,
    /// Number of leaders per region.
    pub leaders: Leaders,
    /// How ranks of a region exchange data through their shared-memory segment.
    pub through: Exchange,
}

/// Flag that a leader raises once the blocks from other regions are in the segment; a rank raises [`OWN`] for its own block.
const REMOTE: Flag = Flag(1);

/// Returns the members of a region whose blocks leader j of k carries, without member `except`.
fn share(region: &Group<'_>, j: u32, k: u32, except: Option<u32>) -> Set {
    let (start, size) = (region.span.start, region.span.len() as u32);
    let count = if j < size { (size - j).div_ceil(k) } else { 0 };
    match Run::checked((start + j).into(), 1, k.into(), count.into()) {
        None => Set::new(),
        Some(run) => match except {
            None => Set::from(run),
            Some(me) => Set::from(run).iter().filter(|&m| m != u64::from(me)).collect(),
        },
    }
}

impl Gather for LeaderGather {
    fn gather(&self, b: &mut Builder, group: &Group<'_>, me: u32, held: &dyn Held) {
        let (topology, level) = (group.topology, self.level);
        let k = self.leaders.count(topology, level);
        let regions = topology.region_at(level, group.span.start)..topology.region_at(level, group.span.end - 1) + 1;
        let n = regions.len() as u32;
        let mine = topology.region_at(level, me);
        let own = Group::region(topology, level, mine);
        if n == 1 {
            return ShmGather(self.through).gather(b, &own, me, held);
        }
        let alone = own.span.len() == 1;
        let (mine_only, rank) = (members(me..me + 1), own.rank(me));
        let lead: Vec<u32> = (0..k).filter(|&j| own.rank_of_lane(j) == rank).collect();
        let all: Places = held.of(&members(group.span.clone()));
        if all.iter().all(|p| p.set.is_empty()) {
            return;
        }
        let through = self.through;
        let put_own = |b: &mut Builder| through.put(b, level, OWN, &held.of(&mine_only));
        // Waits until the other members whose blocks leader j carries have put these blocks into the segment.
        let wait_for = |b: &mut Builder, j: u32| {
            for other in share(&own, j, k, Some(me)).iter().map(|other| other as u32) {
                through.wait(b, OWN, own.rank(other), || held.of(&members(other..other + 1)));
            }
        };
        let get_share = |b: &mut Builder, j: u32| through.get(b, level, &held.of(&share(&own, j, k, Some(me))));
        // Leaders that carry more than their own block copy these blocks from the segment.
        let asks = k < own.span.len() as u32;
        if asks {
            put_own(b);
            through.barrier(b, level);
            lead.iter().for_each(|&j| wait_for(b, j));
            lead.iter().for_each(|&j| get_share(b, j));
        }
        let regional = Regional { topology, level, regions: regions.clone(), leaders: k };
        self.exchange(b, &regional, &lead, mine, held);
        if alone {
            return;
        }
        let here = u64::from(mine - regions.start);
        let mut others = Set::from(0..here);
        others.extend(&Set::from(here + 1..n.into()));
        let afar = |j: u32| regional.carried(&others, j, held);
        if !asks {
            put_own(b);
        }
        let afar_of = |member: u32| -> Places { own.lanes_of(member, k).flat_map(&afar).collect() };
        through.put(b, level, REMOTE, &afar_of(me));
        through.barrier(b, level);
        // A leader that copied its share from the segment before the exchange between regions does not copy it again.
        let lacks = |j: u32| !(asks && lead.contains(&j));
        for member in own.span.clone().filter(|&member| member != me) {
            through.wait(b, REMOTE, own.rank(member), || afar_of(member));
        }
        (0..k).filter(|&j| lacks(j)).for_each(|j| wait_for(b, j));
        for j in 0..k {
            if !lead.contains(&j) {
                through.get(b, level, &afar(j));
            }
            if lacks(j) {
                get_share(b, j);
            }
        }
    }
}

/// The regions between which leaders exchange.
struct Regional<'a> {
    topology: &'a Topology,
    level: Level,
    regions: std::ops::Range<u32>,
    leaders: u32,
}

impl Regional<'_> {
    fn region(&self, number: u64) -> Group<'_> {
        Group::region(self.topology, self.level, self.regions.start + number as u32)
    }

    /// Returns the members whose blocks leader j carries in a run (a regular sequence) of regions: one set if all regions have the same
    /// size and a formula applies, otherwise one set per region.
    fn shares(&self, run: &Run, j: u32) -> Vec<Set> {
        let first = u64::from(self.region(run.start()).span.start);
        let (block, stride, count) = (run.block(), run.stride(), run.count());
        match self.topology.uniform_size(self.level).map(i64::from) {
            Some(size) if self.leaders == 1 => {
                vec![Run::new(first, block * size as u64, stride * size, count).into()]
            }
            // Every rank is a leader, so leader j carries the block of one member of each region.
            Some(size) if i64::from(self.leaders) >= size && block == 1 => {
                vec![Run::new(first + u64::from(j), 1, stride * size, count).into()]
            }
            Some(size) if i64::from(self.leaders) >= size && count == 1 => {
                vec![Run::new(first + u64::from(j), 1, size, block).into()]
            }
            _ => {
                let regions = run.blocks().flatten();
                regions.map(|number| share(&self.region(number), j, self.leaders, None)).collect()
            }
        }
    }

    /// Returns the slots of those blocks of the given regions that leader j carries.
    fn carried(&self, blocks: &Set, j: u32, held: &dyn Held) -> Places {
        let mut places = Places::new();
        for shares in blocks.runs().iter().flat_map(|run| self.shares(run, j)) {
            for place in held.of(&shares).into_iter().filter(|place| !place.set.is_empty()) {
                Place::join(&mut places, place);
            }
        }
        places
    }
}

impl LeaderGather {
    /// Writes the messages between regions for all leaders that this rank acts as.
    fn exchange(&self, b: &mut Builder, regional: &Regional<'_>, lead: &[u32], mine: u32, held: &dyn Held) {
        let regions = &regional.regions;
        for step in self.between.steps(regions.len() as u32, mine - regions.start) {
            b.round();
            for &j in lead {
                for (end, parcels) in [(End::Send, &step.sends), (End::Recv, &step.recvs)] {
                    for Parcel { peer, blocks } in parcels {
                        let places = regional.carried(blocks, j, held);
                        let peer = regional.region((*peer).into()).rank_of_lane(j);
                        b.message(Message { end, payload: Payload::Data, places, peer, tag: Tag(0) });
                    }
                }
            }
        }
    }
}

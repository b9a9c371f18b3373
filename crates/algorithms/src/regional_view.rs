//! The view of one rank on an alltoall between regions: the ranks of its region, its lanes, and the blocks that the lanes carry.

use bruckner_schedule::{Area, Counts, End, Level, Message, Payload, Places, Problem, Rank, Set, Tag, Topology};

use crate::Builder;
use crate::gather::Group;
use crate::leader::Leaders;
use crate::route::Route;

/// Which ranks of a region have their blocks carried by a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// A lane carries the blocks of all ranks of the region; there are as many lanes as the largest region has ranks.
    All,
    /// Lane l of k lanes carries the blocks of every k-th rank of the region, starting with rank l of the region.
    Every(Leaders),
}

/// State of one rank of an alltoall between regions while its rounds are written.
pub(crate) struct View<'a> {
    pub(crate) b: Builder,
    pub(crate) problem: &'a Problem,
    pub(crate) topology: &'a Topology,
    pub(crate) level: Level,
    pub(crate) route: &'a dyn Route,
    pub(crate) share: Share,
    pub(crate) own: Group<'a>,
    pub(crate) region: u32,
    pub(crate) rank: Rank,
    pub(crate) lanes: u32,
}

impl View<'_> {
    pub(crate) fn regions(&self) -> u32 {
        self.topology.regions(self.level)
    }

    pub(crate) fn group(&self, region: u32) -> Group<'_> {
        Group::region(self.topology, self.level, region)
    }

    /// Returns the ranks of a region, in order of position.
    fn ranks(&self, region: u32) -> Vec<Rank> {
        self.topology.span(self.level, region).map(|at| self.topology.rank_at(at)).collect()
    }

    /// Returns the ranks of this rank's region, this rank included.
    pub(crate) fn mates(&self) -> Vec<Rank> {
        self.ranks(self.region)
    }

    pub(crate) fn lanes_of(&self, rank: Rank) -> Vec<u32> {
        self.own.lanes_of(self.topology.position(rank), self.lanes).collect()
    }

    /// Returns the ranks of `region` whose blocks `lane` carries.
    pub(crate) fn sources(&self, region: u32, lane: u32) -> Vec<Rank> {
        let ranks = self.ranks(region);
        match self.share {
            Share::All => ranks,
            Share::Every(_) => ranks.into_iter().skip(lane as usize).step_by(self.lanes as usize).collect(),
        }
    }

    /// Returns, for each lane of rank `by` of this region, the ranks of the region whose blocks the lane carries, and the destinations of
    /// these blocks in other regions.
    pub(crate) fn carried(&self, by: Rank) -> Vec<(Vec<Rank>, Set)> {
        let load = |lane: u32| {
            let mut targets = Set::new();
            self.add_targets(lane, &mut targets);
            (self.sources(self.region, lane), targets)
        };
        self.lanes_of(by).into_iter().map(load).filter(|(mates, to)| !mates.is_empty() && !to.is_empty()).collect()
    }

    /// Returns the ranks of other regions whose blocks for this region arrive at rank `at`.
    pub(crate) fn arrived(&self, at: Rank) -> Set {
        let n = self.regions();
        let mut sources = Vec::new();
        for lane in self.lanes_of(at) {
            for distance in self.route.distances(n, lane) {
                let positions = self.topology.span(self.level, (self.region + n - distance) % n);
                let ranks = positions.map(|at| u64::from(self.topology.rank_at(at).0));
                match self.share {
                    Share::All => sources.extend(ranks),
                    Share::Every(_) => sources.extend(ranks.skip(lane as usize).step_by(self.lanes as usize)),
                }
            }
        }
        sources.into_iter().collect()
    }

    /// Returns the destinations, in other regions, of the blocks of rank `of` that rank `by` of the same region carries.
    pub(crate) fn carried_of(&self, of: Rank, by: Rank) -> Set {
        let among = self.topology.position(of) - self.topology.span(self.level, self.region).start;
        let is_carried = |lane: u32| match self.share {
            Share::All => true,
            Share::Every(_) => among >= lane && (among - lane).is_multiple_of(self.lanes),
        };
        let mut targets = Set::new();
        for lane in self.lanes_of(by).into_iter().filter(|lane| is_carried(*lane)) {
            self.add_targets(lane, &mut targets);
        }
        targets
    }

    /// Adds to `to` all ranks of the regions to which a lane carries blocks.
    fn add_targets(&self, lane: u32, to: &mut Set) {
        for distance in self.route.distances(self.regions(), lane) {
            let region = (self.region + distance) % self.regions();
            to.extend(&self.topology.ranks_at(self.topology.span(self.level, region)));
        }
    }

    /// Adds messages that run concurrently. If the receivers do not know the lengths of the data, messages with the lengths come one round
    /// before.
    pub(crate) fn messages(&mut self, messages: Vec<Message>, lengths: Lengths) {
        if self.problem.counts == Counts::Local && lengths == Lengths::Travel {
            self.b.round();
            for message in &messages {
                self.b.message(message.clone().sizes());
            }
        }
        self.b.round();
        for message in messages {
            self.b.message(message);
        }
    }
}

/// Whether lengths must be sent ahead of the data (`Travel`), or the receiver knows them (`Known`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lengths {
    Travel,
    Known,
}

pub(crate) fn message(end: End, places: Places, peer: Rank) -> Message {
    Message { end, payload: Payload::Data, places, peer, tag: Tag(0) }
}

/// Returns the line of slots in this rank's private memory that holds the blocks of rank `source`: one slot for each destination.
pub(crate) fn from(source: Rank) -> Area {
    Area::Line(source.0)
}

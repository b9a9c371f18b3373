//! Alltoall(v) where near is cheap: what one region has for another goes there together.
//!
//! The ranks of a region first hand each other what each of them (a *lane*) will carry, then the lanes carry it from
//! region to region, and what arrives is handed to the ranks that it is for.
//!
//! ```text
//! locality(node)            lane l is for the regions at distances l + 1, l + 1 + lanes, …
//!   4 regions of 3          lane 0 ◄──► regions ±1     lane 1 ◄──► ±2     lane 2 ◄──► ±3      9 blocks each
//! leader(node, leaders=k)   lane l is for every k-th rank of its region, and goes to all regions
//! lanes(node)               every rank carries its own blocks: nothing is handed over before, everything after
//! ```
//!
//! Leaders and lanes may go straight to every region (`between=spread-out` or `pairwise`) or by radix-r Bruck. Lanes are
//! virtual: in a region with fewer ranks one rank is several of them.
//!
//! Cost of `locality`: ⌈(n − 1)/lanes⌉ non-local messages per rank instead of p − p/n, with the same non-local data.

use bruckner_schedule::{
    Area, Counts, End, Level, Message, Payload, Place, Places, Problem, Rank, Round, Set, Tag, Topology,
};

use crate::gather::Group;
use crate::hand_over::Inside;
use crate::leader::Leaders;
use crate::route::{Load, Route};
use crate::{Algorithm, Builder};

/// The algorithm.
pub struct RegionalAlltoall {
    /// What is near.
    pub level: Level,
    /// How blocks go inside a region.
    pub inside: Inside,
    /// How they go between regions.
    pub route: Box<dyn Route>,
    /// For whom of its region a lane carries.
    pub share: Share,
}

/// For whom of its region a lane carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// For all; there are as many lanes as the largest region has ranks.
    All,
    /// Each of so many lanes for every so-many-th.
    Every(Leaders),
}

/// What one rank sees.
pub(crate) struct View<'a> {
    pub(crate) b: Builder,
    problem: &'a Problem,
    topology: &'a Topology,
    pub(crate) level: Level,
    way: &'a RegionalAlltoall,
    own: Group<'a>,
    region: u32,
    pub(crate) rank: Rank,
    lanes: u32,
}

impl View<'_> {
    pub(crate) fn regions(&self) -> u32 {
        self.topology.regions(self.level)
    }

    fn group(&self, region: u32) -> Group<'_> {
        Group::region(self.topology, self.level, region)
    }

    /// The ranks of a region, in order of position.
    fn ranks(&self, region: u32) -> Vec<Rank> {
        self.topology.span(self.level, region).map(|at| self.topology.rank_at(at)).collect()
    }

    /// The ranks of the own region.
    pub(crate) fn mates(&self) -> Vec<Rank> {
        self.ranks(self.region)
    }

    fn lanes_of(&self, rank: Rank) -> Vec<u32> {
        self.own.lanes_of(self.topology.position(rank), self.lanes).collect()
    }

    /// The ranks of a region that a lane carries for.
    fn sources(&self, region: u32, lane: u32) -> Vec<Rank> {
        let ranks = self.ranks(region);
        match self.way.share {
            Share::All => ranks,
            Share::Every(_) => ranks.into_iter().skip(lane as usize).step_by(self.lanes as usize).collect(),
        }
    }

    /// What a rank of the own region carries: of which mates, to which ranks of other regions.
    pub(crate) fn carried(&self, by: Rank) -> Vec<(Vec<Rank>, Set)> {
        let load = |lane: u32| {
            let mut targets = Set::new();
            for distance in self.way.route.distances(self.regions(), lane) {
                let region = (self.region + distance) % self.regions();
                targets.extend(&self.topology.ranks_at(self.topology.span(self.level, region)));
            }
            (self.sources(self.region, lane), targets)
        };
        self.lanes_of(by)
            .into_iter()
            .map(load)
            .filter(|(mates, to)| !mates.is_empty() && !to.is_empty())
            .collect()
    }

    /// The ranks of other regions whose blocks for the own region arrive at a rank.
    pub(crate) fn arrived(&self, at: Rank) -> Set {
        let n = self.regions();
        let mut sources = Vec::new();
        for lane in self.lanes_of(at) {
            for distance in self.way.route.distances(n, lane) {
                sources.extend(
                    self.sources((self.region + n - distance) % n, lane).iter().map(|r| u64::from(r.0)),
                );
            }
        }
        sources.into_iter().collect()
    }

    /// Messages that run at once, with their lengths one round ahead where nobody else knows them.
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

    /// The lanes carry their loads from region to region.
    fn between(&mut self) {
        let steps = |lane: u32| self.way.route.steps(self.regions(), self.region, lane);
        let mine: Vec<_> = self.lanes_of(self.rank).into_iter().map(|lane| (lane, steps(lane))).collect();
        for step in 0..steps(0).len() {
            let mut messages = Vec::new();
            for (lane, steps) in &mine {
                let lane = *lane;
                let places = |load: &Load| {
                    let blocks = self.topology.ranks_at(self.topology.span(self.level, load.target));
                    let sources = self.sources(load.source, lane).into_iter();
                    sources.map(move |source| Place::new(from(source), blocks.clone()))
                };
                for leg in &steps[step] {
                    let (sends, recvs) =
                        (leg.sends.iter().flat_map(places), leg.recvs.iter().flat_map(places));
                    messages.push(message(End::Send, sends.collect(), self.group(leg.to).server(lane)));
                    messages.push(message(End::Recv, recvs.collect(), self.group(leg.from).server(lane)));
                }
            }
            self.messages(messages, Lengths::Travel);
        }
    }
}

/// Whether the receiver has to be told how much comes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lengths {
    Travel,
    Known,
}

pub(crate) fn message(end: End, places: Places, peer: Rank) -> Message {
    Message { end, payload: Payload::Data, places, peer, tag: Tag(0) }
}

/// What a rank carries of another rank's: a line for each source, a slot for each destination.
pub(crate) fn from(source: Rank) -> Area {
    Area::Line(source.0)
}

impl Algorithm for RegionalAlltoall {
    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        if problem.counts == Counts::Equal(0) {
            return Vec::new();
        }
        let region = topology.region_of(self.level, rank);
        let own = Group::region(topology, self.level, region);
        let lanes = match self.share {
            Share::All => topology.largest(self.level),
            Share::Every(leaders) => leaders.count(topology, self.level),
        };
        let (level, b) = (self.level, Builder::new());
        let mut view = View { b, problem, topology, level, way: self, own, region, rank, lanes };
        let one = Set::one(rank.0.into());
        view.b.copy(Place::new(Area::Out, one.clone()), Place::new(Area::In, one));
        self.inside.spread(&mut view);
        view.between();
        self.inside.deliver(&mut view);
        view.b.finish()
    }
}

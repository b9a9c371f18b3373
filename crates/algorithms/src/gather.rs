//! Gathering within a group: the part from which locality-aware collectives are made.
//!
//! Before, each member of a group holds some slots; afterwards each member holds the slots of all. A slot has
//! one name, the same on every member. An allgather over all ranks is one such gathering; each step of a
//! locality-aware algorithm ends in another, within a region.

use std::ops::Range;

use bruckner_schedule::{
    Area, End, Flag, Level, Message, Payload, Place, Places, Problem, Rank, Round, Set, Tag, Topology,
};

use crate::exchange::Exchange;
use crate::patterns::{Parcel, Pattern};
use crate::{Algorithm, Builder};

/// How members are numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbering {
    /// By rank, wherever they are.
    Ranks,
    /// By position, so that regions are ranges.
    Positions,
}

/// Who gathers: a range of ranks or of positions.
#[derive(Clone)]
pub struct Group<'a> {
    /// Where ranks are.
    pub topology: &'a Topology,
    /// The level of which this group is one region; `None` for all ranks together.
    pub level: Option<Level>,
    /// What the numbers of its members mean.
    pub numbering: Numbering,
    /// The numbers of its members.
    pub span: Range<u32>,
}

impl<'a> Group<'a> {
    /// All ranks.
    pub fn world(topology: &'a Topology, numbering: Numbering) -> Group<'a> {
        Group { topology, level: None, numbering, span: 0..topology.ranks() }
    }

    /// One region.
    pub fn region(topology: &'a Topology, level: Level, region: u32) -> Group<'a> {
        let span = topology.span(level, region);
        Group { topology, level: Some(level), numbering: Numbering::Positions, span }
    }

    /// The rank of a member.
    pub fn rank(&self, member: u32) -> Rank {
        match self.numbering {
            Numbering::Ranks => Rank(member),
            Numbering::Positions => self.topology.rank_at(member),
        }
    }

    /// The number of a rank.
    pub fn member(&self, rank: Rank) -> u32 {
        match self.numbering {
            Numbering::Ranks => rank.0,
            Numbering::Positions => self.topology.position(rank),
        }
    }

    /// The ranks of members, in an order that does not depend on who asks.
    pub fn ranks(&self, members: &Set) -> Set {
        match self.numbering {
            Numbering::Ranks => members.clone(),
            Numbering::Positions => self.topology.ranks_of(members),
        }
    }

    /// The rank that serves a lane: lanes are virtual, so in a small group one rank serves several.
    pub fn server(&self, lane: u32) -> Rank {
        self.rank(self.span.start + lane % self.span.len() as u32)
    }

    /// The lanes, of so many, that a member serves.
    pub fn lanes_of(&self, member: u32, lanes: u32) -> impl Iterator<Item = u32> + use<> {
        (member - self.span.start..lanes).step_by(self.span.len())
    }
}

/// What members hold before a gathering.
pub trait Held {
    /// The slots of these members, in an order that does not depend on who asks.
    fn of(&self, members: &Set) -> Places;
}

impl<F: Fn(&Set) -> Places> Held for F {
    fn of(&self, members: &Set) -> Places {
        self(members)
    }
}

/// A range of members as a set.
pub fn members(range: Range<u32>) -> Set {
    Set::from(u64::from(range.start)..u64::from(range.end))
}

/// A way to gather within a group.
pub trait Gather: Send + Sync {
    /// Writes what member `me` does. Members that hold nothing take part all the same.
    fn gather(&self, b: &mut Builder, group: &Group<'_>, me: u32, held: &dyn Held);

    /// Whether it sends no messages.
    fn is_near(&self) -> bool {
        false
    }

    /// As [`Algorithm::in_step`], where all ranks gather.
    fn in_step(&self) -> bool {
        true
    }
}

/// Through shared memory: each puts what it holds and takes what the others put.
pub struct ShmGather(pub Exchange);

/// Raised for what a rank held itself.
pub(crate) const OWN: Flag = Flag(0);

impl Gather for ShmGather {
    fn is_near(&self) -> bool {
        true
    }

    fn gather(&self, b: &mut Builder, group: &Group<'_>, me: u32, held: &dyn Held) {
        if group.span.len() < 2 || held.of(&members(group.span.clone())).iter().all(|p| p.set.is_empty()) {
            return;
        }
        let (exchange, level) = (self.0, group.level.unwrap_or(Level::NODE));
        exchange.put(b, level, OWN, &held.of(&members(me..me + 1)));
        exchange.meet(b, level);
        for other in group.span.clone().filter(|&other| other != me) {
            exchange.wait(b, OWN, group.rank(other), || held.of(&members(other..other + 1)));
        }
        let mut others = held.of(&members(group.span.start..me));
        for place in held.of(&members(me + 1..group.span.end)) {
            Place::join(&mut others, place);
        }
        exchange.get(b, level, &others);
    }
}

/// By messages, as a pattern says.
pub struct PatternGather(pub Box<dyn Pattern>);

impl Gather for PatternGather {
    fn gather(&self, b: &mut Builder, group: &Group<'_>, me: u32, held: &dyn Held) {
        let first = group.span.start;
        for step in self.0.steps(group.span.len() as u32, me - first) {
            b.round();
            for (end, parcels) in [(End::Send, step.sends), (End::Recv, step.recvs)] {
                for Parcel { peer, blocks } in parcels {
                    let places = held.of(&blocks.shifted(first.into()));
                    let places: Places = places.into_iter().filter(|p| !p.set.is_empty()).collect();
                    let peer = group.rank(first + peer);
                    b.message(Message { end, payload: Payload::Data, places, peer, tag: Tag(0) });
                }
            }
        }
    }
}

/// An allgather made from a way to gather.
pub struct GatherAll {
    /// The way.
    pub gather: Box<dyn Gather>,
    /// In which order it sees the ranks.
    pub numbering: Numbering,
}

impl GatherAll {
    /// Writes the gathering of every rank's block, each already in its own output.
    pub fn write(&self, b: &mut Builder, problem: &Problem, topology: &Topology, rank: Rank) {
        let group = Group::world(topology, self.numbering);
        // Empty blocks are left out from the start, so that regions do not meet over nothing.
        let blocks =
            |members: &Set| Places::from_buf([Place::new(Area::Out, problem.filled(&group.ranks(members)))]);
        self.gather.gather(b, &group, group.member(rank), &blocks);
    }
}

impl Algorithm for GatherAll {
    fn in_step(&self) -> bool {
        self.gather.in_step()
    }

    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round> {
        let mut b = Builder::new();
        let own = Set::one(rank.0.into());
        b.copy(Place::new(Area::Out, own.clone()), Place::new(Area::In, own));
        self.write(&mut b, problem, topology, rank);
        b.finish()
    }
}

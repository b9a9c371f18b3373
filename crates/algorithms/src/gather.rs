//! Gathering within a group: the building block of locality-aware collectives.
//!
//! Before a gathering each member of a group holds some slots; afterwards each member holds the slots of all members. A slot has the same
//! name on every member. An allgather is one gathering over all ranks; each step of a locality-aware algorithm ends with a gathering
//! within a region.

use std::ops::Range;

use bruckner_schedule::{
    Area, End, Flag, Level, Message, Payload, Place, Places, Problem, Rank, Round, Set, Tag, Topology,
};

use crate::exchange::Exchange;
use crate::patterns::{Halves, Parcel, Pattern};
use crate::{Algorithm, Builder};

/// How the members of a group are numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbering {
    /// Members are numbered by rank, regardless of placement.
    Ranks,
    /// Members are numbered by position in the topology, so that each region is a range of numbers.
    Positions,
    /// Members are numbered by halving the range of ranks (see [`Halves`]). Recursive doubling then pairs the most distant ranks first.
    Halves,
}

/// Group of ranks that gather: a range of rank numbers or of positions.
#[derive(Clone)]
pub struct Group<'a> {
    /// Regions and placement of the ranks.
    pub topology: &'a Topology,
    /// Level of which the group is one region; `None` if the group has all ranks.
    pub level: Option<Level>,
    /// Whether members are numbered by rank or by position.
    pub numbering: Numbering,
    /// Range of the members' numbers.
    pub span: Range<u32>,
}

impl<'a> Group<'a> {
    /// Returns the group of all ranks.
    pub fn world(topology: &'a Topology, numbering: Numbering) -> Group<'a> {
        Group { topology, level: None, numbering, span: 0..topology.ranks() }
    }

    /// Returns the group of the ranks of one region.
    pub fn region(topology: &'a Topology, level: Level, region: u32) -> Group<'a> {
        let span = topology.span(level, region);
        Group { topology, level: Some(level), numbering: Numbering::Positions, span }
    }

    /// Returns the rank of a member.
    pub fn rank(&self, member: u32) -> Rank {
        match self.numbering {
            Numbering::Ranks => Rank(member),
            Numbering::Positions => self.topology.rank_at(member),
            Numbering::Halves => Rank(self.halves().place(member)),
        }
    }

    /// Returns the member number of a rank.
    pub fn member(&self, rank: Rank) -> u32 {
        match self.numbering {
            Numbering::Ranks => rank.0,
            Numbering::Positions => self.topology.position(rank),
            Numbering::Halves => self.halves().number(rank.0),
        }
    }

    fn halves(&self) -> Halves {
        Halves::of(self.span.len() as u32)
    }

    /// Returns the ranks of members, in the same order on every rank.
    pub fn ranks(&self, members: &Set) -> Set {
        match self.numbering {
            Numbering::Ranks => members.clone(),
            Numbering::Positions => self.topology.ranks_of(members),
            Numbering::Halves => self.halves().places(members),
        }
    }

    /// Returns the rank that handles a lane. Lanes are virtual: in a group with fewer ranks than lanes, one rank handles several.
    pub fn rank_of_lane(&self, lane: u32) -> Rank {
        self.rank(self.span.start + lane % self.span.len() as u32)
    }

    /// Returns the lanes that a member handles, of `lanes` lanes numbered from 0.
    pub fn lanes_of(&self, member: u32, lanes: u32) -> impl Iterator<Item = u32> + use<> {
        (member - self.span.start..lanes).step_by(self.span.len())
    }
}

/// Slots that members hold before a gathering.
pub trait Held {
    /// Returns the slots that the given members hold, in the same order on every rank.
    fn of(&self, members: &Set) -> Places;
}

impl<F: Fn(&Set) -> Places> Held for F {
    fn of(&self, members: &Set) -> Places {
        self(members)
    }
}

/// Converts a range of members to a set.
pub fn members(range: Range<u32>) -> Set {
    Set::from(u64::from(range.start)..u64::from(range.end))
}

/// An algorithm that gathers within a group.
pub trait Gather: Send + Sync {
    /// Adds the operations of member `me` to `b`. Members that hold no slots take part, too.
    fn gather(&self, b: &mut Builder, group: &Group<'_>, me: u32, held: &dyn Held);

    /// Whether the gathering goes through shared memory and sends no messages.
    fn uses_shared_memory(&self) -> bool {
        false
    }

    /// Returns the value of [`Algorithm::in_step`] for an allgather that consists of this gathering.
    fn in_step(&self) -> bool {
        true
    }

    /// Returns how many of `members` members own a piece of the vector in an allreduce: the first ones.
    fn owners(&self, members: u32) -> u32 {
        members
    }
}

/// Gathering through shared memory: each member copies its slots into the segment, and the slots of the other members out of it.
pub struct ShmGather(pub Exchange);

/// Flag that a rank raises once its own slots are in the segment.
pub(crate) const OWN: Flag = Flag(0);

impl Gather for ShmGather {
    fn uses_shared_memory(&self) -> bool {
        true
    }

    fn gather(&self, b: &mut Builder, group: &Group<'_>, me: u32, held: &dyn Held) {
        if group.span.len() < 2 || held.of(&members(group.span.clone())).iter().all(|p| p.set.is_empty()) {
            return;
        }
        let (exchange, level) = (self.0, group.level.unwrap_or(Level::NODE));
        exchange.put(b, level, OWN, &held.of(&members(me..me + 1)));
        exchange.barrier(b, level);
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

/// Gathering by messages, following a pattern.
pub struct PatternGather(pub Box<dyn Pattern>);

impl Gather for PatternGather {
    fn owners(&self, members: u32) -> u32 {
        self.0.owners(members)
    }

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

/// How the blocks are numbered that an allgather over all ranks moves, and that a reduce_scatter, its reverse, reduces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockNumbering {
    /// Each rank has one block, which has the rank's number.
    ByRank,
    /// Blocks are the pieces of the vector of an allreduce: each owner ([`Gather::owners`]) has one, which has the owner's member number.
    /// Pieces that a member sends together are then often contiguous, whatever the numbering of members.
    ByMember,
}

/// An allgather over all ranks, by any gathering algorithm.
pub struct GatherAll {
    /// The gathering algorithm.
    pub gather: Box<dyn Gather>,
    /// Numbering of the ranks in the gathering.
    pub numbering: Numbering,
    /// Numbering of the blocks.
    pub blocks: BlockNumbering,
}

impl GatherAll {
    /// Returns the number of owners of pieces among the ranks of a topology.
    pub fn owners(&self, topology: &Topology) -> u32 {
        self.gather.owners(topology.ranks())
    }

    /// Returns the chunks of a rank's own block, without empty ones.
    pub fn own(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Set {
        let member = Group::world(topology, self.numbering).member(rank);
        let own = match self.blocks {
            BlockNumbering::ByRank => Set::one(rank.0.into()),
            BlockNumbering::ByMember => Set::one(member.into()).below(self.owners(topology).into()),
        };
        problem.nonempty(&own)
    }

    /// Adds the gathering of all blocks to `b`; each rank's own block is already in its output.
    pub fn write(&self, b: &mut Builder, problem: &Problem, topology: &Topology, rank: Rank) {
        let group = Group::world(topology, self.numbering);
        let me = group.member(rank);
        // Empty blocks are left out from the start, so that regions without data need no barrier.
        let place = |chunks: &Set| Places::from_buf([Place::new(Area::Out, problem.nonempty(chunks))]);
        match self.blocks {
            BlockNumbering::ByRank => self.gather.gather(b, &group, me, &|members: &Set| place(&group.ranks(members))),
            BlockNumbering::ByMember => {
                let owners = self.owners(topology).into();
                self.gather.gather(b, &group, me, &|members: &Set| place(&members.below(owners)));
            }
        }
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

//! Gathering within a group: the part from which locality-aware collectives are made.
//!
//! Before, each member of a group holds some slots; afterwards each member holds the slots of all. A slot has
//! one name, the same on every member. An allgather over all ranks is one such gathering; each step of a
//! locality-aware algorithm ends in another, within a region.

use std::ops::Range;

use bruckner_schedule::{Area, Level, Place, Rank, Topology};

use crate::Builder;

/// Who gathers: the ranks at a range of positions.
#[derive(Clone)]
pub struct Group<'a> {
    /// Where ranks are.
    pub topology: &'a Topology,
    /// The level of which this group is one region; `None` for all ranks together.
    pub level: Option<Level>,
    /// The positions of its members.
    pub span: Range<u32>,
}

impl<'a> Group<'a> {
    /// All ranks.
    pub fn world(topology: &'a Topology) -> Group<'a> {
        Group { topology, level: None, span: 0..topology.ranks() }
    }

    /// One region.
    pub fn region(topology: &'a Topology, level: Level, region: u32) -> Group<'a> {
        Group { topology, level: Some(level), span: topology.span(level, region) }
    }

    /// The rank that serves a lane: lanes are virtual, so in a small group one rank serves several.
    pub fn server(&self, lane: u32) -> Rank {
        self.topology.rank_at(self.span.start + lane % self.span.len() as u32)
    }

    /// The lanes, of so many, that the member at a position serves.
    pub fn lanes_of(&self, position: u32, lanes: u32) -> impl Iterator<Item = u32> + use<> {
        (position - self.span.start..lanes).step_by(self.span.len())
    }
}

/// What members hold before a gathering.
pub trait Held {
    /// The slots of the members at these positions, always in the same order.
    fn of(&self, positions: Range<u32>) -> Vec<Place>;
}

impl<F: Fn(Range<u32>) -> Vec<Place>> Held for F {
    fn of(&self, positions: Range<u32>) -> Vec<Place> {
        self(positions)
    }
}

/// A way to gather within a group.
pub trait Gather {
    /// Writes what the member at position `me` does. Members that hold nothing take part all the same.
    fn gather(&self, b: &mut Builder, group: &Group<'_>, me: u32, held: &dyn Held);
}

/// Through shared memory: each puts what it holds, all meet, each takes what the others put.
pub struct ShmGather;

impl Gather for ShmGather {
    fn gather(&self, b: &mut Builder, group: &Group<'_>, me: u32, held: &dyn Held) {
        if group.span.len() < 2 || held.of(group.span.clone()).iter().all(|p| p.set.is_empty()) {
            return;
        }
        let level = group.level.unwrap_or(Level::NODE);
        let shared = |place: &Place| {
            let line = match place.area {
                Area::Line(n) => n + 1,
                _ => 0,
            };
            Place::new(Area::Shared(level, line), place.set.clone())
        };
        for place in held.of(me..me + 1) {
            b.copy(shared(&place), place);
        }
        b.barrier(level);
        let mut others = held.of(group.span.start..me);
        for place in held.of(me + 1..group.span.end) {
            Place::join(&mut others, place);
        }
        for place in others {
            let from = shared(&place);
            b.copy(place, from);
        }
    }
}

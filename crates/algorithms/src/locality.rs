//! Locality-aware allgather (Bienz, Gautam and Kharel 2022), for any regions.
//!
//! First each region gathers its own. Then, while a region holds h of the n regions, each of its ranks (a
//! *lane*) fetches from another region what that one holds, and the region gathers again: h grows by a factor
//! of lanes + 1 with one message per rank. Inside a region runs any other way to gather, so regions nest.
//!
//! ```text
//! 16 regions of 3 ranks, h = 1:   lane 0 ◄── region +1     lane 1 ◄── region +2     lane 2 ◄── region +3
//!                        h = 4:   lane 0 ◄── regions +4…7  lane 1 ◄── +8…11         lane 2 ◄── +12…15
//! ```
//!
//! With `lanes=paper` lane 0 stays idle and h grows by a factor of lanes only. Lanes are virtual: where regions
//! differ in size, a rank of a small one serves several, and the last step fetches only what is missing. With `ports=N` every rank
//! serves N of them: fewer rounds for more messages.
//!
//! Cost: ⌈log_(lanes+1) n⌉ rounds of one non-local message per rank, or of as many as it has ports.

use std::ops::Range;

use bruckner_schedule::{End, Level, Message, Payload, Place, Places, Set, Tag};

use crate::Builder;
use crate::expression::Lanes;
use crate::gather::{Gather, Group, Held, members};

/// The combinator.
pub struct Locality {
    /// What is near.
    pub level: Level,
    /// How a region gathers.
    pub inside: Box<dyn Gather>,
    /// Which lanes talk.
    pub lanes: Lanes,
}

/// One step between regions: with h regions held, lane l fetches from h·factor(l) regions further on.
struct Step<'a> {
    group: &'a Group<'a>,
    level: Level,
    regions: Range<u32>,
    lanes: u32,
    /// The first lane's factor is 1, or 0 where it stays idle.
    first: u32,
    h: u32,
}

impl Step<'_> {
    /// How far on a lane fetches, and how many regions; `None` if it fetches nothing.
    fn reach(&self, lane: u32) -> Option<(u32, u32)> {
        let (n, distance) = (self.regions.len() as u32, (lane + self.first).saturating_mul(self.h));
        (distance > 0 && distance < n).then(|| (distance, self.h.min(n - distance)))
    }

    fn region(&self, region: u32) -> Group<'_> {
        Group::region(self.group.topology, self.level, region)
    }

    /// The region so far from another, round the group.
    fn on(&self, region: u32, distance: u32) -> u32 {
        let n = self.regions.len() as u32;
        self.regions.start + (region - self.regions.start + distance) % n
    }

    /// What `count` regions hold, from one on, round the group.
    fn held_by(&self, region: u32, count: u32, held: &dyn Held) -> Places {
        let topology = self.group.topology;
        let straight = count.min(self.regions.end - region);
        let span = |first: u32, n: u32| {
            members(topology.span(self.level, first).start..topology.span(self.level, first + n - 1).end)
        };
        let mut places = held.of(&span(region, straight));
        if count > straight {
            for place in held.of(&span(self.regions.start, count - straight)) {
                Place::join(&mut places, place);
            }
        }
        places
    }
}

impl Gather for Locality {
    /// Regions of different sizes take different numbers of messages inside.
    fn in_step(&self) -> bool {
        self.inside.is_near()
    }

    fn gather(&self, b: &mut Builder, group: &Group<'_>, me: u32, held: &dyn Held) {
        let topology = group.topology;
        let mine = topology.region_at(self.level, me);
        let own = Group::region(topology, self.level, mine);
        self.inside.gather(b, &own, me, held);

        let regions = topology.region_at(self.level, group.span.start)
            ..topology.region_at(self.level, group.span.end - 1) + 1;
        let n = regions.len() as u32;
        let lanes = self.lanes.of(topology.largest(self.level), n);
        // One rank alone cannot leave a lane idle.
        let first = if self.lanes == Lanes::Paper && lanes > 1 { 0 } else { 1 };
        let mut h = 1;
        while h < n {
            let step = Step { group, level: self.level, regions: regions.clone(), lanes, first, h };
            b.round();
            for lane in own.lanes_of(me, lanes) {
                let Some((distance, count)) = step.reach(lane) else { continue };
                let (to, from) = (step.on(mine, n - distance), step.on(mine, distance));
                let message =
                    |end, places, peer| Message { end, payload: Payload::Data, places, peer, tag: Tag(0) };
                let give = step.held_by(mine, count, held);
                b.message(message(End::Send, give, step.region(to).server(lane)));
                let get = step.held_by(from, count, held);
                b.message(message(End::Recv, get, step.region(from).server(lane)));
            }
            let fetched = |members: &Set| -> Places {
                let mut places = Places::new();
                for lane in members.iter().flat_map(|at| own.lanes_of(at as u32, step.lanes)) {
                    let Some((distance, count)) = step.reach(lane) else { continue };
                    for place in step.held_by(step.on(mine, distance), count, held) {
                        Place::join(&mut places, place);
                    }
                }
                places
            };
            self.inside.gather(b, &own, me, &fetched);
            h = h.saturating_mul(lanes + first).min(n);
        }
    }
}

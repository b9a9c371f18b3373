//! Locality-aware allgather (Bienz, Gautam and Kharel 2022), for any regions.
//!
//! First each region gathers its own blocks. Then, while a region holds the blocks of h of the n regions, each of its ranks (a *lane*)
//! fetches the blocks that another region holds, and the region gathers again: h grows by a factor of lanes + 1 with one message per rank.
//! Inside a region any other gathering algorithm runs, so regions can be nested.
//!
//! ```text
//! 16 regions of 3 ranks, h = 1:   lane 0 ◄── region +1     lane 1 ◄── region +2     lane 2 ◄── region +3
//!                        h = 4:   lane 0 ◄── regions +4…7  lane 1 ◄── +8…11         lane 2 ◄── +12…15
//! ```
//!
//! With `lanes=paper` lane 0 stays idle and h grows by a factor of lanes only. Lanes are virtual: if regions differ in size, a rank of a
//! small region handles several lanes. The last step fetches only the missing blocks. With `ports=N` every rank handles N lanes: fewer
//! rounds, but more messages.
//!
//! Cost: ⌈log_(lanes+1) n⌉ rounds, each with one non-local message per rank, or N with `ports=N`.

use std::ops::Range;

use bruckner_schedule::{End, Level, Message, Payload, Place, Places, Set, Tag};

use crate::Builder;
use crate::expression::Lanes;
use crate::gather::{Gather, Group, Held, members};

/// Locality-aware gathering: lanes fetch from other regions, and another algorithm gathers inside regions.
pub struct Locality {
    /// Level of the regions.
    pub level: Level,
    /// Gathering algorithm inside a region.
    pub inside: Box<dyn Gather>,
    /// Which lanes of a region send and receive.
    pub lanes: Lanes,
}

/// One step between regions. Each region holds the blocks of h regions, and lane l fetches blocks from the region at distance h·(l +
/// `first`).
struct Step<'a> {
    group: &'a Group<'a>,
    level: Level,
    regions: Range<u32>,
    lanes: u32,
    /// Number that is added to a lane's number l in the distance h·(l + `first`): 1, or 0 if lane 0 stays idle.
    first: u32,
    h: u32,
}

impl Step<'_> {
    /// Returns the distance to the region from which a lane fetches, and the number of regions whose blocks it fetches; `None` if the lane
    /// fetches nothing.
    fn reach(&self, lane: u32) -> Option<(u32, u32)> {
        let (n, distance) = (self.regions.len() as u32, (lane + self.first).saturating_mul(self.h));
        (distance > 0 && distance < n).then(|| (distance, self.h.min(n - distance)))
    }

    fn region(&self, region: u32) -> Group<'_> {
        Group::region(self.group.topology, self.level, region)
    }

    /// Returns the region at `distance` after `region`, cyclically within the group.
    fn on(&self, region: u32, distance: u32) -> u32 {
        let n = self.regions.len() as u32;
        self.regions.start + (region - self.regions.start + distance) % n
    }

    /// Returns the slots held by `count` regions, the first of which is `region`, cyclically within the group.
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
    /// Returns true only if regions gather through shared memory. With messages, regions of different sizes take different numbers of
    /// rounds.
    fn in_step(&self) -> bool {
        self.inside.uses_shared_memory()
    }

    fn gather(&self, b: &mut Builder, group: &Group<'_>, me: u32, held: &dyn Held) {
        let topology = group.topology;
        let mine = topology.region_at(self.level, me);
        let own = Group::region(topology, self.level, mine);
        self.inside.gather(b, &own, me, held);

        let regions =
            topology.region_at(self.level, group.span.start)..topology.region_at(self.level, group.span.end - 1) + 1;
        let n = regions.len() as u32;
        let lanes = self.lanes.of(topology.largest(self.level), n);
        // If there is only one lane, it cannot stay idle.
        let first = if self.lanes == Lanes::Paper && lanes > 1 { 0 } else { 1 };
        let mut h = 1;
        while h < n {
            let step = Step { group, level: self.level, regions: regions.clone(), lanes, first, h };
            b.round();
            for lane in own.lanes_of(me, lanes) {
                let Some((distance, count)) = step.reach(lane) else { continue };
                let (to, from) = (step.on(mine, n - distance), step.on(mine, distance));
                let message = |end, places, peer| Message { end, payload: Payload::Data, places, peer, tag: Tag(0) };
                let give = step.held_by(mine, count, held);
                b.message(message(End::Send, give, step.region(to).rank_of_lane(lane)));
                let get = step.held_by(from, count, held);
                b.message(message(End::Recv, get, step.region(from).rank_of_lane(lane)));
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

//! From places to slots to addresses, and every access to them.

use std::collections::VecDeque;
use std::ops::Range;

use super::expr::{Expr, Node};
use super::machine::{Machine, Piece, Size, Slot};
use super::memory::Fault;
use super::{Invariant, Site};
use crate::program::{Code, Layout};
use crate::schedule::{Area, Place};
use crate::{Counts, Level, Rank, Set};

impl Machine<'_> {
    /// The slots of a place, or what is wrong with it. Of an execution that repeats another none are looked at.
    pub(super) fn slots(&mut self, rank: usize, place: &Place, site: Site) -> Option<Vec<Slot>> {
        let execution = site.execution as usize;
        let program = self.programs[execution];
        let problem = &program.problem;
        if let Some(level) = self.shared_level(place, site) {
            self.touch(rank, level, site);
        }
        if self.repeats[execution] {
            return Some(Vec::new());
        }
        if place.set.len() > problem.chunks() || !place.set.is_distinct() {
            self.complain(Invariant::Shape, site, format!("{place} names a slot twice"));
            return None;
        }
        if matches!(place.area, Area::Shared(..)) && problem.counts == Counts::Local {
            let message = "lengths that only some know do not go through a segment";
            self.complain(Invariant::Length, site, message);
            return None;
        }
        let allowed = match place.area {
            Area::In => problem.input(site.rank),
            Area::Out => problem.output(site.rank),
            Area::Line(_) | Area::Shared(..) => Set::from(0..problem.chunks()),
        };
        let area = self.places[execution].slots(program, site.rank, place.area, &mut self.memory);
        // What a rank has is always a range, so nearly always one look is enough.
        let within =
            |inner: Range<u64>, outer: Range<u64>| outer.start <= inner.start && inner.end <= outer.end;
        let all_there = place.set.bounds().zip(allowed.bounds()).is_some_and(|(a, b)| within(a, b));
        let mut slots = Vec::with_capacity(place.set.len() as usize);
        for chunk in place.set.iter() {
            if !all_there && allowed.position(chunk).is_none() {
                let message = format!("{place}: this rank has no {}[{chunk}]", place.area);
                self.complain(Invariant::Bounds, site, message);
                return None;
            }
            let Some(at) = area.address(chunk, problem.is_empty(chunk)) else {
                self.complain(Invariant::Placed, site, format!("{}[{chunk}] has no place", place.area));
                return None;
            };
            slots.push(Slot { area: place.area, chunk, at });
        }
        Some(slots)
    }

    /// The level of the segment that a place really touches.
    pub(super) fn shared_level(&self, place: &Place, site: Site) -> Option<Level> {
        let Area::Shared(level, _) = place.area else { return None };
        let problem = &self.programs[site.execution as usize].problem;
        place.set.iter().any(|chunk| !problem.is_empty(chunk)).then_some(level)
    }

    /// Which part of a segment an execution uses: 0, or one of the halves 1 and 2, in turn with the other
    /// executions that alternate.
    pub(super) fn part(&self, rank: usize, execution: u32, level: Level) -> u32 {
        let alternates = |code: &Code| match &code.layout {
            Layout::Buffers { alternate, .. } => alternate.contains(&level),
            Layout::Virtual => false,
        };
        let codes = &self.codes[rank][..=execution as usize];
        let turns = codes.iter().filter(|code| alternates(code)).count() as u32;
        if codes.last().is_some_and(|code| alternates(code)) { 1 + turns % 2 } else { 0 }
    }

    /// Notes that a rank touches its segment, and checks that all touches of other executions are ordered with
    /// this one, wherever in the same part they are: the next execution may be of a program that lies
    /// differently.
    pub(super) fn touch(&mut self, rank: usize, level: Level, site: Site) {
        let topology = &self.programs[0].topology;
        let region = topology.region_of(level, site.rank);
        let part = (level, region, self.part(rank, site.execution, level));
        let now = (site.execution, self.clocks.now(rank));
        if self.touched.get(&(part, rank)).and_then(VecDeque::back) == Some(&now) {
            return;
        }
        for other in topology.span(level, region).map(|at| topology.rank_at(at).0 as usize) {
            let of_other = self.touched.get(&(part, other)).into_iter().flatten();
            let unordered =
                of_other.filter(|(execution, _)| *execution != site.execution).any(|&(e, then)| {
                    other != rank && (e > site.execution || !self.clocks.knows(rank, other, then))
                });
            if unordered {
                let message = format!(
                    "uses the {level} segment while rank {other} may be there in another execution; end with `barrier {level}`, or alternate"
                );
                return self.complain(Invariant::Race, site, message);
            }
        }
        let mine = self.touched.entry((part, rank)).or_default();
        match mine.back_mut() {
            Some((execution, then)) if *execution == site.execution => *then = now.1,
            _ => mine.push_back(now),
        }
        if mine.len() > 2 {
            mine.pop_front();
        }
    }

    /// The length that a slot has, from shared knowledge or from what has arrived.
    pub(super) fn slot_size(&self, slot: Slot, rank: Rank, execution: u32) -> Size {
        let problem = &self.programs[execution as usize].problem;
        if let Some(elements) = problem.elements(slot.chunk) {
            return Size::Elements(elements);
        }
        match slot.area {
            Area::In => Size::Pair(rank.0, slot.chunk as u32),
            Area::Out => Size::Pair(slot.chunk as u32, rank.0),
            _ => self.memory.lengths.get(&slot.at).map_or(Size::Unknown, |&(s, d)| Size::Pair(s, d)),
        }
    }

    /// The length that a value has, where only its ranks know it.
    pub(super) fn value_size(&self, value: Expr, otherwise: Size) -> Size {
        match (otherwise, self.exprs.node(value)) {
            (Size::Elements(_), _) | (_, Node::Unknown) => otherwise,
            (_, Node::Input(from, to)) => Size::Pair(from.0, to as u32),
            _ => Size::Unknown,
        }
    }

    pub(super) fn read(&mut self, rank: usize, slot: Slot, site: Site) -> Piece {
        let size = self.slot_size(slot, site.rank, site.execution);
        let value = match self.memory.read(slot.at, rank, &self.clocks) {
            Ok(value) => value,
            Err(fault) => {
                self.complain_fault(fault, slot, site, "reads");
                return Piece { value: Expr::UNKNOWN, size };
            }
        };
        let length = self.value_size(value, size);
        if length != size {
            let message = format!("{}[{}] has a new length, its data is the old", slot.area, slot.chunk);
            self.complain(Invariant::Length, site, message);
        }
        Piece { value, size: length }
    }

    pub(super) fn write(&mut self, rank: usize, slot: Slot, value: Expr, site: Site) {
        if slot.area == Area::In {
            self.complain(Invariant::Bounds, site, "writes the user's input");
        }
        if let Err(fault) = self.memory.write(slot.at, value, rank, &self.clocks) {
            self.complain_fault(fault, slot, site, "writes");
        }
    }

    pub(super) fn complain_fault(&mut self, fault: Fault, slot: Slot, site: Site, verb: &str) {
        let name = format!("{verb} {}[{}]", slot.area, slot.chunk);
        let (invariant, message) = match fault {
            Fault::NeverWritten => (Invariant::Written, format!("{name}, which was never written")),
            Fault::Overwritten => (Invariant::Written, format!("{name}, part of which was overwritten")),
            Fault::InFlight => (Invariant::InFlight, format!("{name}, which a message still uses")),
            Fault::Race { other, writes } => {
                let what = if writes { "write" } else { "read" };
                (Invariant::Race, format!("{name}; nothing orders this after rank {other}'s {what} of it"))
            }
        };
        self.complain(invariant, site, message);
    }
}

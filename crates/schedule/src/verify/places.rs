//! Conversion of places to blocks of cells, and the checks of every access to cells.

use std::collections::VecDeque;

use super::expr::Expr;
use super::layout::Missing;
use super::machine::{Machine, Part, Size};
use super::memory::{Block, Blocks, Fault, Faulty, chunks};
use super::{Invariant, Site};
use crate::program::{Code, Layout};
use crate::schedule::{Area, Place};
use crate::{Collective, Counts, Level, Problem, Rank};

impl Machine<'_> {
    /// Appends the memory cells of a place to `blocks`. If the place is invalid, reports a violation and returns `false`. If an earlier
    /// execution ran the same program, only accesses to segments and reads of other ranks' buffers are checked, and nothing is appended.
    pub(super) fn blocks(&mut self, rank: usize, place: &Place, site: Site, blocks: &mut Blocks) -> bool {
        let execution = site.execution as usize;
        if let Some(level) = self.shared_level(place, site) {
            self.touch(rank, level, site);
        }
        let (owner, area) = place.area.remote().unwrap_or((site.rank, place.area));
        if place.area.remote().is_some() && self.is_filled(place, site) && !self.reads_of(rank, owner, site) {
            return false;
        }
        let problem = &self.programs[execution].problem;
        if self.repeats[execution] {
            return true;
        }
        if place.set.len() > problem.chunks() || !place.set.is_distinct() {
            self.report(Invariant::Shape, site, format!("{place} names a slot twice"));
            return false;
        }
        let is_private = !matches!(place.area, Area::Shared(..)) && place.area.remote().is_none();
        if !is_private && problem.counts == Counts::Local {
            let message = "data with counts `local` cannot be in a segment or in another rank's buffers";
            self.report(Invariant::Length, site, message);
            return false;
        }
        // The chunks of a rank in an area are always a range.
        let allowed = allowed(problem, area, owner);
        for run in place.set.runs() {
            let bounds = run.bounds();
            if bounds.start < allowed.start || bounds.end > allowed.end {
                let chunk = run.iter().find(|chunk| !allowed.contains(chunk)).unwrap_or(0);
                let message = format!("{place}: this rank has no {}[{chunk}]", place.area);
                self.report(Invariant::Bounds, site, message);
                return false;
            }
            let places = &mut self.places[self.index[execution]];
            let found = places.blocks(owner, area, run, &mut self.memory, blocks);
            if let Err(Missing(chunk)) = found {
                self.report(Invariant::Placed, site, format!("{}[{chunk}] has no place", place.area));
                return false;
            }
        }
        true
    }

    /// Returns the level of the segment that a place is in, or `None` if the place is private or all its chunks are empty.
    pub(super) fn shared_level(&self, place: &Place, site: Site) -> Option<Level> {
        let Area::Shared(level, _) = place.area else { return None };
        self.is_filled(place, site).then_some(level)
    }

    /// Whether a place has a slot that is not known to be empty.
    fn is_filled(&self, place: &Place, site: Site) -> bool {
        let places = &self.places[self.index[site.execution as usize]];
        let endless = place.set.len() > self.programs[site.execution as usize].problem.chunks();
        endless || places.any_filled(place.set.iter())
    }

    /// Returns the part of a segment that an execution uses: 0 if its program does not alternate. Otherwise half 1 or 2, which the
    /// executions of programs that alternate use in turn.
    pub(super) fn part(&self, rank: usize, execution: u32, level: Level) -> u32 {
        let alternates = |code: &Code| match &code.layout {
            Layout::Buffers { alternate, .. } => alternate.contains(&level),
            Layout::Unplaced => false,
        };
        let codes = &self.codes[rank][..=execution as usize];
        let turns = codes.iter().filter(|code| alternates(code)).count() as u32;
        if codes.last().is_some_and(|code| alternates(code)) { 1 + turns % 2 } else { 0 }
    }

    /// Records that a rank accesses its segment, and checks that this access is ordered with all accesses to the same part of the segment
    /// in other executions. Offsets are ignored, because the next execution may be of a program with other offsets.
    pub(super) fn touch(&mut self, rank: usize, level: Level, site: Site) {
        let now = (site.execution, self.clocks.now(rank));
        // If this rank's clock has not advanced since its last access to this segment, the access needs no new check.
        if self.states[rank].touched == Some((level, now)) {
            return;
        }
        if self.rings[self.index[site.execution as usize]].has(rank, level) {
            return self.touch_ring(rank, level, site);
        }
        self.states[rank].touched = Some((level, now));
        let region = self.programs[0].topology.region_of(level, site.rank);
        let part = (level, region, self.part(rank, site.execution, level));
        if self.touched.get(&(part, rank)).and_then(VecDeque::back) == Some(&now) {
            return;
        }
        if !self.has_no_conflict(rank, part, site) {
            return;
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

    /// Checks that no other rank can access this part of a segment in another execution. Reports a race and returns `false` otherwise.
    fn has_no_conflict(&mut self, rank: usize, part: Part, site: Site) -> bool {
        let (topology, (level, region, _)) = (&self.programs[0].topology, part);
        let is_there = |other: &usize| {
            let began = self.states[*other].execution;
            let ahead =
                began > site.execution && !self.states[*other].done && self.part(*other, began, level) == part.2;
            let mut touches = self.touched.get(&(part, *other)).into_iter().flatten();
            ahead
                || touches.any(|&(execution, then)| {
                    execution != site.execution && !self.clocks.happened_before(rank, *other, then)
                })
        };
        let mut others = topology.span(level, region).map(|at| topology.rank_at(at).0 as usize);
        let Some(other) = others.find(|other| *other != rank && is_there(other)) else { return true };
        let message = format!(
            "accesses the {level} segment while rank {other} may access it in another execution; end with `barrier {level}`, or use `alternate`, or `enter` and `leave`"
        );
        self.report(Invariant::Race, site, message);
        false
    }

    /// Checks the segments as soon as a rank begins an execution. This program may access them only later, but another program that runs
    /// instead could access them at once.
    pub(super) fn begin_execution(&mut self, rank: usize) {
        if !self.violations.is_empty() {
            return;
        }
        let site = self.site(rank);
        let index = self.index[site.execution as usize];
        for level in self.levels[index].clone() {
            let region = self.programs[0].topology.region_of(level, site.rank);
            if !self.rings[index].has(rank, level) {
                let part = (level, region, self.part(rank, site.execution, level));
                if !self.has_no_conflict(rank, part, site) {
                    return;
                }
            }
        }
    }

    /// Whether sizes are known only locally.
    pub(super) fn local(&self, site: Site) -> bool {
        self.programs[site.execution as usize].problem.counts == Counts::Local
    }

    /// Returns the lengths of slots, if sizes are known only locally.
    pub(super) fn lengths(&mut self, area: Area, blocks: &[Block], rank: Rank) -> Vec<Size> {
        let mut sizes = Vec::new();
        for block in blocks {
            match area {
                Area::In => sizes.extend(block.chunks.iter().map(|chunk| Size::Pair(rank.0, chunk as u32))),
                Area::Out => sizes.extend(block.chunks.iter().map(|chunk| Size::Pair(chunk as u32, rank.0))),
                _ => sizes.extend(block.each().map(|cell| {
                    let (length, _) = self.memory.length(block.space, cell);
                    length.map_or(Size::Unknown, |(s, d)| Size::Pair(s, d))
                })),
            }
        }
        sizes
    }

    /// Appends the values of blocks, and returns their lengths if sizes are known only locally. After an invalid access the values are
    /// unknown, so that one error is not reported many times.
    pub(super) fn read(
        &mut self,
        rank: usize,
        area: Area,
        blocks: &[Block],
        site: Site,
        values: &mut Vec<Expr>,
    ) -> Vec<Size> {
        for block in blocks {
            let before = values.len();
            if let Err(fault) = self.memory.read(block, rank, &self.clocks, values) {
                self.complain_fault(fault, area, site, "reads");
                values.resize(before + block.len() as usize, Expr::UNKNOWN);
            }
        }
        if !self.local(site) {
            return Vec::new();
        }
        let mut sizes = self.lengths(area, blocks, site.rank);
        let start = values.len() - sizes.len();
        for (at, chunk) in chunks(blocks).enumerate() {
            let length = self.exprs.length(values[start + at]).map(|(s, d)| Size::Pair(s, d));
            let size = sizes[at];
            sizes[at] = length.unwrap_or(size);
            if size != sizes[at] {
                let message = format!("{area}[{chunk}] has a new length, but its data is still the old one");
                self.report(Invariant::Length, site, message);
            }
        }
        sizes
    }

    /// Writes values to blocks, in order.
    pub(super) fn write(&mut self, rank: usize, area: Area, blocks: &[Block], site: Site, values: &[Expr]) {
        if area == Area::In && !blocks.is_empty() {
            self.report(Invariant::Bounds, site, "writes the user's input");
        }
        if area.remote().is_some() && !blocks.is_empty() {
            self.report(Invariant::Bounds, site, "writes to another rank's buffers");
        }
        let mut at = 0;
        for block in blocks {
            let end = at + block.len() as usize;
            if let Err(fault) = self.memory.write(block, &values[at..end], rank, &self.clocks) {
                self.complain_fault(fault, area, site, "writes");
            }
            at = end;
        }
    }

    pub(super) fn complain_fault(&mut self, (fault, chunk): Faulty, area: Area, site: Site, verb: &str) {
        let name = format!("{verb} {area}[{chunk}]");
        let (invariant, message) = match fault {
            Fault::NeverWritten => (Invariant::Written, format!("{name}, which was never written")),
            Fault::Overwritten => (Invariant::Written, format!("{name}, part of which was overwritten")),
            Fault::InFlight => (Invariant::InFlight, format!("{name}, which a message still uses")),
            Fault::Race { other, writes } => {
                let what = if writes { "write" } else { "read" };
                (Invariant::Race, format!("{name}; nothing orders this after rank {other}'s {what} of it"))
            }
        };
        self.report(invariant, site, message);
    }
}

/// Returns the numbers of the chunks that an area of a rank has.
fn allowed(problem: &Problem, area: Area, rank: Rank) -> std::ops::Range<u64> {
    let own = u64::from(rank.0) * problem.pieces;
    match (area, problem.collective) {
        (Area::In, Collective::Allgather) | (Area::Out, Collective::ReduceScatter) => own..own + problem.pieces,
        _ => 0..problem.chunks(),
    }
}

/// Returns the first chunk in `a` whose size differs from that of the chunk at the same position in `b`.
pub(super) fn first_other_size(problem: &Problem, a: &[Block], b: &[Block]) -> Option<u64> {
    if problem.chunk_elements().is_some() {
        return None;
    }
    if a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.chunks == b.chunks) {
        return None;
    }
    let differs = |(a, b): &(u64, u64)| a != b && problem.elements(*a) != problem.elements(*b);
    chunks(a).zip(chunks(b)).find(differs).map(|(a, _)| a)
}

/// Whether any slot of one list overlaps a slot of the other.
pub(super) fn overlap(a: &[Block], b: &[Block]) -> bool {
    // All blocks of a place are in one buffer or segment.
    match (a.first(), b.first()) {
        (Some(first), Some(second)) if first.space == second.space => {}
        _ => return false,
    }
    let bounds = |blocks: &[Block]| {
        let filled = blocks.iter().filter(|block| block.cells > 0).map(Block::bounds);
        filled.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
    };
    match (bounds(a), bounds(b)) {
        (Some(a), Some(b)) if a.start < b.end && b.start < a.end => {}
        _ => return false,
    }
    let spans = |blocks: &[Block], side: bool| -> Vec<(usize, usize, bool)> {
        blocks.iter().flat_map(Block::ranges).map(|range| (range.start, range.end, side)).collect()
    };
    let mut all = spans(a, true);
    all.extend(spans(b, false));
    all.sort_unstable();
    let mut ends = [0, 0];
    all.into_iter().any(|(start, end, side)| {
        let touches = ends[usize::from(!side)] > start;
        ends[usize::from(side)] = ends[usize::from(side)].max(end);
        touches
    })
}

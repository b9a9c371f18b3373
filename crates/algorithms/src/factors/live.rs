//! Closed form of the *live* lines in the allgather steps of one group: the partial sums that a result depends on. Its size is bounded by
//! the numbers of steps and ports, not by the number of ranks.
//!
//! A group has f members and f fractions. Before the allgather steps a member holds w of the fractions, at offsets 0 … w−1 from its own
//! number. *Line (r, o)* of a member is the sum of the fraction at offset o + r (mod f) over this member and the r members after it; r is
//! the *reach* of the line. It is made of two lines of the same fraction: line (r − by, o), received from the member `by` further on, and
//! this member's own line over its first `by` − 1 successors. With x = (o + r − by + 1) mod f, the own line is
//!
//! - (by − 1, x) if x < w;
//! - (by − 1 − (f − x), 0) if x ≥ w and by − 1 ≥ f − x;
//! - otherwise none: the received line is used as it is.
//!
//! The results are the lines (r, 0) for r ≥ w − 1 and (f − 1, o) for o ≥ 1: each is the sum over the w members that held its fraction.
//!
//! So the live lines are a *column*, some of the lines (r, 0), and *rows*, the lines (r, o) of a few reaches r; both are stored as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

use bruckner_schedule::set::merge;

/// Area in which a line is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Slot {
    /// The line is stored in the area of the fractions that the rank held before the steps.
    Base,
    /// The line is stored in the area of the results.
    Result,
    /// The line is stored in the private line with this number within the group.
    Line(u32),
}

/// Lines received through one port that have the same area at the sender, the same area here, and the same area of the lines that they are
/// combined with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// Offsets of the fractions, each below f.
    pub(super) offsets: Range<u64>,
    /// Area that holds the lines at the sender.
    pub(super) given: Slot,
    pub(super) into: Slot,
    /// Area of this rank's lines that are combined with the received lines; `None` if the received lines are only stored.
    pub(super) with: Option<Slot>,
}

/// One port of an allgather step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Port {
    /// Distance, in members of the group, to the rank that sends the lines.
    pub(super) by: u64,
    pub(super) pieces: Vec<Piece>,
}

/// Allgather steps of one group, each a list of ports.
pub(super) struct Live {
    pub(super) steps: Vec<Vec<Port>>,
    /// Number of private lines that the steps need.
    pub(super) lines: u32,
}

type Stretches = Vec<Range<u64>>;

fn add(stretches: &mut Stretches, new: Range<u64>) {
    if new.start < new.end {
        stretches.push(new);
        merge(stretches);
    }
}

/// Returns the intersection of two ranges.
pub(super) fn common(a: &Range<u64>, b: Range<u64>) -> Range<u64> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

pub(super) struct Group {
    pub(super) f: u64,
    pub(super) w: u64,
    /// For each port, in ascending order, its shift and the number of reaches of the lines that it receives; the lines of one port are a
    /// *batch*.
    pub(super) batches: Vec<(u64, u64)>,
    pub(super) column: Stretches,
    /// For each reach r, the offsets o ≥ 1 of the live lines (r, o).
    pub(super) rows: BTreeMap<u64, Stretches>,
    /// Private line numbers. Key (reach, true) is a row; key (shift of a port, false) is the column lines received through that port.
    pub(super) numbers: BTreeMap<(u64, bool), u32>,
}

/// This rank's lines that received lines are combined with: column lines of some reaches, or lines of one row at some offsets.
pub(super) enum Parent {
    None,
    Column(Range<u64>),
    Row(u64, Range<u64>),
}

impl Group {
    pub(super) fn batch_of(&self, reach: u64) -> u64 {
        self.batches.iter().rev().map(|&(by, _)| by).find(|&by| by <= reach).unwrap_or(0)
    }

    /// Splits the offsets of row `r`, which the port with shift `by` receives, by this rank's lines that the received lines are combined
    /// with.
    pub(super) fn parents_of_row(&self, by: u64, r: u64, offsets: &Range<u64>) -> Vec<(Range<u64>, Parent)> {
        let (f, w, s) = (self.f, self.w, r - by + 1);
        let near = common(offsets, 0..w.saturating_sub(s));
        let around = common(offsets, w.saturating_sub(s).max(f - r)..f.saturating_sub(s));
        let over = common(offsets, f.saturating_sub(s)..f);
        let nothing = common(offsets, w.saturating_sub(s)..f.saturating_sub(s).min(f - r));
        let mut parents = vec![
            (near.clone(), Parent::Row(by - 1, near.start + s..near.end + s)),
            (nothing, Parent::None),
            (around.clone(), Parent::Column(around.start + r - f..around.end + r - f)),
        ];
        if over.start < over.end {
            // Offset 0 of a row is part of the column.
            let first = over.start + s == f;
            let rest = over.start + u64::from(first)..over.end;
            if first {
                parents.push((over.start..over.start + 1, Parent::Column(by - 1..by)));
            }
            parents.push((rest.clone(), Parent::Row(by - 1, rest.start + s - f..rest.end + s - f)));
        }
        parents.retain(|(offsets, _)| offsets.start < offsets.end);
        parents
    }

    /// Marks the live lines: backwards from the results to every line that contributes.
    fn mark(&mut self) {
        let (f, w) = (self.f, self.w);
        add(&mut self.column, w - 1..f);
        add(self.rows.entry(f - 1).or_default(), 1..w);
        for (by, count) in self.batches.clone().into_iter().rev() {
            let reaches = by..(by + count).min(f);
            for part in self.column.clone().iter().map(|part| common(part, reaches.clone())) {
                add(&mut self.column, part.start.saturating_sub(by)..part.end.saturating_sub(by));
                // The column line of reach r is combined with row by − 1 at offset r − by + 1, if that is below w.
                let with = common(&part, by..by + w - 1);
                add(
                    self.rows.entry(by - 1).or_default(),
                    with.start + 1 - by..(with.end + 1 - by).max(with.start + 1 - by),
                );
            }
            for (r, offsets) in self.rows.clone().range(reaches) {
                for part in offsets {
                    add(self.rows.entry(r - by).or_default(), part.clone());
                    for (_, parent) in self.parents_of_row(by, *r, part) {
                        match parent {
                            Parent::None => {}
                            Parent::Column(reaches) => add(&mut self.column, reaches),
                            Parent::Row(row, offsets) => add(self.rows.entry(row).or_default(), offsets),
                        }
                    }
                }
            }
        }
    }
}

/// Returns the allgather steps of a group of `f` ranks, each of which holds `w` of the group's fractions before the steps.
pub(super) fn live(f: u64, w: u64, ports: &[u32]) -> Live {
    let (mut covered, mut steps) = (1, Vec::new());
    for &q in ports {
        let shifts = (1..=u64::from(q)).map(|j| j * covered).take_while(|&by| by < f);
        steps.push(shifts.map(|by| (by, covered)).collect::<Vec<_>>());
        covered = (covered * (u64::from(q) + 1)).min(f);
    }
    let batches = steps.iter().flatten().copied().collect();
    let mut group = Group { f, w, batches, column: Vec::new(), rows: BTreeMap::new(), numbers: BTreeMap::new() };
    group.mark();
    let steps =
        steps.into_iter().map(|step| step.into_iter().map(|(by, count)| group.port(by, count)).collect()).collect();
    Live { steps, lines: group.numbers.len() as u32 }
}

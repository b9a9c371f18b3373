//! The lines of one group's allgather steps that any result needs, in closed form: never more of them than steps and
//! ports, however many ranks there are.
//!
//! Before the steps a rank holds w of the f fractions of its group, at offsets 0 … w−1 from its own. *Line (r, o)* is the
//! fraction at offset o + r, combined over the ranks from the own one to the one r further on: it comes from the rank
//! `by` further on, where it is line (r − by, o), and is combined with the own last line of that fraction. That is line
//! (by − 1, x) for x = o + r − by + 1 < w, or else line (by − 1 − (f − x), 0), if there is one. The results are the lines
//! (r, 0) for r ≥ w − 1 and (f − 1, o) for o ≥ 1: in each, the w ranks that held the fraction are combined.
//!
//! So all that lives are lines (r, 0), a *column*, and lines (r, o) of a few r, *rows*; both in stretches.

use std::collections::BTreeMap;
use std::ops::Range;

use bruckner_schedule::set::merge;

/// Where a line's slots are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Slot {
    /// What the rank held before.
    Base,
    /// The results.
    Result,
    /// In a line of their own.
    Line(u32),
}

/// Lines that one port brings: alike in everything but their fractions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// The offsets of the fractions, below f.
    pub(super) offsets: Range<u64>,
    /// Where the sender has them.
    pub(super) given: Slot,
    pub(super) into: Slot,
    /// What they are combined with.
    pub(super) with: Option<Slot>,
}

/// One port of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Port {
    /// From how far on.
    pub(super) by: u64,
    pub(super) pieces: Vec<Piece>,
}

/// The steps of one group.
pub(super) struct Live {
    pub(super) steps: Vec<Vec<Port>>,
    /// How many lines of their own they need.
    pub(super) lines: u32,
}

type Stretches = Vec<Range<u64>>;

fn add(stretches: &mut Stretches, new: Range<u64>) {
    if new.start < new.end {
        stretches.push(new);
        merge(stretches);
    }
}

/// What is in both.
pub(super) fn common(a: &Range<u64>, b: Range<u64>) -> Range<u64> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

pub(super) struct Group {
    pub(super) f: u64,
    pub(super) w: u64,
    /// The shifts of all ports, ascending, and how many reaches each brings.
    pub(super) batches: Vec<(u64, u64)>,
    pub(super) column: Stretches,
    /// For each reach the offsets from 1 on.
    pub(super) rows: BTreeMap<u64, Stretches>,
    /// The lines that were given to rows and to the columns of batches.
    pub(super) numbers: BTreeMap<(u64, bool), u32>,
}

/// A column line at a reach, or row lines at offsets.
pub(super) enum Parent {
    None,
    Column(Range<u64>),
    Row(u64, Range<u64>),
}

impl Group {
    pub(super) fn batch_of(&self, reach: u64) -> u64 {
        self.batches.iter().rev().map(|&(by, _)| by).find(|&by| by <= reach).unwrap_or(0)
    }

    /// What row lines of a batch are combined with, by their offsets.
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

    /// From the results back to whatever contributes to them.
    fn mark(&mut self) {
        let (f, w) = (self.f, self.w);
        add(&mut self.column, w - 1..f);
        add(self.rows.entry(f - 1).or_default(), 1..w);
        for (by, count) in self.batches.clone().into_iter().rev() {
            let reaches = by..(by + count).min(f);
            for part in self.column.clone().iter().map(|part| common(part, reaches.clone())) {
                add(&mut self.column, part.start.saturating_sub(by)..part.end.saturating_sub(by));
                // Combined with row by − 1 at offsets r − by + 1 < w.
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

/// The allgather steps of a group of f, each rank of which holds w fractions.
pub(super) fn live(f: u64, w: u64, ports: &[u32]) -> Live {
    let (mut covered, mut steps) = (1, Vec::new());
    for &q in ports {
        let shifts = (1..=u64::from(q)).map(|j| j * covered).take_while(|&by| by < f);
        steps.push(shifts.map(|by| (by, covered)).collect::<Vec<_>>());
        covered = (covered * (u64::from(q) + 1)).min(f);
    }
    let batches = steps.iter().flatten().copied().collect();
    let mut group =
        Group { f, w, batches, column: Vec::new(), rows: BTreeMap::new(), numbers: BTreeMap::new() };
    group.mark();
    let steps = steps
        .into_iter()
        .map(|step| step.into_iter().map(|(by, count)| group.port(by, count)).collect())
        .collect();
    Live { steps, lines: group.numbers.len() as u32 }
}

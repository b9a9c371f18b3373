//! Gives every line a place in a buffer, and makes rounds into instructions.
//!
//! A private line needs room for the slots that are used, from the round of its first use to that of its last;
//! lines whose rounds do not overlap share room. A line of a segment has room for all chunks, in the order of
//! line numbers, so that all ranks of a region place it alike without asking each other.

use std::collections::BTreeMap;

use bruckner_schedule::program::extent;
use bruckner_schedule::{Area, Code, Layout, Local, Place, Placed, Problem, Program, Round, Schedule, Set};

use super::memory::without_costs;

/// Runs the pass.
pub fn run(schedule: &Schedule) -> Program {
    let program = schedule.flatten();
    without_costs(program.map(|rank, code| {
        let placed = lay_out(&schedule.problem, &schedule.ranks[&rank]);
        Code { layout: Layout::Buffers { placed, alternate: Vec::new() }, instrs: code.instrs.clone() }
    }))
}

/// A line's slots and the rounds between which they are in use.
struct Use {
    slots: Slots,
    first: usize,
    last: usize,
}

/// Sets are joined exactly while they are small, and by their bounds when they are not: one rank of very many
/// must not list its chunks.
enum Slots {
    Exact(Vec<u64>),
    Bounds(u64, u64),
}

const SMALL: u64 = 4096;

impl Slots {
    fn add(&mut self, set: &Set) {
        let Some(bounds) = set.bounds() else { return };
        if let Slots::Exact(slots) = self {
            if slots.len() as u64 + set.len() > SMALL {
                slots.sort_unstable();
                slots.dedup();
            }
            if slots.len() as u64 + set.len() <= SMALL {
                slots.extend(set.iter());
                return;
            }
            let (low, high) = (slots.iter().min().copied(), slots.iter().max().map(|n| n + 1));
            *self = Slots::Bounds(low.unwrap_or(bounds.start), high.unwrap_or(bounds.end));
        }
        if let Slots::Bounds(low, high) = self {
            (*low, *high) = ((*low).min(bounds.start), (*high).max(bounds.end));
        }
    }

    fn set(&self) -> Set {
        match self {
            Slots::Exact(slots) => {
                let mut slots = slots.clone();
                slots.sort_unstable();
                slots.dedup();
                slots.into_iter().collect()
            }
            Slots::Bounds(low, high) => Set::from(*low..*high),
        }
    }
}

fn lay_out(problem: &Problem, rounds: &[Round]) -> Vec<Placed> {
    let mut uses: BTreeMap<Area, Use> = BTreeMap::new();
    for (number, round) in rounds.iter().enumerate() {
        for place in places(round) {
            let new = || Use { slots: Slots::Exact(Vec::new()), first: number, last: number };
            let entry = uses.entry(place.area).or_insert_with(new);
            entry.last = number;
            entry.slots.add(&place.set);
        }
    }
    let all = Set::from(0..problem.chunks());
    let mut placed: Vec<(Placed, u64, &Use)> = Vec::new();
    for (&area, line) in &uses {
        let (set, at) = match area {
            Area::In | Area::Out => continue,
            Area::Shared(_, number) => (all.clone(), u64::from(number) * extent(problem, &all)),
            Area::Line(_) => {
                let set = line.slots.set();
                let at = first_fit(extent(problem, &set), line, &placed);
                (set, at)
            }
        };
        let len = extent(problem, &set);
        placed.push((Placed { place: Place::new(area, set), at }, len, line));
    }
    placed.into_iter().map(|(placed, ..)| placed).collect()
}

fn places(round: &Round) -> impl Iterator<Item = &Place> {
    let local = round.local.iter().flat_map(|local| match local {
        Local::Copy { to: a, from: b } | Local::Reduce { into: a, with: b } => vec![a, b],
        _ => Vec::new(),
    });
    round.messages.iter().flat_map(|m| &m.places).chain(local)
}

/// The lowest offset at which nothing lies that is in use in the same rounds.
fn first_fit(len: u64, line: &Use, placed: &[(Placed, u64, &Use)]) -> u64 {
    let mut taken: Vec<(u64, u64)> = placed
        .iter()
        .filter(|(p, ..)| matches!(p.place.area, Area::Line(_)))
        .filter(|(_, _, other)| other.first <= line.last && line.first <= other.last)
        .map(|(p, len, _)| (p.at, p.at + len))
        .collect();
    taken.sort_unstable();
    let mut at = 0;
    for (start, end) in taken {
        if at + len <= start {
            break;
        }
        at = at.max(end);
    }
    at
}

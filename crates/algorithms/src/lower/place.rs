//! Gives every line an offset in a buffer, and turns rounds into instructions.
//!
//! A private line needs memory for the slots in use, from the round of its first use to that of its last; lines whose rounds do not
//! overlap share memory, unless every slot must have its own. A line of a segment has memory for all chunks, in the order of line numbers,
//! so all ranks of a region place it alike without communication.

use std::collections::BTreeMap;

use bruckner_schedule::program::{flatten, size_in_units};
use bruckner_schedule::{Area, Code, Layout, LocalOp, Place, Placement, Problem, Program, Round, Schedule, Set};

use super::LineMemory;
use super::lines::drop_cost_claims;

/// Runs the pass.
pub fn run(schedule: Schedule, line_memory: LineMemory) -> Program {
    let problem = schedule.problem.clone();
    drop_cost_claims(schedule.into(|_, rounds| {
        let placed = lay_out(&problem, &rounds, line_memory);
        Code { layout: Layout::Buffers { placed, alternate: Vec::new() }, instrs: flatten(rounds) }
    }))
}

/// Slots of a line, and the numbers of the first and the last round that use it.
struct Use<'a> {
    sets: Vec<&'a Set>,
    first: usize,
    last: usize,
}

/// Maximum number of separate ranges of slots of a line; with more ranges the line has memory for all slots from its lowest to its
/// highest.
const MANY: u64 = 4096;

fn lay_out(problem: &Problem, rounds: &[Round], line_memory: LineMemory) -> Vec<Placement> {
    let mut uses: BTreeMap<Area, Use<'_>> = BTreeMap::new();
    for (number, round) in rounds.iter().enumerate() {
        for place in places(round).filter(|place| matches!(place.area, Area::Line(_) | Area::Shared(..))) {
            let new = || Use { sets: Vec::new(), first: number, last: number };
            let entry = uses.entry(place.area).or_insert_with(new);
            entry.last = number;
            entry.sets.push(&place.set);
        }
    }
    let all = Set::from(0..problem.chunks());
    let mut placed: Vec<(Placement, u64, &Use<'_>)> = Vec::new();
    for (&area, line) in &uses {
        let (set, at) = match area {
            Area::Shared(_, number) => (all.clone(), u64::from(number) * size_in_units(problem, &all)),
            _ => {
                let set = Set::union(&line.sets, MANY);
                let at = first_fit(size_in_units(problem, &set), line, &placed, line_memory);
                (set, at)
            }
        };
        let len = size_in_units(problem, &set);
        placed.push((Placement { place: Place::new(area, set), at }, len, line));
    }
    placed.into_iter().map(|(placed, ..)| placed).collect()
}

fn places(round: &Round) -> impl Iterator<Item = &Place> {
    round.messages.iter().flat_map(|m| &m.places).chain(round.local.iter().flat_map(LocalOp::places))
}

/// Returns the lowest offset at which a line of length `len` overlaps no line that is in use in the same rounds; with [`LineMemory::Own`],
/// no other line at all.
fn first_fit(len: u64, line: &Use<'_>, placed: &[(Placement, u64, &Use<'_>)], line_memory: LineMemory) -> u64 {
    let meets = |other: &Use<'_>| other.first <= line.last && line.first <= other.last;
    let mut taken: Vec<(u64, u64)> = placed
        .iter()
        .filter(|(p, ..)| matches!(p.place.area, Area::Line(_)))
        .filter(|(_, _, other)| line_memory == LineMemory::Own || meets(other))
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

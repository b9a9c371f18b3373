//! Replaces a closing barrier by two halves of the segment, used in turn.
//!
//! A barrier at the end keeps the next execution out of the segment until all have left this one. If every
//! rank of the region meets every other in the course of an execution anyway, it is enough that the next
//! execution uses the other half: to reach the one after that, a rank must have met all in the one between.
//!
//! Ranks meet at another barrier of the same level, or by awaiting a flag of each other rank of the region.

use std::collections::BTreeSet;

use bruckner_schedule::{Area, Code, Instr, Layout, Level, Local, Program, Rank, Topology};

use super::memory::places_of;

/// Runs the pass.
pub fn run(program: &Program) -> Program {
    program.map(|rank, code| alternate(&program.topology, rank, code))
}

fn alternate(topology: &Topology, rank: Rank, code: &Code) -> Code {
    let Layout::Buffers { placed, alternate } = &code.layout else { return code.clone() };
    let (mut instrs, mut alternate) = (code.instrs.clone(), alternate.clone());
    // One closing barrier for each level, innermost last; whatever stands before them orders the work itself.
    let mut closing: Vec<Level> = Vec::new();
    for instr in instrs.iter().rev() {
        match instr {
            Instr::Local(Local::Barrier(level)) if closing.last().is_none_or(|last| level < last) => {
                closing.push(*level);
            }
            _ => break,
        }
    }
    let body = instrs.len() - closing.len();
    let kept: Vec<Level> = closing
        .into_iter()
        .rev()
        .filter(|&level| {
            let drop = uses(&instrs[..body], level) && all_meet(topology, rank, &instrs[..body], level);
            if drop {
                alternate.push(level);
            }
            !drop
        })
        .collect();
    instrs.truncate(body);
    instrs.extend(kept.into_iter().map(|level| Instr::Local(Local::Barrier(level))));
    Code { layout: Layout::Buffers { placed: placed.clone(), alternate }, instrs }
}

fn uses(body: &[Instr], level: Level) -> bool {
    let of_level = |area| matches!(area, Area::Shared(l, _) if l == level);
    body.iter().flat_map(places_of).any(|place| of_level(place.area))
}

fn all_meet(topology: &Topology, rank: Rank, body: &[Instr], level: Level) -> bool {
    if body.contains(&Instr::Local(Local::Barrier(level))) {
        return true;
    }
    let awaited: BTreeSet<Rank> = body
        .iter()
        .filter_map(|instr| match instr {
            Instr::Local(Local::Wait { of, .. }) => Some(*of),
            _ => None,
        })
        .collect();
    let mut region = topology.span(level, topology.region_of(level, rank)).map(|at| topology.rank_at(at));
    region.all(|other| other == rank || awaited.contains(&other))
}

//! Replaces a closing barrier by two halves of the segment, used in turn.
//!
//! A barrier at the end keeps the next execution out of the segment until all have left this one. If every
//! rank of the region meets every other in the course of an execution anyway, it is enough that the next
//! execution uses the other half: to reach the one after that, a rank must have met all in the one between.
//!
//! Ranks meet at another barrier of the same level, or by awaiting a flag of each other rank of the region. It
//! takes all of them: a region alternates as a whole or not at all. A rank that is lowered by itself, as at run time, answers
//! for the others: in all algorithms of the catalogue they do alike, and ranks agree on it before they run.

use std::collections::{BTreeMap, BTreeSet};

use bruckner_schedule::{Area, Code, Instr, Layout, Level, Local, Program, Rank, Topology};

/// Runs the pass.
pub fn run(mut program: Program) -> Program {
    // Where buffers are open the barrier also says that all have read them.
    let opens = |code: &Code| code.instrs.contains(&Instr::Local(Local::Open));
    if program.ranks.values().any(opens) {
        return program;
    }
    let topology = program.topology.clone();
    let closed: BTreeSet<Level> = program.ranks.values().flat_map(|code| split(&code.instrs).1).collect();
    // Whether all ranks of each region that are here use their segment, close it, and meet all others before.
    let mut ready: BTreeMap<(Level, u32), bool> = BTreeMap::new();
    for (&rank, code) in &program.ranks {
        let (body, closing) = split(&code.instrs);
        let used = used(body);
        // A barrier may also close segments of other levels: it stays unless those have their own.
        let all_closed = used.iter().all(|level| closing.contains(level));
        for &level in &closed {
            let does = all_closed && used.contains(&level) && closing.contains(&level);
            let meets = does && meets(&topology, rank, level, body);
            *ready.entry((level, topology.region_of(level, rank))).or_insert(true) &= meets;
        }
    }
    for (&rank, code) in &mut program.ranks {
        let (body, closing) = split(&code.instrs);
        let body = body.len();
        let Layout::Buffers { alternate, .. } = &mut code.layout else { continue };
        code.instrs.truncate(body);
        for level in closing {
            if ready.get(&(level, topology.region_of(level, rank))) == Some(&true) {
                alternate.push(level);
            } else {
                code.instrs.push(Instr::Local(Local::Barrier(level)));
            }
        }
    }
    program
}

/// The work, and the levels of the closing barriers: one for each level, innermost last. Whatever barrier stands
/// before them orders the work itself.
fn split(instrs: &[Instr]) -> (&[Instr], Vec<Level>) {
    let mut closing: Vec<Level> = Vec::new();
    for instr in instrs.iter().rev() {
        match instr {
            Instr::Local(Local::Barrier(level)) if closing.last().is_none_or(|last| level < last) => {
                closing.push(*level);
            }
            _ => break,
        }
    }
    closing.reverse();
    (&instrs[..instrs.len() - closing.len()], closing)
}

/// Whether a rank meets all others of its region in the course of its work.
fn meets(topology: &Topology, rank: Rank, level: Level, body: &[Instr]) -> bool {
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
    let region = topology.span(level, topology.region_of(level, rank));
    region.map(|at| topology.rank_at(at)).all(|other| other == rank || awaited.contains(&other))
}

/// The levels whose segments are used.
fn used(body: &[Instr]) -> BTreeSet<Level> {
    let levels = body.iter().flat_map(Instr::places).filter_map(|place| match place.area {
        Area::Shared(level, _) => Some(level),
        _ => None,
    });
    levels.collect()
}

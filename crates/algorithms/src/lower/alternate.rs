//! Replaces a closing barrier by two halves of the segment, used in turn.
//!
//! A barrier at the end keeps the next execution out of the segment until all have left this one. If every
//! rank of the region meets every other in the course of an execution anyway, it is enough that the next
//! execution uses the other half: to reach the one after that, a rank must have met all in the one between.
//!
//! Ranks meet at another barrier of the same level, or by awaiting a flag of each other rank of the region. It
//! takes all of them: a region alternates as a whole or not at all.

use std::collections::BTreeSet;

use bruckner_schedule::{Area, Code, Instr, Layout, Level, Local, Program, Rank};

/// Runs the pass.
pub fn run(program: &Program) -> Program {
    program.map(|rank, code| alternate(program, rank, code))
}

fn alternate(program: &Program, rank: Rank, code: &Code) -> Code {
    let Layout::Buffers { placed, alternate } = &code.layout else { return code.clone() };
    let mut alternate = alternate.clone();
    let (body, closing) = split(&code.instrs);
    let mut instrs = body.to_vec();
    for level in closing {
        if region_meets(program, rank, level) {
            alternate.push(level);
        } else {
            instrs.push(Instr::Local(Local::Barrier(level)));
        }
    }
    Code { layout: Layout::Buffers { placed: placed.clone(), alternate }, instrs }
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

/// Whether all ranks of a rank's region use their segment and meet each other before the closing barrier.
fn region_meets(program: &Program, rank: Rank, level: Level) -> bool {
    let topology = &program.topology;
    let region: Vec<Rank> = topology
        .span(level, topology.region_of(level, rank))
        .map(|position| topology.rank_at(position))
        .collect();
    region.iter().all(|member| {
        let Some(code) = program.ranks.get(member) else { return false };
        let (body, closing) = split(&code.instrs);
        let awaited: BTreeSet<Rank> = body
            .iter()
            .filter_map(|instr| match instr {
                Instr::Local(Local::Wait { of, .. }) => Some(*of),
                _ => None,
            })
            .collect();
        closing.contains(&level)
            && used(body).contains(&level)
            // A barrier may also close segments of other levels: it stays unless those have their own.
            && used(body).is_subset(&closing.iter().copied().collect())
            && (body.contains(&Instr::Local(Local::Barrier(level)))
                || region.iter().all(|other| other == member || awaited.contains(other)))
    })
}

/// The levels whose segments are used.
fn used(body: &[Instr]) -> BTreeSet<Level> {
    let levels = body.iter().flat_map(Instr::places).filter_map(|place| match place.area {
        Area::Shared(level, _) => Some(level),
        _ => None,
    });
    levels.collect()
}

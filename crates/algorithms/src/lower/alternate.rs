//! Replaces a closing barrier by two halves of the segment, used in turn.
//!
//! A barrier at the end keeps the next execution out of the segment until all have left this one. If every
//! rank of the region meets every other in the course of an execution anyway, it is enough that the next
//! execution uses the other half: to reach the one after that, a rank must have met all in the one between.
//!
//! Ranks meet at another barrier of the same level, or by awaiting a flag of each other rank of the region. A region must
//! alternate as a whole or not at all. Each rank looks only at what it does itself, which in all algorithms of the catalogue is
//! the same for all ranks of a region: that is for the verifier to find, and for ranks to agree on when they run.

use std::collections::BTreeSet;

use bruckner_schedule::{Area, Instr, Layout, Level, Local, Program, Rank, Topology};

/// Runs the pass.
pub fn run(mut program: Program) -> Program {
    let topology = program.topology.clone();
    for (&rank, code) in &mut program.ranks {
        let (body, closing) = split(&code.instrs);
        let used = used(body);
        // A barrier may also close segments of other levels: it stays unless those have their own.
        let closed = used.iter().all(|level| closing.contains(level));
        let ready = |level: &Level| closed && used.contains(level) && meets(&topology, rank, *level, body);
        let (ready, stay): (Vec<Level>, Vec<Level>) = closing.into_iter().partition(ready);
        let body = body.len();
        let Layout::Buffers { alternate, .. } = &mut code.layout else { continue };
        alternate.extend(ready);
        code.instrs.truncate(body);
        code.instrs.extend(stay.into_iter().map(|level| Instr::Local(Local::Barrier(level))));
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

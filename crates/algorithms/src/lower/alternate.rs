//! Replaces a closing barrier by two halves of the segment, used in turn.
//!
//! A barrier at the end keeps the next execution out of the segment until all ranks have finished this one. If every rank of the region
//! synchronises with every other during an execution anyway, the barrier is not needed, provided that the next execution uses the other
//! half of the segment: before a rank reaches the execution after the next, which uses this half again, it has synchronised with all
//! others in the next.
//!
//! Ranks synchronise at another barrier of the same level, or by waiting for a flag of each other rank of the region. A region uses two
//! halves only if all its ranks synchronise in this way. A rank that is lowered alone, as at run time, decides for the whole region: in
//! all algorithms of the catalogue the ranks of a region come to the same decision, and ranks agree on the decision before they run.

use std::collections::{BTreeMap, BTreeSet};

use bruckner_schedule::{Area, Code, Instr, Layout, Level, LocalOp, Program, Rank, Topology};

/// Runs the pass.
pub fn run(mut program: Program) -> Program {
    // If ranks read each other's buffers directly, the barrier also ensures that all ranks have finished reading.
    let opens = |code: &Code| code.instrs.contains(&Instr::Local(LocalOp::Open));
    if program.ranks.values().any(opens) {
        return program;
    }
    let topology = program.topology.clone();
    let closed: BTreeSet<Level> = program.ranks.values().flat_map(|code| split(&code.instrs).1).collect();
    // For each region: whether all its ranks that are in the program use the segment, end with its barrier, and synchronise with all
    // others before it.
    let mut ready: BTreeMap<(Level, u32), bool> = BTreeMap::new();
    for (&rank, code) in &program.ranks {
        let (body, closing) = split(&code.instrs);
        let used = used(body);
        // A barrier may also protect segments of other levels, so it stays unless each of these has a closing barrier of its own.
        let all_closed = used.iter().all(|level| closing.contains(level));
        for &level in &closed {
            let does = all_closed && used.contains(&level) && closing.contains(&level);
            let meets = does && synchronises_with_all(&topology, rank, level, body);
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
                code.instrs.push(Instr::Local(LocalOp::Barrier(level)));
            }
        }
    }
    program
}

/// Splits instructions into the work and the levels of the closing barriers: at most one barrier for each level, innermost last. Barriers
/// before the closing ones belong to the work.
fn split(instrs: &[Instr]) -> (&[Instr], Vec<Level>) {
    let mut closing: Vec<Level> = Vec::new();
    for instr in instrs.iter().rev() {
        match instr {
            Instr::Local(LocalOp::Barrier(level)) if closing.last().is_none_or(|last| level < last) => {
                closing.push(*level);
            }
            _ => break,
        }
    }
    closing.reverse();
    (&instrs[..instrs.len() - closing.len()], closing)
}

/// Whether a rank synchronises with all other ranks of its region during its work.
fn synchronises_with_all(topology: &Topology, rank: Rank, level: Level, body: &[Instr]) -> bool {
    if body.contains(&Instr::Local(LocalOp::Barrier(level))) {
        return true;
    }
    let awaited: BTreeSet<Rank> = body
        .iter()
        .filter_map(|instr| match instr {
            Instr::Local(LocalOp::Wait { of, .. }) => Some(*of),
            _ => None,
        })
        .collect();
    let region = topology.span(level, topology.region_of(level, rank));
    region.map(|at| topology.rank_at(at)).all(|other| other == rank || awaited.contains(&other))
}

/// Returns the levels whose segments some instructions use.
fn used(body: &[Instr]) -> BTreeSet<Level> {
    let levels = body.iter().flat_map(Instr::places).filter_map(|place| match place.area {
        Area::Shared(level, _) => Some(level),
        _ => None,
    });
    levels.collect()
}

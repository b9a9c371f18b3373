//! Segments that a program uses as rings, with `enter` and `leave`.

use super::{Invariant, MOST_VIOLATIONS, Site, Violation};
use crate::Level;
use crate::program::{Code, Instr, Layout, Program};
use crate::schedule::LocalOp;

/// For each rank, the levels of its `leave` instructions, in order.
pub(super) struct Rings(Vec<Vec<Level>>);

impl Rings {
    /// Collects the levels that the ranks of a program leave; the program has all ranks. Executions that use a ring are counted by
    /// `leave`, so a violation is reported unless every rank of a region leaves the segment exactly once or none does.
    pub(super) fn new(program: &Program, execution: u32, violations: &mut Vec<Violation>) -> Rings {
        let rings = Rings(program.ranks.values().map(levels_left).collect());
        let mut levels: Vec<Level> = rings.0.iter().flatten().copied().collect();
        levels.sort_unstable();
        levels.dedup();
        for (&rank, code) in &program.ranks {
            let site = Some(Site { rank, execution, instr: None });
            let left = &rings.0[rank.0 as usize];
            for &level in &levels {
                let topology = &program.topology;
                let region = topology.span(level, topology.region_of(level, rank));
                let anybody = region.map(|at| topology.rank_at(at)).any(|other| rings.has(other.0 as usize, level));
                let message = match left.iter().filter(|other| **other == level).count() {
                    0 if anybody => {
                        format!("another rank of the region has `leave {level}`, but this rank has not")
                    }
                    0 | 1 if !alternates(code, level) || !anybody => continue,
                    0 | 1 => format!("the {level} segment cannot have both `alternate` and `leave`"),
                    _ => format!("leaves the {level} segment twice"),
                };
                if violations.len() < MOST_VIOLATIONS {
                    violations.push(Violation { invariant: Invariant::Bounds, site, message });
                }
            }
        }
        rings
    }

    pub(super) fn has(&self, rank: usize, level: Level) -> bool {
        self.0[rank].contains(&level)
    }
}

fn levels_left(code: &Code) -> Vec<Level> {
    let left = |instr: &Instr| match instr {
        Instr::Local(LocalOp::Leave(level)) => Some(*level),
        _ => None,
    };
    code.instrs.iter().filter_map(left).collect()
}

fn alternates(code: &Code, level: Level) -> bool {
    matches!(&code.layout, Layout::Buffers { alternate, .. } if alternate.contains(&level))
}

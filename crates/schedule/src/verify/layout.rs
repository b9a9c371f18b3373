//! Where every slot of every rank lies, worked out once before the run.
//!
//! Slots without place are cells by themselves. Placed ones share buffers: each buffer is cut at every offset at which
//! any of its slots begins or ends, a segment at those of all ranks of its region.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap as HashMap;

use super::memory::{Address, Memory, Owner, Space};
use super::{Invariant, Site, Violation};
use crate::program::{Code, Layout, Program, extent};
use crate::schedule::Area;
use crate::{Level, Rank, Set};

/// A buffer as slots see it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Buffer {
    /// The user's, or a line without place: a cell for each chunk.
    Line(Rank, Area),
    /// A line of a region's segment without place.
    SharedLine(Level, u32, u32),
    Temporary(Rank),
    /// The halves that take turns, or the part of programs that do not alternate.
    Segment(Level, u32, Turns),
}

/// Whether a program alternates on a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Turns {
    Halves,
    Whole,
}

impl Turns {
    fn of(code: &Code, level: Level) -> Turns {
        match &code.layout {
            Layout::Buffers { alternate, .. } if alternate.contains(&level) => Turns::Halves,
            _ => Turns::Whole,
        }
    }
}

/// Offset and length of a slot that has a place.
type Extent = Option<(u64, u64)>;

/// The extents of a line's slots, by chunk, and the cuts of their buffer.
type Placed<'a> = (&'a [Extent], &'a [u64]);

/// The places of one execution.
#[derive(Default)]
pub(super) struct Places {
    /// The offsets and lengths of a rank's placed slots, by chunk.
    tables: HashMap<(Rank, Area), Vec<Extent>>,
    /// The cuts of buffers in which slots are placed.
    cuts: HashMap<Buffer, Vec<u64>>,
    spaces: HashMap<Buffer, Space>,
}

/// The slots of one area of one rank.
pub(super) struct Slots<'a> {
    space: Space,
    /// `None` where each chunk has a cell of its own.
    placed: Option<Placed<'a>>,
}

impl Slots<'_> {
    /// Where a chunk's slot is; `None` if it has no place.
    pub(super) fn address(&self, chunk: u64, empty: bool) -> Option<Address> {
        let space = self.space;
        let Some((table, cuts)) = self.placed else {
            return Some(Address { space, first: chunk as u32, count: u32::from(!empty) });
        };
        let (offset, len) = (*table.get(chunk as usize)?)?;
        let cell = |at: u64| cuts.partition_point(|&cut| cut < at) as u32;
        let first = cell(offset);
        Some(Address { space, first, count: if len == 0 { 0 } else { cell(offset + len) - first } })
    }
}

impl Places {
    /// Lays out one execution; what is wrong with its `place` lines is complained of.
    pub(super) fn new(program: &Program, execution: u32, violations: &mut Vec<Violation>) -> Places {
        let mut places = Places::default();
        let mut cuts: HashMap<Buffer, BTreeSet<u64>> = HashMap::default();
        for (&rank, code) in &program.ranks {
            let site = Site { rank, execution, instr: None };
            let mut complain = |invariant, message| {
                if violations.len() < super::MOST_VIOLATIONS {
                    violations.push(Violation { invariant, site: Some(site), message });
                }
            };
            places.place(program, rank, code, &mut cuts, &mut complain);
        }
        places.cuts = cuts.into_iter().map(|(buffer, cuts)| (buffer, cuts.into_iter().collect())).collect();
        places
    }

    fn place(
        &mut self,
        program: &Program,
        rank: Rank,
        code: &Code,
        cuts: &mut HashMap<Buffer, BTreeSet<u64>>,
        complain: &mut dyn FnMut(Invariant, String),
    ) {
        let Layout::Buffers { placed, .. } = &code.layout else { return };
        let problem = &program.problem;
        for line in placed {
            if line.place.set.len() > problem.chunks() {
                complain(Invariant::Bounds, format!("{line}: there are not so many chunks"));
                continue;
            }
            let buffer = match line.place.area {
                Area::Shared(level, _) => {
                    Buffer::Segment(level, program.topology.region_of(level, rank), Turns::of(code, level))
                }
                _ => Buffer::Temporary(rank),
            };
            let cuts = cuts.entry(buffer).or_default();
            let table = self.tables.entry((rank, line.place.area)).or_default();
            let mut at = line.at;
            for chunk in line.place.set.iter() {
                if chunk >= problem.chunks() {
                    complain(Invariant::Bounds, format!("{line}: there is no chunk {chunk}"));
                    break;
                }
                if table.len() <= chunk as usize {
                    table.resize(chunk as usize + 1, None);
                }
                let len = extent(problem, &Set::one(chunk));
                if table[chunk as usize].replace((at, len)).is_some() {
                    complain(Invariant::Placed, format!("{line}: chunk {chunk} lies twice"));
                    break;
                }
                cuts.extend([at, at + len]);
                at += len;
            }
        }
    }

    /// The slots of an area of a rank, which may be in no buffer yet.
    pub(super) fn slots<'a>(
        &'a mut self,
        program: &Program,
        rank: Rank,
        area: Area,
        memory: &mut Memory,
    ) -> Slots<'a> {
        let placed = !matches!(program.ranks[&rank].layout, Layout::Virtual);
        let (buffer, owner) = match area {
            Area::Shared(level, line) => {
                let region = program.topology.region_of(level, rank);
                let buffer = if placed {
                    Buffer::Segment(level, region, Turns::of(&program.ranks[&rank], level))
                } else {
                    Buffer::SharedLine(level, region, line)
                };
                (buffer, Owner::Region)
            }
            Area::Line(_) if placed => (Buffer::Temporary(rank), Owner::Rank),
            _ => (Buffer::Line(rank, area), Owner::Rank),
        };
        let cuts = self.cuts.get(&buffer);
        let cells = match buffer {
            Buffer::Line(..) | Buffer::SharedLine(..) => program.problem.chunks() as usize,
            _ => cuts.map_or(0, Vec::len),
        };
        let space = *self.spaces.entry(buffer).or_insert_with(|| memory.space(cells, owner));
        let placed = match buffer {
            Buffer::Line(..) | Buffer::SharedLine(..) => None,
            _ => {
                let table = self.tables.get(&(rank, area)).map_or(&[][..], Vec::as_slice);
                Some((table, cuts.map_or(&[][..], Vec::as_slice)))
            }
        };
        Slots { space, placed }
    }
}

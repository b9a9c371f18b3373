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

/// Offset and length of a slot that has a place; once the buffer is cut, first cell and number of cells.
type Extent = Option<(u64, u64)>;

/// The places of one execution.
#[derive(Default)]
pub(super) struct Places {
    /// The extents of a rank's placed slots, by chunk.
    tables: HashMap<(Rank, Area), Vec<Extent>>,
    /// How many cells the buffers have in which slots are placed.
    cells: HashMap<Buffer, usize>,
    spaces: HashMap<Buffer, Space>,
}

/// The slots of one area of one rank.
pub(super) struct Slots<'a> {
    space: Space,
    /// `None` where each chunk has a cell of its own.
    placed: Option<&'a [Extent]>,
}

impl Slots<'_> {
    /// Where a chunk's slot is; `None` if it has no place.
    pub(super) fn address(&self, chunk: u64, empty: bool) -> Option<Address> {
        let space = self.space;
        let Some(table) = self.placed else {
            return Some(Address { space, first: chunk as u32, count: u32::from(!empty) });
        };
        let (first, count) = (*table.get(chunk as usize)?)?;
        Some(Address { space, first: first as u32, count: count as u32 })
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
        let cuts: HashMap<Buffer, Vec<u64>> =
            cuts.into_iter().map(|(buffer, cuts)| (buffer, cuts.into_iter().collect())).collect();
        for (&(rank, area), table) in &mut places.tables {
            let cuts = &cuts[&buffer_of(program, rank, area)];
            let cell = |at: u64| cuts.partition_point(|&cut| cut < at) as u64;
            for extent in table.iter_mut().flatten() {
                let (offset, len) = *extent;
                *extent = (cell(offset), if len == 0 { 0 } else { cell(offset + len) - cell(offset) });
            }
        }
        places.cells = cuts.into_iter().map(|(buffer, cuts)| (buffer, cuts.len())).collect();
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
            let cuts = cuts.entry(buffer_of(program, rank, line.place.area)).or_default();
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
        let buffer = buffer_of(program, rank, area);
        let owner = match area {
            Area::Shared(..) => Owner::Region,
            _ => Owner::Rank,
        };
        let (cells, placed) = match buffer {
            Buffer::Line(..) | Buffer::SharedLine(..) => (program.problem.chunks() as usize, None),
            _ => {
                let table = self.tables.get(&(rank, area)).map_or(&[][..], Vec::as_slice);
                (self.cells.get(&buffer).copied().unwrap_or(0), Some(table))
            }
        };
        let space = *self.spaces.entry(buffer).or_insert_with(|| memory.space(cells, owner));
        Slots { space, placed }
    }
}

/// The buffer in which an area of a rank is.
fn buffer_of(program: &Program, rank: Rank, area: Area) -> Buffer {
    let code = &program.ranks[&rank];
    let placed = !matches!(code.layout, Layout::Virtual);
    match area {
        Area::Shared(level, line) => {
            let region = program.topology.region_of(level, rank);
            if placed {
                Buffer::Segment(level, region, Turns::of(code, level))
            } else {
                Buffer::SharedLine(level, region, line)
            }
        }
        Area::Line(_) if placed => Buffer::Temporary(rank),
        _ => Buffer::Line(rank, area),
    }
}

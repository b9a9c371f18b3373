//! Locations of all slots of all ranks in the verifier's memory.
//!
//! The memory is divided into *cells* (see `memory`). Each slot without an address, and each slot of the user's buffers, is one cell.
//! Slots with addresses share buffers. If all chunks have the same number of elements and all lines begin at multiples of it, a cell is
//! one chunk of a buffer. Otherwise a buffer is split into cells at every offset at which one of its slots begins or ends. A segment is
//! split for the slots of all ranks of its region.

use std::rc::Rc;

use rustc_hash::FxHashMap as HashMap;

use super::memory::{Block, Blocks, Kind, Memory, Space};
use super::{Invariant, Site, Violation};
use crate::program::{Code, Instr, Layout, Placement, Program};
use crate::schedule::Area;
use crate::{Counts, Level, Problem, Rank, Run};

/// Whether a program reads the buffers of other ranks.
pub(super) fn reads_others(program: &Program) -> bool {
    let instrs = program.ranks.values().flat_map(|code| &code.instrs);
    instrs.flat_map(Instr::places).any(|place| place.area.remote().is_some())
}

/// Memory that contains slots.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Buffer {
    /// A user's buffer, or a private line without addresses: one cell per chunk.
    Line(Rank, Area),
    /// A line without addresses in a region's segment: level, region and line number.
    SharedLine(Level, u32, u32),
    Temporary(Rank),
    /// A region's segment, as level and region: either its two halves, or the part for programs that do not alternate.
    Segment(Level, u32, Turns),
}

/// Whether a program uses the two halves of a segment in turn (`alternate`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Turns {
    HalfSegments,
    Whole,
}

impl Turns {
    fn of(code: &Code, level: Level) -> Turns {
        match &code.layout {
            Layout::Buffers { alternate, .. } if alternate.contains(&level) => Turns::HalfSegments,
            _ => Turns::Whole,
        }
    }
}

/// First cell and number of cells of each slot of a line.
type Table = Rc<[(u32, u32)]>;

/// A line with an address. The table gives the cells of its slots; it is needed only if `Places::unit` is `None`.
type Line<'a> = (&'a Placement, Option<Table>);

/// Location of the slots of one area of one rank.
#[derive(Clone)]
struct View<'a> {
    space: Space,
    /// Lines of the area, if they have addresses. `None`: each chunk from `first` on has a cell of its own.
    placed: Option<Vec<Line<'a>>>,
    first: u64,
}

/// For each area of one rank, where its slots lie, computed at the first access. Lines with numbers below `MANY` are in lists, by number;
/// all other areas are in `others`.
#[derive(Clone, Default)]
struct Views<'a> {
    user: [Option<View<'a>>; 2],
    lines: Vec<Option<View<'a>>>,
    shared: Vec<Option<View<'a>>>,
    others: HashMap<Area, Option<View<'a>>>,
}

impl<'a> Views<'a> {
    const MANY: u32 = 1 << 12;

    fn get(&self, area: Area) -> Option<&View<'a>> {
        match area {
            Area::In => self.user[0].as_ref(),
            Area::Out => self.user[1].as_ref(),
            Area::Line(n) if n < Self::MANY => self.lines.get(n as usize)?.as_ref(),
            Area::Shared(Level::NODE, n) if n < Self::MANY => self.shared.get(n as usize)?.as_ref(),
            _ => self.others.get(&area)?.as_ref(),
        }
    }

    fn of(&mut self, area: Area) -> &mut Option<View<'a>> {
        let listed = |views: &mut Vec<Option<View<'a>>>, n: u32| {
            if views.len() <= n as usize {
                views.resize(n as usize + 1, None);
            }
        };
        match area {
            Area::In => &mut self.user[0],
            Area::Out => &mut self.user[1],
            Area::Line(n) if n < Self::MANY => {
                listed(&mut self.lines, n);
                &mut self.lines[n as usize]
            }
            Area::Shared(Level::NODE, n) if n < Self::MANY => {
                listed(&mut self.shared, n);
                &mut self.shared[n as usize]
            }
            _ => self.others.entry(area).or_default(),
        }
    }
}

/// Locations of the slots of one program.
pub(super) struct Places<'a> {
    program: &'a Program,
    /// Number of elements in every chunk, if it is the same for all chunks and every line begins at a multiple of it.
    unit: Option<u64>,
    /// Offsets at which each buffer is split into cells, if `unit` is `None`.
    cuts: HashMap<Buffer, Vec<u64>>,
    tables: HashMap<(Buffer, &'a Placement), Table>,
    /// For each buffer with placed slots, the number of cells, and whether every slot is a single cell.
    sizes: HashMap<Buffer, (usize, bool)>,
    spaces: HashMap<Buffer, Space>,
    views: Vec<Views<'a>>,
    /// Whether each chunk is empty. The list has no entries if no chunk is empty.
    empty: Vec<bool>,
    /// Whether ranks read each other's buffers.
    reads_others: bool,
}

/// Error: the chunk with this number has no address.
pub(super) struct Missing(pub(super) u64);

impl<'a> Places<'a> {
    /// Computes the locations of a program's slots, and reports errors in its `place` lines.
    pub(super) fn new(program: &'a Program, execution: u32, violations: &mut Vec<Violation>) -> Places<'a> {
        let problem = &program.problem;
        // The list of empty chunks is made only if some chunks can be empty.
        let empty: Vec<bool> = match (&problem.counts, problem.chunk_elements()) {
            (Counts::Local, _) => Vec::new(),
            (_, Some(n)) if n > 0 => Vec::new(),
            _ => (0..problem.chunks()).map(|chunk| problem.is_empty(chunk)).collect(),
        };
        let mut places = Places {
            program,
            unit: None,
            cuts: HashMap::default(),
            tables: HashMap::default(),
            sizes: HashMap::default(),
            spaces: HashMap::default(),
            views: vec![Views::default(); program.ranks.len()],
            empty,
            reads_others: reads_others(program),
        };
        let before = violations.len();
        let lines = || program.ranks.iter().flat_map(|(&rank, code)| placed(code).iter().map(move |p| (rank, p)));
        let mut areas: HashMap<Area, Vec<&Placement>> = HashMap::default();
        for (&rank, code) in &program.ranks {
            areas.clear();
            for line in placed(code) {
                let before = areas.entry(line.place.area).or_default();
                if let Err((invariant, message)) = check(problem, before, line)
                    && violations.len() < super::MOST_VIOLATIONS
                {
                    let site = Some(Site { rank, execution, instr: None });
                    violations.push(Violation { invariant, site, message: format!("{line}: {message}") });
                }
                before.push(line);
            }
        }
        if violations.len() > before {
            return places;
        }
        // A text may place a line at a huge offset. In this case cells are formed only where slots begin and end.
        let slots: u64 = lines().map(|(_, line)| line.place.set.len()).sum();
        let fits = |n: u64, line: &Placement| {
            line.at.is_multiple_of(n) && line.at / n + line.place.set.len() <= 2 * slots + 1024
        };
        let unit = problem.chunk_elements().filter(|&n| n > 0 && lines().all(|(_, line)| fits(n, line)));
        places.unit = unit;
        for (rank, line) in lines() {
            let buffer = buffer_of(program, rank, line.place.area);
            match unit {
                Some(n) => {
                    let (cells, _) = places.sizes.entry(buffer).or_insert((0, true));
                    *cells = (*cells).max((line.at / n + line.place.set.len()) as usize);
                }
                None => {
                    // Ranks of a region mostly have identical placements, which are then processed once.
                    if places.tables.contains_key(&(buffer, line)) {
                        continue;
                    }
                    places.tables.insert((buffer, line), Rc::new([]));
                    let mut at = line.at;
                    let cuts = places.cuts.entry(buffer).or_default();
                    cuts.push(at);
                    for chunk in line.place.set.iter() {
                        at += problem.elements(chunk).unwrap_or(1);
                        cuts.push(at);
                    }
                }
            }
        }
        places.cut();
        places
    }

    /// Computes the cells of every slot from the offsets in `cuts`.
    fn cut(&mut self) {
        for (buffer, cuts) in &mut self.cuts {
            cuts.sort_unstable();
            cuts.dedup();
            self.sizes.insert(*buffer, (cuts.len(), true));
        }
        for ((buffer, line), table) in &mut self.tables {
            let cuts = &self.cuts[buffer];
            let (_, single) = self.sizes.get_mut(buffer).expect("has cuts");
            let (mut at, mut cell) = (line.at, cuts.partition_point(|&cut| cut < line.at));
            let slots = line.place.set.iter().map(|chunk| {
                at += self.program.problem.elements(chunk).unwrap_or(1);
                let first = cell;
                while cuts[cell] < at {
                    cell += 1;
                }
                *single &= cell - first <= 1;
                (first as u32, (cell - first) as u32)
            });
            *table = slots.collect();
        }
    }

    fn is_empty(&self, chunk: u64) -> bool {
        self.empty.get(chunk as usize).copied().unwrap_or(false)
    }

    /// Whether any of the chunks is not known to be empty.
    pub(super) fn any_filled(&self, mut chunks: impl Iterator<Item = u64>) -> bool {
        if self.empty.is_empty() { chunks.next().is_some() } else { chunks.any(|chunk| !self.is_empty(chunk)) }
    }

    fn view(&mut self, rank: Rank, area: Area, memory: &mut Memory) {
        let (program, problem) = (self.program, &self.program.problem);
        let (sizes, spaces, tables, unit) = (&self.sizes, &mut self.spaces, &self.tables, self.unit);
        let view = {
            let buffer = buffer_of(program, rank, area);
            let of_user = match area {
                Area::In => problem.input(rank).bounds(),
                Area::Out => problem.output(rank).bounds(),
                _ => None,
            };
            let mut first = 0;
            let (cells, single, placed) = match buffer {
                Buffer::Line(..) | Buffer::SharedLine(..) => {
                    let range = of_user.unwrap_or(0..problem.chunks());
                    first = range.start;
                    ((range.end - range.start) as usize, true, None)
                }
                _ => {
                    let (cells, single) = sizes.get(&buffer).copied().unwrap_or((0, true));
                    let lines = placed_of(program, rank).iter().filter(|line| line.place.area == area);
                    let table = |line| match unit {
                        Some(_) => None,
                        None => tables.get(&(buffer, line)).cloned(),
                    };
                    (cells, single, Some(lines.map(|line| (line, table(line))).collect()))
                }
            };
            let open = self.reads_others && matches!(area, Area::In | Area::Out);
            let (shared, local) = (open || matches!(area, Area::Shared(..)), problem.counts == Counts::Local);
            let kind = Kind { shared, single, local };
            let space = *spaces.entry(buffer).or_insert_with(|| memory.space(cells, kind));
            View { space, placed, first }
        };
        *self.views[rank.0 as usize].of(area) = Some(view);
    }

    /// Appends the blocks of cells for a run of chunks in an area of a rank.
    pub(super) fn blocks(
        &mut self,
        rank: Rank,
        area: Area,
        run: &Run,
        memory: &mut Memory,
        blocks: &mut Blocks,
    ) -> Result<(), Missing> {
        if self.views[rank.0 as usize].get(area).is_none() {
            self.view(rank, area, memory);
        }
        let view = self.views[rank.0 as usize].get(area).expect("just made");
        if self.empty.is_empty() || run.len() == 1 && !self.is_empty(run.start()) {
            return self.filled(view, run, blocks);
        }
        for range in run.blocks() {
            let mut from = range.start;
            while from < range.end {
                // Extend the range while all its chunks are empty, or while none is.
                let empty = self.is_empty(from);
                let mut to = from + 1;
                while to < range.end && self.is_empty(to) == empty {
                    to += 1;
                }
                let part = Run::new(from, to - from, 0, 1);
                if empty {
                    let placed = |chunk: &u64| view.placed.as_ref().is_none_or(|lines| find(lines, *chunk).is_some());
                    if let Some(chunk) = (from..to).find(|chunk| !placed(chunk)) {
                        return Err(Missing(chunk));
                    }
                    let nothing = Block { space: view.space, chunks: part, first: 0, cells: 0, stride: 0, count: 1 };
                    blocks.push(nothing);
                } else {
                    self.filled(view, &part, blocks)?;
                }
                from = to;
            }
        }
        Ok(())
    }

    /// Appends the blocks of cells for a run of non-empty chunks.
    fn filled(&self, view: &View<'a>, run: &Run, blocks: &mut Blocks) -> Result<(), Missing> {
        let space = view.space;
        // Creates a block whose cells have the same distances as the chunks, starting at cell `first`.
        let alike = |first: u64| Block {
            space,
            chunks: *run,
            first: first as u32,
            cells: run.block() as u32,
            stride: run.stride() as i32,
            count: run.count() as u32,
        };
        let together = |chunks: Run, first: u64| Block {
            space,
            chunks,
            first: first as u32,
            cells: chunks.len() as u32,
            stride: 0,
            count: 1,
        };
        let Some(lines) = &view.placed else {
            blocks.push(alike(run.start() - view.first));
            return Ok(());
        };
        if let (Some(n), [(line, _)]) = (self.unit, &lines[..]) {
            let (at, set) = (line.at / n, line.place.set.runs());
            match set {
                [whole] if whole.count() == 1 => {
                    let (range, bounds) = (whole.bounds(), run.bounds());
                    if range.start <= bounds.start && bounds.end <= range.end {
                        blocks.push(alike(at + run.start() - range.start));
                        return Ok(());
                    }
                }
                [whole] if whole == run => {
                    blocks.push(together(*run, at));
                    return Ok(());
                }
                _ => {}
            }
        }
        for range in run.blocks() {
            let mut from = range.start;
            while from < range.end {
                let ((line, table), position, following) = find(lines, from).ok_or(Missing(from))?;
                let len = following.min(range.end - from);
                match (self.unit, table) {
                    (Some(n), _) => blocks.push(together(Run::new(from, len, 0, 1), line.at / n + position)),
                    (None, Some(table)) => {
                        let mut i = 0;
                        while i < len {
                            let slot = |i: u64| table[(position + i) as usize];
                            let (first, cells) = slot(i);
                            // Consecutive slots of one cell each form one block.
                            let mut j = i + 1;
                            while cells == 1 && j < len && slot(j) == (first + (j - i) as u32, 1) {
                                j += 1;
                            }
                            let chunks = Run::new(from + i, j - i, 0, 1);
                            let cells = if cells == 1 { (j - i) as u32 } else { cells };
                            blocks.push(Block { space, chunks, first, cells, stride: 0, count: 1 });
                            i = j;
                        }
                    }
                    (None, None) => return Err(Missing(from)),
                }
                from += len;
            }
        }
        Ok(())
    }
}

/// Returns the line that contains a chunk's slot, the slot's position in the line, and how many consecutive chunks the line stores from
/// this position on.
fn find<'t, 'a>(lines: &'t [Line<'a>], chunk: u64) -> Option<(&'t Line<'a>, u64, u64)> {
    lines.iter().find_map(|line| {
        let mut before = 0;
        for run in line.0.place.set.runs() {
            if let Some(position) = run.position(chunk) {
                return Some((line, before + position, run.block() - position % run.block()));
            }
            before += run.len();
        }
        None
    })
}

/// Checks the address of a line against the earlier lines of the same area.
fn check(problem: &Problem, before: &[&Placement], line: &Placement) -> Result<(), (Invariant, String)> {
    let set = &line.place.set;
    if set.len() > problem.chunks() {
        return Err((Invariant::Bounds, "the line has more slots than the problem has chunks".to_owned()));
    }
    if let Some(chunk) = set.bounds().map(|bounds| bounds.end - 1).filter(|&chunk| chunk >= problem.chunks()) {
        return Err((Invariant::Bounds, format!("there is no chunk {chunk}")));
    }
    let has = |other: &&Placement| set.iter().any(|chunk| other.place.set.position(chunk).is_some());
    if !set.is_distinct() || before.iter().any(has) {
        return Err((Invariant::Placed, "a chunk is placed twice".to_owned()));
    }
    Ok(())
}

fn placed(code: &Code) -> &[Placement] {
    match &code.layout {
        Layout::Unplaced => &[],
        Layout::Buffers { placed, .. } => placed,
    }
}

fn placed_of(program: &Program, rank: Rank) -> &[Placement] {
    placed(&program.ranks[&rank])
}

/// Returns the buffer that contains an area of a rank.
fn buffer_of(program: &Program, rank: Rank, area: Area) -> Buffer {
    let code = &program.ranks[&rank];
    let placed = !matches!(code.layout, Layout::Unplaced);
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

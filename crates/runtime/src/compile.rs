//! Compiles one rank's program to steps on ranges of cells. A *cell* is one chunk in a user's buffer or in a line of a segment, or one
//! unit of temporary memory. The steps are valid for cells of any size.
//!
//! The compiler replaces each place by a buffer and a range of cells, and each barrier by steps that raise and await flags. All other
//! instructions stay as the verifier has proven them. [`Executable::bind`](crate::Executable::bind) turns the steps into the actions that
//! the executor runs, for the sizes of a call.

use std::collections::VecDeque;
use std::ops::Range;

use bruckner_schedule::addresses::{Addresses, Buffer};
use bruckner_schedule::{
    Area, Code, Collective, Counts, End, Instr, Layout, Level, LocalOp, Message, Place, Placement, Problem, Rank, Run,
    Set, Topology,
};

use crate::class::{Limits, LineLayout};
use crate::memory::{Bases, BufferOffset, Needs};
use crate::segment::{FLAGS, SegmentSize, Turns, barrier_rounds, flag_at, lines_at, round_at};

/// A range of consecutive cells in one buffer. A cell is a chunk of a user's buffer, a chunk of a line of a segment, or a unit of
/// temporary memory. The length of a cell in bytes is known once the plan is bound to sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cells {
    /// Buffer that contains the cells, as an index into [`Bases`].
    pub(crate) base: u8,
    /// In a segment: number of the line. In another rank's buffer ([`Bases::PEER`]): number of the chunk at which that buffer begins.
    pub(crate) line: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Cells {
    fn end(self) -> u32 {
        self.first + self.count
    }

    /// Returns whether `other` begins where this range ends, in the same buffer and line.
    fn go_on(self, other: Cells) -> bool {
        (self.base, self.line, self.end()) == (other.base, other.line, other.first)
    }
}

/// A range of cells that is repeated `times` times at a constant stride.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Strip {
    pub(crate) cells: Cells,
    /// Stride from one repetition to the next, in cells.
    pub(crate) step: i32,
    pub(crate) times: u32,
}

impl Strip {
    /// Returns the repetition with index `at`.
    pub(crate) fn nth(&self, at: u32) -> Cells {
        Cells { first: (i64::from(self.cells.first) + i64::from(at) * i64::from(self.step)) as u32, ..self.cells }
    }

    /// Returns the range of cell numbers from the lowest cell of all repetitions to the end of the highest.
    fn bounds(&self) -> Range<u64> {
        let (a, b) = (self.nth(0), self.nth(self.times - 1));
        u64::from(a.first.min(b.first))..u64::from(a.end().max(b.end()))
    }

    /// Splits off the first `count` cells of the first repetition. Returns these cells, and what remains: the rest of the first
    /// repetition, and the other repetitions, if any.
    fn split(&self, count: u32) -> (Cells, [Option<Strip>; 2]) {
        let first = Cells { count, ..self.cells };
        let more = self.cells.count - count;
        let behind = Cells { first: self.cells.first + count, count: more, ..self.cells };
        let one = Strip { cells: behind, step: 0, times: 1 };
        let rest = Strip { cells: self.nth(1), step: self.step, times: self.times - 1 };
        (first, [(more > 0).then_some(one), (rest.times > 0).then_some(rest)])
    }
}

/// Selects the input or the output buffer of another rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum PeerBuffer {
    In,
    Out,
}

/// A flag in the segment of a level, with the number `times` of its raise in this execution, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FlagValue {
    pub(crate) flag: BufferOffset,
    pub(crate) level: u8,
    pub(crate) times: u16,
}

/// One step of a compiled program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Post {
        end: End,
        data: Cells,
        peer: Rank,
        tag: u32,
        request: u32,
    },
    Finish {
        first: u32,
        end: u32,
    },
    /// Copies `from` to `to`. Both have the same number of cells and repetitions, and corresponding cells have the same size.
    Copy {
        to: Strip,
        from: Strip,
    },
    Reduce {
        into: Strip,
        with: Strip,
    },
    /// Publishes the addresses of this rank's buffers to the other ranks of its node.
    Open,
    /// Selects the input or output buffer of a rank of the node (`member`), which later steps on [`Bases::PEER`] read.
    Look {
        member: u32,
        side: PeerBuffer,
    },
    /// Raises a flag of this rank. Binding omits this step if all of `chunks` are empty.
    Raise {
        mark: FlagValue,
        chunks: Option<Set>,
    },
    /// Waits until a flag of another rank is raised. Binding omits this step if all of `chunks` are empty.
    Await {
        mark: FlagValue,
        chunks: Option<Set>,
    },
    /// Waits until the ring slot that this execution uses in a level's segment is free. Binding omits this step if all of `chunks` are
    /// empty.
    Enter {
        level: u8,
        chunks: Option<Set>,
    },
    /// Records that this rank no longer uses its ring slot in a level's segment.
    Leave {
        level: u8,
    },
}

/// Why the runtime cannot run a program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CompileError {
    /// A message covers more than one contiguous range of memory.
    #[error("the message `{0}` is not contiguous in memory")]
    NonContiguous(String),
    /// The program has not been lowered, so its temporary memory has no addresses yet.
    #[error("the program has not been lowered: its temporary memory has no addresses yet")]
    NotLowered,
    /// The program exceeds a limit of the runtime (flags, levels, 32-bit cell numbers) or has an unsupported instruction.
    #[error(
        "`{0}` is not supported here: it exceeds the limits for flags, levels or cell numbers, or needs an instruction that this executor lacks"
    )]
    LimitExceeded(String),
    /// Each rank knows only its own block sizes, as in an alltoallv. [`sized::SizedExecutable`](crate::sized::SizedExecutable) runs such
    /// programs.
    #[error("block sizes are known only locally (alltoallv): use the executor for alltoallv")]
    Local,
    /// The program was made for specific sizes: its counts are in elements and not in chunks.
    #[error("the program was made for specific sizes: its counts are elements, not chunks")]
    NotInChunks,
    /// Slots overlap in temporary memory, which is not supported for chunks of different sizes.
    #[error("slots of different sizes overlap in temporary memory")]
    Shared,
}

/// Translates the ranks of a program to ranks of the transport.
pub trait TranslateRanks {
    /// Returns the transport's rank number of the program's rank `rank`.
    fn translate(&self, rank: Rank) -> u32;
}

/// Identity translation: program and transport use the same rank numbers.
pub struct IdentityTranslation;

impl TranslateRanks for IdentityTranslation {
    fn translate(&self, rank: Rank) -> u32 {
        rank.0
    }
}

/// Amount of a level's segment that a plan uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shared {
    /// Number of ranks in the region.
    pub members: u32,
    /// Number of lines of data in the segment.
    pub lines: u32,
    /// Whether the lines lie in a ring slot, and not in the common part or a half of the segment.
    pub ring: bool,
}

/// Memory that a plan needs, in units that do not depend on sizes. All ranks must use the same value, the maximum over the ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// Temporary memory. If all chunks are equal, a number of cells; otherwise a factor, by which the size of all data of the problem is
    /// multiplied.
    pub temporary: u64,
    /// Use of each level's segment; `None` for a level whose segment is not used.
    pub shared: [Option<Shared>; Bases::LEVELS],
}

impl Extent {
    /// Returns the memory needed for the sizes of `problem`, in bytes; `even` is [`Compiled::even`]. All ranks compute the same result.
    pub fn needs(&self, even: bool, problem: &Problem, limits: &Limits) -> Needs {
        let element = problem.element as usize;
        let temporary = match problem.chunk_elements().filter(|_| even) {
            Some(n) => self.temporary * n,
            None => self.temporary * problem.total(),
        };
        let line = LineLayout::of(problem, limits).bytes(problem);
        let size = |shared: Shared| {
            let bytes = lines_at(shared.members) + shared.lines as usize * line;
            match shared.ring {
                true => SegmentSize { slot: bytes, slots: 1, ..SegmentSize::default() },
                false => SegmentSize { part: bytes, ..SegmentSize::default() },
            }
        };
        Needs { temporary: temporary as usize * element, parts: self.shared.map(|shared| shared.map(size)) }
    }
}

/// A rank's program compiled to steps, with the memory it needs.
pub struct Compiled {
    pub(crate) steps: Vec<Step>,
    /// Whether the steps are for chunks of equal size.
    pub even: bool,
    /// Number of the chunk that each cell of temporary memory holds. Empty if the steps are for chunks of equal size.
    pub(crate) cells: Vec<u32>,
    /// Number of the first chunk in this rank's input buffer, and in its output buffer.
    pub(crate) first: [u64; 2],
    /// Whether zero-byte messages are sent, too, because messages also order accesses to shared memory.
    pub(crate) sends_nothing: bool,
    pub(crate) requests: usize,
    /// Memory that the program needs.
    pub extent: Extent,
    /// How successive executions alternate on each level's segment; all ranks of a region must use the same values.
    pub turns: [Turns; Bases::LEVELS],
    /// Largest message tag; tags start at 0.
    pub tags: u32,
    /// Whether input and output may be the same memory, because no input is overwritten before it has been read.
    pub in_place: bool,
    /// Whether this rank's own block of the output is written only by copies of the same block of the input. If input and output are the
    /// same memory, such copies have no effect, so the block is only read.
    pub only_reads: bool,
    /// Whether every message has the same address in each execution on the same buffers, because no message lies in a part of a segment
    /// that alternates between executions.
    pub fixed: bool,
    /// Whether ranks of a node read each other's input and output buffers directly.
    pub opens_buffers: bool,
    /// Number of messages that one execution posts.
    pub messages: usize,
    /// Whether all messages are posted before the first wait, and no memory is shared. Once such an execution is started, the transport
    /// alone makes all its messages progress, and only local work is left.
    pub one_round: bool,
}

impl Compiled {
    /// Returns the number of steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns whether the program has no steps.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

fn is_one_round(steps: &[Step]) -> bool {
    let awaits = |step: &Step| matches!(step, Step::Finish { .. });
    let posts = |step: &Step| matches!(step, Step::Post { .. });
    let shares = |step: &Step| {
        matches!(step, Step::Raise { .. } | Step::Await { .. } | Step::Enter { .. } | Step::Leave { .. } | Step::Open)
    };
    let first = steps.iter().position(awaits).unwrap_or(steps.len());
    !steps.iter().any(shares) && !steps[first..].iter().any(posts)
}

/// Conditions under which a compiled program will run.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// Topology with the region of each rank.
    pub topology: &'a Topology,
    /// Whether all chunks have the same size.
    pub even: bool,
    /// Whether messages also order accesses to shared memory; the same on all ranks.
    pub orders_memory: bool,
}

/// Compiles a rank's code for a problem whose counts are given in chunks ([`Problem::in_chunks`]).
pub fn compile(problem: &Problem, rank: Rank, code: &Code, target: &Target<'_>) -> Result<Compiled, CompileError> {
    if problem.counts == Counts::Local {
        return Err(CompileError::Local);
    }
    if problem.chunk_elements() != Some(1) {
        return Err(CompileError::NotInChunks);
    }
    let Layout::Buffers { placed, alternate } = &code.layout else { return Err(CompileError::NotLowered) };
    let shared_lines = 1 + placed.iter().fold(0, |most, p| match p.place.area {
        Area::Shared(_, line) => most.max(line),
        _ => most,
    });
    let mut compiler = Compiler {
        target,
        rank,
        addresses: Addresses::new(problem, code),
        flags: [0; FLAGS as usize],
        awaited: Vec::new(),
        barriers: [0; Bases::LEVELS],
        shared: [None; Bases::LEVELS],
        turns: [Turns::None; Bases::LEVELS],
        steps: Vec::new(),
        requests: 0,
        open: Vec::new(),
        tags: 0,
        lines: shared_lines,
        collective: problem.collective,
        pieces: problem.pieces,
    };
    for instr in &code.instrs {
        compiler.instr(instr)?;
    }
    let opens = compiler.steps.contains(&Step::Open);
    // A rank with open buffers answers read requests only while it waits for flags or for reads. Programs that wait for anything else are
    // refused.
    let waits_otherwise = |step: &Step| matches!(step, Step::Post { .. } | Step::Enter { .. });
    if opens && compiler.steps.iter().any(waits_otherwise) {
        return Err(CompileError::LimitExceeded("messages while buffers are open".to_owned()));
    }
    for level in alternate {
        let index = compiler.level(*level)?;
        compiler.turns[index] = Turns::HalfSegments;
    }
    let own = problem.block(rank).iter().next().unwrap_or(0);
    let first = match problem.collective {
        Collective::Allgather => [own, 0],
        Collective::ReduceScatter => [0, own],
        _ => [0, 0],
    };
    let room = code.memory(problem);
    let cells = if target.even { Vec::new() } else { chunks_of_cells(placed, room)? };
    let temporary = if target.even { room } else { max_cells_per_chunk(&cells) };
    Ok(Compiled {
        even: target.even,
        first,
        sends_nothing: target.orders_memory,
        in_place: match opens {
            // Other ranks read the input while this rank writes its output. Only for allreduce it is proven that no rank overwrites what
            // another still reads.
            true => problem.collective == Collective::Allreduce,
            false => reads_before_it_writes(&compiler.steps),
        },
        only_reads: only_reads(&compiler.steps, own..own + problem.pieces),
        one_round: is_one_round(&compiler.steps),
        fixed: compiler.steps_are_fixed(),
        opens_buffers: opens,
        messages: compiler.requests,
        requests: compiler.requests,
        extent: Extent { temporary, shared: compiler.shared },
        cells,
        turns: compiler.turns,
        tags: compiler.tags,
        steps: compiler.steps,
    })
}

/// Returns the number of the chunk that each cell of temporary memory holds.
fn chunks_of_cells(placed: &[Placement], room: u64) -> Result<Vec<u32>, CompileError> {
    const NONE: u32 = u32::MAX;
    let mut cells = vec![NONE; room as usize];
    for line in placed.iter().filter(|line| matches!(line.place.area, Area::Line(_))) {
        for (at, chunk) in line.place.set.iter().enumerate() {
            let cell = &mut cells[line.at as usize + at];
            if *cell != NONE {
                return Err(CompileError::Shared);
            }
            *cell = chunk as u32;
        }
    }
    if cells.contains(&NONE) { Err(CompileError::Shared) } else { Ok(cells) }
}

/// Returns the largest number of cells that hold the same chunk.
fn max_cells_per_chunk(cells: &[u32]) -> u64 {
    let mut sorted = cells.to_vec();
    sorted.sort_unstable();
    sorted.chunk_by(|a, b| a == b).map(|same| same.len() as u64).max().unwrap_or(0)
}

struct Compiler<'a> {
    target: &'a Target<'a>,
    rank: Rank,
    addresses: Addresses<'a>,
    flags: [u16; FLAGS as usize],
    awaited: Vec<((Rank, u32), u16)>,
    barriers: [u16; Bases::LEVELS],
    shared: [Option<Shared>; Bases::LEVELS],
    turns: [Turns; Bases::LEVELS],
    steps: Vec<Step>,
    requests: usize,
    /// For each posted request, its number in the program, which may be reused, and its number in the compiled plan. The latter is unique
    /// in the execution, so that the transport can make each request persistent.
    open: Vec<(u32, u32)>,
    tags: u32,
    lines: u32,
    collective: Collective,
    pieces: u64,
}

impl Compiler<'_> {
    fn instr(&mut self, instr: &Instr) -> Result<(), CompileError> {
        match instr {
            Instr::Post(request, message) => {
                let own = self.requests as u32;
                self.requests += 1;
                self.open.retain(|(old, _)| *old != request.0);
                self.open.push((request.0, own));
                let step = self.message(own, message)?;
                self.steps.push(step);
            }
            Instr::Finish(requests) => {
                let own =
                    |number: u64| self.open.iter().find(|(old, _)| u64::from(*old) == number).map(|(_, own)| *own);
                let mut own: Vec<u32> = requests.iter().filter_map(own).collect();
                own.sort_unstable();
                for block in own.chunk_by(|a, b| a + 1 == *b) {
                    self.steps.push(Step::Finish { first: block[0], end: block[block.len() - 1] + 1 });
                }
            }
            Instr::Local(LocalOp::Copy { to, from }) => {
                self.look(from)?;
                self.pairs(to, from, |to, from| Step::Copy { to, from })?;
            }
            Instr::Local(LocalOp::Reduce { into, with }) => {
                self.look(with)?;
                self.pairs(into, with, |into, with| Step::Reduce { into, with })?;
            }
            Instr::Local(LocalOp::Open) => {
                self.use_segment(Level::NODE, 0);
                self.steps.push(Step::Open);
            }
            Instr::Local(LocalOp::Signal { flag, chunks }) => {
                if flag.0 >= FLAGS {
                    return Err(CompileError::LimitExceeded(format!("flag {flag}")));
                }
                self.use_segment(Level::NODE, 0);
                let me = self.member(Level::NODE, self.rank);
                let times = &mut self.flags[flag.0 as usize];
                *times += 1;
                let flag = BufferOffset { base: Bases::SEGMENT, offset: flag_at(me, flag.0) };
                let mark = FlagValue { flag, level: 0, times: *times };
                self.steps.push(Step::Raise { mark, chunks: chunks.clone() });
            }
            Instr::Local(LocalOp::Wait { flag, of, chunks }) => {
                self.use_segment(Level::NODE, 0);
                let member = self.member(Level::NODE, *of);
                let key = (*of, flag.0);
                let times = match self.awaited.iter_mut().find(|(other, _)| *other == key) {
                    Some((_, times)) => {
                        *times += 1;
                        *times
                    }
                    None => {
                        self.awaited.push((key, 1));
                        1
                    }
                };
                let flag = BufferOffset { base: Bases::SEGMENT, offset: flag_at(member, flag.0) };
                let mark = FlagValue { flag, level: 0, times };
                self.steps.push(Step::Await { mark, chunks: chunks.clone() });
            }
            Instr::Local(LocalOp::Barrier(level)) => {
                let index = self.level(*level)?;
                self.use_segment(*level, index);
                self.barriers[index] += 1;
                let times = self.barriers[index];
                let region = self.target.topology.span(*level, self.target.topology.region_of(*level, self.rank));
                let me = self.member(*level, self.rank);
                for (round, awaited) in barrier_rounds(region.len() as u32, me).into_iter().enumerate() {
                    let base = Bases::HEADER + index as u8;
                    let flag = |member| BufferOffset { base, offset: round_at(member, round as u32) };
                    let mark = |member| FlagValue { flag: flag(member), level: index as u8, times };
                    self.steps.push(Step::Raise { mark: mark(me), chunks: None });
                    let awaits = awaited.into_iter().map(|member| Step::Await { mark: mark(member), chunks: None });
                    self.steps.extend(awaits);
                }
            }
            Instr::Local(LocalOp::Enter { level, chunks }) => {
                let index = self.level(*level)?;
                self.steps.push(Step::Enter { level: index as u8, chunks: chunks.clone() });
            }
            Instr::Local(LocalOp::Leave(level)) => {
                let index = self.level(*level)?;
                self.use_segment(*level, index);
                self.turns[index] = Turns::Ring;
                if let Some(shared) = &mut self.shared[index] {
                    shared.ring = true;
                }
                self.steps.push(Step::Leave { level: index as u8 });
            }
        }
        Ok(())
    }

    /// Adds a step that selects another rank's buffer, if `place` lies in such a buffer.
    fn look(&mut self, place: &Place) -> Result<(), CompileError> {
        let (rank, side) = match place.area {
            Area::InOf(rank) => (rank, PeerBuffer::In),
            Area::OutOf(rank) => (rank, PeerBuffer::Out),
            _ => return Ok(()),
        };
        self.use_segment(Level::NODE, 0);
        let look = Step::Look { member: self.member(Level::NODE, rank), side };
        self.steps.push(look);
        Ok(())
    }

    fn steps_are_fixed(&self) -> bool {
        let moves = |data: &Cells| {
            data.base >= Bases::SEGMENT && self.turns[usize::from(data.base - Bases::SEGMENT)] != Turns::None
        };
        !self.steps.iter().any(|step| matches!(step, Step::Post { data, .. } if moves(data)))
    }

    fn level(&self, level: Level) -> Result<usize, CompileError> {
        // A level that is missing in the topology has the same regions as the next coarser level, but a segment of its own.
        let index = usize::from(level.0);
        if index < Bases::LEVELS { Ok(index) } else { Err(CompileError::LimitExceeded(format!("level {level}"))) }
    }

    fn use_segment(&mut self, level: Level, index: usize) {
        let members = self.members(level);
        self.shared[index].get_or_insert(Shared { members, lines: 0, ring: false });
    }

    /// Returns the number of ranks in this rank's region at `level`.
    fn members(&self, level: Level) -> u32 {
        self.target.topology.span(level, self.target.topology.region_of(level, self.rank)).len() as u32
    }

    /// Returns the position of `rank` within its region at `level`.
    fn member(&self, level: Level, rank: Rank) -> u32 {
        let region = self.target.topology.span(level, self.target.topology.region_of(level, rank));
        self.target.topology.position(rank) - region.start
    }

    fn message(&mut self, request: u32, message: &Message) -> Result<Step, CompileError> {
        self.tags = self.tags.max(message.tag.0);
        let mut whole: Option<Cells> = None;
        for place in &message.places {
            for cells in self.stretches(place)? {
                match &mut whole {
                    // The chunks of a line may be non-contiguous in a segment, depending on the layout chosen at binding.
                    _ if cells.base >= Bases::SEGMENT => {
                        return Err(CompileError::NonContiguous(message.to_string()));
                    }
                    None => whole = Some(cells),
                    Some(before) if before.go_on(cells) => before.count += cells.count,
                    Some(_) => return Err(CompileError::NonContiguous(message.to_string())),
                }
            }
        }
        let data = whole.unwrap_or(Cells { base: Bases::TEMPORARY, line: 0, first: 0, count: 0 });
        Ok(Step::Post { end: message.end, data, peer: message.peer, tag: message.tag.0, request })
    }

    /// Adds steps for two places with the same number of cells. Both are divided into strips (repeated ranges) of the same shape, and each
    /// pair of strips becomes one step.
    fn pairs(&mut self, to: &Place, from: &Place, step: impl Fn(Strip, Strip) -> Step) -> Result<(), CompileError> {
        let (mut to, mut from) = (VecDeque::from(self.strips(to)?), VecDeque::from(self.strips(from)?));
        while let (Some(a), Some(b)) = (to.pop_front(), from.pop_front()) {
            if (a.cells.count, a.times) == (b.cells.count, b.times) {
                self.steps.push(step(a, b));
                continue;
            }
            // Divides the front of `stretch` into the same repetitions as `strip`, if it is contiguous and long enough. Also returns the
            // rest of `stretch`.
            let within = |strip: Strip, stretch: Strip| {
                let all = u64::from(strip.cells.count) * u64::from(strip.times);
                let step = i32::try_from(strip.cells.count).ok()?;
                (stretch.times == 1 && u64::from(stretch.cells.count) >= all).then(|| {
                    let like = Cells { count: strip.cells.count, ..stretch.cells };
                    (Strip { cells: like, step, times: strip.times }, stretch.split(all as u32).1)
                })
            };
            let back = |queue: &mut VecDeque<Strip>, rest: [Option<Strip>; 2]| {
                rest.into_iter().rev().flatten().for_each(|strip| queue.push_front(strip));
            };
            if let Some((like, rest)) = within(b, a) {
                self.steps.push(step(like, b));
                back(&mut to, rest);
            } else if let Some((like, rest)) = within(a, b) {
                self.steps.push(step(a, like));
                back(&mut from, rest);
            } else {
                let count = a.cells.count.min(b.cells.count);
                let ((here, left), (there, right)) = (a.split(count), b.split(count));
                let one = |cells| Strip { cells, step: 0, times: 1 };
                self.steps.push(step(one(here), one(there)));
                back(&mut to, left);
                back(&mut from, right);
            }
        }
        Ok(())
    }

    /// Returns the contiguous ranges of cells of `place`, in order.
    fn stretches(&mut self, place: &Place) -> Result<Vec<Cells>, CompileError> {
        let strips = self.strips(place)?;
        Ok(strips.iter().flat_map(|strip| (0..strip.times).map(|at| strip.nth(at))).collect())
    }

    /// Returns the strips (repeated ranges of cells) of `place`.
    fn strips(&mut self, place: &Place) -> Result<Vec<Strip>, CompileError> {
        let strip = |base, line, run: &Run| {
            let beyond = |_| CompileError::LimitExceeded(place.to_string());
            let [first, count, times] = [run.start(), run.block(), run.count()].map(u32::try_from);
            let cells = Cells { base, line, first: first.map_err(beyond)?, count: count.map_err(beyond)? };
            let step = i32::try_from(run.stride()).map_err(beyond)?;
            Ok(Strip { cells, step, times: times.map_err(beyond)? })
        };
        if let Area::Shared(level, line) = place.area {
            let index = self.level(level)?;
            self.use_segment(level, index);
            let lines = self.lines.max(line + 1);
            if let Some(shared) = &mut self.shared[index] {
                shared.lines = lines;
            }
            let base = Bases::SEGMENT + index as u8;
            return place.set.runs().iter().map(|run| strip(base, line, run)).collect();
        }
        if let Some((rank, area)) = place.area.remote() {
            // Number of the chunk at which the other rank's buffer begins. Addresses are relative to that chunk.
            let begins = match (area, self.collective) {
                (Area::In, Collective::Allgather) | (Area::Out, Collective::ReduceScatter) => rank.0,
                _ => 0,
            };
            let line = begins * self.pieces as u32;
            return place.set.runs().iter().map(|run| strip(Bases::PEER, line, run)).collect();
        }
        let base = |buffer| match buffer {
            Buffer::In => Bases::IN,
            Buffer::Out => Bases::OUT,
            _ => Bases::TEMPORARY,
        };
        let runs = self.addresses.runs(place).ok_or(CompileError::NotLowered)?;
        runs.iter().map(|(buffer, run)| strip(base(*buffer), 0, run)).collect()
    }
}

/// Returns whether the steps leave this rank's own block of the output unchanged if send and receive buffer are the same memory.
fn only_reads(steps: &[Step], own: Range<u64>) -> bool {
    let is_own = |base: u8, cells: Range<u64>| base == Bases::OUT && cells.start < own.end && own.start < cells.end;
    let of_strip = |strip: &Strip| is_own(strip.cells.base, strip.bounds());
    !steps.iter().any(|step| match step {
        Step::Post { end: End::Recv, data, .. } => is_own(data.base, data.first.into()..data.end().into()),
        Step::Copy { to, from } => {
            let same = (from.cells.first, from.step) == (to.cells.first, to.step);
            of_strip(to) && (from.cells.base != Bases::IN || !same)
        }
        Step::Reduce { into, .. } => of_strip(into),
        _ => false,
    })
}

/// Returns whether the steps complete all reads of the input, sends included, before they write any output, so that input and output may
/// be the same memory.
fn reads_before_it_writes(steps: &[Step]) -> bool {
    let mut sending: Vec<u32> = Vec::new();
    let mut written = false;
    for step in steps {
        let (reads, writes) = match step {
            Step::Post { end: End::Send, data, request, .. } => {
                if data.base == Bases::IN {
                    sending.push(*request);
                }
                (data.base == Bases::IN, false)
            }
            Step::Post { end: End::Recv, data, .. } => (false, data.base == Bases::OUT),
            Step::Copy { to, from } => (from.cells.base == Bases::IN, to.cells.base == Bases::OUT),
            Step::Reduce { into, with } => (with.cells.base == Bases::IN, into.cells.base == Bases::OUT),
            Step::Finish { first, end } => {
                sending.retain(|request| !(first..end).contains(&request));
                (false, false)
            }
            _ => (false, false),
        };
        written |= writes;
        if written && (reads || !sending.is_empty()) {
            return false;
        }
    }
    true
}

//! Reads the actions of a plan back as a program, so that the verifier checks exactly what the executor does, down to each address.
//!
//! Actions contain only addresses and lengths in bytes, no chunks. Each address is mapped to the slot that lies there, and each raise or
//! wait of a flag to a signal or a wait of the language. The rounds of a barrier are read back as flags, too, so the verifier must find
//! that they make a barrier. Messages keep the order in which they are posted. An address where no slot lies is an error. The instructions
//! of the compiled program are not used.

mod mutate;

use std::collections::BTreeMap;

use bruckner_schedule::{
    Area, Code, Collective, End, Flag, Instr, Layout, Level, LocalOp, Message, Payload, Place, Placement, Places,
    Problem, Rank, Request, Set, Tag, Topology,
};

use crate::bind::{Action, Address, Bound, PrefixSums, bind};
use crate::class::{Limits, LineLayout, SPREAD_CHUNK_BYTES};
use crate::compile::{Compiled, FlagValue, IdentityTranslation, PeerBuffer};
use crate::memory::{Bases, BufferOffset};
use crate::segment::{FLAGS, ROUNDS, Turns, flag_at, flag_data_at, lines_at, round_at};
use crate::transport::Peer;

pub use mutate::Mutation;

/// Why a list of actions cannot be read back as a program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("action {at}: {what}")]
pub struct ReadbackError {
    /// Index of the action that cannot be read back.
    pub at: usize,
    /// Description of the error.
    pub what: &'static str,
}

/// Placement of the user's input and output buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BufferPlacement {
    /// Input and output are separate buffers.
    Separate,
    /// Input and output are the same buffer, as with `MPI_IN_PLACE`.
    InPlace,
}

/// Actions of one rank, with addresses and lengths for the sizes of one problem.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BoundActions(Bound);

/// Returns the actions of a rank for the sizes of `problem`.
pub fn bound_actions(compiled: &Compiled, problem: &Problem, limits: &Limits) -> BoundActions {
    let mut deeds = BoundActions(Bound::default());
    deeds.bind(compiled, problem, limits);
    deeds
}

impl BoundActions {
    /// Computes the actions for the sizes of another problem, and reuses the allocated memory.
    pub fn bind(&mut self, compiled: &Compiled, problem: &Problem, limits: &Limits) {
        let address = Address { ranks: std::sync::Arc::new(IdentityTranslation), tag: 0 };
        bind(compiled, problem, &address, limits, &mut PrefixSums::default(), &mut self.0);
    }

    /// Returns the number of actions.
    pub fn len(&self) -> usize {
        self.0.actions.len()
    }

    /// Returns whether there are no actions.
    pub fn is_empty(&self) -> bool {
        self.0.actions.is_empty()
    }

    /// Reorders messages that are posted together: short sends first, then receives, then long sends. This reproduces a former bug, to
    /// test that the verifier detects it.
    pub fn sort_posts_by_length(&mut self, short: usize) {
        let is_post = |action: &Action| matches!(action, Action::Send { .. } | Action::Recv { .. });
        for posts in self.0.actions.chunk_by_mut(|a, b| is_post(a) && is_post(b)) {
            posts.sort_by_key(|action| match action {
                Action::Send { bytes, .. } if *bytes <= short => 0,
                Action::Recv { .. } => 1,
                _ => 2,
            });
        }
    }
}

/// Reads the actions of `rank` back as a program.
pub fn read_back(
    deeds: &BoundActions,
    compiled: &Compiled,
    problem: &Problem,
    limits: &Limits,
    topology: &Topology,
    rank: Rank,
    user: BufferPlacement,
) -> Result<Code, ReadbackError> {
    let mut reader = Reader::new(compiled, problem, limits, topology, rank, user);
    reader.prologue();
    for (at, action) in deeds.0.actions.iter().enumerate() {
        reader.action(action).map_err(|what| ReadbackError { at, what })?;
    }
    reader.epilogue();
    let levels = compiled.turns.iter().enumerate().filter(|(_, turns)| **turns == Turns::HalfSegments);
    let alternate = levels.map(|(level, _)| Level(level as u8)).collect();
    let placed = reader.placed.into_values().collect();
    Ok(Code { layout: Layout::Buffers { placed, alternate }, instrs: reader.instrs })
}

/// A slot: its area and its chunk number.
type Slot = (Area, u64);

/// Consecutive slots, with chunk numbers; or consecutive cells (units) of temporary memory, which have no chunk numbers.
#[derive(Clone, PartialEq, Eq)]
enum Slots {
    Numbered(Vec<Slot>),
    /// A range of cells of temporary memory, which all have the same size.
    Cells(std::ops::Range<u64>),
}

impl Slots {
    fn len(&self) -> usize {
        match self {
            Slots::Numbered(slots) => slots.len(),
            Slots::Cells(cells) => (cells.end - cells.start) as usize,
        }
    }
}

struct Reader<'a> {
    compiled: &'a Compiled,
    problem: &'a Problem,
    topology: &'a Topology,
    rank: Rank,
    user: BufferPlacement,
    lines: LineLayout,
    line: usize,
    /// Start of each chunk in elements, and the end of the last chunk; `cells` is the same for the cells of temporary memory.
    chunks: Vec<u64>,
    cells: Vec<u64>,
    placed: BTreeMap<Area, Placement>,
    instrs: Vec<Instr>,
    raised: BTreeMap<BufferOffset, u16>,
    awaited: BTreeMap<BufferOffset, u16>,
    /// Rank whose buffer the last `Look` action has selected, and which of its two buffers (input or output).
    other: Option<(Rank, PeerBuffer)>,
}

impl<'a> Reader<'a> {
    fn new(
        compiled: &'a Compiled,
        problem: &'a Problem,
        limits: &Limits,
        topology: &'a Topology,
        rank: Rank,
        user: BufferPlacement,
    ) -> Reader<'a> {
        let mut end = 0;
        let mut sum = |n: u64| {
            end += n;
            end
        };
        let elements = |chunk| problem.elements(chunk).unwrap_or(0);
        let chunks: Vec<u64> = std::iter::once(0).chain((0..problem.chunks()).map(|c| sum(elements(c)))).collect();
        let mut end = 0;
        let mut sum = |n: u64| {
            end += n;
            end
        };
        let of_cells = compiled.cells.iter().map(|chunk| sum(elements(u64::from(*chunk))));
        let cells = std::iter::once(0).chain(of_cells).collect();
        let lines = LineLayout::of(problem, limits);
        Reader {
            compiled,
            problem,
            topology,
            rank,
            user,
            lines,
            line: lines.bytes(problem),
            chunks,
            cells,
            placed: BTreeMap::new(),
            instrs: Vec::new(),
            raised: BTreeMap::new(),
            awaited: BTreeMap::new(),
            other: None,
        }
    }

    fn is_scattered_in_place(&self) -> bool {
        self.user == BufferPlacement::InPlace && self.problem.collective == Collective::ReduceScatter
    }

    /// Returns the number of the first of the additional cells that represent the user's only buffer in an in-place reduce_scatter. They
    /// follow the cells of temporary memory.
    fn own_buffer(&self) -> u64 {
        self.compiled.extent.temporary
    }

    /// For an in-place call, adds a copy of the input to the memory that input and output share, where the actions expect it.
    fn prologue(&mut self) {
        if self.user == BufferPlacement::Separate {
            return;
        }
        let input = self.filled(Area::In, &self.problem.input(self.rank));
        let there = match self.problem.collective {
            Collective::ReduceScatter => {
                let own = self.own_buffer();
                Slots::Cells(own..own + self.problem.chunks())
            }
            _ => self.filled(Area::Out, &self.problem.input(self.rank)),
        };
        self.pair(there, input, |to, from| LocalOp::Copy { to, from });
    }

    /// For an in-place reduce_scatter, adds a copy of the result from the beginning of the user's only buffer to the output.
    fn epilogue(&mut self) {
        if self.is_scattered_in_place() {
            let output = self.filled(Area::Out, &self.problem.output(self.rank));
            let own = self.own_buffer();
            let there = Slots::Cells(own..own + output.len() as u64);
            self.pair(output, there, |to, from| LocalOp::Copy { to, from });
        }
    }

    fn filled(&self, area: Area, set: &Set) -> Slots {
        let filled = set.iter().filter(|chunk| !self.problem.is_empty(*chunk));
        Slots::Numbered(filled.map(|chunk| (area, chunk)).collect())
    }

    fn action(&mut self, action: &Action) -> Result<(), &'static str> {
        match *action {
            Action::Send { data, bytes, to, request } => self.post(End::Send, data, bytes, to, request)?,
            Action::Recv { data, bytes, from, request } => {
                self.post(End::Recv, data, bytes, from, request)?;
            }
            Action::Finish { first, end } => {
                self.instrs.push(Instr::Finish(Set::from(u64::from(first)..u64::from(end))));
            }
            Action::Copy { to, from, bytes } => {
                let (to, from) = (self.slots(to, bytes)?, self.slots(from, bytes)?);
                if to.len() != from.len() {
                    return Err("a copy between slots of different sizes");
                }
                self.pair(to, from, |to, from| LocalOp::Copy { to, from });
            }
            Action::Reduce { into, with, elements } => {
                let bytes = elements * self.problem.element as usize;
                let (into, with) = (self.slots(into, bytes)?, self.slots(with, bytes)?);
                if into.len() != with.len() {
                    return Err("a reduction of slots of different sizes");
                }
                self.pair(into, with, |into, with| LocalOp::Reduce { into, with });
            }
            Action::Copies { to, from, bytes, steps, times } => {
                for at in 0..times as isize {
                    let (to, from) = (to.moved(at * steps[0]), from.moved(at * steps[1]));
                    self.action(&Action::Copy { to, from, bytes })?;
                }
            }
            Action::Reduces { into, with, elements, steps, times } => {
                for at in 0..times as isize {
                    let (into, with) = (into.moved(at * steps[0]), with.moved(at * steps[1]));
                    self.action(&Action::Reduce { into, with, elements })?;
                }
            }
            Action::Open => self.instrs.push(Instr::Local(LocalOp::Open)),
            Action::Look { member, side } => {
                let region = self.topology.span(Level::NODE, self.topology.region_of(Level::NODE, self.rank));
                if member >= region.len() as u32 {
                    return Err("a member number that the region does not have");
                }
                self.other = Some((self.topology.rank_at(region.start + member), side));
            }
            Action::Fetch { to, from, bytes } => {
                let (to, from) = (self.slots(to, bytes)?, self.others(from, bytes)?);
                if to.len() != from.len() {
                    return Err("a copy between slots of different sizes");
                }
                self.pair(to, from, |to, from| LocalOp::Copy { to, from });
            }
            Action::FetchReduce { into, with, elements } => {
                let bytes = elements * self.problem.element as usize;
                let (into, with) = (self.slots(into, bytes)?, self.others(with, bytes)?);
                if into.len() != with.len() {
                    return Err("a reduction of slots of different sizes");
                }
                self.pair(into, with, |into, with| LocalOp::Reduce { into, with });
            }
            Action::Raise(FlagValue { flag, level, times }) => {
                let (number, owner) = self.flag(flag, level)?;
                if owner != self.rank {
                    return Err("a rank raises a flag that it does not own");
                }
                // The value of a flag is the number of its raises. One action may increase it by more than one.
                let before = self.raised.insert(flag, times).unwrap_or(0);
                if times <= before {
                    return Err("a flag is raised to a count that it has already reached");
                }
                let signals = (before + 1..=times).map(|time| at_time(number, time));
                self.instrs.extend(signals.map(|flag| Instr::Local(LocalOp::Signal { flag, chunks: None })));
            }
            Action::Await(FlagValue { flag, level, times }) => {
                let (number, of) = self.flag(flag, level)?;
                let before = self.awaited.insert(flag, times).unwrap_or(0);
                if times <= before {
                    return Err("a flag is awaited at a count that was already awaited");
                }
                let flag = at_time(number, times);
                self.instrs.push(Instr::Local(LocalOp::Wait { flag, of, chunks: None }));
            }
            Action::Enter(level) => {
                self.instrs.push(Instr::Local(LocalOp::Enter { level: Level(level), chunks: None }));
            }
            Action::Leave(level) => self.instrs.push(Instr::Local(LocalOp::Leave(Level(level)))),
        }
        Ok(())
    }

    fn post(
        &mut self,
        end: End,
        data: BufferOffset,
        bytes: usize,
        peer: Peer,
        request: u32,
    ) -> Result<(), &'static str> {
        if request as usize >= self.compiled.requests {
            return Err("a request number beyond the plan's requests");
        }
        let mut places = Places::new();
        let chunks = self.problem.chunks();
        if bytes > 0 {
            match self.slots(data, bytes)? {
                Slots::Numbered(slots) => {
                    for (area, chunk) in slots {
                        Place::join(&mut places, Place::new(area, Set::one(chunk)));
                    }
                }
                // Cells of temporary memory have no chunk numbers, so any numbers may be used.
                Slots::Cells(cells) => {
                    for first in cells.clone().step_by(chunks as usize) {
                        let count = chunks.min(cells.end - first);
                        let area = self.cells_as(first, 0);
                        places.push(Place::new(area, Set::from(0..count)));
                    }
                }
            }
        }
        let (peer, tag) = (Rank(peer.rank), Tag(peer.tag));
        let message = Message { end, payload: Payload::Data, places, peer, tag };
        self.instrs.push(Instr::Post(Request(request), message));
        Ok(())
    }

    /// Adds local instructions on two lists with the same number of slots.
    fn pair(&mut self, to: Slots, from: Slots, local: impl Fn(Place, Place) -> LocalOp) {
        // A copy of slots to themselves, as in an in-place call, has no effect.
        if to == from {
            return;
        }
        let chunks = self.problem.chunks();
        let mut as_cells = |cells: std::ops::Range<u64>, like: &[(Area, u64)]| {
            cells.zip(like).map(|(cell, (_, chunk))| (self.cells_as(cell, *chunk), *chunk)).collect()
        };
        let (a, b): (Vec<Slot>, Vec<Slot>) = match (to, from) {
            (Slots::Numbered(to), Slots::Numbered(from)) => (to, from),
            // Cells get the chunk numbers of the slots they are paired with. If both lists are cells, they get arbitrary numbers.
            (Slots::Numbered(to), Slots::Cells(cells)) => {
                let from = as_cells(cells, &to);
                (to, from)
            }
            (Slots::Cells(cells), Slots::Numbered(from)) => (as_cells(cells, &from), from),
            (Slots::Cells(to), Slots::Cells(from)) => {
                let any: Vec<_> = from.clone().zip((0..chunks).cycle()).map(|(_, c)| (Area::In, c)).collect();
                (as_cells(to, &any), as_cells(from, &any))
            }
        };
        // Consecutive slots become one instruction while their areas stay the same and their chunk numbers ascend.
        let mut start = 0;
        for at in 1..=a.len() {
            let goes_on = at < a.len()
                && (a[at].0, b[at].0) == (a[start].0, b[start].0)
                && a[at].1 > a[at - 1].1
                && b[at].1 > b[at - 1].1;
            if !goes_on {
                let place = |slots: &[(Area, u64)]| {
                    Place::new(slots[0].0, slots.iter().map(|(_, chunk)| *chunk).collect::<Set>())
                };
                self.instrs.push(Instr::Local(local(place(&a[start..at]), place(&b[start..at]))));
                start = at;
            }
        }
    }

    /// Returns a line of temporary memory whose slot `chunk` lies at the given cell, if all slots have the same size. Such lines may
    /// overlap each other.
    fn cells_as(&mut self, cell: u64, chunk: u64) -> Area {
        let chunks = self.problem.chunks();
        let number = cell + chunks - chunk;
        let area = Area::Line(number as u32);
        let each = self.problem.chunk_elements().unwrap_or(1);
        let place = Place::new(area, Set::from(0..chunks));
        self.placed.entry(area).or_insert(Placement { place, at: number * each });
        area
    }

    /// Returns the slots of another rank's buffer that the `bytes` bytes from `at` on consist of.
    fn others(&self, at: BufferOffset, bytes: usize) -> Result<Slots, &'static str> {
        let (rank, side) = self.other.ok_or("a read from another rank's buffer before one was selected")?;
        let element = self.problem.element as usize;
        if at.base != Bases::PEER || bytes == 0 || !bytes.is_multiple_of(element) || !at.offset.is_multiple_of(element)
        {
            return Err("an invalid length: zero, or not a multiple of the element size");
        }
        let begins = match (side, self.problem.collective) {
            (PeerBuffer::In, Collective::Allgather) | (PeerBuffer::Out, Collective::ReduceScatter) => {
                u64::from(rank.0) * self.problem.pieces
            }
            _ => 0,
        };
        let start = (at.offset / element) as u64 + self.chunks[begins as usize];
        let found = within(&self.chunks, start, (bytes / element) as u64);
        let found = found.ok_or("an address range that does not consist of whole slots")?;
        let area = match (side, self.user) {
            (PeerBuffer::In, BufferPlacement::Separate) => Area::InOf(rank),
            _ => Area::OutOf(rank),
        };
        Ok(Slots::Numbered(found.into_iter().map(|chunk| (area, chunk)).collect()))
    }

    /// Returns the slots that the `bytes` bytes from `at` on consist of.
    fn slots(&mut self, at: BufferOffset, bytes: usize) -> Result<Slots, &'static str> {
        const NO_SLOT: &str = "an address range that does not consist of whole slots";
        let element = self.problem.element as usize;
        if bytes == 0 || !bytes.is_multiple_of(element) {
            return Err("an invalid length: zero, or not a multiple of the element size");
        }
        let elements = (bytes / element) as u64;
        let whole = |offset: usize| match offset.is_multiple_of(element) {
            true => Ok((offset / element) as u64),
            false => Err(NO_SLOT),
        };
        let chunks = |start: u64| within(&self.chunks, start, elements).ok_or(NO_SLOT);
        Ok(match at.base {
            Bases::IN | Bases::OUT => {
                let is_input = at.base == Bases::IN;
                let first = self.compiled.first[usize::from(at.base)];
                let start = whole(at.offset)? + self.chunks[first as usize];
                let found = chunks(start)?;
                if self.is_scattered_in_place() {
                    let shift = if is_input { 0 } else { first };
                    let cell = |chunk: u64| self.own_buffer() + chunk - shift;
                    let (first, last) = (found[0], found[found.len() - 1]);
                    return Ok(Slots::Cells(cell(first)..cell(last) + 1));
                }
                let area = if is_input && self.user == BufferPlacement::Separate { Area::In } else { Area::Out };
                Slots::Numbered(found.into_iter().map(|chunk| (area, chunk)).collect())
            }
            Bases::TEMPORARY => match self.problem.chunk_elements().filter(|_| self.compiled.even) {
                Some(n) => {
                    let start = whole(at.offset)?;
                    if !start.is_multiple_of(n) || !elements.is_multiple_of(n) {
                        return Err(NO_SLOT);
                    }
                    let cells = start / n..(start + elements) / n;
                    if cells.end > self.compiled.extent.temporary {
                        return Err("an address beyond the end of temporary memory");
                    }
                    Slots::Cells(cells)
                }
                None => {
                    let cells = within(&self.cells, whole(at.offset)?, elements).ok_or(NO_SLOT)?;
                    let mut slots = Vec::new();
                    // Each cell is read back as the only slot of a line of its own.
                    for cell in cells {
                        let (area, chunk) = (Area::Line(cell as u32), self.compiled.cells[cell as usize].into());
                        let place = Place::new(area, Set::one(chunk));
                        let placed = Placement { place, at: self.cells[cell as usize] };
                        self.placed.entry(area).or_insert(placed);
                        slots.push((area, chunk));
                    }
                    Slots::Numbered(slots)
                }
            },
            base => {
                let index = base.checked_sub(Bases::SEGMENT).map(usize::from).filter(|i| *i < Bases::LEVELS);
                let index = index.ok_or("data at an address in the header of a segment")?;
                let shared =
                    self.compiled.extent.shared[index].ok_or("data in a segment that the plan does not use")?;
                let (line, within_line) = match at.offset.checked_sub(lines_at(shared.members)) {
                    Some(offset) => (offset / self.line.max(1), offset % self.line.max(1)),
                    None => {
                        let number = (at.offset / flag_at(0, 1)) as u32;
                        let (member, flag) = (number / FLAGS, number % FLAGS);
                        let start = flag_data_at(member, flag);
                        if self.lines != LineLayout::Beside || at.offset < start || bytes > self.line {
                            return Err("data that overlaps a flag");
                        }
                        ((flag * shared.members + member) as usize, at.offset - start)
                    }
                };
                if line >= shared.lines as usize {
                    return Err("an address beyond the last line of a segment");
                }
                let area = Area::Shared(Level(index as u8), line as u32);
                let found = match self.lines {
                    LineLayout::Spread => {
                        let chunk = (within_line / SPREAD_CHUNK_BYTES) as u64;
                        if !within_line.is_multiple_of(SPREAD_CHUNK_BYTES)
                            || self.problem.elements(chunk) != Some(elements)
                        {
                            return Err(NO_SLOT);
                        }
                        vec![chunk]
                    }
                    _ => chunks(whole(within_line)?)?,
                };
                let place = Place::new(area, Set::from(0..self.problem.chunks()));
                let at = line as u64 * self.problem.total();
                self.placed.entry(area).or_insert(Placement { place, at });
                Slots::Numbered(found.into_iter().map(|chunk| (area, chunk)).collect())
            }
        })
    }

    /// Returns the number of the flag at an address, and the rank that raises it.
    fn flag(&self, flag: BufferOffset, level: u8) -> Result<(Flag, Rank), &'static str> {
        const NO_FLAG: &str = "a flag address at which no flag lies";
        let is_header = flag.base >= Bases::HEADER;
        let base = if is_header { Bases::HEADER } else { Bases::SEGMENT };
        if flag.base != base + level {
            return Err("a flag in the segment of another level than the action names");
        }
        let level_of = Level(level);
        let region = self.topology.span(level_of, self.topology.region_of(level_of, self.rank));
        let members = region.len() as u32;
        let numbers = if is_header { ROUNDS } else { FLAGS };
        let place = |member, number| match is_header {
            true => round_at(member, number),
            false => flag_at(member, number),
        };
        let each = place(1, 0) - place(0, 0);
        let member = flag.offset.checked_sub(place(0, 0)).ok_or(NO_FLAG)? / each;
        let found = (0..numbers).find(|number| place(member as u32, *number) == flag.offset);
        let number = found.filter(|_| (member as u32) < members).ok_or(NO_FLAG)?;
        // Flags of barriers have numbers from `Flag::BARRIERS` on, which programs do not use.
        let number = if is_header { Flag::BARRIERS + u32::from(level) * ROUNDS + number } else { number };
        Ok((Flag(number), self.topology.rank_at(region.start + member as u32)))
    }
}

/// Returns the numbers of the non-empty slots that the `elements` elements from `start` on consist of; `None` if they are not whole slots.
/// `starts` has the start of each slot, and the end of the last.
fn within(starts: &[u64], start: u64, elements: u64) -> Option<Vec<u64>> {
    let first = starts.partition_point(|other| *other < start);
    let mut slots = Vec::new();
    let mut at = start;
    for slot in first..starts.len().saturating_sub(1) {
        if at == start + elements {
            break;
        }
        if starts[slot] != at {
            return None;
        }
        if starts[slot + 1] > at {
            slots.push(slot as u64);
            at = starts[slot + 1];
        }
    }
    (at == start + elements && !slots.is_empty()).then_some(slots)
}

/// Returns a separate flag for the `times`-th raise of a flag, so that each flag of the read-back program is raised only once.
fn at_time(Flag(number): Flag, times: u16) -> Flag {
    let numbers = if number < Flag::BARRIERS { FLAGS } else { ROUNDS * Bases::LEVELS as u32 };
    Flag(u32::from(times) * numbers + number)
}

//! Memory as the verifier sees it: cells that hold expressions, know who is still using them, and remember
//! when they were last touched.
//!
//! A space is cut wherever a slot begins or ends, so a slot is a whole number of cells, nearly always one. A run of chunks
//! mostly has a run of cells: all work is on such *blocks*.

use smallvec::SmallVec;

use super::clock::Clocks;
use super::expr::Expr;
use crate::Run;

/// One buffer or segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Space(pub(super) u32);

/// Slots of a run of chunks: each is one cell, and the cells are a run too; or there is one slot, of any number of cells;
/// or there are no cells, because the chunks have no elements and there is nothing to touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub(super) space: Space,
    pub(super) chunks: Run,
    /// As the numbers of a [`Run`].
    pub(super) first: u32,
    pub(super) cells: u32,
    pub(super) stride: i32,
    pub(super) count: u32,
}

/// What is wrong with an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    NeverWritten,
    Overwritten,
    InFlight,
    Race { other: usize, writes: bool },
}

/// An access that is wrong, and of which chunk.
pub(super) type Faulty = (Fault, u64);

/// What a slot's length is, where ranks do not share that knowledge: that of the chunk from one rank to another.
pub(super) type Length = Option<(u32, u32)>;

/// The low bits of a cell's state; above them is the number of sends that read it.
const WRITTEN: u32 = 1;
const RECEIVING: u32 = 2;
const SENDING: u32 = 4;

/// Who touched a cell of a segment when.
#[derive(Clone, Debug, Default)]
struct History {
    writer: Option<(usize, u32)>,
    readers: Vec<(usize, u32)>,
}

#[derive(Default)]
struct Cells {
    values: Vec<Expr>,
    states: Vec<u32>,
    /// The slot that was written to a cell last, by its first cell and their number. Only where slots may have several.
    tags: Vec<(u32, u32)>,
    /// Only of segments.
    histories: Vec<History>,
    /// Lengths of slots, and which of them are on their way. Only where they are not shared knowledge.
    lengths: Vec<Length>,
    arriving: Vec<bool>,
}

/// All buffers and segments.
#[derive(Default)]
pub(super) struct Memory {
    spaces: Vec<Cells>,
}

/// What a space is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kind {
    /// Whether several ranks touch it.
    pub(super) shared: bool,
    /// Whether every slot is one cell.
    pub(super) single: bool,
    /// Whether slots have lengths of their own.
    pub(super) local: bool,
}

impl Memory {
    pub(super) fn space(&mut self, cells: usize, kind: Kind) -> Space {
        let if_so = |so: bool| if so { cells } else { 0 };
        self.spaces.push(Cells {
            values: vec![Expr::UNKNOWN; cells],
            states: vec![0; cells],
            tags: vec![(0, 0); if_so(!kind.single)],
            histories: vec![History::default(); if_so(kind.shared)],
            lengths: vec![None; if_so(kind.local)],
            arriving: vec![false; if_so(kind.local)],
        });
        Space(self.spaces.len() as u32 - 1)
    }

    fn of(&mut self, block: &Block) -> &mut Cells {
        &mut self.spaces[block.space.0 as usize]
    }

    /// Lays an input down, before the run.
    pub(super) fn provide(&mut self, block: &Block, values: impl Iterator<Item = Expr>) {
        let cells = self.of(block);
        for (at, value) in block.each().zip(values) {
            (cells.values[at], cells.states[at]) = (value, WRITTEN);
        }
    }

    /// Appends the values of a block.
    pub(super) fn read(
        &mut self,
        block: &Block,
        rank: usize,
        clocks: &Clocks,
        values: &mut Vec<Expr>,
    ) -> Result<(), Faulty> {
        if block.cells == 0 {
            values.resize(values.len() + block.len() as usize, Expr::EMPTY);
            return Ok(());
        }
        let cells = self.of(block);
        let ready = |state: u32| state & (WRITTEN | RECEIVING) == WRITTEN;
        if !block.all(&cells.states, ready) {
            let at = block.each().find(|&at| !ready(cells.states[at])).expect("one is not");
            let in_flight = cells.states[at] & RECEIVING != 0;
            let fault = if in_flight { Fault::InFlight } else { Fault::NeverWritten };
            return Err((fault, block.chunk_at(at)));
        }
        if !cells.tags.is_empty()
            && let Some(at) = block.each().find(|&at| cells.tags[at] != block.tag(at))
        {
            return Err((Fault::Overwritten, block.chunk_at(at)));
        }
        if !cells.histories.is_empty() {
            for at in block.each() {
                let history = &mut cells.histories[at];
                history.order(rank, clocks, false).map_err(|fault| (fault, block.chunk_at(at)))?;
                history.note_reader(rank, clocks);
            }
        }
        if block.is_one_slot() {
            values.push(cells.values[block.first as usize]);
        } else if block.cells == 1 {
            values.extend(block.each().map(|at| cells.values[at]));
        } else {
            block.ranges().for_each(|range| values.extend_from_slice(&cells.values[range]));
        }
        Ok(())
    }

    /// Puts values into a block. Whatever it overlaps is no longer readable.
    pub(super) fn write(
        &mut self,
        block: &Block,
        values: &[Expr],
        rank: usize,
        clocks: &Clocks,
    ) -> Result<(), Faulty> {
        let outcome = self.overwrite(block, WRITTEN, rank, clocks);
        self.of(block).put(block, values);
        outcome
    }

    /// Marks a block as written to, with this state.
    fn overwrite(&mut self, block: &Block, state: u32, rank: usize, clocks: &Clocks) -> Result<(), Faulty> {
        let mut outcome = Ok(());
        let cells = self.of(block);
        if !block.all(&cells.states, |state| state <= WRITTEN) {
            let at = block.each().find(|&at| cells.states[at] > WRITTEN).expect("one is");
            outcome = Err((Fault::InFlight, block.chunk_at(at)));
        }
        block.change(&mut cells.states, |cell| *cell = state);
        if !cells.tags.is_empty() {
            block.each().for_each(|at| cells.tags[at] = block.tag(at));
        }
        if !cells.histories.is_empty() {
            for at in block.each() {
                let history = &mut cells.histories[at];
                let ordered = history.order(rank, clocks, true).map_err(|fault| (fault, block.chunk_at(at)));
                outcome = outcome.and(ordered);
                history.note_writer(rank, clocks);
            }
        }
        outcome
    }

    /// A send starts to read what was just read; see [`Memory::end_send`].
    pub(super) fn begin_send(&mut self, block: &Block) {
        block.change(&mut self.of(block).states, |state| *state += SENDING);
    }

    /// The send is finished: its reading ends now.
    pub(super) fn end_send(&mut self, block: &Block, rank: usize, clocks: &Clocks) {
        let cells = self.of(block);
        // What was overwritten in the meantime has been complained of.
        block.change(&mut cells.states, |state| {
            *state = if *state >= SENDING { *state - SENDING } else { *state }
        });
        if !cells.histories.is_empty() {
            block.each().for_each(|at| cells.histories[at].note_reader(rank, clocks));
        }
    }

    /// A receive starts to fill a block.
    pub(super) fn begin_receive(
        &mut self,
        block: &Block,
        rank: usize,
        clocks: &Clocks,
    ) -> Result<(), Faulty> {
        self.overwrite(block, WRITTEN | RECEIVING, rank, clocks)
    }

    /// The receive is finished: the values are there.
    pub(super) fn end_receive(&mut self, block: &Block, values: &[Expr], rank: usize, clocks: &Clocks) {
        let cells = self.of(block);
        cells.put(block, values);
        block.change(&mut cells.states, |state| *state &= !RECEIVING);
        if !cells.histories.is_empty() {
            block.each().for_each(|at| cells.histories[at].note_writer(rank, clocks));
        }
    }

    /// What lies in a block in the end; `None` for slots in which nothing does.
    pub(super) fn last(&mut self, block: &Block) -> impl Iterator<Item = Option<Expr>> {
        let cells = self.of(block);
        block
            .each()
            .map(|at| (cells.states[at] & (WRITTEN | RECEIVING) == WRITTEN).then_some(cells.values[at]))
    }

    /// The length of the slot at a cell, and whether it is on its way.
    pub(super) fn length(&mut self, space: Space, cell: usize) -> (&mut Length, &mut bool) {
        let cells = &mut self.spaces[space.0 as usize];
        (&mut cells.lengths[cell], &mut cells.arriving[cell])
    }
}

impl Cells {
    fn put(&mut self, block: &Block, values: &[Expr]) {
        if block.is_one_slot() {
            block.each().for_each(|at| self.values[at] = values[0]);
        } else if block.cells == 1 {
            block.each().zip(values).for_each(|(at, value)| self.values[at] = *value);
        } else if block.cells > 0 {
            let parts = values.chunks_exact(block.cells as usize);
            block.ranges().zip(parts).for_each(|(range, part)| self.values[range].copy_from_slice(part));
        }
    }
}

impl Block {
    /// How many chunks.
    pub(super) fn len(&self) -> u64 {
        self.chunks.len()
    }

    /// Whether there is one slot of several cells.
    fn is_one_slot(&self) -> bool {
        self.cells > 1 && self.chunks.len() == 1
    }

    /// The first cell and the one after the last.
    pub(super) fn bounds(&self) -> std::ops::Range<u32> {
        let last = self.first.wrapping_add_signed(self.stride * (self.count as i32 - 1));
        self.first.min(last)..self.first.max(last) + self.cells
    }

    /// The stretches of cells, in order.
    pub(super) fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let Block { first, cells, stride, count, .. } = *self;
        (0..if cells == 0 { 0 } else { count }).map(move |k| {
            let start = first.wrapping_add_signed(stride.wrapping_mul(k as i32)) as usize;
            start..start + cells as usize
        })
    }

    /// The cells, in order.
    pub(super) fn each(&self) -> impl Iterator<Item = usize> + use<> {
        self.ranges().flatten()
    }

    fn all(&self, states: &[u32], is: impl Fn(u32) -> bool) -> bool {
        if self.cells == 1 {
            let Block { first, stride, count, .. } = *self;
            let at = |k: u32| first.wrapping_add_signed(stride.wrapping_mul(k as i32)) as usize;
            return (0..count).all(|k| is(states[at(k)]));
        }
        self.ranges().all(|range| states[range].iter().all(|&state| is(state)))
    }

    fn change(&self, states: &mut [u32], to: impl Fn(&mut u32)) {
        if self.cells == 1 {
            let Block { first, stride, count, .. } = *self;
            let at = |k: u32| first.wrapping_add_signed(stride.wrapping_mul(k as i32)) as usize;
            return (0..count).for_each(|k| to(&mut states[at(k)]));
        }
        self.ranges().for_each(|range| states[range].iter_mut().for_each(&to));
    }

    /// The slot that a cell of this block is part of.
    fn tag(&self, cell: usize) -> (u32, u32) {
        if self.is_one_slot() { (self.first, self.cells) } else { (cell as u32, 1) }
    }

    /// The chunk at a cell.
    fn chunk_at(&self, cell: usize) -> u64 {
        let number = if self.is_one_slot() { 0 } else { self.each().position(|at| at == cell).unwrap_or(0) };
        self.chunks.nth(number as u64)
    }
}

impl History {
    /// Whether all that must have happened before this access has.
    fn order(&self, rank: usize, clocks: &Clocks, writing: bool) -> Result<(), Fault> {
        if let Some((other, then)) = self.writer
            && !clocks.knows(rank, other, then)
        {
            return Err(Fault::Race { other, writes: true });
        }
        match self.readers.iter().find(|&&(reader, then)| writing && !clocks.knows(rank, reader, then)) {
            Some(&(other, _)) => Err(Fault::Race { other, writes: false }),
            None => Ok(()),
        }
    }

    fn note_reader(&mut self, rank: usize, clocks: &Clocks) {
        let now = clocks.now(rank);
        match self.readers.last_mut() {
            Some((reader, then)) if *reader == rank => *then = now,
            // A rank may be there twice: whoever knows of the later moment knows of the earlier.
            _ => self.readers.push((rank, now)),
        }
    }

    fn note_writer(&mut self, rank: usize, clocks: &Clocks) {
        self.writer = Some((rank, clocks.now(rank)));
        self.readers.clear();
    }
}

/// The blocks of a place: nearly always one.
pub(super) type Blocks = SmallVec<[Block; 1]>;

/// How many chunks blocks have together.
pub(super) fn len(blocks: &[Block]) -> u64 {
    blocks.iter().map(Block::len).sum()
}

/// The chunks of blocks, in order.
pub(super) fn chunks(blocks: &[Block]) -> impl Iterator<Item = u64> {
    blocks.iter().flat_map(|block| block.chunks.iter())
}

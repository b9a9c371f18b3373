//! The verifier's memory. It consists of *spaces* (buffers and segments), and a space consists of *cells*. A space is split into cells
//! wherever a slot begins or ends, so a slot is a whole number of cells, nearly always one. A cell holds an expression, the messages in
//! flight that use it, and the times of its last accesses.
//!
//! A run of chunks mostly corresponds to a run of cells, so all operations work on *blocks*: the cells of such a run.

use smallvec::SmallVec;

use super::clock::Clocks;
use super::expr::Expr;
use crate::Run;

/// Index of a space (a buffer or segment) in [`Memory`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Space(pub(super) u32);

/// Cells of the slots of a run of chunks. There are three forms: every slot is one cell, and the cells are a run too; or there is one slot
/// with any number of cells; or there are no cells, because the chunks have no elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub(super) space: Space,
    pub(super) chunks: Run,
    /// The cells as a run (see [`Run`]): its start, block length, stride and number of blocks.
    pub(super) first: u32,
    pub(super) cells: u32,
    pub(super) stride: i32,
    pub(super) count: u32,
}

/// Reason why an access is an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    NeverWritten,
    Overwritten,
    InFlight,
    Race { other: usize, writes: bool },
}

/// Reason why an access is an error, and the chunk concerned.
pub(super) type Faulty = (Fault, u64);

/// Length of a slot if sizes are known only locally: the source and destination rank of the chunk that has this length. `None` if the
/// length is unknown.
pub(super) type Length = Option<(u32, u32)>;

/// Bits of a cell's state. `SENDING` and all higher bits count the sends in flight that read the cell.
const WRITTEN: u32 = 1;
const RECEIVING: u32 = 2;
const SENDING: u32 = 4;

/// Last write to a cell of shared memory and the reads since then, each as rank and time on its clock.
#[derive(Clone, Debug, Default)]
struct History {
    writer: Option<(usize, u32)>,
    readers: Vec<(usize, u32)>,
}

#[derive(Default)]
struct Cells {
    values: Vec<Expr>,
    states: Vec<u32>,
    /// For each cell, the slot to which it belonged when it was last written, as first cell and number of cells. Empty if every slot is
    /// one cell.
    tags: Vec<(u32, u32)>,
    /// For each cell, its last write and the reads since then. Empty if only one rank accesses the space.
    histories: Vec<History>,
    /// For each cell, the length of its slot; in `arriving`, whether a message with this length is in flight. Both are empty unless sizes
    /// are known only locally.
    lengths: Vec<Length>,
    arriving: Vec<bool>,
}

/// Cells of all buffers and segments.
#[derive(Default)]
pub(super) struct Memory {
    spaces: Vec<Cells>,
}

/// Properties of a space (a buffer or segment).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kind {
    /// Whether several ranks access the space.
    pub(super) shared: bool,
    /// Whether every slot is one cell.
    pub(super) single: bool,
    /// Whether lengths are tracked for each slot, because sizes are known only locally.
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

    /// Stores input values before the execution.
    pub(super) fn provide(&mut self, block: &Block, values: impl Iterator<Item = Expr>) {
        let cells = self.of(block);
        for (at, value) in block.each().zip(values) {
            (cells.values[at], cells.states[at]) = (value, WRITTEN);
        }
    }

    /// Reads the cells of a block and appends its values.
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

    /// Writes values to a block. If the block overwrites a part of a slot, this slot can no longer be read.
    pub(super) fn write(&mut self, block: &Block, values: &[Expr], rank: usize, clocks: &Clocks) -> Result<(), Faulty> {
        let outcome = self.overwrite(block, WRITTEN, rank, clocks);
        self.of(block).put(block, values);
        outcome
    }

    /// Sets the state of the cells of a block that is written to, and checks for races and for messages in flight.
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

    /// Marks a block that was just read as in use by a send, until [`Memory::end_send`].
    pub(super) fn begin_send(&mut self, block: &Block) {
        block.change(&mut self.of(block).states, |state| *state += SENDING);
    }

    /// Ends the use of a block by a finished send. Counts as a read at this time.
    pub(super) fn end_send(&mut self, block: &Block, rank: usize, clocks: &Clocks) {
        let cells = self.of(block);
        // A block that was overwritten during the send has already been reported.
        block.change(&mut cells.states, |state| *state = if *state >= SENDING { *state - SENDING } else { *state });
        if !cells.histories.is_empty() {
            block.each().for_each(|at| cells.histories[at].note_reader(rank, clocks));
        }
    }

    /// Marks the cells of a block as in use by a receive, until [`Memory::end_receive`].
    pub(super) fn begin_receive(&mut self, block: &Block, rank: usize, clocks: &Clocks) -> Result<(), Faulty> {
        self.overwrite(block, WRITTEN | RECEIVING, rank, clocks)
    }

    /// Stores the values of a finished receive.
    pub(super) fn end_receive(&mut self, block: &Block, values: &[Expr], rank: usize, clocks: &Clocks) {
        let cells = self.of(block);
        cells.put(block, values);
        block.change(&mut cells.states, |state| *state &= !RECEIVING);
        if !cells.histories.is_empty() {
            block.each().for_each(|at| cells.histories[at].note_writer(rank, clocks));
        }
    }

    /// Returns the value that each cell of a block has at the end; `None` for cells without a value.
    pub(super) fn last(&mut self, block: &Block) -> impl Iterator<Item = Option<Expr>> {
        let cells = self.of(block);
        block.each().map(|at| (cells.states[at] & (WRITTEN | RECEIVING) == WRITTEN).then_some(cells.values[at]))
    }

    /// Returns the length of the slot at a cell, and whether a message with the length is in flight.
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
    /// Returns the number of chunks.
    pub(super) fn len(&self) -> u64 {
        self.chunks.len()
    }

    /// Whether the block is one slot of several cells.
    fn is_one_slot(&self) -> bool {
        self.cells > 1 && self.chunks.len() == 1
    }

    /// Returns the range from the lowest cell to one past the highest.
    pub(super) fn bounds(&self) -> std::ops::Range<u32> {
        let last = self.first.wrapping_add_signed(self.stride * (self.count as i32 - 1));
        self.first.min(last)..self.first.max(last) + self.cells
    }

    /// Returns the contiguous ranges of cells, in order.
    pub(super) fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let Block { first, cells, stride, count, .. } = *self;
        (0..if cells == 0 { 0 } else { count }).map(move |k| {
            let start = first.wrapping_add_signed(stride.wrapping_mul(k as i32)) as usize;
            start..start + cells as usize
        })
    }

    /// Returns the cells, in order.
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

    /// Returns the slot that contains a cell of this block, as first cell and number of cells.
    fn tag(&self, cell: usize) -> (u32, u32) {
        if self.is_one_slot() { (self.first, self.cells) } else { (cell as u32, 1) }
    }

    /// Returns the chunk whose slot contains a cell.
    fn chunk_at(&self, cell: usize) -> u64 {
        let number = if self.is_one_slot() { 0 } else { self.each().position(|at| at == cell).unwrap_or(0) };
        self.chunks.nth(number as u64)
    }
}

impl History {
    /// Checks that the last write happened before this access; and if this access is a write, also all reads since the last write.
    fn order(&self, rank: usize, clocks: &Clocks, writing: bool) -> Result<(), Fault> {
        if let Some((other, then)) = self.writer
            && !clocks.happened_before(rank, other, then)
        {
            return Err(Fault::Race { other, writes: true });
        }
        match self.readers.iter().find(|&&(reader, then)| writing && !clocks.happened_before(rank, reader, then)) {
            Some(&(other, _)) => Err(Fault::Race { other, writes: false }),
            None => Ok(()),
        }
    }

    fn note_reader(&mut self, rank: usize, clocks: &Clocks) {
        let now = clocks.now(rank);
        match self.readers.last_mut() {
            Some((reader, then)) if *reader == rank => *then = now,
            // A rank may be listed twice, which is harmless: a clock that includes the later read includes the earlier one too.
            _ => self.readers.push((rank, now)),
        }
    }

    fn note_writer(&mut self, rank: usize, clocks: &Clocks) {
        self.writer = Some((rank, clocks.now(rank)));
        self.readers.clear();
    }
}

/// Blocks of the slots of a place, nearly always a single block.
pub(super) type Blocks = SmallVec<[Block; 1]>;

/// Returns the total number of chunks in blocks.
pub(super) fn len(blocks: &[Block]) -> u64 {
    blocks.iter().map(Block::len).sum()
}

/// Returns the chunks of blocks, in order.
pub(super) fn chunks(blocks: &[Block]) -> impl Iterator<Item = u64> {
    blocks.iter().flat_map(|block| block.chunks.iter())
}

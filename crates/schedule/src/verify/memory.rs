//! Memory as the verifier sees it: cells that hold expressions, know who is still using them, and remember
//! when they were last touched.
//!
//! A space is cut wherever a slot begins or ends, so a slot is a whole number of cells, nearly always one. Slots whose
//! numbers follow each other mostly lie one behind the other: all work is on such *blocks*, and where every slot of a
//! space is one cell, on plain slices.

use super::clock::Clocks;
use super::expr::Expr;

/// One buffer or segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Space(pub(super) u32);

/// Slots of chunks that follow each other: each is one cell; or there is one slot, of any number of cells; or there are
/// no cells, because the chunks have no elements and there is nothing to touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub(super) space: Space,
    pub(super) first: u32,
    pub(super) cells: u32,
    /// The first chunk, and how many.
    pub(super) chunk: u64,
    pub(super) len: u32,
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

    fn of(&mut self, block: &Block) -> (&mut Cells, std::ops::Range<usize>) {
        let first = block.first as usize;
        (&mut self.spaces[block.space.0 as usize], first..first + block.cells as usize)
    }

    /// Lays an input down, before the run.
    pub(super) fn provide(&mut self, block: &Block, values: impl Iterator<Item = Expr>) {
        let (cells, range) = self.of(block);
        for (at, value) in range.zip(values) {
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
            values.resize(values.len() + block.len as usize, Expr::EMPTY);
            return Ok(());
        }
        let (cells, range) = self.of(block);
        let ready = |state: &u32| state & (WRITTEN | RECEIVING) == WRITTEN;
        if !cells.states[range.clone()].iter().all(ready) {
            let at = range.clone().find(|&at| !ready(&cells.states[at])).expect("one is not");
            let in_flight = cells.states[at] & RECEIVING != 0;
            let fault = if in_flight { Fault::InFlight } else { Fault::NeverWritten };
            return Err((fault, block.chunk_at(at)));
        }
        if !cells.tags.is_empty() {
            let tag = |at: usize| if block.len == 1 { (block.first, block.cells) } else { (at as u32, 1) };
            if let Some(at) = range.clone().find(|&at| cells.tags[at] != tag(at)) {
                return Err((Fault::Overwritten, block.chunk_at(at)));
            }
        }
        if !cells.histories.is_empty() {
            for at in range.clone() {
                let history = &mut cells.histories[at];
                history.order(rank, clocks, false).map_err(|fault| (fault, block.chunk_at(at)))?;
                history.note_reader(rank, clocks);
            }
        }
        if block.len == 1 {
            values.push(cells.values[range.start]);
        } else {
            values.extend_from_slice(&cells.values[range]);
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
        let (cells, range) = self.of(block);
        if block.cells > 0 && block.len == 1 {
            cells.values[range].fill(values[0]);
        } else if block.cells > 0 {
            cells.values[range].copy_from_slice(values);
        }
        outcome
    }

    /// Marks a block as written to, with this state.
    fn overwrite(&mut self, block: &Block, state: u32, rank: usize, clocks: &Clocks) -> Result<(), Faulty> {
        let mut outcome = Ok(());
        let (cells, range) = self.of(block);
        if cells.states[range.clone()].iter().any(|&state| state > WRITTEN) {
            let at = range.clone().find(|&at| cells.states[at] > WRITTEN).expect("one is");
            outcome = Err((Fault::InFlight, block.chunk_at(at)));
        }
        cells.states[range.clone()].fill(state);
        if !cells.tags.is_empty() {
            for at in range.clone() {
                cells.tags[at] = if block.len == 1 { (block.first, block.cells) } else { (at as u32, 1) };
            }
        }
        if !cells.histories.is_empty() {
            for at in range {
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
        let (cells, range) = self.of(block);
        cells.states[range].iter_mut().for_each(|state| *state += SENDING);
    }

    /// The send is finished: its reading ends now.
    pub(super) fn end_send(&mut self, block: &Block, rank: usize, clocks: &Clocks) {
        let (cells, range) = self.of(block);
        for state in &mut cells.states[range.clone()] {
            // What was overwritten in the meantime has been complained of.
            if *state >= SENDING {
                *state -= SENDING;
            }
        }
        if !cells.histories.is_empty() {
            range.for_each(|at| cells.histories[at].note_reader(rank, clocks));
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
        let (cells, range) = self.of(block);
        for at in range.clone() {
            cells.values[at] = values[if block.len == 1 { 0 } else { at - range.start }];
            cells.states[at] &= !RECEIVING;
        }
        if !cells.histories.is_empty() {
            range.for_each(|at| cells.histories[at].note_writer(rank, clocks));
        }
    }

    /// What lies in a block in the end; `None` for slots in which nothing does.
    pub(super) fn last(&mut self, block: &Block) -> impl Iterator<Item = Option<Expr>> {
        let (cells, range) = self.of(block);
        range.map(|at| (cells.states[at] & (WRITTEN | RECEIVING) == WRITTEN).then_some(cells.values[at]))
    }

    /// The length of a slot.
    pub(super) fn length(&mut self, block: &Block, number: u32) -> &mut Length {
        &mut self.spaces[block.space.0 as usize].lengths[(block.first + number) as usize]
    }

    /// Whether the length of a slot is on its way.
    pub(super) fn arriving(&mut self, block: &Block, number: u32) -> &mut bool {
        &mut self.spaces[block.space.0 as usize].arriving[(block.first + number) as usize]
    }
}

impl Block {
    /// The chunk at a cell.
    fn chunk_at(&self, cell: usize) -> u64 {
        if self.len == 1 { self.chunk } else { self.chunk + (cell as u64 - u64::from(self.first)) }
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
        match self.readers.iter_mut().find(|(reader, _)| *reader == rank) {
            Some((_, then)) => *then = now,
            None => self.readers.push((rank, now)),
        }
    }

    fn note_writer(&mut self, rank: usize, clocks: &Clocks) {
        self.writer = Some((rank, clocks.now(rank)));
        self.readers.clear();
    }
}

//! Memory as the verifier sees it: cells that hold expressions, know who is still using them, and remember
//! when they were last touched.
//!
//! A space is cut wherever a slot begins or ends, so a slot is a whole number of cells, nearly always one.

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use super::clock::Clocks;
use super::expr::Expr;

/// One buffer or segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Space(u32);

/// Where a slot lies: cells of a space. A chunk without elements has none: there is nothing there to touch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Address {
    pub(super) space: Space,
    pub(super) first: u32,
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

#[derive(Clone, Copy, Debug)]
struct Cell {
    /// The slot that was written here last, by its first cell and their number; no cells: never written.
    slot: (u32, u32),
    value: Expr,
    /// Sends that are reading it.
    sending: u32,
    /// A receive is filling it.
    receiving: bool,
}

/// Who touched a cell of a segment when.
#[derive(Clone, Debug, Default)]
struct History {
    writer: Option<(usize, u32)>,
    readers: Vec<(usize, u32)>,
}

struct Cells {
    cells: Vec<Cell>,
    /// Only of segments.
    histories: Vec<History>,
}

/// All buffers and segments.
#[derive(Default)]
pub(super) struct Memory {
    spaces: Vec<Cells>,
    /// Lengths of slots, as the chunk (source, destination) whose length they have; for local counts only.
    pub(super) lengths: HashMap<Address, (u32, u32)>,
    /// Slots whose lengths are on their way.
    pub(super) arriving: HashSet<Address>,
}

/// Whose memory a space is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    Rank,
    Region,
}

impl Memory {
    pub(super) fn space(&mut self, cells: usize, owner: Owner) -> Space {
        let never = Cell { slot: (0, 0), value: Expr::UNKNOWN, sending: 0, receiving: false };
        let histories = if owner == Owner::Region { cells } else { 0 };
        self.spaces.push(Cells { cells: vec![never; cells], histories: vec![History::default(); histories] });
        Space(self.spaces.len() as u32 - 1)
    }

    fn cells(&mut self, at: Address) -> impl Iterator<Item = (&mut Cell, Option<&mut History>)> {
        let range = at.first as usize..(at.first + at.count) as usize;
        let Cells { cells, histories } = &mut self.spaces[at.space.0 as usize];
        let histories = if histories.is_empty() { &mut [][..] } else { &mut histories[range.clone()] };
        let histories = histories.iter_mut().map(Some).chain(std::iter::repeat_with(|| None));
        cells[range].iter_mut().zip(histories)
    }

    /// Lays an input down, before the run.
    pub(super) fn provide(&mut self, at: Address, value: Expr) {
        for (cell, _) in self.cells(at) {
            (cell.slot, cell.value) = ((at.first, at.count), value);
        }
    }

    /// The value at an address.
    pub(super) fn read(&mut self, at: Address, rank: usize, clocks: &Clocks) -> Result<Expr, Fault> {
        let mut value = Expr::EMPTY;
        for (cell, history) in self.cells(at) {
            if cell.receiving {
                return Err(Fault::InFlight);
            }
            if cell.slot != (at.first, at.count) {
                return Err(if cell.slot.1 == 0 { Fault::NeverWritten } else { Fault::Overwritten });
            }
            if let Some(history) = history {
                history.order(rank, clocks, false)?;
                history.note_reader(rank, clocks);
            }
            value = cell.value;
        }
        Ok(value)
    }

    /// Puts a value at an address. Whatever it overlaps is no longer readable.
    pub(super) fn write(
        &mut self,
        at: Address,
        value: Expr,
        rank: usize,
        clocks: &Clocks,
    ) -> Result<(), Fault> {
        let mut fault = Ok(());
        for (cell, history) in self.cells(at) {
            if cell.sending > 0 || cell.receiving {
                fault = Err(Fault::InFlight);
            }
            if let Some(history) = history {
                fault = fault.and_then(|()| history.order(rank, clocks, true));
                *history = History { writer: Some((rank, clocks.now(rank))), readers: Vec::new() };
            }
            *cell = Cell { slot: (at.first, at.count), value, sending: 0, receiving: false };
        }
        fault
    }

    /// A send starts to read what was just read; see [`Memory::end_send`].
    pub(super) fn begin_send(&mut self, at: Address) {
        for (cell, _) in self.cells(at) {
            cell.sending += 1;
        }
    }

    /// The send is finished: its reading ends now.
    pub(super) fn end_send(&mut self, at: Address, rank: usize, clocks: &Clocks) {
        for (cell, history) in self.cells(at) {
            cell.sending = cell.sending.saturating_sub(1);
            if let Some(history) = history {
                history.note_reader(rank, clocks);
            }
        }
    }

    /// A receive starts to fill what was just written as unknown; see [`Memory::end_receive`].
    pub(super) fn begin_receive(&mut self, at: Address) {
        for (cell, _) in self.cells(at) {
            cell.receiving = true;
        }
    }

    /// The receive is finished: the value is there.
    pub(super) fn end_receive(&mut self, at: Address, value: Expr, rank: usize, clocks: &Clocks) {
        for (cell, history) in self.cells(at).filter(|(cell, _)| cell.slot == (at.first, at.count)) {
            (cell.value, cell.receiving) = (value, false);
            if let Some(history) = history {
                *history = History { writer: Some((rank, clocks.now(rank))), readers: Vec::new() };
            }
        }
    }

    /// What lies at an address in the end.
    pub(super) fn last(&mut self, at: Address) -> Option<Expr> {
        let (cell, _) = self.cells(at).next()?;
        (cell.slot == (at.first, at.count) && !cell.receiving).then_some(cell.value)
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
}

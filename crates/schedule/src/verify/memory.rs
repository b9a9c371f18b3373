//! Memory as the verifier sees it: cells that hold expressions, know who is still using them, and remember
//! when they were last touched.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::clock::Clocks;
use super::expr::Expr;

/// One buffer or segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Space(u32);

/// Where a slot lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Address {
    pub(super) space: Space,
    pub(super) offset: u64,
    /// Zero for a chunk without elements: there is nothing there to touch.
    pub(super) len: u64,
}

/// Who touches it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Toucher {
    pub(super) rank: usize,
    pub(super) execution: u32,
}

/// What is wrong with an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    NeverWritten,
    Overwritten,
    FromEarlierExecution,
    InFlight,
    Race { other: usize, writes: bool },
}

#[derive(Clone, Debug)]
struct Cell {
    len: u64,
    /// `None` after a part of the cell was overwritten.
    value: Option<Expr>,
    execution: u32,
    /// Sends that are reading it.
    sending: u32,
    /// A receive is filling it.
    receiving: bool,
    writer: (usize, u32),
    readers: Vec<(usize, u32)>,
}

/// All buffers and segments.
#[derive(Default)]
pub(super) struct Memory {
    spaces: Vec<BTreeMap<u64, Cell>>,
    shared: Vec<bool>,
    /// Lengths of slots, as the chunk (source, destination) whose length they have; for local counts only.
    pub(super) lengths: HashMap<Address, (u32, u32)>,
    /// Slots whose lengths are on their way.
    pub(super) arriving: HashSet<Address>,
}

impl Memory {
    pub(super) fn space(&mut self, shared: bool) -> Space {
        self.spaces.push(BTreeMap::new());
        self.shared.push(shared);
        Space(self.spaces.len() as u32 - 1)
    }

    /// Lays an input down, before the run.
    pub(super) fn provide(&mut self, at: Address, value: Expr, by: Toucher) {
        if at.len > 0 {
            self.spaces[at.space.0 as usize].insert(at.offset, Cell::written(at.len, value, by, 0));
        }
    }

    /// The value at an address.
    pub(super) fn read(&mut self, at: Address, by: Toucher, clocks: &Clocks) -> Result<Expr, Fault> {
        if at.len == 0 {
            return Ok(Expr::EMPTY);
        }
        let shared = self.shared[at.space.0 as usize];
        let cells = &mut self.spaces[at.space.0 as usize];
        let Some(cell) = cells.get_mut(&at.offset) else {
            let touched =
                cells.range(..at.offset + at.len).next_back().is_some_and(|(o, c)| o + c.len > at.offset);
            return Err(if touched { Fault::Overwritten } else { Fault::NeverWritten });
        };
        if cell.receiving {
            return Err(Fault::InFlight);
        }
        let value = match cell.value {
            Some(value) if cell.len == at.len => value,
            _ => return Err(Fault::Overwritten),
        };
        match cell.execution.cmp(&by.execution) {
            Ordering::Less => return Err(Fault::FromEarlierExecution),
            Ordering::Greater => return Err(Fault::Race { other: cell.writer.0, writes: true }),
            Ordering::Equal => {}
        }
        if shared {
            cell.order(by.rank, clocks, false)?;
            cell.note_reader(by.rank, clocks);
        }
        Ok(value)
    }

    /// Puts a value at an address. Whatever it overlaps is no longer readable.
    pub(super) fn write(
        &mut self,
        at: Address,
        value: Expr,
        by: Toucher,
        clocks: &Clocks,
    ) -> Result<(), Fault> {
        if at.len == 0 {
            return Ok(());
        }
        let shared = self.shared[at.space.0 as usize];
        let cells = &mut self.spaces[at.space.0 as usize];
        let mut fault = Ok(());
        let end = at.offset + at.len;
        let overlapping: Vec<u64> = cells
            .range(..end)
            .rev()
            .take_while(|(offset, cell)| *offset + cell.len > at.offset)
            .map(|(&offset, _)| offset)
            .collect();
        for offset in overlapping {
            let cell = cells.remove(&offset).expect("just found");
            if cell.sending > 0 || cell.receiving {
                fault = Err(Fault::InFlight);
            } else if shared && fault.is_ok() {
                fault = cell.order(by.rank, clocks, true);
            }
            for (from, to) in [(offset, at.offset), (end, offset + cell.len)] {
                if from < to {
                    cells.insert(from, Cell { len: to - from, value: None, ..cell.clone() });
                }
            }
        }
        cells.insert(at.offset, Cell::written(at.len, value, by, clocks.now(by.rank)));
        fault
    }

    /// A send starts to read what was just read; see [`Memory::end_send`].
    pub(super) fn begin_send(&mut self, at: Address) {
        if let Some(cell) = self.cell(at) {
            cell.sending += 1;
        }
    }

    /// The send is finished: its reading ends now.
    pub(super) fn end_send(&mut self, at: Address, by: Toucher, clocks: &Clocks) {
        let shared = self.shared[at.space.0 as usize];
        if let Some(cell) = self.cell(at) {
            cell.sending = cell.sending.saturating_sub(1);
            if shared {
                cell.note_reader(by.rank, clocks);
            }
        }
    }

    /// A receive starts to fill what was just written as unknown; see [`Memory::end_receive`].
    pub(super) fn begin_receive(&mut self, at: Address) {
        if let Some(cell) = self.cell(at) {
            cell.receiving = true;
        }
    }

    /// The receive is finished: the value is there.
    pub(super) fn end_receive(&mut self, at: Address, value: Expr, by: Toucher, clocks: &Clocks) {
        if let Some(cell) = self.cell(at) {
            *cell = Cell::written(at.len, value, by, clocks.now(by.rank));
        }
    }

    fn cell(&mut self, at: Address) -> Option<&mut Cell> {
        self.spaces[at.space.0 as usize].get_mut(&at.offset).filter(|cell| cell.len == at.len)
    }

    /// What lies at an address in the end.
    pub(super) fn last(&self, at: Address, execution: u32) -> Option<Expr> {
        let cell = self.spaces[at.space.0 as usize].get(&at.offset)?;
        cell.value.filter(|_| cell.len == at.len && cell.execution == execution && !cell.receiving)
    }
}

impl Cell {
    fn written(len: u64, value: Expr, by: Toucher, now: u32) -> Cell {
        Cell {
            len,
            value: Some(value),
            execution: by.execution,
            sending: 0,
            receiving: false,
            writer: (by.rank, now),
            readers: Vec::new(),
        }
    }

    /// Whether all that must have happened before this access has.
    fn order(&self, rank: usize, clocks: &Clocks, writing: bool) -> Result<(), Fault> {
        let (writer, then) = self.writer;
        if !clocks.knows(rank, writer, then) {
            return Err(Fault::Race { other: writer, writes: true });
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

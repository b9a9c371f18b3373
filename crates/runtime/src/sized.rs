//! Plans for alltoallv, where each rank knows only the sizes of the blocks that it sends and receives.
//!
//! A *cell* is a block of the input, a block of the output, or a block that is forwarded (a private cell). A private cell has no memory of
//! its own: it stores the address and the length of its data, which an arriving message sets, or a copy from the input or from another
//! private cell. Such a copy moves no bytes, because this data does not change during an execution. Received data that does not go
//! directly into the output lies in memory that the plan keeps until the end of the execution.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ops::Range;

use bruckner_schedule::{
    Area, Code, Counts, End, Instr, Layout, LocalOp, Message, Payload, Place, Placement, Places, Problem, Rank,
    Request, Run, Set, Tag,
};

use crate::compile::{CompileError, IdentityTranslation, TranslateRanks};
use crate::memory::Scratch;
use crate::transport::{Peer, Transport, TransportError};

/// Identifies a block of the input, a block of the output, or a private cell for forwarded data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cell {
    In(usize),
    Out(usize),
    Private(usize),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Post { end: End, payload: Payload, cells: Vec<Cell>, peer: Peer, request: usize },
    Finish(Range<usize>),
    Copy { to: Vec<Cell>, from: Vec<Cell> },
}

/// The blocks of an alltoallv's input or output: offset and length of the block of each rank, in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Blocks {
    /// Offset of each block from the start of the buffer, in bytes.
    pub offsets: Vec<usize>,
    /// Length of each block, in bytes.
    pub lengths: Vec<usize>,
}

/// The user's buffers of one execution.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Buffer with the data to send.
    pub input: *const u8,
    /// Buffer for the received data.
    pub output: *mut u8,
}

/// A range of bytes in memory.
#[derive(Clone, Copy, Debug)]
struct View {
    start: *const u8,
    bytes: usize,
}

const NOTHING: View = View { start: std::ptr::null(), bytes: 0 };

/// Work to be done when a message has been sent or received.
enum Completion {
    Nothing,
    /// The received bytes, which are contiguous in the memory `kept` (an index), are distributed to `cells`.
    Scatter {
        cells: Vec<Cell>,
        kept: usize,
    },
    /// The received numbers, in the memory `kept` (an index), become the lengths of `cells`.
    Sizes {
        cells: Vec<Cell>,
        kept: usize,
    },
}

/// One rank's alltoallv program, ready to run.
pub struct SizedExecutable<T: Transport> {
    steps: Vec<Step>,
    requests: T::Requests,
    after: Vec<Completion>,
    cells: Vec<View>,
    input: Blocks,
    output: Blocks,
    buffers: Buffers,
    kept: Vec<Scratch>,
    next: usize,
    /// First error of the current execution. The execution continues nevertheless, because other ranks wait for this rank.
    failed: Option<TransportError>,
    /// Largest message tag of the program; tags start at 0.
    pub tags: u32,
    /// Whether all messages are posted before the first wait.
    pub one_round: bool,
}

// SAFETY: the addresses point to memory covered by BUFFERS (crate documentation), which is not bound to a thread.
unsafe impl<T: Transport> Send for SizedExecutable<T> where T::Requests: Send {}

impl<T: Transport> SizedExecutable<T> {
    /// Creates a plan from a rank's code. `tag` is added to each message tag of the program.
    pub fn new(
        problem: &Problem,
        code: &Code,
        names: &dyn TranslateRanks,
        tag: u32,
        transport: &T,
    ) -> Result<SizedExecutable<T>, CompileError> {
        assert_eq!(problem.counts, Counts::Local, "sizes known only locally");
        let (steps, requests, tags) = steps(code, names, tag)?;
        let first = steps.iter().position(|step| matches!(step, Step::Finish(_))).unwrap_or(steps.len());
        let one_round = !steps[first..].iter().any(|step| matches!(step, Step::Post { .. }));
        let next = steps.len();
        Ok(SizedExecutable {
            steps,
            requests: transport.requests(requests),
            after: (0..requests).map(|_| Completion::Nothing).collect(),
            cells: vec![NOTHING; code.memory(problem) as usize],
            input: Blocks::default(),
            output: Blocks::default(),
            buffers: Buffers { input: std::ptr::null(), output: std::ptr::null_mut() },
            kept: Vec::new(),
            next,
            failed: None,
            tags,
            one_round,
        })
    }

    /// Sets the blocks of input and output for all later executions.
    pub fn set_blocks(&mut self, input: Blocks, output: Blocks) {
        (self.input, self.output) = (input, output);
    }

    /// Returns whether an execution has started and is not yet complete.
    pub fn is_active(&self) -> bool {
        self.next < self.steps.len()
    }

    /// Starts an execution, and advances it as far as possible without waiting.
    ///
    /// # Safety
    /// All blocks lie in the buffers and do not overlap. Nobody else uses the buffers until the plan is no longer active.
    ///
    /// # Panics
    /// If an execution has started and is not yet complete.
    pub unsafe fn start(&mut self, transport: &T, buffers: Buffers) -> Result<(), TransportError> {
        assert!(!self.is_active(), "the plan is already active");
        self.buffers = buffers;
        self.next = 0;
        self.advance(transport, false).map(|_| ())
    }

    /// Runs the plan to completion.
    ///
    /// # Safety
    /// The requirements of [`SizedExecutable::start`] hold.
    pub unsafe fn run(&mut self, transport: &T, buffers: Buffers) -> Result<(), TransportError> {
        // SAFETY: BUFFERS (crate documentation), guaranteed by the caller.
        unsafe { self.start(transport, buffers) }?;
        self.wait(transport)
    }

    /// Advances the execution as far as possible without waiting. Returns whether it is complete.
    pub fn test(&mut self, transport: &T) -> Result<bool, TransportError> {
        if self.is_active() {
            transport.progress();
        }
        self.advance(transport, false)
    }

    /// Waits until the execution is complete.
    pub fn wait(&mut self, transport: &T) -> Result<(), TransportError> {
        self.advance(transport, true).map(|_| ())
    }

    fn advance(&mut self, transport: &T, wait: bool) -> Result<bool, TransportError> {
        while self.next < self.steps.len() {
            // The step is moved out of the list while it runs, and is put back before any error is returned.
            let step = std::mem::replace(&mut self.steps[self.next], Step::Finish(0..0));
            let done = self.step(transport, &step, wait);
            self.steps[self.next] = step;
            if !done? {
                return Ok(false);
            }
            self.next += 1;
        }
        self.kept.clear();
        self.failed.take().map_or(Ok(true), Err)
    }

    fn step(&mut self, transport: &T, step: &Step, wait: bool) -> Result<bool, TransportError> {
        match step {
            Step::Post { end, payload, cells, peer, request } => {
                let (start, bytes, after) = match (end, payload) {
                    (End::Send, Payload::Data) => {
                        let (start, bytes) = self.gather(cells);
                        (start.cast_mut(), bytes, Completion::Nothing)
                    }
                    (End::Send, Payload::Sizes) => {
                        let sizes: Vec<u8> =
                            cells.iter().flat_map(|cell| (self.view(*cell).bytes as u64).to_le_bytes()).collect();
                        let kept = self.keep(sizes.len());
                        // SAFETY: `sizes.len()` bytes were just allocated there.
                        unsafe {
                            std::ptr::copy_nonoverlapping(sizes.as_ptr(), self.kept[kept].start(), sizes.len());
                        };
                        (self.kept[kept].start(), sizes.len(), Completion::Nothing)
                    }
                    (End::Recv, Payload::Data) => self.room(cells),
                    (End::Recv, Payload::Sizes) => {
                        let kept = self.keep(8 * cells.len());
                        (self.kept[kept].start(), 8 * cells.len(), Completion::Sizes { cells: cells.clone(), kept })
                    }
                };
                self.after[*request] = after;
                // SAFETY: the user's buffers are valid by BUFFERS (crate documentation), kept memory until the end of the execution.
                unsafe {
                    match end {
                        End::Send => transport.send(&mut self.requests, *request, start, bytes, *peer),
                        End::Recv => transport.recv(&mut self.requests, *request, start, bytes, *peer),
                    }
                }?;
            }
            Step::Finish(which) => {
                let done = match wait {
                    true => transport.finish(&mut self.requests, which.clone()).map(|()| true),
                    false => transport.test(&mut self.requests, which.clone()),
                };
                match done {
                    Ok(true) => {}
                    Ok(false) => return Ok(false),
                    Err(failure) => self.failed = self.failed.or(Some(failure)),
                }
                for request in which.clone() {
                    match std::mem::replace(&mut self.after[request], Completion::Nothing) {
                        Completion::Nothing => {}
                        Completion::Scatter { cells, kept } => self.scatter(transport, &cells, kept),
                        Completion::Sizes { cells, kept } => self.set_sizes(&cells, kept),
                    }
                }
            }
            Step::Copy { to, from } => {
                for (to, from) in to.iter().zip(from) {
                    let view = self.view(*from);
                    match (to, from) {
                        (Cell::Private(at), Cell::In(_) | Cell::Private(_)) => self.cells[*at] = view,
                        (Cell::Private(at), Cell::Out(_)) => {
                            let kept = self.keep(view.bytes);
                            let start = self.kept[kept].start();
                            // SAFETY: `view.bytes` bytes were just allocated there.
                            unsafe { std::ptr::copy_nonoverlapping(view.start, start, view.bytes) };
                            self.cells[*at] = View { start, bytes: view.bytes };
                        }
                        _ => self.write(transport, *to, view),
                    }
                }
            }
        }
        Ok(true)
    }

    fn view(&self, cell: Cell) -> View {
        match cell {
            Cell::In(i) => {
                View { start: self.buffers.input.wrapping_add(self.input.offsets[i]), bytes: self.input.lengths[i] }
            }
            Cell::Out(i) => {
                let start = self.buffers.output.wrapping_add(self.output.offsets[i]);
                View { start, bytes: self.output.lengths[i] }
            }
            Cell::Private(at) => self.cells[at],
        }
    }

    /// Copies data to a block of the output. Data that is longer than the block is truncated and recorded as an error, as in an MPI
    /// message.
    fn write(&mut self, transport: &T, to: Cell, from: View) {
        let target = self.view(to);
        let bytes = from.bytes.min(target.bytes);
        if bytes < from.bytes {
            self.failed = self.failed.or_else(|| Some(transport.truncated()));
        }
        if bytes > 0 && from.start != target.start {
            // SAFETY: the target lies in the user's output by BUFFERS (crate documentation); the source lies in a user's buffer or in kept
            // memory.
            unsafe { std::ptr::copy(from.start, target.start.cast_mut(), bytes) };
        }
    }

    fn keep(&mut self, bytes: usize) -> usize {
        self.kept.push(Scratch::new(bytes));
        self.kept.len() - 1
    }

    /// Returns the data of `cells` as one range of bytes: where it lies if it is contiguous, otherwise copied to memory that the plan
    /// keeps.
    fn gather(&mut self, cells: &[Cell]) -> (*const u8, usize) {
        let views: Vec<View> = cells.iter().map(|cell| self.view(*cell)).filter(|view| view.bytes > 0).collect();
        let bytes = views.iter().map(|view| view.bytes).sum();
        let follows = |w: &[View]| w[0].start.wrapping_add(w[0].bytes) == w[1].start;
        if views.windows(2).all(follows) {
            return (views.first().map_or(std::ptr::null(), |view| view.start), bytes);
        }
        let kept = self.keep(bytes);
        let start = self.kept[kept].start();
        let mut at = 0;
        for view in views {
            // SAFETY: the kept memory is as long as all data of `cells` together.
            unsafe { std::ptr::copy_nonoverlapping(view.start, start.add(at), view.bytes) };
            at += view.bytes;
        }
        (start, bytes)
    }

    /// Returns the receive buffer for `cells`: the output itself if `cells` is a single block of it, otherwise memory that the plan keeps.
    fn room(&mut self, cells: &[Cell]) -> (*mut u8, usize, Completion) {
        let bytes = cells.iter().map(|cell| self.view(*cell).bytes).sum();
        if let [Cell::Out(_)] = cells {
            return (self.view(cells[0]).start.cast_mut(), bytes, Completion::Nothing);
        }
        let kept = self.keep(bytes);
        (self.kept[kept].start(), bytes, Completion::Scatter { cells: cells.to_vec(), kept })
    }

    fn scatter(&mut self, transport: &T, cells: &[Cell], kept: usize) {
        let mut start = self.kept[kept].start().cast_const();
        for cell in cells {
            let view = View { start, bytes: self.view(*cell).bytes };
            match cell {
                Cell::Private(at) => self.cells[*at] = view,
                _ => self.write(transport, *cell, view),
            }
            start = start.wrapping_add(view.bytes);
        }
    }

    fn set_sizes(&mut self, cells: &[Cell], kept: usize) {
        for (i, cell) in cells.iter().enumerate() {
            // SAFETY: the kept memory has eight received bytes for each cell.
            let bytes = unsafe { self.kept[kept].start().add(8 * i).cast::<u64>().read_unaligned() };
            if let Cell::Private(at) = cell {
                self.cells[*at] = View { start: std::ptr::null(), bytes: u64::from_le(bytes) as usize };
            }
        }
    }
}

/// Translates a rank's code to steps. Returns the steps, the number of requests, and the largest tag.
fn steps(code: &Code, names: &dyn TranslateRanks, tag: u32) -> Result<(Vec<Step>, usize, u32), CompileError> {
    let Layout::Buffers { placed, .. } = &code.layout else { return Err(CompileError::NotLowered) };
    let (mut steps, mut requests, mut tags) = (Vec::new(), 0, 0);
    for instr in &code.instrs {
        match instr {
            Instr::Post(request, message) => {
                requests = requests.max(request.0 as usize + 1);
                tags = tags.max(message.tag.0);
                steps.push(post(placed, request.0 as usize, message, names, tag)?);
            }
            Instr::Finish(which) => {
                let blocks = which.runs().iter().flat_map(Run::blocks);
                steps.extend(blocks.map(|b| Step::Finish(b.start as usize..b.end as usize)));
            }
            Instr::Local(LocalOp::Copy { to, from }) => {
                steps.push(Step::Copy { to: cells(placed, to)?, from: cells(placed, from)? });
            }
            Instr::Local(other) => return Err(CompileError::LimitExceeded(other.to_string())),
        }
    }
    Ok((steps, requests, tags))
}

/// Translates a rank's code to steps, and the steps back to code, so that the verifier can check the translation.
pub fn read_back(code: &Code) -> Result<Code, CompileError> {
    let (steps, ..) = steps(code, &IdentityTranslation, 0)?;
    // Each private cell (a block that is forwarded) is read back as a line of its own.
    let mut placed: BTreeMap<Area, Placement> = BTreeMap::new();
    let mut place = |cell: &Cell| match *cell {
        Cell::In(chunk) => Place::new(Area::In, Set::one(chunk as u64)),
        Cell::Out(chunk) => Place::new(Area::Out, Set::one(chunk as u64)),
        Cell::Private(at) => {
            let place = Place::new(Area::Line(at as u32), Set::one(0));
            placed.entry(place.area).or_insert(Placement { place: place.clone(), at: at as u64 });
            place
        }
    };
    let mut instrs = Vec::new();
    for step in &steps {
        match step {
            Step::Post { end, payload, cells, peer, request } => {
                let mut places = Places::new();
                cells.iter().for_each(|cell| Place::join(&mut places, place(cell)));
                let (end, payload, peer, tag) = (*end, *payload, Rank(peer.rank), Tag(peer.tag));
                let message = Message { end, payload, places, peer, tag };
                instrs.push(Instr::Post(Request(*request as u32), message));
            }
            Step::Finish(which) => {
                instrs.push(Instr::Finish(Set::from(which.start as u64..which.end as u64)));
            }
            Step::Copy { to, from } => {
                let pairs = to.iter().zip(from).map(|(to, from)| (place(to), place(from)));
                instrs.extend(pairs.map(|(to, from)| Instr::Local(LocalOp::Copy { to, from })));
            }
        }
    }
    let placed = placed.into_values().collect();
    Ok(Code { layout: Layout::Buffers { placed, alternate: Vec::new() }, instrs })
}

fn post(
    placed: &[Placement],
    request: usize,
    message: &Message,
    names: &dyn TranslateRanks,
    tag: u32,
) -> Result<Step, CompileError> {
    let mut all = Vec::new();
    for place in &message.places {
        all.extend(cells(placed, place)?);
    }
    let peer = Peer { rank: names.translate(message.peer), tag: tag + message.tag.0 };
    Ok(Step::Post { end: message.end, payload: message.payload, cells: all, peer, request })
}

fn cells(placed: &[Placement], place: &Place) -> Result<Vec<Cell>, CompileError> {
    match place.area {
        Area::In => Ok(place.set.iter().map(|i| Cell::In(i as usize)).collect()),
        Area::Out => Ok(place.set.iter().map(|i| Cell::Out(i as usize)).collect()),
        Area::Line(_) => {
            let line = placed.iter().find(|p| p.place.area == place.area).ok_or(CompileError::NotLowered)?;
            let at = |i| line.place.set.position(i).map(|at| Cell::Private((line.at + at) as usize));
            place.set.iter().map(at).collect::<Option<_>>().ok_or(CompileError::NotLowered)
        }
        Area::Shared(..) | Area::InOf(_) | Area::OutOf(_) => Err(CompileError::LimitExceeded(place.to_string())),
    }
}

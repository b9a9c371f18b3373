//! Alltoallv: programs in which each rank knows only the sizes of what it sends and will have received.
//!
//! A cell has no fixed place here: it is a view of bytes, set when a message has brought it or a copy names it. Nothing is
//! ever changed once it is there, so a copy from one private cell to another moves no data. What passes through arrives
//! in memory that the plan keeps until the execution is over.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ops::Range;

use bruckner_schedule::{
    Area, Code, Counts, End, Instr, Layout, Local, Message, Payload, Place, Placed, Places, Problem, Rank,
    Request, Run, Set, Tag,
};

use crate::compile::{Names, SameNames, Unfit};
use crate::memory::Scratch;
use crate::transport::{Failure, Peer, Transport};

/// A cell by name.
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

/// One side of an alltoallv: where the block of each rank lies, in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Blocks {
    /// Where each starts.
    pub offsets: Vec<usize>,
    /// How long each is.
    pub lengths: Vec<usize>,
}

/// The user's buffers.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// What is sent.
    pub input: *const u8,
    /// What is received.
    pub output: *mut u8,
}

/// Bytes somewhere.
#[derive(Clone, Copy, Debug)]
struct View {
    start: *const u8,
    bytes: usize,
}

const NOTHING: View = View { start: std::ptr::null(), bytes: 0 };

/// What is to be done when a request is finished.
enum After {
    Nothing,
    /// These cells have arrived in one stretch of kept memory.
    Scatter {
        cells: Vec<Cell>,
        kept: usize,
    },
    /// The lengths of these cells have arrived.
    Sizes {
        cells: Vec<Cell>,
        kept: usize,
    },
}

/// A program ready to run.
pub struct Plan<T: Transport> {
    steps: Vec<Step>,
    requests: T::Requests,
    after: Vec<After>,
    cells: Vec<View>,
    input: Blocks,
    output: Blocks,
    buffers: Buffers,
    kept: Vec<Scratch>,
    next: usize,
    /// What went wrong in the execution under way, which goes on nevertheless.
    failed: Option<Failure>,
    /// The largest tag, the first being 0.
    pub tags: u32,
    /// Whether all messages are posted before any is awaited.
    pub one_round: bool,
}

// SAFETY: addresses belong to BUFFERS, not to a thread.
unsafe impl<T: Transport> Send for Plan<T> where T::Requests: Send {}

impl<T: Transport> Plan<T> {
    /// Makes a plan of a rank's code. Tags start at `tag`.
    pub fn new(
        problem: &Problem,
        code: &Code,
        names: &dyn Names,
        tag: u32,
        transport: &T,
    ) -> Result<Plan<T>, Unfit> {
        assert_eq!(problem.counts, Counts::Local, "sizes known only locally");
        let (steps, requests, tags) = steps(code, names, tag)?;
        let first = steps.iter().position(|step| matches!(step, Step::Finish(_))).unwrap_or(steps.len());
        let one_round = !steps[first..].iter().any(|step| matches!(step, Step::Post { .. }));
        let next = steps.len();
        Ok(Plan {
            steps,
            requests: transport.requests(requests),
            after: (0..requests).map(|_| After::Nothing).collect(),
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

    /// Sets the sizes for the executions that follow.
    pub fn set_blocks(&mut self, input: Blocks, output: Blocks) {
        (self.input, self.output) = (input, output);
    }

    /// Whether an execution is under way.
    pub fn is_active(&self) -> bool {
        self.next < self.steps.len()
    }

    /// Starts it, and does what can be done without waiting.
    ///
    /// # Safety
    /// All blocks lie in the buffers, which nobody else uses until the plan is no longer active; they do not overlap.
    ///
    /// # Panics
    /// If it is active already.
    pub unsafe fn start(&mut self, transport: &T, buffers: Buffers) -> Result<(), Failure> {
        assert!(!self.is_active(), "the plan is started already");
        self.buffers = buffers;
        self.next = 0;
        self.advance(transport, false).map(|_| ())
    }

    /// Runs it from beginning to end.
    ///
    /// # Safety
    /// As for [`Plan::start`].
    pub unsafe fn run(&mut self, transport: &T, buffers: Buffers) -> Result<(), Failure> {
        // SAFETY: BUFFERS.
        unsafe { self.start(transport, buffers) }?;
        self.wait(transport)
    }

    /// Does what can be done without waiting; whether all is done.
    pub fn test(&mut self, transport: &T) -> Result<bool, Failure> {
        if self.is_active() {
            transport.progress();
        }
        self.advance(transport, false)
    }

    /// Waits until all is done.
    pub fn wait(&mut self, transport: &T) -> Result<(), Failure> {
        self.advance(transport, true).map(|_| ())
    }

    fn advance(&mut self, transport: &T, wait: bool) -> Result<bool, Failure> {
        while self.next < self.steps.len() {
            // The step is put back before anything can fail.
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

    fn step(&mut self, transport: &T, step: &Step, wait: bool) -> Result<bool, Failure> {
        match step {
            Step::Post { end, payload, cells, peer, request } => {
                let (start, bytes, after) = match (end, payload) {
                    (End::Send, Payload::Data) => {
                        let (start, bytes) = self.gather(cells);
                        (start.cast_mut(), bytes, After::Nothing)
                    }
                    (End::Send, Payload::Sizes) => {
                        let sizes: Vec<u8> = cells
                            .iter()
                            .flat_map(|cell| (self.view(*cell).bytes as u64).to_le_bytes())
                            .collect();
                        let kept = self.keep(sizes.len());
                        // SAFETY: as many bytes were just kept.
                        unsafe {
                            std::ptr::copy_nonoverlapping(
                                sizes.as_ptr(),
                                self.kept[kept].start(),
                                sizes.len(),
                            );
                        };
                        (self.kept[kept].start(), sizes.len(), After::Nothing)
                    }
                    (End::Recv, Payload::Data) => self.room(cells),
                    (End::Recv, Payload::Sizes) => {
                        let kept = self.keep(8 * cells.len());
                        (
                            self.kept[kept].start(),
                            8 * cells.len(),
                            After::Sizes { cells: cells.clone(), kept },
                        )
                    }
                };
                self.after[*request] = after;
                // SAFETY: user buffers by BUFFERS, kept memory until the execution is over.
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
                    match std::mem::replace(&mut self.after[request], After::Nothing) {
                        After::Nothing => {}
                        After::Scatter { cells, kept } => self.scatter(transport, &cells, kept),
                        After::Sizes { cells, kept } => self.set_sizes(&cells, kept),
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
                            // SAFETY: as many bytes were just kept.
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
            Cell::In(i) => View {
                start: self.buffers.input.wrapping_add(self.input.offsets[i]),
                bytes: self.input.lengths[i],
            },
            Cell::Out(i) => {
                let start = self.buffers.output.wrapping_add(self.output.offsets[i]);
                View { start, bytes: self.output.lengths[i] }
            }
            Cell::Private(at) => self.cells[at],
        }
    }

    /// Writes into the output, never more than it has room for: more is an error, as in a message.
    fn write(&mut self, transport: &T, to: Cell, from: View) {
        let target = self.view(to);
        let bytes = from.bytes.min(target.bytes);
        if bytes < from.bytes {
            self.failed = self.failed.or_else(|| Some(transport.truncated()));
        }
        if bytes > 0 && from.start != target.start {
            // SAFETY: the target is the user's, by promise; what is read is the user's or kept.
            unsafe { std::ptr::copy(from.start, target.start.cast_mut(), bytes) };
        }
    }

    fn keep(&mut self, bytes: usize) -> usize {
        self.kept.push(Scratch::new(bytes));
        self.kept.len() - 1
    }

    /// The bytes of cells one behind the other: where they are if they lie so, else copied together.
    fn gather(&mut self, cells: &[Cell]) -> (*const u8, usize) {
        let views: Vec<View> =
            cells.iter().map(|cell| self.view(*cell)).filter(|view| view.bytes > 0).collect();
        let bytes = views.iter().map(|view| view.bytes).sum();
        let follows = |w: &[View]| w[0].start.wrapping_add(w[0].bytes) == w[1].start;
        if views.windows(2).all(follows) {
            return (views.first().map_or(std::ptr::null(), |view| view.start), bytes);
        }
        let kept = self.keep(bytes);
        let start = self.kept[kept].start();
        let mut at = 0;
        for view in views {
            // SAFETY: the sum of all lengths was kept.
            unsafe { std::ptr::copy_nonoverlapping(view.start, start.add(at), view.bytes) };
            at += view.bytes;
        }
        (start, bytes)
    }

    /// Where cells are to arrive: in the output itself if that is one stretch, else in kept memory.
    fn room(&mut self, cells: &[Cell]) -> (*mut u8, usize, After) {
        let bytes = cells.iter().map(|cell| self.view(*cell).bytes).sum();
        if let [Cell::Out(_)] = cells {
            return (self.view(cells[0]).start.cast_mut(), bytes, After::Nothing);
        }
        let kept = self.keep(bytes);
        (self.kept[kept].start(), bytes, After::Scatter { cells: cells.to_vec(), kept })
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
            // SAFETY: eight bytes for each cell were kept and have arrived.
            let bytes = unsafe { self.kept[kept].start().add(8 * i).cast::<u64>().read_unaligned() };
            if let Cell::Private(at) = cell {
                self.cells[*at] = View { start: std::ptr::null(), bytes: u64::from_le(bytes) as usize };
            }
        }
    }
}

/// The steps of a rank's code, how many requests they have, and the largest tag.
fn steps(code: &Code, names: &dyn Names, tag: u32) -> Result<(Vec<Step>, usize, u32), Unfit> {
    let Layout::Buffers { placed, .. } = &code.layout else { return Err(Unfit::Virtual) };
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
            Instr::Local(Local::Copy { to, from }) => {
                steps.push(Step::Copy { to: cells(placed, to)?, from: cells(placed, from)? });
            }
            Instr::Local(other) => return Err(Unfit::Beyond(other.to_string())),
        }
    }
    Ok((steps, requests, tags))
}

/// What runs of a rank's code, read back as a program, for whoever judges.
pub fn read_back(code: &Code) -> Result<Code, Unfit> {
    let (steps, ..) = steps(code, &SameNames, 0)?;
    // Every private cell is a line of its own.
    let mut placed: BTreeMap<Area, Placed> = BTreeMap::new();
    let mut place = |cell: &Cell| match *cell {
        Cell::In(chunk) => Place::new(Area::In, Set::one(chunk as u64)),
        Cell::Out(chunk) => Place::new(Area::Out, Set::one(chunk as u64)),
        Cell::Private(at) => {
            let place = Place::new(Area::Line(at as u32), Set::one(0));
            placed.entry(place.area).or_insert(Placed { place: place.clone(), at: at as u64 });
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
                instrs.extend(pairs.map(|(to, from)| Instr::Local(Local::Copy { to, from })));
            }
        }
    }
    let placed = placed.into_values().collect();
    Ok(Code { layout: Layout::Buffers { placed, alternate: Vec::new() }, instrs })
}

fn post(
    placed: &[Placed],
    request: usize,
    message: &Message,
    names: &dyn Names,
    tag: u32,
) -> Result<Step, Unfit> {
    let mut all = Vec::new();
    for place in &message.places {
        all.extend(cells(placed, place)?);
    }
    let peer = Peer { rank: names.peer(message.peer), tag: tag + message.tag.0 };
    Ok(Step::Post { end: message.end, payload: message.payload, cells: all, peer, request })
}

fn cells(placed: &[Placed], place: &Place) -> Result<Vec<Cell>, Unfit> {
    match place.area {
        Area::In => Ok(place.set.iter().map(|i| Cell::In(i as usize)).collect()),
        Area::Out => Ok(place.set.iter().map(|i| Cell::Out(i as usize)).collect()),
        Area::Line(_) => {
            let line = placed.iter().find(|p| p.place.area == place.area).ok_or(Unfit::Virtual)?;
            let at = |i| line.place.set.position(i).map(|at| Cell::Private((line.at + at) as usize));
            place.set.iter().map(at).collect::<Option<_>>().ok_or(Unfit::Virtual)
        }
        Area::Shared(..) | Area::InOf(_) | Area::OutOf(_) => Err(Unfit::Beyond(place.to_string())),
    }
}

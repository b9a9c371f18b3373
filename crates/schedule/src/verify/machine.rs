//! Symbolic execution: runs all ranks of a program together, on expressions.
//!
//! A rank runs until it must wait. The rank that ends its wait puts it back on the ready list. Messages between two ranks with one tag are
//! matched in the order of posting and no message is buffered, so the outcome does not depend on which rank runs first.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};
use smallvec::SmallVec;

use super::clock::{Clocks, Stamp};
use super::expr::{Expr, Exprs};
use super::layout::{Places, reads_others};
use super::memory::{Blocks, Memory};
use super::rings::Rings;
use super::{Invariant, MOST_VIOLATIONS, Site, Traffic, Violation};
use crate::program::{Code, Instr, Program};
use crate::schedule::{Area, End, LocalOp, Payload};
use crate::{Collective, Flag, Level, Problem, Rank, Request, Tag};

/// Returns the levels whose segments a program uses. Flags are in the node's segment.
fn shared_levels(program: &Program) -> Vec<Level> {
    let instrs = program.ranks.values().flat_map(|code| &code.instrs);
    let is_flag = |flag: &Flag| flag.0 < Flag::BARRIERS;
    let flagged = |instr: &Instr| match instr {
        Instr::Local(LocalOp::Signal { flag, .. } | LocalOp::Wait { flag, .. }) => is_flag(flag),
        _ => false,
    };
    let mut levels: Vec<Level> = instrs.clone().any(flagged).then_some(Level::NODE).into_iter().collect();
    for place in instrs.flat_map(Instr::places) {
        if let Area::Shared(level, _) = place.area
            && !levels.contains(&level)
        {
            levels.push(level);
        }
    }
    levels
}

/// Whether a program uses a segment or reads the buffers of other ranks.
pub(super) fn shares_memory(program: &Program) -> bool {
    !shared_levels(program).is_empty() || reads_others(program)
}

/// Output of a rank: the numbers of the chunks that have elements, each with its expression, or `None` if it was not written.
pub(super) type Output = Vec<(u64, Option<Expr>)>;

/// Result of a symbolic execution.
pub(super) struct Run {
    pub(super) violations: Vec<Violation>,
    pub(super) traffic: Vec<Traffic>,
    pub(super) exprs: Exprs,
    /// Outputs by execution and rank. Empty for executions that repeat an earlier one; without any entry if there are violations.
    pub(super) outputs: Vec<Vec<Output>>,
}

/// Length of a slot or value, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Size {
    /// A length that all ranks know.
    Shared,
    /// Length of the chunk that the first rank sends to the second, if sizes are known only locally.
    Pair(u32, u32),
    Unknown,
}

/// Areas of a message's slots, in order, each with the blocks of memory cells that the slots occupy.
pub(super) type Parts = SmallVec<[(Area, Blocks); 1]>;

pub(super) struct Posted {
    pub(super) site: Site,
    pub(super) end: End,
    pub(super) payload: Payload,
    pub(super) parts: Parts,
    /// Levels of the segments that contain slots of the message.
    pub(super) levels: SmallVec<[Level; 2]>,
    /// Lengths of the slots when the message was posted, to be compared with those of the data that arrives. Empty unless this is a receive
    /// of data and sizes are known only locally.
    pub(super) expected: Vec<Size>,
    /// Content of the message. The send holds it until the two ends are matched; from then on the receive holds it.
    pub(super) cargo: Cargo,
    pub(super) matched: bool,
    /// Whether the rank is blocked until the message is matched.
    pub(super) awaited: bool,
}

/// Content of a message.
#[derive(Default)]
pub(super) struct Cargo {
    pub(super) values: Vec<Expr>,
    /// Lengths of the values, if sizes are known only locally. If the message carries only lengths, these lengths.
    pub(super) sizes: Vec<Size>,
    pub(super) stamp: Stamp,
}

/// Unmatched messages from one rank to another with one tag, in the order of posting: either all are sends, or all are receives.
#[derive(Default)]
pub(super) struct Channel {
    pub(super) sends: bool,
    pub(super) first: Option<(Request, Site)>,
    more: VecDeque<(Request, Site)>,
}

impl Channel {
    /// Matches a new send with the oldest queued receive, or a new receive with the oldest queued send, and returns the queued request. If
    /// there is none, queues the new request.
    pub(super) fn meet(&mut self, end: End, request: Request, site: Site) -> Option<(Request, Site)> {
        if self.first.is_some() && self.sends != (end == End::Send) {
            return std::mem::replace(&mut self.first, self.more.pop_front());
        }
        self.sends = end == End::Send;
        match self.first {
            None => self.first = Some((request, site)),
            Some(_) => self.more.push_back((request, site)),
        }
        None
    }
}

/// Messages of a rank that are in flight. Small request numbers index a vector, larger ones a hash map.
#[derive(Default)]
pub(super) struct Requests {
    listed: Vec<Option<Posted>>,
    others: HashMap<Request, Posted>,
    pub(super) len: usize,
}

impl Requests {
    const MANY: u32 = 1 << 12;

    pub(super) fn get_mut(&mut self, request: Request) -> Option<&mut Posted> {
        match request.0 < Self::MANY {
            true => self.listed.get_mut(request.0 as usize)?.as_mut(),
            false => self.others.get_mut(&request),
        }
    }

    /// Adds a request, whose number must not be in use.
    pub(super) fn insert(&mut self, request: Request, posted: Posted) {
        let at = request.0 as usize;
        if request.0 >= Self::MANY {
            self.others.insert(request, posted);
        } else {
            if self.listed.len() <= at {
                self.listed.resize_with(at + 1, || None);
            }
            self.listed[at] = Some(posted);
        }
        self.len += 1;
    }

    pub(super) fn remove(&mut self, request: Request) -> Option<Posted> {
        let posted = match request.0 < Self::MANY {
            true => self.listed.get_mut(request.0 as usize)?.take(),
            false => self.others.remove(&request),
        };
        self.len -= usize::from(posted.is_some());
        posted
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Posted> {
        self.listed.iter().flatten().chain(self.others.values())
    }

    fn clear(&mut self) {
        (self.listed, self.others, self.len) = Default::default();
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) execution: u32,
    pub(super) instr: usize,
    pub(super) requests: Requests,
    /// Number of unmatched requests for which the rank is blocked.
    pub(super) awaited: usize,
    /// Level of the segment that the rank accessed last, and the time of the access, as execution and clock.
    pub(super) touched: Option<(Level, (u32, u32))>,
    /// Number of times that this rank has waited in this execution, for each flag of each other rank.
    pub(super) waits: HashMap<(Rank, Flag), usize>,
    pub(super) barriers: HashMap<Level, usize>,
    /// Levels whose segments the rank has left (`leave`) in this execution.
    pub(super) left: SmallVec<[Level; 2]>,
    pub(super) done: bool,
}

#[derive(Default)]
pub(super) struct BarrierState {
    pub(super) arrived: HashSet<u32>,
    /// Elementwise maximum of the clocks of all ranks that have arrived.
    pub(super) known: Stamp,
}

/// Part of a region's segment, as level, region and number: 0 is the part for programs that do not alternate, 1 and 2 are the halves for
/// programs that do. Rings are checked separately.
pub(super) type Part = (Level, u32, u32);

pub(super) struct Machine<'a> {
    pub(super) programs: &'a [&'a Program],
    pub(super) codes: Vec<Vec<&'a Code>>,
    /// Locations of slots, for each distinct program.
    pub(super) places: Vec<Places<'a>>,
    /// For each execution, the index of its program in `places`, `levels` and `rings`; and in `repeats`, whether an earlier execution had
    /// the same program. A repeated execution has the same data, so only the order of its accesses to shared memory is checked.
    pub(super) index: Vec<usize>,
    pub(super) repeats: Vec<bool>,
    pub(super) states: Vec<State>,
    pub(super) channels: HashMap<(Rank, Rank, Tag), Channel>,
    pub(super) flags: HashMap<(Rank, Flag, u32), Vec<Stamp>>,
    pub(super) waiting: HashMap<(Rank, Flag), Vec<usize>>,
    pub(super) gatherings: HashMap<(Level, u32, u32, usize), BarrierState>,
    /// Levels whose segments each distinct program uses.
    pub(super) levels: Vec<Vec<Level>>,
    /// Segments that each distinct program uses as rings (with `enter` and `leave`).
    pub(super) rings: Vec<Rings>,
    /// Number of ranks that have left a region's ring. The key is level, region and the number of the execution, which counts only
    /// executions that use the ring, from 0.
    pub(super) left: HashMap<(Level, u32, u32), usize>,
    /// Ranks that have entered a region's ring, each with the time of entering on its clock, by level, region and execution.
    pub(super) entered: HashMap<(Level, u32, u32), Vec<(usize, u32)>>,
    /// Ranks that wait to enter a region's ring.
    pub(super) entering: HashMap<(Level, u32), Vec<usize>>,
    /// Time on a rank's clock when it opened its buffers, by rank and execution.
    pub(super) opened: HashMap<(usize, u32), u32>,
    /// Ranks that have read another rank's buffers, each with the time of the read on its clock, by owner of the buffers and execution.
    pub(super) readers: HashMap<(usize, u32), Vec<(usize, u32)>>,
    /// Last accesses of each rank to each part of a segment.
    pub(super) touched: HashMap<(Part, usize), Touches>,
    pub(super) ready: VecDeque<usize>,
    pub(super) memory: Memory,
    /// Lists for the operand values of an instruction, reused to save allocations.
    pub(super) scratch: (Vec<Expr>, Vec<Expr>),
    pub(super) clocks: Clocks,
    pub(super) exprs: Exprs,
    pub(super) violations: Vec<Violation>,
    pub(super) traffic: Vec<Traffic>,
}

pub(super) enum Step {
    Next,
    Wait,
}

impl<'a> Machine<'a> {
    pub(super) fn new(programs: &'a [&'a Program]) -> Machine<'a> {
        let first = programs[0];
        let p = first.problem.ranks as usize;
        // If the text lacks ranks, no state is allocated, because its heading may name a huge number of ranks.
        let complete = programs.iter().all(|program| program.ranks.len() == p);
        let present = if complete { p } else { 0 };
        let chunks = programs.iter().map(|program| program.problem.chunks()).max().unwrap_or(0);
        let vast = chunks * present as u64 >= Exprs::MOST;
        let mut machine = Machine {
            programs,
            codes: Vec::new(),
            places: Vec::new(),
            index: Vec::new(),
            repeats: Vec::new(),
            states: (0..present).map(|_| State::default()).collect(),
            channels: HashMap::default(),
            flags: HashMap::default(),
            waiting: HashMap::default(),
            gatherings: HashMap::default(),
            levels: Vec::new(),
            rings: Vec::new(),
            left: HashMap::default(),
            entered: HashMap::default(),
            entering: HashMap::default(),
            opened: HashMap::default(),
            readers: HashMap::default(),
            touched: HashMap::default(),
            ready: (0..present).collect(),
            memory: Memory::default(),
            scratch: Default::default(),
            clocks: Clocks::new(present, programs.iter().any(|program| shares_memory(program))),
            exprs: Exprs::new(present as u64, if vast { 0 } else { chunks }),
            violations: Vec::new(),
            traffic: Vec::new(),
        };
        for (execution, program) in programs.iter().enumerate() {
            let missing = (0..p).map(|r| Rank(r as u32)).filter(|r| !program.ranks.contains_key(r));
            for missing in missing.take(MOST_VIOLATIONS) {
                let site = Site { rank: missing, execution: execution as u32, instr: None };
                machine.report(Invariant::Bounds, site, "the text has no program for this rank");
            }
        }
        if vast {
            let site = Site { rank: Rank(0), execution: 0, instr: None };
            machine.report(Invariant::Bounds, site, "too many chunks for the verifier");
        }
        if !machine.violations.is_empty() {
            return machine;
        }
        for (execution, program) in programs.iter().enumerate() {
            let earlier = programs[..execution].iter().position(|earlier| std::ptr::eq(*earlier, *program));
            if earlier.is_none() {
                machine.places.push(Places::new(program, execution as u32, &mut machine.violations));
                machine.levels.push(shared_levels(program));
                machine.rings.push(Rings::new(program, execution as u32, &mut machine.violations));
            }
            machine.index.push(earlier.map_or(machine.places.len() - 1, |earlier| machine.index[earlier]));
            machine.repeats.push(earlier.is_some());
        }
        for rank in 0..p {
            machine.codes.push(programs.iter().map(|g| &g.ranks[&Rank(rank as u32)]).collect());
            for execution in (0..programs.len()).filter(|&e| !machine.repeats[e]).collect::<Vec<_>>() {
                machine.provide(rank, execution);
            }
        }
        let levels = usize::from(first.topology.levels()) + 1;
        let none = Traffic { messages: vec![0; levels], elements: vec![0; levels] };
        machine.traffic = vec![none; p];
        machine
    }

    fn provide(&mut self, rank: usize, execution: usize) {
        let program = self.programs[execution];
        let me = Rank(rank as u32);
        let mut blocks = Blocks::new();
        let places = &mut self.places[self.index[execution]];
        for run in program.problem.input(me).runs() {
            let found = places.blocks(me, Area::In, run, &mut self.memory, &mut blocks);
            assert!(found.is_ok(), "user buffers have a place");
        }
        for block in &blocks {
            self.memory.provide(block, block.chunks.iter().map(|chunk| self.exprs.input(me, chunk)));
        }
    }

    pub(super) fn report(&mut self, invariant: Invariant, site: Site, message: impl Into<String>) {
        if self.violations.len() < MOST_VIOLATIONS {
            self.violations.push(Violation { invariant, site: Some(site), message: message.into() });
        }
    }

    pub(super) fn run(mut self) -> Run {
        if !self.codes.is_empty() {
            while let Some(rank) = self.ready.pop_front() {
                self.advance(rank);
            }
            self.report_unfinished();
        }
        let outputs = if self.violations.is_empty() { self.outputs() } else { Vec::new() };
        Run { violations: self.violations, traffic: self.traffic, exprs: self.exprs, outputs }
    }

    /// Runs one rank until it must wait or is done.
    fn advance(&mut self, rank: usize) {
        while !self.states[rank].done && self.violations.len() < MOST_VIOLATIONS {
            let state = &self.states[rank];
            let code = self.codes[rank][state.execution as usize];
            let Some(instr) = code.instrs.get(state.instr) else {
                self.end_execution(rank);
                continue;
            };
            let site = self.site(rank);
            match self.step(rank, instr, site) {
                Step::Next => self.states[rank].instr += 1,
                Step::Wait => return,
            }
        }
    }

    pub(super) fn site(&self, rank: usize) -> Site {
        let state = &self.states[rank];
        Site { rank: Rank(rank as u32), execution: state.execution, instr: Some(state.instr as u32) }
    }

    fn end_execution(&mut self, rank: usize) {
        let mut open: Vec<Site> = self.states[rank].requests.iter().map(|r| r.site).collect();
        open.sort();
        for site in open {
            self.report(Invariant::Request, site, "this message is never finished");
        }
        self.close(rank);
        let state = &mut self.states[rank];
        if state.requests.len > 0 {
            state.requests.clear();
        }
        state.waits.clear();
        state.barriers.clear();
        state.left.clear();
        state.instr = 0;
        state.execution += 1;
        state.done = state.execution as usize == self.programs.len();
        if !state.done {
            self.begin_execution(rank);
        }
    }

    fn step(&mut self, rank: usize, instr: &Instr, site: Site) -> Step {
        match instr {
            Instr::Post(request, message) => self.post(rank, *request, message, site),
            Instr::Finish(requests) => return self.finish(rank, requests, site),
            Instr::Local(LocalOp::Copy { to, from }) => self.copy(rank, to, from, site),
            Instr::Local(LocalOp::Reduce { into, with }) => self.reduce(rank, into, with, site),
            Instr::Local(local) if self.is_left_out(local, site) => {}
            Instr::Local(LocalOp::Signal { flag, .. }) => {
                let stamp = self.clocks.release(rank);
                self.flags.entry((site.rank, *flag, site.execution)).or_default().push(stamp);
                self.ready.extend(self.waiting.remove(&(site.rank, *flag)).unwrap_or_default());
            }
            Instr::Local(LocalOp::Wait { flag, of, .. }) => return self.wait(rank, *flag, *of, site),
            Instr::Local(LocalOp::Open) => self.open(rank, site),
            Instr::Local(LocalOp::Barrier(level)) => return self.barrier(rank, *level, site),
            Instr::Local(LocalOp::Enter { level, .. }) => return self.enter(rank, *level, site),
            Instr::Local(LocalOp::Leave(level)) => self.leave(rank, *level, site),
        }
        Step::Next
    }

    /// Reports ranks that are blocked for ever and messages that were never matched.
    fn report_unfinished(&mut self) {
        if self.violations.len() >= MOST_VIOLATIONS {
            return;
        }
        let stuck: Vec<usize> = (0..self.states.len()).filter(|&r| !self.states[r].done).collect();
        let deadlock = !stuck.is_empty();
        for rank in stuck {
            let site = self.site(rank);
            let code = self.codes[rank][site.execution as usize];
            let message = match &code.instrs[self.states[rank].instr] {
                Instr::Finish(_) => {
                    let state = &self.states[rank];
                    let mut open: Vec<Site> =
                        state.requests.iter().filter(|posted| !posted.matched).map(|posted| posted.site).collect();
                    open.sort();
                    open.first().map_or("blocks for ever".to_owned(), |at| {
                        let post = &code.instrs[at.instr.unwrap_or(0) as usize];
                        format!("blocks for ever; no other rank posts the counterpart of `{post}`")
                    })
                }
                instr => format!("blocks for ever at `{instr}`"),
            };
            self.report(Invariant::Deadlock, site, message);
        }
        if deadlock {
            return;
        }
        let mut unmet: Vec<(Rank, Rank, Tag)> =
            self.channels.iter().filter(|(_, c)| c.first.is_some()).map(|(key, _)| *key).collect();
        unmet.sort();
        for (from, to, tag) in unmet {
            let channel = &self.channels[&(from, to, tag)];
            let end = if channel.sends { "send" } else { "receive" };
            let Some((_, site)) = channel.first else { continue };
            let message = format!("this {end} from rank {from} to rank {to} with tag {tag} is never matched");
            self.report(Invariant::Match, site, message);
        }
    }

    /// Returns the outputs of each execution. For repeated executions they are left empty.
    fn outputs(&mut self) -> Vec<Vec<Output>> {
        let mut executions = Vec::new();
        let mut blocks = Blocks::new();
        for (execution, program) in self.programs.iter().enumerate() {
            let mut ranks = Vec::new();
            for rank in (0..program.problem.ranks).map(Rank).filter(|_| !self.repeats[execution]) {
                blocks.clear();
                let places = &mut self.places[self.index[execution]];
                for run in program.problem.output(rank).runs() {
                    let found = places.blocks(rank, Area::Out, run, &mut self.memory, &mut blocks);
                    assert!(found.is_ok(), "user buffers have a place");
                }
                let mut output = Vec::new();
                for block in &blocks {
                    output.extend(block.chunks.iter().zip(self.memory.last(block)));
                }
                ranks.push(output);
            }
            executions.push(ranks);
        }
        executions
    }
}

/// Returns which chunk of which rank's input the output of `rank` must hold as chunk `chunk`, if the collective does not reduce.
pub(super) fn moved(problem: &Problem, rank: Rank, chunk: u64) -> (Rank, u64) {
    let (block, piece) = (chunk / problem.pieces, chunk % problem.pieces);
    match problem.collective {
        Collective::Alltoall => (Rank(block as u32), u64::from(rank.0) * problem.pieces + piece),
        _ => (Rank(block as u32), chunk),
    }
}

/// Last accesses of one rank to one part of a segment, as execution and clock, for the last two executions with such an access.
pub(super) type Touches = VecDeque<(u32, u32)>;

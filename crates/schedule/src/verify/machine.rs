//! Carries a program out on expressions, all ranks together.
//!
//! A rank runs until it must wait; whoever could release it puts it back on the list. Messages between two
//! ranks with one tag are matched in the order of posting and none is buffered, so the outcome is the same
//! whichever rank runs first.

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
use crate::schedule::{Area, End, Local, Payload};
use crate::{Collective, Flag, Level, Problem, Rank, Request, Tag};

/// The levels of the segments in which a program has anything. Flags lie in the node's.
fn shared_levels(program: &Program) -> Vec<Level> {
    let instrs = program.ranks.values().flat_map(|code| &code.instrs);
    let is_flag = |flag: &Flag| flag.0 < Flag::BARRIERS;
    let flagged = |instr: &Instr| match instr {
        Instr::Local(Local::Signal { flag, .. } | Local::Wait { flag, .. }) => is_flag(flag),
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

/// Whether a program has anything in a segment, or reads what belongs to other ranks.
pub(super) fn shares_memory(program: &Program) -> bool {
    !shared_levels(program).is_empty() || reads_others(program)
}

/// A rank's output: the expression under each chunk number that has elements.
pub(super) type Output = Vec<(u64, Option<Expr>)>;

/// What a run leaves behind.
pub(super) struct Run {
    pub(super) violations: Vec<Violation>,
    pub(super) traffic: Vec<Traffic>,
    pub(super) exprs: Exprs,
    /// For each execution and rank, the expression of each chunk of the output.
    pub(super) outputs: Vec<Vec<Output>>,
}

/// What is known of a slot's or value's length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Size {
    /// All ranks know it.
    Shared,
    /// Of the chunk from one rank to another.
    Pair(u32, u32),
    Unknown,
}

/// The areas of a message with their blocks, in order.
pub(super) type Parts = SmallVec<[(Area, Blocks); 1]>;

pub(super) struct Posted {
    pub(super) site: Site,
    pub(super) end: End,
    pub(super) payload: Payload,
    pub(super) parts: Parts,
    /// The levels whose segments it uses.
    pub(super) levels: SmallVec<[Level; 2]>,
    /// On the receiving end of data, the lengths of the slots when it was posted, where ranks do not share them.
    pub(super) expected: Vec<Size>,
    /// On the sending end until it is matched, and on the receiving end from then on.
    pub(super) cargo: Cargo,
    pub(super) matched: bool,
    /// Whether its rank waits for it to be matched.
    pub(super) awaited: bool,
}

/// What a send takes along.
#[derive(Default)]
pub(super) struct Cargo {
    pub(super) values: Vec<Expr>,
    /// Their lengths, where ranks do not share that knowledge.
    pub(super) sizes: Vec<Size>,
    pub(super) stamp: Stamp,
}

/// Ends of messages from one rank to another with one tag that wait for their other ends, the first in first out: all
/// of them sends, or all receives.
#[derive(Default)]
pub(super) struct Channel {
    pub(super) sends: bool,
    pub(super) first: Option<(Request, Site)>,
    more: VecDeque<(Request, Site)>,
}

impl Channel {
    /// The end that a new one meets; the new one waits if there is none.
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

/// The messages of a rank that are under way: those with small numbers by number.
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

    /// Adds one; there must be none of its number.
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
    /// How many requests it waits for.
    pub(super) awaited: usize,
    /// The level and moment at which it last touched a segment.
    pub(super) touched: Option<(Level, (u32, u32))>,
    /// How often each flag of each rank was awaited in this execution.
    pub(super) waits: HashMap<(Rank, Flag), usize>,
    pub(super) barriers: HashMap<Level, usize>,
    /// The rings that it has left in this execution.
    pub(super) left: SmallVec<[Level; 2]>,
    pub(super) done: bool,
}

#[derive(Default)]
pub(super) struct Gathering {
    pub(super) arrived: HashSet<u32>,
    /// What all who arrived know together.
    pub(super) known: Stamp,
}

/// A part of a region's segment: the whole of an unplaced one or 0, or one of the halves 1 and 2. Rings are not looked at by
/// part.
pub(super) type Part = (Level, u32, u32);

pub(super) struct Machine<'a> {
    pub(super) programs: &'a [&'a Program],
    pub(super) codes: Vec<Vec<&'a Code>>,
    /// Where slots are, for each program.
    pub(super) places: Vec<Places<'a>>,
    /// For each execution which of these, and whether it repeats an earlier one: then its data is known, and only its
    /// order is looked at.
    pub(super) index: Vec<usize>,
    pub(super) repeats: Vec<bool>,
    pub(super) states: Vec<State>,
    pub(super) channels: HashMap<(Rank, Rank, Tag), Channel>,
    pub(super) flags: HashMap<(Rank, Flag, u32), Vec<Stamp>>,
    pub(super) waiting: HashMap<(Rank, Flag), Vec<usize>>,
    pub(super) gatherings: HashMap<(Level, u32, u32, usize), Gathering>,
    /// The levels on whose segments there is anything, for each program.
    pub(super) levels: Vec<Vec<Level>>,
    /// The levels on whose segments the ranks of each program go round a ring.
    pub(super) rings: Vec<Rings>,
    /// How many have left a region's ring, for each of the executions that use it.
    pub(super) left: HashMap<(Level, u32, u32), usize>,
    /// Who has entered a region's ring in an execution, and when.
    pub(super) entered: HashMap<(Level, u32, u32), Vec<(usize, u32)>>,
    /// Ranks that wait to enter.
    pub(super) entering: HashMap<(Level, u32), Vec<usize>>,
    /// When a rank has opened its buffers, in each execution.
    pub(super) opened: HashMap<(usize, u32), u32>,
    /// Who has read a rank's buffers when, in each execution.
    pub(super) readers: HashMap<(usize, u32), Vec<(usize, u32)>>,
    /// When each rank last touched a part of a segment, in its last two executions that did.
    pub(super) touched: HashMap<(Part, usize), Touches>,
    pub(super) ready: VecDeque<usize>,
    pub(super) memory: Memory,
    /// Room for values, kept from one instruction to the next.
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
        // Nothing is set up for a text in which ranks are missing: it may name very many.
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
                machine.complain(Invariant::Bounds, site, "nothing is written for this rank");
            }
        }
        if vast {
            let site = Site { rank: Rank(0), execution: 0, instr: None };
            machine.complain(Invariant::Bounds, site, "there are too many chunks to be looked at one by one");
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

    pub(super) fn complain(&mut self, invariant: Invariant, site: Site, message: impl Into<String>) {
        if self.violations.len() < MOST_VIOLATIONS {
            self.violations.push(Violation { invariant, site: Some(site), message: message.into() });
        }
    }

    pub(super) fn run(mut self) -> Run {
        if !self.codes.is_empty() {
            while let Some(rank) = self.ready.pop_front() {
                self.advance(rank);
            }
            self.settle();
        }
        let outputs = if self.violations.is_empty() { self.outputs() } else { Vec::new() };
        Run { violations: self.violations, traffic: self.traffic, exprs: self.exprs, outputs }
    }

    /// Runs one rank until it must wait.
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
            self.complain(Invariant::Request, site, "this message is never finished");
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
            Instr::Local(Local::Copy { to, from }) => self.copy(rank, to, from, site),
            Instr::Local(Local::Reduce { into, with }) => self.reduce(rank, into, with, site),
            Instr::Local(local) if self.is_left_out(local, site) => {}
            Instr::Local(Local::Signal { flag, .. }) => {
                let stamp = self.clocks.release(rank);
                self.flags.entry((site.rank, *flag, site.execution)).or_default().push(stamp);
                self.ready.extend(self.waiting.remove(&(site.rank, *flag)).unwrap_or_default());
            }
            Instr::Local(Local::Wait { flag, of, .. }) => return self.wait(rank, *flag, *of, site),
            Instr::Local(Local::Open) => self.open(rank, site),
            Instr::Local(Local::Barrier(level)) => return self.barrier(rank, *level, site),
            Instr::Local(Local::Enter { level, .. }) => return self.enter(rank, *level, site),
            Instr::Local(Local::Leave(level)) => self.leave(rank, *level, site),
        }
        Step::Next
    }

    /// Complains of ranks that wait for ever and of messages that nobody met.
    fn settle(&mut self) {
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
                    let mut open: Vec<Site> = state
                        .requests
                        .iter()
                        .filter(|posted| !posted.matched)
                        .map(|posted| posted.site)
                        .collect();
                    open.sort();
                    open.first().map_or("waits for ever".to_owned(), |at| {
                        let post = &code.instrs[at.instr.unwrap_or(0) as usize];
                        format!("waits for ever; nobody meets `{post}`")
                    })
                }
                instr => format!("waits for ever at `{instr}`"),
            };
            self.complain(Invariant::Deadlock, site, message);
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
            let message = format!("nobody meets this {end} from {from} to {to} with tag {tag}");
            self.complain(Invariant::Match, site, message);
        }
    }

    /// For each execution, and nothing for those that repeat another.
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

/// What the output of `rank` must hold under a chunk number, if it is not a reduction.
pub(super) fn moved(problem: &Problem, rank: Rank, chunk: u64) -> (Rank, u64) {
    let (block, piece) = (chunk / problem.pieces, chunk % problem.pieces);
    match problem.collective {
        Collective::Alltoall => (Rank(block as u32), u64::from(rank.0) * problem.pieces + piece),
        _ => (Rank(block as u32), chunk),
    }
}

/// The touches of one rank in one part of a segment: execution and moment, in its last two executions that did.
pub(super) type Touches = VecDeque<(u32, u32)>;

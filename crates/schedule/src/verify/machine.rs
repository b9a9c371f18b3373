//! Carries a program out on expressions, all ranks together.
//!
//! A rank runs until it must wait; whoever could release it puts it back on the list. Messages between two
//! ranks with one tag are matched in the order of posting and none is buffered, so the outcome is the same
//! whichever rank runs first.

use std::collections::{HashMap, HashSet, VecDeque};

use super::clock::{Clocks, Stamp};
use super::expr::{Expr, Exprs, Node};
use super::memory::{Address, Fault, Memory, Space, Toucher};
use super::{Invariant, MOST_VIOLATIONS, Site, Traffic, Violation};
use crate::program::{Code, Instr, Layout, Program, extent};
use crate::schedule::{Area, End, Local, Message, Payload, Place};
use crate::{Collective, Flag, Level, Rank, Request, Set, Tag};

/// Whether a program has anything in a segment.
pub(super) fn shares_memory(program: &Program) -> bool {
    let shared = |places: &[&Place]| places.iter().any(|p| matches!(p.area, Area::Shared(..)));
    program.ranks.values().flat_map(|code| &code.instrs).any(|instr| match instr {
        Instr::Post(_, message) => shared(&message.places.iter().collect::<Vec<_>>()),
        Instr::Local(Local::Copy { to, from }) => shared(&[to, from]),
        Instr::Local(Local::Reduce { into, with }) => shared(&[into, with]),
        _ => false,
    })
}

/// What a run leaves behind.
pub(super) struct Run {
    pub(super) violations: Vec<Violation>,
    pub(super) traffic: Vec<Traffic>,
    pub(super) exprs: Exprs,
    /// For each execution and rank, the expression of each chunk of the output.
    pub(super) outputs: Vec<Vec<Vec<(u64, Option<Expr>)>>>,
}

/// One chunk of a message on its way.
#[derive(Clone, Copy)]
struct Piece {
    value: Expr,
    size: Size,
}

/// What is known of a slot's or value's length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Size {
    Elements(u64),
    /// Of the chunk from one rank to another.
    Pair(u32, u32),
    Unknown,
}

struct Posted {
    site: Site,
    end: End,
    payload: Payload,
    slots: Vec<Slot>,
    /// On the receiving end, once matched.
    arrived: Option<(Vec<Piece>, Stamp)>,
    matched: bool,
}

#[derive(Clone, Copy)]
struct Slot {
    area: Area,
    chunk: u64,
    at: Address,
}

#[derive(Default)]
struct Channel {
    sends: VecDeque<(Request, Vec<Piece>, Stamp)>,
    recvs: VecDeque<Request>,
}

#[derive(Default)]
struct State {
    execution: u32,
    instr: usize,
    requests: HashMap<Request, Posted>,
    /// How often each flag of each rank was awaited in this execution.
    waits: HashMap<(Rank, Flag), usize>,
    barriers: HashMap<Level, usize>,
    done: bool,
}

#[derive(Default)]
struct Gathering {
    arrived: HashSet<u32>,
    stamps: Vec<Stamp>,
}

/// A part of a region's segment: the whole of an unplaced one or 0, or one of the halves 1 and 2.
type Part = (Level, u32, u32);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum SpaceKey {
    User(Rank, Area, u32),
    Slots(Rank, u32, u32),
    Temporary(Rank, u32),
    SegmentLine { level: Level, region: u32, line: u32 },
    Segment { level: Level, region: u32, part: u32 },
}

/// The slots of a rank's placed lines; `None` in layouts without places.
type Places = Option<HashMap<(Area, u64), (u64, u64)>>;

pub(super) struct Machine<'a> {
    programs: &'a [&'a Program],
    codes: Vec<Vec<&'a Code>>,
    places: Vec<Vec<Places>>,
    states: Vec<State>,
    channels: HashMap<(Rank, Rank, Tag), Channel>,
    flags: HashMap<(Rank, Flag, u32), Vec<Stamp>>,
    waiting: HashMap<(Rank, Flag), Vec<usize>>,
    gatherings: HashMap<(Level, u32, u32, usize), Gathering>,
    /// When each rank last touched a part of a segment, in its last two executions that did.
    touched: HashMap<(Part, usize), VecDeque<(u32, u32)>>,
    ready: VecDeque<usize>,
    spaces: HashMap<SpaceKey, Space>,
    memory: Memory,
    clocks: Clocks,
    exprs: Exprs,
    violations: Vec<Violation>,
    traffic: Vec<Traffic>,
}

enum Step {
    Next,
    Wait,
}

impl<'a> Machine<'a> {
    pub(super) fn new(programs: &'a [&'a Program]) -> Machine<'a> {
        let first = programs[0];
        let p = first.problem.ranks as usize;
        let mut machine = Machine {
            programs,
            codes: Vec::new(),
            places: Vec::new(),
            states: (0..p).map(|_| State::default()).collect(),
            channels: HashMap::new(),
            flags: HashMap::new(),
            waiting: HashMap::new(),
            gatherings: HashMap::new(),
            touched: HashMap::new(),
            ready: (0..p).collect(),
            spaces: HashMap::new(),
            memory: Memory::default(),
            clocks: Clocks::new(p, programs.iter().any(|program| shares_memory(program))),
            exprs: Exprs::new(),
            violations: Vec::new(),
            traffic: Vec::new(),
        };
        for (execution, program) in programs.iter().enumerate() {
            for missing in (0..p).map(|r| Rank(r as u32)).filter(|r| !program.ranks.contains_key(r)) {
                let site = Site { rank: missing, execution: execution as u32, instr: None };
                machine.complain(Invariant::Bounds, site, "nothing is written for this rank");
            }
        }
        if !machine.violations.is_empty() {
            return machine;
        }
        for rank in 0..p {
            let codes: Vec<&Code> = programs.iter().map(|g| &g.ranks[&Rank(rank as u32)]).collect();
            let mut places: Vec<Places> = Vec::new();
            for (execution, code) in codes.iter().enumerate() {
                // The same program again lies in the same places.
                let again = (0..execution).find(|&e| std::ptr::eq(codes[e], *code));
                let table = match again {
                    Some(e) => places[e].clone(),
                    None => machine.lay_out(rank, execution, code),
                };
                places.push(table);
            }
            machine.codes.push(codes);
            machine.places.push(places);
            for execution in 0..programs.len() as u32 {
                machine.provide(rank, execution);
            }
        }
        let levels = usize::from(first.topology.levels()) + 1;
        let none = Traffic { messages: vec![0; levels], elements: vec![0; levels] };
        machine.traffic = vec![none; p];
        machine
    }

    fn lay_out(&mut self, rank: usize, execution: usize, code: &Code) -> Places {
        let Layout::Buffers { placed, .. } = &code.layout else { return None };
        let problem = &self.programs[execution].problem;
        let site = Site { rank: Rank(rank as u32), execution: execution as u32, instr: None };
        let mut table = HashMap::new();
        for placed in placed {
            let mut at = placed.at;
            for chunk in placed.place.set.iter() {
                if chunk >= problem.chunks() {
                    self.complain(Invariant::Bounds, site, format!("{placed}: there is no chunk {chunk}"));
                    break;
                }
                let len = extent(problem, &Set::one(chunk));
                if table.insert((placed.place.area, chunk), (at, len)).is_some() {
                    self.complain(Invariant::Placed, site, format!("{placed}: chunk {chunk} lies twice"));
                    break;
                }
                at += len;
            }
        }
        Some(table)
    }

    fn provide(&mut self, rank: usize, execution: u32) {
        let program = self.programs[execution as usize];
        let me = Rank(rank as u32);
        for chunk in program.problem.input(me).iter() {
            let space = self.space(SpaceKey::User(me, Area::In, execution), false);
            let at = Address { space, offset: chunk, len: 1 };
            let value = self.exprs.input(me, chunk);
            self.memory.provide(at, value, Toucher { rank, execution });
        }
    }

    fn space(&mut self, key: SpaceKey, shared: bool) -> Space {
        let memory = &mut self.memory;
        *self.spaces.entry(key).or_insert_with(|| memory.space(shared))
    }

    fn complain(&mut self, invariant: Invariant, site: Site, message: impl Into<String>) {
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

    fn site(&self, rank: usize) -> Site {
        let state = &self.states[rank];
        Site { rank: Rank(rank as u32), execution: state.execution, instr: Some(state.instr as u32) }
    }

    fn end_execution(&mut self, rank: usize) {
        let mut open: Vec<Site> = self.states[rank].requests.values().map(|r| r.site).collect();
        open.sort();
        for site in open {
            self.complain(Invariant::Request, site, "this message is never finished");
        }
        let state = &mut self.states[rank];
        state.requests.clear();
        state.waits.clear();
        state.barriers.clear();
        state.instr = 0;
        state.execution += 1;
        state.done = state.execution as usize == self.programs.len();
    }

    fn step(&mut self, rank: usize, instr: &Instr, site: Site) -> Step {
        match instr {
            Instr::Post(request, message) => self.post(rank, *request, message, site),
            Instr::Finish(requests) => return self.finish(rank, requests, site),
            Instr::Local(Local::Copy { to, from }) => self.copy(rank, to, from, site),
            Instr::Local(Local::Reduce { into, with }) => self.reduce(rank, into, with, site),
            Instr::Local(Local::Signal(flag)) => {
                let stamp = self.clocks.release(rank);
                self.flags.entry((site.rank, *flag, site.execution)).or_default().push(stamp);
                self.ready.extend(self.waiting.remove(&(site.rank, *flag)).unwrap_or_default());
            }
            Instr::Local(Local::Wait { flag, of }) => return self.wait(rank, *flag, *of, site),
            Instr::Local(Local::Barrier(level)) => return self.barrier(rank, *level, site),
        }
        Step::Next
    }

    // Places.

    /// The slots of a place, or what is wrong with it.
    fn slots(&mut self, rank: usize, place: &Place, site: Site) -> Option<Vec<Slot>> {
        let execution = site.execution;
        let program = self.programs[execution as usize];
        let (problem, topology) = (&program.problem, &program.topology);
        let allowed = match place.area {
            Area::In => problem.input(site.rank),
            Area::Out => problem.output(site.rank),
            Area::Line(_) | Area::Shared(..) => Set::from(0..problem.chunks()),
        };
        if let Area::Shared(level, _) = place.area {
            self.touch(rank, level, site);
        }
        let mut slots = Vec::with_capacity(place.set.len().min(1 << 20) as usize);
        for chunk in place.set.iter() {
            if allowed.position(chunk).is_none() {
                let message = format!("{place}: this rank has no {}[{chunk}]", place.area);
                self.complain(Invariant::Bounds, site, message);
                return None;
            }
            let user = |area| (SpaceKey::User(site.rank, area, execution), chunk, 1);
            let (key, offset, len) = match (place.area, &self.places[rank][execution as usize]) {
                (Area::In | Area::Out, _) => user(place.area),
                (Area::Line(line), None) => (SpaceKey::Slots(site.rank, line, execution), chunk, 1),
                (Area::Shared(level, line), None) => {
                    let region = topology.region_of(level, site.rank);
                    (SpaceKey::SegmentLine { level, region, line }, chunk, 1)
                }
                (area, Some(table)) => {
                    let Some(&(offset, len)) = table.get(&(area, chunk)) else {
                        self.complain(Invariant::Placed, site, format!("{area}[{chunk}] has no place"));
                        return None;
                    };
                    let key = match area {
                        Area::Shared(level, _) => {
                            let region = topology.region_of(level, site.rank);
                            SpaceKey::Segment { level, region, part: self.part(rank, execution, level) }
                        }
                        _ => SpaceKey::Temporary(site.rank, execution),
                    };
                    (key, offset, len)
                }
            };
            let shared = matches!(place.area, Area::Shared(..));
            let space = self.space(key, shared);
            slots.push(Slot { area: place.area, chunk, at: Address { space, offset, len } });
        }
        Some(slots)
    }

    /// Which part of a segment an execution uses: 0, or one of the halves 1 and 2 in turn.
    fn part(&self, rank: usize, execution: u32, level: Level) -> u32 {
        match &self.codes[rank][execution as usize].layout {
            Layout::Buffers { alternate, .. } if alternate.contains(&level) => 1 + execution % 2,
            _ => 0,
        }
    }

    /// Notes that a rank touches its segment, and checks that all touches of other executions are ordered with
    /// this one, wherever in the same part they are: the next execution may be of a program that lies
    /// differently.
    fn touch(&mut self, rank: usize, level: Level, site: Site) {
        let topology = &self.programs[0].topology;
        let region = topology.region_of(level, site.rank);
        let part = (level, region, self.part(rank, site.execution, level));
        for other in topology.span(level, region).map(|at| topology.rank_at(at).0 as usize) {
            let of_other = self.touched.get(&(part, other)).into_iter().flatten();
            let unordered = of_other.filter(|(execution, _)| *execution != site.execution).any(|&(e, then)| {
                other != rank && (e > site.execution || !self.clocks.knows(rank, other, then))
            });
            if unordered {
                let message = format!(
                    "touches the {level} segment; nothing orders this with what rank {other} did there in another execution"
                );
                return self.complain(Invariant::Race, site, message);
            }
        }
        let now = self.clocks.now(rank);
        let mine = self.touched.entry((part, rank)).or_default();
        match mine.back_mut() {
            Some((execution, then)) if *execution == site.execution => *then = now,
            _ => mine.push_back((site.execution, now)),
        }
        if mine.len() > 2 {
            mine.pop_front();
        }
    }

    /// The length that a slot has, from shared knowledge or from what has arrived.
    fn slot_size(&self, slot: Slot, rank: Rank, execution: u32) -> Size {
        let problem = &self.programs[execution as usize].problem;
        if let Some(elements) = problem.elements(slot.chunk) {
            return Size::Elements(elements);
        }
        match slot.area {
            Area::In => Size::Pair(rank.0, slot.chunk as u32),
            Area::Out => Size::Pair(slot.chunk as u32, rank.0),
            _ => self.memory.lengths.get(&slot.at).map_or(Size::Unknown, |&(s, d)| Size::Pair(s, d)),
        }
    }

    /// The length that a value has, where only its ranks know it.
    fn value_size(&self, value: Expr, otherwise: Size) -> Size {
        match (otherwise, self.exprs.node(value)) {
            (Size::Elements(_), _) | (_, Node::Unknown) => otherwise,
            (_, Node::Input(from, to)) => Size::Pair(from.0, to as u32),
            _ => Size::Unknown,
        }
    }

    fn read(&mut self, rank: usize, slot: Slot, site: Site) -> Piece {
        let by = Toucher { rank, execution: site.execution };
        let size = self.slot_size(slot, site.rank, site.execution);
        let value = match self.memory.read(slot.at, by, &self.clocks) {
            Ok(value) => value,
            Err(fault) => {
                self.complain_fault(fault, slot, site, "reads");
                return Piece { value: Expr::UNKNOWN, size };
            }
        };
        let length = self.value_size(value, size);
        if length != size {
            let message = format!("{}[{}] has a new length, its data is the old", slot.area, slot.chunk);
            self.complain(Invariant::Length, site, message);
        }
        Piece { value, size: length }
    }

    fn write(&mut self, rank: usize, slot: Slot, value: Expr, site: Site) {
        let by = Toucher { rank, execution: site.execution };
        if slot.area == Area::In {
            self.complain(Invariant::Bounds, site, "writes the user's input");
        }
        if let Err(fault) = self.memory.write(slot.at, value, by, &self.clocks) {
            self.complain_fault(fault, slot, site, "writes");
        }
    }

    fn complain_fault(&mut self, fault: Fault, slot: Slot, site: Site, verb: &str) {
        let name = format!("{verb} {}[{}]", slot.area, slot.chunk);
        let (invariant, message) = match fault {
            Fault::NeverWritten => (Invariant::Written, format!("{name}, which was never written")),
            Fault::Overwritten => (Invariant::Written, format!("{name}, part of which was overwritten")),
            Fault::FromEarlierExecution => {
                (Invariant::Written, format!("{name}, left from an earlier execution"))
            }
            Fault::InFlight => (Invariant::InFlight, format!("{name}, which a message still uses")),
            Fault::Race { other, writes } => {
                let what = if writes { "write" } else { "read" };
                (Invariant::Race, format!("{name}; nothing orders this after rank {other}'s {what} of it"))
            }
        };
        self.complain(invariant, site, message);
    }

    // Local work.

    /// The slots of two places that must correspond.
    fn pairs(&mut self, rank: usize, to: &Place, from: &Place, site: Site) -> Option<Vec<(Slot, Slot)>> {
        let (to_slots, from_slots) = (self.slots(rank, to, site)?, self.slots(rank, from, site)?);
        if to_slots.len() != from_slots.len() {
            let message = format!("{} chunks on the left, {} on the right", to_slots.len(), from_slots.len());
            self.complain(Invariant::Shape, site, message);
            return None;
        }
        Some(to_slots.into_iter().zip(from_slots).collect())
    }

    fn copy(&mut self, rank: usize, to: &Place, from: &Place, site: Site) {
        for (to, from) in self.pairs(rank, to, from, site).unwrap_or_default() {
            let piece = self.read(rank, from, site);
            self.fit(to, piece.size, site);
            self.write(rank, to, piece.value, site);
        }
    }

    /// A value of this size comes into a slot without a message: the slot's length is shared knowledge, or
    /// becomes known now.
    fn fit(&mut self, slot: Slot, size: Size, site: Site) {
        let room = self.slot_size(slot, site.rank, site.execution);
        match (room, slot.area, size) {
            (_, Area::Line(_) | Area::Shared(..), Size::Pair(s, d)) => {
                self.memory.lengths.insert(slot.at, (s, d));
            }
            (_, _, Size::Unknown) => {}
            (room, ..) if room == size => {}
            _ => {
                let message = format!("{}[{}] has another size than what is copied", slot.area, slot.chunk);
                self.complain(Invariant::Shape, site, message);
            }
        }
    }

    fn reduce(&mut self, rank: usize, into: &Place, with: &Place, site: Site) {
        if !self.programs[site.execution as usize].problem.collective.reduces() {
            return self.complain(Invariant::Shape, site, "this collective does not reduce");
        }
        for (into, with) in self.pairs(rank, into, with, site).unwrap_or_default() {
            if into.chunk != with.chunk {
                let message = format!("combines chunk {} with chunk {}", with.chunk, into.chunk);
                self.complain(Invariant::Shape, site, message);
                continue;
            }
            let (left, right) = (self.read(rank, with, site), self.read(rank, into, site));
            let value = if into.at.len == 0 || with.at.len == 0 {
                Expr::EMPTY
            } else {
                self.exprs.combine(left.value, right.value)
            };
            self.write(rank, into, value, site);
        }
    }

    // Messages.

    fn post(&mut self, rank: usize, request: Request, message: &Message, site: Site) {
        let program = self.programs[site.execution as usize];
        if message.peer.0 >= program.problem.ranks || message.peer == site.rank {
            return self.complain(Invariant::Bounds, site, format!("no message can go to {}", message.peer));
        }
        if self.states[rank].requests.contains_key(&request) {
            return self.complain(Invariant::Request, site, format!("request {request} is still under way"));
        }
        let mut slots = Vec::new();
        for place in &message.places {
            slots.extend(self.slots(rank, place, site).unwrap_or_default());
        }
        let (peer, payload) = (message.peer, message.payload);
        if site.execution == 0 && message.end == End::Send {
            self.count(rank, message);
        }
        let key = match message.end {
            End::Send => (site.rank, peer, message.tag),
            End::Recv => (peer, site.rank, message.tag),
        };
        match message.end {
            End::Send => {
                let pieces = slots.iter().map(|&slot| self.take(rank, slot, payload, site)).collect();
                let stamp = self.clocks.release(rank);
                self.channels.entry(key).or_default().sends.push_back((request, pieces, stamp));
            }
            End::Recv => {
                for &slot in slots.iter().filter(|_| payload == Payload::Data) {
                    self.write(rank, slot, Expr::UNKNOWN, site);
                    self.memory.begin_receive(slot.at);
                }
                self.channels.entry(key).or_default().recvs.push_back(request);
            }
        }
        let posted = Posted { site, end: message.end, payload, slots, arrived: None, matched: false };
        self.states[rank].requests.insert(request, posted);
        self.meet(key);
    }

    /// What a send takes from a slot.
    fn take(&mut self, rank: usize, slot: Slot, payload: Payload, site: Site) -> Piece {
        match payload {
            Payload::Data => {
                let piece = self.read(rank, slot, site);
                self.memory.begin_send(slot.at);
                piece
            }
            Payload::Sizes => {
                let size = self.slot_size(slot, site.rank, site.execution);
                if size == Size::Unknown {
                    let message = format!("the length of {}[{}] is not known", slot.area, slot.chunk);
                    self.complain(Invariant::Length, site, message);
                }
                Piece { value: Expr::UNKNOWN, size }
            }
        }
    }

    fn count(&mut self, rank: usize, message: &Message) {
        let program = self.programs[0];
        let topology = &program.topology;
        let apart =
            topology.apart(Rank(rank as u32), message.peer).map_or(topology.levels(), |level| level.0);
        let elements: u64 = match message.payload {
            Payload::Data => {
                message.places.iter().filter_map(|p| program.problem.elements_of(&p.set)).sum()
            }
            Payload::Sizes => 0,
        };
        let traffic = &mut self.traffic[rank];
        traffic.messages[usize::from(apart)] += 1;
        traffic.elements[usize::from(apart)] += elements;
    }

    /// Lets the next send and receive of a channel meet.
    fn meet(&mut self, key: (Rank, Rank, Tag)) {
        let channel = self.channels.get_mut(&key).expect("just used");
        if channel.sends.is_empty() || channel.recvs.is_empty() {
            return;
        }
        let (send, pieces, stamp) = channel.sends.pop_front().expect("not empty");
        let recv = channel.recvs.pop_front().expect("not empty");
        let (from, to) = (key.0.0 as usize, key.1.0 as usize);
        let Some(sent) = self.states[from].requests.get_mut(&send) else { return };
        sent.matched = true;
        let sent = (sent.payload, sent.site.execution);
        let Some(received) = self.states[to].requests.get_mut(&recv) else { return };
        received.matched = true;
        let (site, payload, slots) = (received.site, received.payload, received.slots.clone());
        let agree = if sent != (payload, site.execution) {
            Err("the send that it meets is of another kind or execution".to_owned())
        } else if pieces.len() != slots.len() {
            Err(format!("receives {} chunks, but rank {from} sends {}", slots.len(), pieces.len()))
        } else {
            let differs = |(slot, piece): &(&Slot, &Piece)| {
                let shared = self.programs[site.execution as usize].problem.elements(slot.chunk);
                shared.is_some_and(|elements| piece.size != Size::Elements(elements))
            };
            match slots.iter().zip(&pieces).find(differs) {
                Some((slot, _)) => Err(format!("chunk {} comes with another size", slot.chunk)),
                None => Ok(()),
            }
        };
        if let Err(message) = agree {
            self.complain(Invariant::Match, site, message);
        }
        if let Some(received) = self.states[to].requests.get_mut(&recv) {
            received.arrived = Some((pieces, stamp));
        }
        self.ready.extend([from, to]);
    }

    fn finish(&mut self, rank: usize, requests: &Set, site: Site) -> Step {
        let named = || requests.iter().map(|r| Request(r as u32));
        let state = &self.states[rank];
        let mut unknown = named().filter(|r| !state.requests.contains_key(r));
        if let Some(request) = unknown.next() {
            self.complain(Invariant::Request, site, format!("request {request} is not under way"));
            return Step::Next;
        }
        if named().any(|r| !state.requests[&r].matched) {
            return Step::Wait;
        }
        for request in named() {
            let Some(posted) = self.states[rank].requests.remove(&request) else {
                self.complain(Invariant::Request, site, format!("request {request} is named twice"));
                continue;
            };
            match posted.end {
                End::Send if posted.payload == Payload::Data => {
                    let by = Toucher { rank, execution: site.execution };
                    for slot in posted.slots {
                        self.memory.end_send(slot.at, by, &self.clocks);
                        if let Area::Shared(level, _) = slot.area {
                            self.touch(rank, level, site);
                        }
                    }
                }
                End::Send => {}
                End::Recv => self.deliver(rank, posted, site),
            }
        }
        Step::Next
    }

    fn deliver(&mut self, rank: usize, posted: Posted, site: Site) {
        let (pieces, stamp) = posted.arrived.expect("matched receives have arrived");
        self.clocks.acquire(rank, &stamp);
        let by = Toucher { rank, execution: site.execution };
        for (slot, piece) in posted.slots.into_iter().zip(pieces) {
            match posted.payload {
                Payload::Sizes => match (slot.area, piece.size) {
                    (Area::Line(_) | Area::Shared(..), Size::Pair(s, d)) => {
                        self.memory.lengths.insert(slot.at, (s, d));
                    }
                    _ => self.complain(
                        Invariant::Length,
                        posted.site,
                        format!("{}[{}] cannot be given a length", slot.area, slot.chunk),
                    ),
                },
                Payload::Data => {
                    if piece.value != Expr::UNKNOWN
                        && self.slot_size(slot, site.rank, site.execution) != piece.size
                    {
                        let message =
                            format!("{}[{}] does not have its data's length", slot.area, slot.chunk);
                        self.complain(Invariant::Length, posted.site, message);
                    }
                    self.memory.end_receive(slot.at, piece.value, by, &self.clocks);
                    if let Area::Shared(level, _) = slot.area {
                        self.touch(rank, level, site);
                    }
                }
            }
        }
    }

    // The node.

    fn wait(&mut self, rank: usize, flag: Flag, of: Rank, site: Site) -> Step {
        let topology = &self.programs[0].topology;
        if of.0 >= topology.ranks() || of == site.rank || topology.node_of(of) != topology.node_of(site.rank) {
            self.complain(Invariant::Bounds, site, format!("rank {of} is not another rank of this node"));
            return Step::Next;
        }
        let turn = self.states[rank].waits.get(&(of, flag)).copied().unwrap_or(0);
        let Some(stamp) = self.flags.get(&(of, flag, site.execution)).and_then(|s| s.get(turn)).cloned() else {
            self.waiting.entry((of, flag)).or_default().push(rank);
            return Step::Wait;
        };
        self.clocks.acquire(rank, &stamp);
        self.states[rank].waits.insert((of, flag), turn + 1);
        Step::Next
    }

    fn barrier(&mut self, rank: usize, level: Level, site: Site) -> Step {
        let topology = &self.programs[0].topology;
        let region = topology.region_of(level, site.rank);
        let span = topology.span(level, region);
        let turn = self.states[rank].barriers.get(&level).copied().unwrap_or(0);
        let gathering = self.gatherings.entry((level, region, site.execution, turn)).or_default();
        if gathering.arrived.insert(site.rank.0) {
            gathering.stamps.push(self.clocks.release(rank));
            if gathering.arrived.len() == span.len() {
                self.ready.extend(span.clone().map(|at| topology.rank_at(at).0 as usize));
            }
        }
        if gathering.arrived.len() < span.len() {
            return Step::Wait;
        }
        for stamp in gathering.stamps.clone() {
            self.clocks.acquire(rank, &stamp);
        }
        *self.states[rank].barriers.entry(level).or_default() += 1;
        Step::Next
    }

    // The end.

    /// Complains of ranks that wait for ever and of messages that nobody met.
    fn settle(&mut self) {
        if self.violations.len() >= MOST_VIOLATIONS {
            return;
        }
        let stuck: Vec<usize> = (0..self.states.len()).filter(|&r| !self.states[r].done).collect();
        for rank in stuck {
            let site = self.site(rank);
            let code = self.codes[rank][site.execution as usize];
            let message = match &code.instrs[self.states[rank].instr] {
                Instr::Finish(_) => {
                    let state = &self.states[rank];
                    let mut open: Vec<(Site, &Request)> =
                        state.requests.iter().filter(|(_, p)| !p.matched).map(|(r, p)| (p.site, r)).collect();
                    open.sort();
                    open.first().map_or("waits for ever".to_owned(), |(at, _)| {
                        let post = &code.instrs[at.instr.unwrap_or(0) as usize];
                        format!("waits for ever; nobody meets `{post}`")
                    })
                }
                instr => format!("waits for ever at `{instr}`"),
            };
            self.complain(Invariant::Deadlock, site, message);
        }
        let mut unmet: Vec<(Rank, Rank, Tag)> = self
            .channels
            .iter()
            .filter(|(_, c)| !c.sends.is_empty() || !c.recvs.is_empty())
            .map(|(key, _)| *key)
            .collect();
        unmet.sort();
        for (from, to, tag) in unmet {
            let channel = &self.channels[&(from, to, tag)];
            let (rank, end, request) = match channel.sends.front() {
                Some((request, ..)) => (from, "send", *request),
                None => (to, "receive", channel.recvs[0]),
            };
            let site = self.states[rank.0 as usize].requests.get(&request).map(|posted| posted.site);
            let site = site.unwrap_or(Site { rank, execution: 0, instr: None });
            let message = format!("nobody meets this {end} from {from} to {to} with tag {tag}");
            self.complain(Invariant::Match, site, message);
        }
    }

    fn outputs(&mut self) -> Vec<Vec<Vec<(u64, Option<Expr>)>>> {
        let mut executions = Vec::new();
        for (execution, program) in self.programs.iter().enumerate() {
            let execution = execution as u32;
            let of_rank = |rank: Rank, spaces: &HashMap<SpaceKey, Space>, memory: &Memory| {
                let space = spaces.get(&SpaceKey::User(rank, Area::Out, execution));
                let last = |offset| memory.last(Address { space: *space?, offset, len: 1 }, execution);
                let problem = &program.problem;
                let wanted = problem.output(rank);
                wanted.iter().filter(|&c| !problem.is_empty(c)).map(|c| (c, last(c))).collect()
            };
            let ranks = (0..program.problem.ranks).map(Rank);
            executions.push(ranks.map(|rank| of_rank(rank, &self.spaces, &self.memory)).collect());
        }
        executions
    }
}

/// What the output of `rank` must hold under a chunk number, if it is not a reduction.
pub(super) fn moved(collective: Collective, rank: Rank, chunk: u64) -> (Rank, u64) {
    match collective {
        Collective::Alltoall => (Rank(chunk as u32), rank.0.into()),
        _ => (Rank(chunk as u32), chunk),
    }
}

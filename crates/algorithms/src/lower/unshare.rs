//! Replaces shared memory by messages within the node, for systems where no segment is available.
//!
//! Every rank gets a private copy (a *shadow*) of the shared slots that it touches. The pass must know which rank writes each value that
//! is read. The program has no race conditions, so every order that its synchronisation allows gives the same writers, and it is enough to
//! simulate one order. If the writer is another rank, a message carries the value: it is sent as soon as the value is written and received
//! just before it is read. Flags and barriers are then no longer needed.
//!
//! Reads of another rank's buffers become messages in the same way: the input counts as written when its owner opens its buffers, the
//! output when an operation fills it. The owner needs no shadow of its own buffers.

use std::collections::BTreeMap;
use std::ops::Range;

use bruckner_schedule::program::size_in_units;
use bruckner_schedule::{
    Area, Code, End, Flag, Instr, Layout, Level, LocalOp, Message, Payload, Place, Placement, Places, Problem, Program,
    Rank, Request, Run, Set, Tag,
};
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use super::lines::{drop_cost_claims, next_line};

/// Runs the pass.
///
/// # Panics
/// If the program deadlocks in the simulation (a program that the verifier accepts does not), or if shared lines overlap in memory (lines
/// placed by [`super::place`] do not).
pub fn run(program: Program) -> Program {
    let shares = |code: &Code| code.instrs.iter().flat_map(Instr::places).any(|place| is_shared(place.area));
    if !program.ranks.values().any(shares) {
        // Nothing is shared, so flags and barriers order nothing and are removed.
        return drop_cost_claims(program.into(|_, mut code| {
            code.instrs.retain(|instr| !is_order(instr));
            code
        }));
    }
    let flows = Simulation::new(&program).flows();
    let problem = program.problem.clone();
    drop_cost_claims(program.into(|rank, code| Rewriter::new(&code, rank, &flows).run(code, &problem)))
}

fn is_order(instr: &Instr) -> bool {
    matches!(instr, Instr::Local(local) if local.places().next().is_none())
}

fn is_shared(area: Area) -> bool {
    matches!(area, Area::Shared(..)) || area.remote().is_some()
}

/// One end of the messages between two ranks with one tag: sender, receiver, tag, end.
type Channel = (Rank, Rank, Tag, End);

/// A rank and the index of one of its instructions.
type Moment = (Rank, u32);

/// Values sent from one rank to another, after instruction `from` of the sender and before instruction `to` of the receiver.
struct Flow {
    from: Moment,
    to: Moment,
    tag: Tag,
    /// Shared slots that hold the values.
    slots: Places,
}

/// For each slot of a line, the rank that wrote it last and the index of the writing instruction.
type Written = Vec<Option<Moment>>;

/// Simulation of the program in one of the orders in which it can run.
struct Simulation<'a> {
    program: &'a Program,
    next: Vec<usize>,
    posted: HashMap<Channel, u64>,
    /// For each request in flight: the other end of its channel, and how many messages that end must have posted to complete it.
    open: HashMap<(Rank, Request), (Channel, u64)>,
    filling: HashMap<(Rank, Request), &'a [Place]>,
    flags: HashMap<(Rank, Flag), u64>,
    waited: HashMap<(Rank, Rank, Flag), u64>,
    barriers: HashMap<(Level, u32, u64), HashSet<Rank>>,
    passed: HashMap<(Rank, Level), u64>,
    /// Last writers of shared slots, by line and region number.
    writers: HashMap<(Area, u32), Written>,
    /// Writers of the values that each rank's private copy (shadow) of a line already holds.
    seen: HashMap<(Area, Rank), Written>,
    flows: Vec<Flow>,
}

impl<'a> Simulation<'a> {
    fn new(program: &'a Program) -> Simulation<'a> {
        Simulation {
            program,
            next: vec![0; program.ranks.len()],
            posted: HashMap::default(),
            open: HashMap::default(),
            filling: HashMap::default(),
            flags: HashMap::default(),
            waited: HashMap::default(),
            barriers: HashMap::default(),
            passed: HashMap::default(),
            writers: HashMap::default(),
            seen: HashMap::default(),
            flows: Vec::new(),
        }
    }

    fn flows(mut self) -> Vec<Flow> {
        let mut moved = true;
        while moved {
            moved = false;
            for (number, (&rank, code)) in self.program.ranks.iter().enumerate() {
                while self.step(rank, number, code) {
                    moved = true;
                }
            }
        }
        let mut all = self.program.ranks.values().zip(&self.next);
        let done = all.all(|(code, next)| *next == code.instrs.len());
        assert!(done, "only programs that end can be lowered to messages");
        // Each added message between two ranks has a tag of its own, because the order of receives may differ from the order of sends. The
        // new tags start above all tags that the two ranks already use.
        let mut tags: HashMap<(Rank, Rank), u32> = HashMap::default();
        for &(from, to, tag, _) in self.posted.keys() {
            let highest = tags.entry((from, to)).or_insert(0);
            *highest = (*highest).max(tag.0);
        }
        self.flows.sort_by_key(|flow| (flow.from, flow.to));
        for flow in &mut self.flows {
            let tag = tags.entry((flow.from.0, flow.to.0)).or_insert(0);
            *tag += 1;
            flow.tag = Tag(*tag);
        }
        self.flows
    }

    /// Simulates one instruction of a rank; returns `false` if the rank must wait or has finished.
    fn step(&mut self, rank: Rank, number: usize, code: &'a Code) -> bool {
        let Some(instr) = code.instrs.get(self.next[number]) else { return false };
        let now = (rank, self.next[number] as u32);
        match instr {
            Instr::Post(request, message) => {
                let (mine, theirs) = match message.end {
                    End::Send => ((rank, message.peer, message.tag, End::Send), End::Recv),
                    End::Recv => ((message.peer, rank, message.tag, End::Recv), End::Send),
                };
                let posted = self.posted.entry(mine).or_insert(0);
                *posted += 1;
                self.open.insert((rank, *request), ((mine.0, mine.1, mine.2, theirs), *posted));
                match message.end {
                    End::Send => message.places.iter().for_each(|place| self.read(now, place)),
                    End::Recv => {
                        self.filling.insert((rank, *request), &message.places);
                    }
                }
            }
            Instr::Finish(requests) => {
                let met = |r: u64| {
                    let (channel, turn) = self.open[&(rank, Request(r as u32))];
                    self.posted.get(&channel).is_some_and(|&n| n >= turn)
                };
                if !requests.iter().all(met) {
                    return false;
                }
                for request in requests.iter().map(|r| Request(r as u32)) {
                    let filled = self.filling.remove(&(rank, request)).unwrap_or_default();
                    filled.iter().for_each(|place| self.write(now, place));
                }
            }
            Instr::Local(LocalOp::Copy { to, from }) => {
                self.read(now, from);
                self.write(now, to);
            }
            Instr::Local(LocalOp::Reduce { into, with }) => {
                self.read(now, with);
                self.read(now, into);
                self.write(now, into);
            }
            // Entering and leaving a ring only order successive executions, and carry no values.
            Instr::Local(LocalOp::Enter { .. } | LocalOp::Leave(_)) => {}
            Instr::Local(LocalOp::Open) => {
                let all = Set::from(0..self.program.problem.chunks());
                self.write(now, &Place::new(Area::InOf(rank), all));
            }
            Instr::Local(LocalOp::Signal { flag, .. }) => *self.flags.entry((rank, *flag)).or_insert(0) += 1,
            Instr::Local(LocalOp::Wait { flag, of, .. }) => {
                let waited = self.waited.entry((rank, *of, *flag)).or_insert(0);
                if self.flags.get(&(*of, *flag)).is_none_or(|n| n <= waited) {
                    return false;
                }
                *waited += 1;
            }
            Instr::Local(LocalOp::Barrier(level)) => {
                let topology = &self.program.topology;
                let region = topology.region_of(*level, rank);
                let turn = self.passed.get(&(rank, *level)).copied().unwrap_or(0);
                let here = self.barriers.entry((*level, region, turn)).or_default();
                here.insert(rank);
                if here.len() < topology.span(*level, region).len() {
                    return false;
                }
                self.passed.insert((rank, *level), turn + 1);
            }
        }
        self.next[number] += 1;
        true
    }

    fn region(&self, area: Area, rank: Rank) -> Option<u32> {
        match area {
            Area::Shared(level, _) => Some(self.program.topology.region_of(level, rank)),
            // Each rank has one input and one output, so one region number is enough.
            Area::InOf(_) | Area::OutOf(_) => Some(0),
            _ => None,
        }
    }

    fn read(&mut self, now: Moment, place: &Place) {
        let Some(region) = self.region(place.area, now.0) else { return };
        let Some(writers) = self.writers.get(&(place.area, region)) else { return };
        let seen = self.seen.entry((place.area, now.0)).or_insert_with(|| vec![None; writers.len()]);
        let new = self.flows.len();
        let flows = &mut self.flows;
        let mut flow = |from: Moment, chunks: Range<u64>| {
            let same = flows[new..].iter().rposition(|flow| flow.from == from);
            let at = same.map_or(flows.len(), |at| new + at);
            if same.is_none() {
                flows.push(Flow {
                    from,
                    to: now,
                    tag: Tag(0),
                    slots: Places::from_buf([Place::new(place.area, Set::new())]),
                });
            }
            flows[at].slots[0].set.push(Run::new(chunks.start, chunks.end - chunks.start, 0, 1));
        };
        for block in place.set.runs().iter().flat_map(Run::blocks) {
            // Consecutive slots written by the same instruction go into one message.
            let mut from = block.start;
            while from < block.end {
                let written = writers[from as usize];
                let fresh = |chunk: u64| {
                    let (writer, seen) = (writers[chunk as usize], seen[chunk as usize]);
                    writer.is_some_and(|(rank, _)| rank != now.0) && writer != seen
                };
                let mut to = from + 1;
                while to < block.end && writers[to as usize] == written && fresh(to) == fresh(from) {
                    to += 1;
                }
                if let Some(written) = written.filter(|_| fresh(from)) {
                    flow(written, from..to);
                }
                from = to;
            }
            let block = block.start as usize..block.end as usize;
            seen[block.clone()].copy_from_slice(&writers[block]);
        }
    }

    fn write(&mut self, now: Moment, place: &Place) {
        let area = if place.area == Area::Out { Area::OutOf(now.0) } else { place.area };
        let Some(region) = self.region(area, now.0) else { return };
        let chunks = self.program.problem.chunks() as usize;
        let writers = self.writers.entry((area, region)).or_insert_with(|| vec![None; chunks]);
        for block in place.set.runs().iter().flat_map(Run::blocks) {
            writers[block.start as usize..block.end as usize].fill(Some(now));
        }
    }
}

/// Rewriter of one rank's code, which then uses private copies (shadows) of the shared lines.
struct Rewriter<'a> {
    rank: Rank,
    lines: BTreeMap<Area, u32>,
    /// Values that this rank receives, ordered by the instruction before which they are received. `leaving` has the values that it sends,
    /// ordered by the instruction after which they are sent.
    arriving: Vec<&'a Flow>,
    leaving: Vec<&'a Flow>,
    request: u32,
    out: Vec<Instr>,
    /// Requests of added sends in flight, each with the slots that the send reads.
    sending: Vec<(Request, Places)>,
}

impl<'a> Rewriter<'a> {
    fn new(code: &Code, rank: Rank, flows: &'a [Flow]) -> Rewriter<'a> {
        let mut lines = BTreeMap::new();
        let mut next = next_line(code);
        for place in code.instrs.iter().flat_map(Instr::places).filter(|place| is_shared(place.area)) {
            lines.entry(place.area).or_insert_with(|| {
                next += 1;
                next - 1
            });
        }
        // Flows are sorted by sender.
        let first = flows.partition_point(|flow| flow.from.0 < rank);
        let leaving = flows[first..].iter().take_while(|flow| flow.from.0 == rank).collect();
        let mut arriving: Vec<&Flow> = flows.iter().filter(|flow| flow.to.0 == rank).collect();
        arriving.sort_by_key(|flow| flow.to.1);
        let request = 1 + code.instrs.iter().fold(0, |most, instr| match instr {
            Instr::Post(request, _) => most.max(request.0),
            _ => most,
        });
        Rewriter { rank, lines, arriving, leaving, request, out: Vec::new(), sending: Vec::new() }
    }

    fn shadow(&self, place: Place) -> Place {
        match (self.lines.get(&place.area), place.area.remote()) {
            (_, Some((owner, area))) if owner == self.rank => Place { area, ..place },
            (Some(&line), _) => Place { area: Area::Line(line), ..place },
            (None, _) => place,
        }
    }

    fn message(&self, end: End, flow: &Flow, peer: Rank) -> Message {
        let places = flow.slots.iter().map(|place| self.shadow(place.clone())).collect();
        Message { end, payload: Payload::Data, places, peer, tag: flow.tag }
    }

    fn next_request(&mut self) -> Request {
        self.request += 1;
        Request(self.request - 1)
    }

    fn run(mut self, code: Code, problem: &Problem) -> Code {
        let end = code.memory(problem);
        let Layout::Buffers { placed, .. } = code.layout else { return code };
        assert_apart(&placed, problem);
        let (arriving, leaving) = (std::mem::take(&mut self.arriving), std::mem::take(&mut self.leaving));
        let (mut arriving, mut leaving) = (arriving.into_iter().peekable(), leaving.into_iter().peekable());
        for (at, instr) in code.instrs.into_iter().enumerate() {
            while let Some(flow) = arriving.next_if(|flow| flow.to.1 as usize == at) {
                let request = self.next_request();
                let message = self.message(End::Recv, flow, flow.from.0);
                self.push(Instr::Post(request, message));
                self.out.push(Instr::Finish(Set::one(request.0.into())));
            }
            match instr {
                Instr::Post(request, mut message) => {
                    message.places = message.places.into_iter().map(|place| self.shadow(place)).collect();
                    self.push(Instr::Post(request, message));
                }
                instr if is_order(&instr) => {}
                Instr::Local(local) => {
                    let local = local.map(|place| self.shadow(place));
                    self.push(Instr::Local(local));
                }
                Instr::Finish(_) => self.push(instr),
            }
            while let Some(flow) = leaving.next_if(|flow| flow.from.1 as usize == at) {
                let request = self.next_request();
                let message = self.message(End::Send, flow, flow.to.0);
                self.sending.push((request, message.places.clone()));
                self.out.push(Instr::Post(request, message));
            }
        }
        if !self.sending.is_empty() {
            let requests = self.sending.iter().map(|(request, _)| u64::from(request.0)).collect();
            self.out.push(Instr::Finish(requests));
        }
        let placed = self.place(placed, problem, end);
        Code { layout: Layout::Buffers { placed, alternate: Vec::new() }, instrs: self.out }
    }

    /// Adds an instruction. If it writes slots that added sends in flight still read, these sends are finished first.
    fn push(&mut self, instr: Instr) {
        let out = &mut self.out;
        let written: &[Place] = match &instr {
            Instr::Post(_, message) if message.end == End::Recv => &message.places,
            Instr::Local(LocalOp::Copy { to: place, .. } | LocalOp::Reduce { into: place, .. }) => {
                std::slice::from_ref(place)
            }
            _ => &[],
        };
        let shadows = self.lines.values().min().copied().unwrap_or(u32::MAX);
        let may_be_sent = |place: &Place| match place.area {
            Area::Line(line) => line >= shadows,
            area => area == Area::Out,
        };
        if written.iter().any(may_be_sent) {
            let meets = |a: &Place, b: &Place| a.area == b.area && a.set.meets(&b.set);
            self.sending.retain(|(request, places)| {
                let busy = places.iter().any(|place| written.iter().any(|w| meets(place, w)));
                if busy {
                    out.push(Instr::Finish(Set::one(request.0.into())));
                }
                !busy
            });
        }
        out.push(instr);
    }

    /// Returns the placements of the private lines, unchanged, followed by those of the private copies (shadows) of shared lines.
    fn place(&self, placed: Vec<Placement>, problem: &Problem, mut end: u64) -> Vec<Placement> {
        let mut used: BTreeMap<Area, Vec<&Set>> =
            self.lines.values().map(|&line| (Area::Line(line), Vec::new())).collect();
        for place in self.out.iter().flat_map(Instr::places) {
            if let Some(sets) = used.get_mut(&place.area) {
                sets.push(&place.set);
            }
        }
        let mut placed: Vec<Placement> = placed.into_iter().filter(|p| !is_shared(p.place.area)).collect();
        for (area, sets) in used {
            let set = Set::union(&sets, u64::MAX);
            let len = size_in_units(problem, &set);
            placed.push(Placement { place: Place::new(area, set), at: end });
            end += len;
        }
        placed
    }
}

fn assert_apart(placed: &[Placement], problem: &Problem) {
    let mut shared: Vec<(Level, u64, u64)> = placed
        .iter()
        .filter_map(|p| match p.place.area {
            Area::Shared(level, _) => Some((level, p.at, p.at + size_in_units(problem, &p.place.set))),
            _ => None,
        })
        .collect();
    shared.sort();
    let apart = |w: &[(Level, u64, u64)]| w[0].0 != w[1].0 || w[0].2 <= w[1].1;
    assert!(shared.windows(2).all(apart), "shared lines lie on each other");
}

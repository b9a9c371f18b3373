//! Replaces shared memory by messages within the node, for where no segment can be had.
//!
//! Every rank gets a private shadow of the shared slots that it touches. Who wrote what a read finds is known
//! in advance, because the program is free of races: any order that its synchronisation allows gives the same
//! answer, so one is played through. Where the writer is another rank, a message brings the value: sent as
//! soon as it is written, received just before it is read. Flags and barriers are then no longer needed.

use std::collections::BTreeMap;

use bruckner_schedule::program::extent;
use bruckner_schedule::{
    Area, Code, End, Flag, Instr, Layout, Level, Local, Message, Payload, Place, Placed, Program, Rank,
    Request, Set, Tag,
};
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use super::memory::{next_line, without_costs};

/// Runs the pass.
///
/// # Panics
/// If the program cannot be played through (a program that the verifier accepts can), or if it has shared lines
/// that lie on each other ([`super::place`] makes none such).
pub fn run(program: &Program) -> Program {
    let flows = Play::new(program).flows();
    without_costs(program.map(|rank, code| rewrite(program, rank, code, &flows)))
}

/// A slot of a region's segment.
type Shared = (Level, u32, u64);

/// One end of the messages from one rank to another with one tag.
type Channel = (Rank, Rank, Tag, End);

/// A value that goes from one rank to another: after which instruction of the one, before which of the other.
struct Flow {
    from: Rank,
    written: usize,
    to: Rank,
    read: usize,
    tag: Tag,
    slots: Vec<Shared>,
}

/// One order in which the program can run.
struct Play<'a> {
    program: &'a Program,
    next: BTreeMap<Rank, usize>,
    posted: HashMap<Channel, u64>,
    /// For each request under way the channel and how many ends the other side must have posted.
    open: HashMap<(Rank, Request), (Channel, u64)>,
    filling: HashMap<(Rank, Request), Vec<Place>>,
    flags: HashMap<(Rank, Flag), u64>,
    waited: HashMap<(Rank, Rank, Flag), u64>,
    barriers: HashMap<(Level, u32, u64), HashSet<Rank>>,
    passed: HashMap<(Rank, Level), u64>,
    /// For each region's slot who wrote it last, and with which instruction.
    writer: HashMap<(u32, Shared), (Rank, usize)>,
    /// What each rank's shadow holds already.
    seen: HashMap<(Rank, Shared), (Rank, usize)>,
    flows: BTreeMap<(Rank, usize, Rank, usize), Vec<Shared>>,
}

impl<'a> Play<'a> {
    fn new(program: &'a Program) -> Play<'a> {
        Play {
            program,
            next: program.ranks.keys().map(|&rank| (rank, 0)).collect(),
            posted: HashMap::default(),
            open: HashMap::default(),
            filling: HashMap::default(),
            flags: HashMap::default(),
            waited: HashMap::default(),
            barriers: HashMap::default(),
            passed: HashMap::default(),
            writer: HashMap::default(),
            seen: HashMap::default(),
            flows: BTreeMap::new(),
        }
    }

    fn flows(mut self) -> Vec<Flow> {
        let ranks: Vec<Rank> = self.next.keys().copied().collect();
        loop {
            let mut moved = false;
            for &rank in &ranks {
                while self.step(rank) {
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        let done = |(rank, at): (&Rank, &usize)| *at == self.program.ranks[rank].instrs.len();
        assert!(self.next.iter().all(done), "only programs that end can be lowered to messages");
        // Between two ranks each message has its own tag: they may be received in another order than sent.
        // They start above the tags that the two use already.
        let mut tags: HashMap<(Rank, Rank), u32> = HashMap::default();
        for &(from, to, tag, _) in self.posted.keys() {
            let highest = tags.entry((from, to)).or_insert(0);
            *highest = (*highest).max(tag.0);
        }
        let flow = |((from, written, to, read), slots)| {
            let tag = tags.entry((from, to)).or_insert(0);
            *tag += 1;
            Flow { from, written, to, read, tag: Tag(*tag), slots }
        };
        self.flows.into_iter().map(flow).collect()
    }

    /// One instruction of a rank; `false` if it must wait or is done.
    fn step(&mut self, rank: Rank) -> bool {
        let at = self.next[&rank];
        let program = self.program;
        let Some(instr) = program.ranks[&rank].instrs.get(at) else { return false };
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
                    End::Send => message.places.iter().for_each(|place| self.read(rank, at, place)),
                    End::Recv => {
                        self.filling.insert((rank, *request), message.places.clone());
                    }
                }
            }
            Instr::Finish(requests) => {
                let requests: Vec<Request> = requests.iter().map(|r| Request(r as u32)).collect();
                let met = |r: &Request| {
                    let (channel, turn) = self.open[&(rank, *r)];
                    self.posted.get(&channel).is_some_and(|&n| n >= turn)
                };
                if !requests.iter().all(met) {
                    return false;
                }
                for request in requests {
                    for place in self.filling.remove(&(rank, request)).unwrap_or_default() {
                        self.write(rank, at, &place);
                    }
                }
            }
            Instr::Local(Local::Copy { to, from }) => {
                self.read(rank, at, from);
                self.write(rank, at, to);
            }
            Instr::Local(Local::Reduce { into, with }) => {
                self.read(rank, at, with);
                self.read(rank, at, into);
                self.write(rank, at, into);
            }
            Instr::Local(Local::Signal(flag)) => *self.flags.entry((rank, *flag)).or_insert(0) += 1,
            Instr::Local(Local::Wait { flag, of }) => {
                let waited = self.waited.entry((rank, *of, *flag)).or_insert(0);
                if self.flags.get(&(*of, *flag)).is_none_or(|n| n <= waited) {
                    return false;
                }
                *waited += 1;
            }
            Instr::Local(Local::Barrier(level)) => {
                let region = program.topology.region_of(*level, rank);
                let turn = self.passed.get(&(rank, *level)).copied().unwrap_or(0);
                let here = self.barriers.entry((*level, region, turn)).or_default();
                here.insert(rank);
                if here.len() < program.topology.span(*level, region).len() {
                    return false;
                }
                self.passed.insert((rank, *level), turn + 1);
            }
        }
        self.next.insert(rank, at + 1);
        true
    }

    fn shared(&self, rank: Rank, place: &Place) -> Vec<(u32, Shared)> {
        let Area::Shared(level, line) = place.area else { return Vec::new() };
        let region = self.program.topology.region_of(level, rank);
        place.set.iter().map(|chunk| (region, (level, line, chunk))).collect()
    }

    fn read(&mut self, rank: Rank, at: usize, place: &Place) {
        for (region, slot) in self.shared(rank, place) {
            let Some(&written) = self.writer.get(&(region, slot)) else { continue };
            let known = self.seen.insert((rank, slot), written) == Some(written);
            if written.0 != rank && !known {
                self.flows.entry((written.0, written.1, rank, at)).or_default().push(slot);
            }
        }
    }

    fn write(&mut self, rank: Rank, at: usize, place: &Place) {
        for (region, slot) in self.shared(rank, place) {
            self.writer.insert((region, slot), (rank, at));
        }
    }
}

/// The private line that shadows a shared one.
struct Shadows {
    lines: BTreeMap<(Level, u32), u32>,
}

impl Shadows {
    fn new(code: &Code) -> Shadows {
        let mut lines = BTreeMap::new();
        let mut next = next_line(code);
        for place in code.instrs.iter().flat_map(Instr::places) {
            if let Area::Shared(level, line) = place.area {
                lines.entry((level, line)).or_insert_with(|| {
                    next += 1;
                    next - 1
                });
            }
        }
        Shadows { lines }
    }

    fn area(&self, area: Area) -> Area {
        match area {
            Area::Shared(level, line) => Area::Line(self.lines[&(level, line)]),
            other => other,
        }
    }

    fn place(&self, place: &Place) -> Place {
        Place::new(self.area(place.area), place.set.clone())
    }

    /// The slots of a flow, as places.
    fn places(&self, slots: &[Shared]) -> Vec<Place> {
        let mut places: Vec<(Area, Vec<u64>)> = Vec::new();
        for &(level, line, chunk) in slots {
            let area = self.area(Area::Shared(level, line));
            match places.last_mut() {
                Some((last, chunks)) if *last == area => chunks.push(chunk),
                _ => places.push((area, vec![chunk])),
            }
        }
        places
            .into_iter()
            .map(|(area, chunks)| Place::new(area, chunks.into_iter().collect::<Set>()))
            .collect()
    }
}

fn rewrite(program: &Program, rank: Rank, code: &Code, flows: &[Flow]) -> Code {
    let Layout::Buffers { placed, .. } = &code.layout else { return code.clone() };
    let mut shared: Vec<(Level, u64, u64)> = placed
        .iter()
        .filter_map(|p| match p.place.area {
            Area::Shared(level, _) => Some((level, p.at, p.at + extent(&program.problem, &p.place.set))),
            _ => None,
        })
        .collect();
    shared.sort();
    let apart = |w: &[(Level, u64, u64)]| w[0].0 != w[1].0 || w[0].2 <= w[1].1;
    assert!(shared.windows(2).all(apart), "shared lines lie on each other");
    let shadows = Shadows::new(code);
    let mut request = 1 + code.instrs.iter().fold(0, |most, instr| match instr {
        Instr::Post(request, _) => most.max(request.0),
        _ => most,
    });
    let mut out = Vec::new();
    // Sends of ours under way, and the shadow slots that they read.
    let mut sending: Vec<(Request, Vec<Place>)> = Vec::new();
    let message = |end, slots: &[Shared], peer, tag| Message {
        end,
        payload: Payload::Data,
        places: shadows.places(slots),
        peer,
        tag,
    };
    for (at, instr) in code.instrs.iter().enumerate() {
        for flow in flows.iter().filter(|f| (f.to, f.read) == (rank, at)) {
            let recv = Instr::Post(Request(request), message(End::Recv, &flow.slots, flow.from, flow.tag));
            finish_before(&recv, &mut sending, &mut out);
            out.push(recv);
            out.push(Instr::Finish(Set::one(request.into())));
            request += 1;
        }
        let rewritten = match instr {
            Instr::Post(request, message) => {
                let places = message.places.iter().map(|p| shadows.place(p)).collect();
                Some(Instr::Post(*request, Message { places, ..message.clone() }))
            }
            Instr::Local(Local::Copy { to, from }) => {
                Some(Instr::Local(Local::Copy { to: shadows.place(to), from: shadows.place(from) }))
            }
            Instr::Local(Local::Reduce { into, with }) => {
                Some(Instr::Local(Local::Reduce { into: shadows.place(into), with: shadows.place(with) }))
            }
            Instr::Local(Local::Signal(_) | Local::Wait { .. } | Local::Barrier(_)) => None,
            Instr::Finish(_) => Some(instr.clone()),
        };
        if let Some(rewritten) = rewritten {
            finish_before(&rewritten, &mut sending, &mut out);
            out.push(rewritten);
        }
        for flow in flows.iter().filter(|f| (f.from, f.written) == (rank, at)) {
            let send = message(End::Send, &flow.slots, flow.to, flow.tag);
            sending.push((Request(request), send.places.clone()));
            out.push(Instr::Post(Request(request), send));
            request += 1;
        }
    }
    if !sending.is_empty() {
        out.push(Instr::Finish(sending.iter().map(|(r, _)| u64::from(r.0)).collect()));
    }
    let problem = &program.problem;
    let mut placed: Vec<Placed> =
        placed.iter().filter(|p| !matches!(p.place.area, Area::Shared(..))).cloned().collect();
    let mut end = code.memory(problem);
    for &line in shadows.lines.values() {
        let used = out.iter().flat_map(Instr::places).filter(|p| p.area == Area::Line(line));
        let slots: std::collections::BTreeSet<u64> = used.flat_map(|p| p.set.iter()).collect();
        let set: Set = slots.into_iter().collect();
        let len = extent(problem, &set);
        placed.push(Placed { place: Place::new(Area::Line(line), set), at: end });
        end += len;
    }
    Code { layout: Layout::Buffers { placed, alternate: Vec::new() }, instrs: out }
}

/// Finishes the sends that read what an instruction is about to write.
fn finish_before(instr: &Instr, sending: &mut Vec<(Request, Vec<Place>)>, out: &mut Vec<Instr>) {
    sending.retain(|(request, places)| {
        let busy = overwrites(instr, places);
        if busy {
            out.push(Instr::Finish(Set::one(request.0.into())));
        }
        !busy
    });
}

/// Whether an instruction writes any of these slots.
fn overwrites(instr: &Instr, places: &[Place]) -> bool {
    let written: Vec<&Place> = match instr {
        Instr::Post(_, message) if message.end == End::Recv => message.places.iter().collect(),
        Instr::Local(Local::Copy { to, .. }) => vec![to],
        Instr::Local(Local::Reduce { into, .. }) => vec![into],
        _ => Vec::new(),
    };
    written
        .iter()
        .any(|w| places.iter().any(|p| p.area == w.area && p.set.iter().any(|c| w.set.position(c).is_some())))
}

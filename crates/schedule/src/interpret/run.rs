//! Execution loop: runs the next instruction of a random rank, until all ranks are done or none can proceed.

use std::collections::{HashMap, HashSet};

use super::buffers::{Found, Segments, View, slots_of};
use super::{Data, ElementOperation, Failure};
use crate::program::{Instr, Program};
use crate::random::Random;
use crate::schedule::{End, LocalOp, Message, Payload, Place};
use crate::{Flag, Level, Rank, Request, Tag};

/// A posted send or receive of a rank.
struct PendingRequest {
    end: End,
    /// Index of the message, once its send and receive are matched.
    letter: Option<usize>,
}

/// A message whose send and receive are matched.
struct MatchedMessage {
    sender: Rank,
    receiver: Rank,
    payload: Payload,
    from: Vec<Found>,
    to: Vec<Found>,
    data: Option<Vec<u64>>,
    delivered: bool,
}

/// A posted send or receive that is not matched yet.
struct Open {
    request: Request,
    payload: Payload,
    slots: Vec<Found>,
    early: Option<Vec<u64>>,
}

struct RankState {
    execution: u32,
    next: usize,
    tickets: HashMap<Request, PendingRequest>,
    waited: HashMap<(Rank, Flag), u64>,
    passed: HashMap<Level, u64>,
}

struct Simulation<'a> {
    programs: &'a [&'a Program],
    data: Vec<Data>,
    views: Vec<Vec<View>>,
    players: Vec<RankState>,
    segments: Segments,
    sends: HashMap<(Rank, Rank, Tag), Vec<Open>>,
    recvs: HashMap<(Rank, Rank, Tag), Vec<Open>>,
    letters: Vec<MatchedMessage>,
    flags: HashMap<(Rank, Flag, u32), u64>,
    barriers: HashMap<(Level, u32, u32, u64), HashSet<Rank>>,
    /// Number of ranks that have left a region's ring, by level, region and number of earlier executions that used the ring.
    left: HashMap<(Level, u32, u32), usize>,
    /// Random number that determines the number of parts in each ring (see [`slots_of`]).
    slots: u32,
}

type Result<T> = std::result::Result<T, Failure>;

fn fail<T>(rank: Rank, message: impl Into<String>) -> Result<T> {
    Err(Failure { rank: Some(rank), message: message.into() })
}

pub(super) fn run(programs: &[&Program], operation: ElementOperation, random: &mut Random) -> Result<()> {
    let ranks = programs[0].problem.ranks;
    let data: Vec<Data> = programs.iter().map(|_| Data { operation, seed: random.bits() }).collect();
    let slots = random.below(3) as u32;
    let mut views = Vec::new();
    for rank in (0..ranks).map(Rank) {
        let mut mine: Vec<View> = Vec::new();
        for (program, data) in programs.iter().zip(&data) {
            let Some(code) = program.ranks.get(&rank) else { return fail(rank, "has no program") };
            let view = View::new(program, code, rank, data, &mine, slots)?;
            mine.push(view);
        }
        views.push(mine);
    }
    let player = |_| RankState {
        execution: 0,
        next: 0,
        tickets: HashMap::new(),
        waited: HashMap::new(),
        passed: HashMap::new(),
    };
    let mut stage = Simulation {
        programs,
        data,
        views,
        players: (0..ranks).map(player).collect(),
        segments: Segments::default(),
        sends: HashMap::new(),
        recvs: HashMap::new(),
        letters: Vec::new(),
        flags: HashMap::new(),
        barriers: HashMap::new(),
        left: HashMap::new(),
        slots,
    };
    stage.play(random)?;
    stage.compare()
}

impl Simulation<'_> {
    fn play(&mut self, random: &mut Random) -> Result<()> {
        let mut going: Vec<Rank> = (0..self.players.len() as u32).map(Rank).collect();
        while !going.is_empty() {
            // Try the ranks in turn, from a random one on. Sometimes let a rank run far ahead of the others.
            let (start, far) = (random.below(going.len() as u64) as usize, random.below(4) == 0);
            let mut moved = false;
            for i in 0..going.len() {
                let rank = going[(start + i) % going.len()];
                while self.step(rank, random)? {
                    moved = true;
                    if !far {
                        break;
                    }
                }
                if moved {
                    break;
                }
            }
            let done = |rank: &Rank| self.players[rank.0 as usize].execution as usize == self.programs.len();
            let before = going.len();
            going.retain(|rank| !done(rank));
            if !moved && before == going.len() {
                return fail(going[0], "blocks for ever");
            }
        }
        for (key, open) in self.sends.iter().chain(&self.recvs) {
            if !open.is_empty() {
                return fail(key.0, "a message was never matched");
            }
        }
        Ok(())
    }

    /// Executes one instruction of a rank; returns `false` if the rank must wait or is done.
    fn step(&mut self, rank: Rank, random: &mut Random) -> Result<bool> {
        let me = rank.0 as usize;
        let execution = self.players[me].execution;
        let Some(program) = self.programs.get(execution as usize) else { return Ok(false) };
        let Some(instr) = program.ranks[&rank].instrs.get(self.players[me].next) else {
            if !self.players[me].tickets.is_empty() {
                return fail(rank, "ends with a message in flight");
            }
            let player = &mut self.players[me];
            player.execution += 1;
            player.next = 0;
            player.waited.clear();
            player.passed.clear();
            return Ok(true);
        };
        let goes_on = match instr {
            Instr::Post(request, message) => self.post(rank, *request, message, random)?,
            Instr::Finish(requests) => {
                let requests: Vec<Request> = requests.iter().map(|r| Request(r as u32)).collect();
                self.finish(rank, &requests)?
            }
            Instr::Local(LocalOp::Copy { to, from }) => {
                let view = &self.views[me][execution as usize];
                let data = &self.data[execution as usize];
                let to = view.find(program, to, data)?;
                let (owner, from) = self.source(rank, program, from)?;
                self.copy(rank, &to, owner, &from)?
            }
            Instr::Local(LocalOp::Reduce { into, with }) => {
                let view = &self.views[me][execution as usize];
                let data = &self.data[execution as usize];
                let into = view.find(program, into, data)?;
                let (owner, with) = self.source(rank, program, with)?;
                self.reduce(rank, &into, owner, &with)?
            }
            Instr::Local(local) if local.is_skipped(&program.problem) => true,
            Instr::Local(LocalOp::Signal { flag, .. }) => {
                *self.flags.entry((rank, *flag, execution)).or_default() += 1;
                true
            }
            Instr::Local(LocalOp::Wait { flag, of, .. }) => {
                if *of == rank
                    || of.0 >= program.problem.ranks
                    || program.topology.node_of(*of) != program.topology.node_of(rank)
                {
                    return fail(rank, "waits for its own flag, or a flag of a rank outside its node");
                }
                let waited = self.players[me].waited.entry((*of, *flag)).or_default();
                let raised = self.flags.get(&(*of, *flag, execution)).is_some_and(|n| n > waited);
                *waited += u64::from(raised);
                raised
            }
            Instr::Local(LocalOp::Open) => true,
            Instr::Local(LocalOp::Barrier(level)) => self.barrier(rank, *level),
            Instr::Local(LocalOp::Enter { level, .. }) => self.enter(rank, *level)?,
            Instr::Local(LocalOp::Leave(level)) => {
                let region = program.topology.region_of(*level, rank);
                let turn = self.turn(rank, *level)?;
                *self.left.entry((*level, region, turn)).or_default() += 1;
                true
            }
        };
        if goes_on {
            self.players[me].next += 1;
        }
        Ok(goes_on)
    }

    fn view(&mut self, rank: Rank) -> (&mut Segments, &mut View) {
        let execution = self.players[rank.0 as usize].execution as usize;
        (&mut self.segments, &mut self.views[rank.0 as usize][execution])
    }

    /// Returns the owner and the locations of the slots that a rank reads. If another rank owns the slots, they are located in the
    /// execution that this owner has reached.
    fn source(&self, rank: Rank, program: &Program, from: &Place) -> Result<(Rank, Vec<Found>)> {
        let (owner, area) = from.area.remote().unwrap_or((rank, from.area));
        let Some(player) = self.players.get(owner.0 as usize) else {
            return fail(rank, "reads the buffers of a rank that does not exist");
        };
        let execution = (player.execution as usize).min(self.programs.len() - 1);
        let place = Place { area, set: from.set.clone() };
        let found = self.views[owner.0 as usize][execution].find(program, &place, &self.data[execution])?;
        Ok((owner, found))
    }

    /// Returns the content of a slot in the memory of rank `owner`.
    fn load(&mut self, owner: Rank, slot: Found) -> Result<Vec<u64>> {
        let execution = (self.players[owner.0 as usize].execution as usize).min(self.programs.len() - 1);
        self.segments.load(&mut self.views[owner.0 as usize][execution], slot)
    }

    fn copy(&mut self, rank: Rank, to: &[Found], owner: Rank, from: &[Found]) -> Result<bool> {
        if to.len() != from.len() {
            return fail(rank, "copies between places of different shape");
        }
        for (to, from) in to.iter().zip(from) {
            let data = self.load(owner, *from)?;
            let (segments, view) = self.view(rank);
            match to.len {
                Some(len) if len == data.len() as u64 => {}
                _ if view.lengths.contains_key(&(from.buffer, from.word)) || to.len.is_none() => {
                    view.lengths.insert((to.buffer, to.word), data.len() as u64);
                }
                _ => return fail(rank, "copies into a slot of another size"),
            }
            segments.store(view, *to, &data);
        }
        Ok(true)
    }

    fn reduce(&mut self, rank: Rank, into: &[Found], owner: Rank, with: &[Found]) -> Result<bool> {
        let operation = self.data[0].operation;
        if into.len() != with.len() {
            return fail(rank, "reduces places of different shape");
        }
        for (into, with) in into.iter().zip(with) {
            let left = self.load(owner, *with)?;
            let (segments, view) = self.view(rank);
            let right = segments.load(view, *into)?;
            if left.len() != right.len() {
                return fail(rank, "reduces slots of different size");
            }
            let result: Vec<u64> = left.iter().zip(&right).map(|(&l, &r)| operation.apply(l, r)).collect();
            segments.store(view, *into, &result);
        }
        Ok(true)
    }

    fn barrier(&mut self, rank: Rank, level: Level) -> bool {
        let player = &self.players[rank.0 as usize];
        let topology = &self.programs[0].topology;
        let region = topology.region_of(level, rank);
        let turn = player.passed.get(&level).copied().unwrap_or(0);
        let here = self.barriers.entry((level, region, player.execution, turn)).or_default();
        here.insert(rank);
        let all = here.len() == topology.span(level, region).len();
        if all {
            *self.players[rank.0 as usize].passed.entry(level).or_default() += 1;
        }
        all
    }

    /// Whether all ranks of the region have left the part of the ring that this execution will use.
    fn enter(&mut self, rank: Rank, level: Level) -> Result<bool> {
        let topology = &self.programs[0].topology;
        let region = topology.region_of(level, rank);
        let Some(before) = self.turn(rank, level)?.checked_sub(slots_of(self.slots, level)) else {
            return Ok(true);
        };
        let left = self.left.get(&(level, region, before)).copied().unwrap_or(0);
        Ok(left == topology.span(level, region).len())
    }

    /// Returns the number of earlier executions that use the ring of a level.
    fn turn(&self, rank: Rank, level: Level) -> Result<u32> {
        let execution = self.players[rank.0 as usize].execution as usize;
        match self.views[rank.0 as usize][execution].ring(level) {
            Some(turn) => Ok(turn),
            None => fail(rank, "has `enter` without `leave`"),
        }
    }

    fn post(&mut self, rank: Rank, request: Request, message: &Message, random: &mut Random) -> Result<bool> {
        let me = rank.0 as usize;
        let execution = self.players[me].execution;
        let program = self.programs[execution as usize];
        if message.peer.0 >= program.problem.ranks || message.peer == rank {
            return fail(rank, "has no such peer");
        }
        if self.players[me].tickets.contains_key(&request) {
            return fail(rank, "posts a request that is under way");
        }
        let mut slots = Vec::new();
        for place in &message.places {
            let view = &self.views[me][execution as usize];
            slots.extend(view.find(program, place, &self.data[execution as usize])?);
        }
        self.players[me].tickets.insert(request, PendingRequest { end: message.end, letter: None });
        let mut open = Open { request, payload: message.payload, slots, early: None };
        let key = match message.end {
            End::Send => {
                if random.below(3) == 0 {
                    open.early = Some(self.take(rank, open.payload, &open.slots)?);
                }
                let key = (rank, message.peer, message.tag);
                self.sends.entry(key).or_default().push(open);
                key
            }
            End::Recv => {
                if open.payload == Payload::Data && random.below(2) == 0 {
                    let (segments, view) = self.view(rank);
                    for &slot in &open.slots {
                        segments.overwrite_with_junk(view, slot, random.bits());
                    }
                }
                let key = (message.peer, rank, message.tag);
                self.recvs.entry(key).or_default().push(open);
                key
            }
        };
        self.match_ends(key, random)?;
        Ok(true)
    }

    /// Matches the oldest send between two ranks with one tag with the oldest receive, if both exist.
    fn match_ends(&mut self, key: (Rank, Rank, Tag), random: &mut Random) -> Result<()> {
        let (Some(sends), Some(recvs)) = (self.sends.get_mut(&key), self.recvs.get_mut(&key)) else {
            return Ok(());
        };
        if sends.is_empty() || recvs.is_empty() {
            return Ok(());
        }
        let (send, recv) = (sends.remove(0), recvs.remove(0));
        let (sender, receiver, _) = key;
        if send.payload != recv.payload
            || self.players[sender.0 as usize].execution != self.players[receiver.0 as usize].execution
        {
            return fail(receiver, "is matched with a message of another kind or execution");
        }
        let number = self.letters.len();
        for (rank, request) in [(sender, send.request), (receiver, recv.request)] {
            match self.players[rank.0 as usize].tickets.get_mut(&request) {
                Some(ticket) => ticket.letter = Some(number),
                None => return fail(rank, "lost a request"),
            }
        }
        self.letters.push(MatchedMessage {
            sender,
            receiver,
            payload: send.payload,
            from: send.slots,
            to: recv.slots,
            data: send.early,
            delivered: false,
        });
        if random.below(2) == 0 {
            self.collect(number)?;
            if random.below(2) == 0 {
                self.deliver(number)?;
            }
        }
        Ok(())
    }

    /// Returns the data of a send, read from its slots at this moment.
    fn take(&mut self, rank: Rank, payload: Payload, slots: &[Found]) -> Result<Vec<u64>> {
        let execution = self.players[rank.0 as usize].execution as usize;
        let (segments, view) = (&mut self.segments, &mut self.views[rank.0 as usize][execution]);
        let mut data = Vec::new();
        for &slot in slots {
            match (payload, slot.len) {
                (Payload::Data, _) => data.extend(segments.load(view, slot)?),
                (Payload::Sizes, Some(len)) => data.push(len),
                (Payload::Sizes, None) => return fail(rank, "sends a length that it does not know"),
            }
        }
        Ok(data)
    }

    fn collect(&mut self, letter: usize) -> Result<()> {
        if self.letters[letter].data.is_none() {
            let MatchedMessage { sender, payload, ref from, .. } = self.letters[letter];
            let data = self.take(sender, payload, &from.clone())?;
            self.letters[letter].data = Some(data);
        }
        Ok(())
    }

    fn deliver(&mut self, letter: usize) -> Result<()> {
        if std::mem::replace(&mut self.letters[letter].delivered, true) {
            return Ok(());
        }
        self.collect(letter)?;
        let MatchedMessage { receiver, payload, ref to, ref data, .. } = self.letters[letter];
        let (to, data) = (to.clone(), data.clone().unwrap_or_default());
        let (segments, view) = self.view(receiver);
        let lens: Option<Vec<u64>> = match payload {
            Payload::Data => to.iter().map(|slot| slot.len).collect(),
            Payload::Sizes => Some(vec![1; to.len()]),
        };
        let Some(lens) = lens else { return fail(receiver, "receives into a slot of unknown length") };
        if lens.iter().sum::<u64>() != data.len() as u64 {
            return fail(receiver, "receives a message of another length");
        }
        let mut at = 0;
        for (slot, len) in to.into_iter().zip(lens) {
            let part = &data[at..at + len as usize];
            at += len as usize;
            match payload {
                Payload::Data => segments.store(view, slot, part),
                Payload::Sizes => {
                    view.lengths.insert((slot.buffer, slot.word), part[0]);
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self, rank: Rank, requests: &[Request]) -> Result<bool> {
        let tickets = &self.players[rank.0 as usize].tickets;
        for request in requests {
            match tickets.get(request) {
                None => return fail(rank, "finishes a request that is not in flight"),
                Some(PendingRequest { letter: None, .. }) => return Ok(false),
                Some(_) => {}
            }
        }
        for request in requests {
            let Some(ticket) = self.players[rank.0 as usize].tickets.remove(request) else {
                return fail(rank, "finishes a request twice");
            };
            let letter = ticket.letter.expect("looked at above");
            match ticket.end {
                End::Send => self.collect(letter)?,
                End::Recv => self.deliver(letter)?,
            }
        }
        Ok(true)
    }

    /// Compares every output with the result that MPI requires, and results of [`ElementOperation::Scramble`] between ranks.
    fn compare(&mut self) -> Result<()> {
        for (execution, program) in self.programs.iter().enumerate() {
            let mut first: HashMap<u64, Vec<u64>> = HashMap::new();
            for rank in (0..program.problem.ranks).map(Rank) {
                for chunk in program.problem.output(rank).iter() {
                    let data = &self.data[execution];
                    let view = &mut self.views[rank.0 as usize][execution];
                    let place = crate::Place::new(crate::Area::Out, crate::Set::one(chunk));
                    let slot = view.find(program, &place, data)?[0];
                    let got = self.segments.load(view, slot)?;
                    let want = data.wanted(program, rank, chunk);
                    if want.is_some_and(|want| want != got) {
                        return fail(rank, format!("out[{chunk}] is wrong in execution {execution}"));
                    }
                    if data.operation == ElementOperation::Scramble
                        && *first.entry(chunk).or_insert_with(|| got.clone()) != got
                    {
                        return fail(rank, format!("out[{chunk}] differs bitwise from that on a lower rank"));
                    }
                }
            }
        }
        Ok(())
    }
}

//! Mutations: small errors injected into correct programs, which the verifier must reject.
//!
//! Each [`Mutation`] breaks a program in one randomly chosen place. If the verifier accepts the mutated program (the mutant), it has
//! missed an error, unless the mutant happens to be equivalent to the original.

use std::fmt;

use crate::program::{Code, Instr, Layout, Program};
use crate::random::Random;
use crate::schedule::{Area, End, LocalOp, Message, Place};
use crate::{Level, Rank, Request, Run, Set, Tag};

macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// Kinds of injected errors.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Mutation {
            $($(#[$doc])* $name),*
        }

        impl Mutation {
            /// All kinds of mutation.
            pub const ALL: &[Mutation] = &[$(Mutation::$name),*];
        }

        impl fmt::Display for Mutation {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Mutation::$name => $text),* })
            }
        }
    };
}

mutations! {
    /// A copy or reduction is left out.
    DropLocal = "dropped operation",
    /// One end of a message is left out.
    DropMessage = "dropped message",
    /// A reduction is done twice.
    DoubleReduce = "doubled reduction",
    /// One end of a message is posted twice.
    DoubleMessage = "doubled message",
    /// Two neighbouring instructions are swapped although the second depends on the first.
    Reorder = "reordered operations",
    /// A message goes to, or comes from, another rank.
    Peer = "wrong peer",
    /// A chunk number is replaced by another one.
    Chunk = "wrong chunk",
    /// A message lacks its last chunk.
    Size = "wrong size",
    /// A place is moved to another area.
    Slot = "wrong slot",
    /// One end of a message has another tag.
    Tag = "wrong tag",
    /// The order of chunks in a message is reversed.
    Order = "wrong order in a message",
    /// The two sides of a copy or reduction are swapped.
    Operands = "swapped operands",
    /// A request is removed from its `finish`.
    Finish = "unfinished request",
    /// Two lines that are in use at the same time get the same offset.
    Overlap = "overlapping places",
    /// A signal is left out.
    Signal = "signal removed",
    /// A wait is left out.
    Wait = "wait removed",
    /// A barrier is removed on one rank, or on all ranks of its region.
    Barrier = "barrier removed",
    /// An `enter` is removed, so the rank does not wait until its part of the segment's ring is free.
    Enter = "entered too early",
    /// A `leave` is removed, or moved before the rank's last access to a segment.
    Leave = "left too early or never",
    /// An `open` is removed, or moved after the next signal or barrier.
    Open = "not opened, or too late",
    /// A read from another rank's buffers is directed to a different rank.
    Owner = "wrong owner",
    /// A signal, wait or enter gets other chunks, so it may be skipped although it is needed.
    For = "wrong chunks of a signal, wait or enter",
    /// One rank, or every rank of its region, no longer uses the two halves of a segment in turn.
    Alternate = "buffer not alternated",
}

impl Mutation {
    /// Whether the mutation removes synchronisation. A program without the synchronisation is wrong even if its results are right.
    pub fn removes_synchronisation(self) -> bool {
        use Mutation::{Alternate, Barrier, Enter, For, Leave, Open, Signal, Wait};
        matches!(self, Signal | Wait | Barrier | Alternate | Enter | Leave | For | Open)
    }
}

/// Returns the program with one mutation of this kind at a random place, or `None` if the program has no place for it.
pub fn mutate(program: &Program, kind: Mutation, random: &mut Random) -> Option<Program> {
    let mut mutant = program.clone();
    let ranks: Vec<Rank> = mutant.ranks.keys().copied().collect();
    let rank = *random.pick(&ranks)?;
    match kind {
        Mutation::Barrier => remove_barrier(&mut mutant, rank, random)?,
        Mutation::Alternate => stop_alternating(&mut mutant, rank, random)?,
        _ => {
            let p = mutant.problem.ranks;
            let chunks = mutant.problem.chunks();
            let code = mutant.ranks.get_mut(&rank).expect("it is one of the keys");
            Mutator { code, rank, ranks: p, chunks, random }.apply(kind)?;
        }
    }
    (mutant != *program).then_some(mutant)
}

fn remove_barrier(program: &mut Program, rank: Rank, random: &mut Random) -> Option<()> {
    let nth = |code: &Code, level: Level, n: usize| {
        let barrier = Instr::Local(LocalOp::Barrier(level));
        (0..code.instrs.len()).filter(|&i| code.instrs[i] == barrier).nth(n)
    };
    let barriers: Vec<(usize, Level)> = program.ranks[&rank]
        .instrs
        .iter()
        .enumerate()
        .filter_map(|(i, instr)| match instr {
            Instr::Local(LocalOp::Barrier(level)) => Some((i, *level)),
            _ => None,
        })
        .collect();
    let &(at, level) = random.pick(&barriers)?;
    if random.below(2) == 0 {
        program.ranks.get_mut(&rank)?.instrs.remove(at);
        return Some(());
    }
    let n = barriers.iter().filter(|&&(i, l)| l == level && i < at).count();
    let topology = program.topology.clone();
    let region = topology.region_of(level, rank);
    for position in topology.span(level, region) {
        let code = program.ranks.get_mut(&topology.rank_at(position))?;
        let at = nth(code, level, n)?;
        code.instrs.remove(at);
    }
    Some(())
}

fn stop_alternating(program: &mut Program, rank: Rank, random: &mut Random) -> Option<()> {
    let levels = |code: &mut Code| match &mut code.layout {
        Layout::Buffers { alternate, .. } if !alternate.is_empty() => Some(alternate.remove(0)),
        _ => None,
    };
    let level = levels(program.ranks.get_mut(&rank)?)?;
    if random.below(2) == 0 {
        return Some(());
    }
    let topology = program.topology.clone();
    for position in topology.span(level, topology.region_of(level, rank)) {
        let other = topology.rank_at(position);
        if other != rank {
            levels(program.ranks.get_mut(&other)?)?;
        }
    }
    Some(())
}

struct Mutator<'a> {
    code: &'a mut Code,
    rank: Rank,
    ranks: u32,
    chunks: u64,
    random: &'a mut Random,
}

impl Mutator<'_> {
    /// Returns the index of a random instruction that satisfies `wanted`.
    fn find(&mut self, wanted: impl Fn(&Instr) -> bool) -> Option<usize> {
        let found: Vec<usize> = (0..self.code.instrs.len()).filter(|&i| wanted(&self.code.instrs[i])).collect();
        self.random.pick(&found).copied()
    }

    fn message(&mut self, wanted: impl Fn(&Message) -> bool) -> Option<(usize, &mut Message)> {
        let at = self.find(|i| matches!(i, Instr::Post(_, m) if wanted(m)))?;
        match &mut self.code.instrs[at] {
            Instr::Post(_, message) => Some((at, message)),
            _ => None,
        }
    }

    /// Returns a random place, among those of all instructions, that satisfies `wanted`.
    fn place(&mut self, wanted: impl Fn(&Place) -> bool) -> Option<&mut Place> {
        pick_place(self.code.instrs.iter_mut().flat_map(places_mut).collect(), wanted, self.random)
    }

    fn apply(&mut self, kind: Mutation) -> Option<()> {
        let is_copy = |i: &Instr| matches!(i, Instr::Local(LocalOp::Copy { .. }));
        let is_reduce = |i: &Instr| matches!(i, Instr::Local(LocalOp::Reduce { .. }));
        match kind {
            Mutation::DropLocal => {
                let at = self.find(|i| is_copy(i) || is_reduce(i))?;
                self.code.instrs.remove(at);
            }
            Mutation::DoubleReduce => {
                let at = self.find(is_reduce)?;
                let again = self.code.instrs[at].clone();
                self.code.instrs.insert(at, again);
            }
            Mutation::Reorder => {
                let dependent: Vec<usize> = (1..self.code.instrs.len())
                    .filter(|&i| needs(&self.code.instrs[i - 1], &self.code.instrs[i]))
                    .collect();
                let at = *self.random.pick(&dependent)?;
                self.code.instrs.swap(at - 1, at);
            }
            Mutation::Chunk => {
                let (number, chunks) = (self.random.bits(), self.chunks);
                let place = self.place(|_| chunks > 1)?;
                let mut members: Vec<u64> = place.set.iter().collect();
                let at = (number >> 32) as usize % members.len();
                members[at] = (members[at] + 1 + number % (chunks - 1)) % chunks;
                place.set = members.into_iter().collect();
            }
            Mutation::Slot => {
                let mut areas: Vec<Area> = self.code.instrs.iter().flat_map(Instr::places).map(|p| p.area).collect();
                // `in` is no replacement: it often still has the value of the original slot, so the mutant would be correct.
                areas.retain(|area| *area != Area::In);
                areas.sort();
                areas.dedup();
                let other = *self.random.pick(&areas)?;
                // A value that is read often exists in two places, but it must be written to the right one. So half of the time, a written
                // place is chosen.
                let instrs = &mut self.code.instrs;
                let places = match self.random.below(2) {
                    0 => instrs.iter_mut().flat_map(places_mut).collect(),
                    _ => instrs.iter_mut().flat_map(written_mut).collect(),
                };
                pick_place(places, |p| p.area != other, self.random)?.area = other;
            }
            Mutation::Operands => {
                let at = self.find(|i| is_copy(i) || is_reduce(i))?;
                match &mut self.code.instrs[at] {
                    Instr::Local(LocalOp::Copy { to, from }) => std::mem::swap(to, from),
                    Instr::Local(LocalOp::Reduce { into, with }) => std::mem::swap(into, with),
                    _ => return None,
                }
            }
            Mutation::Overlap => {
                let pairs = self.lines_used_together();
                let &(a, b) = self.random.pick(&pairs)?;
                let Layout::Buffers { placed, .. } = &mut self.code.layout else { return None };
                let at = placed.iter().find(|p| p.place.area == a)?.at;
                placed.iter_mut().find(|p| p.place.area == b)?.at = at;
            }
            _ => self.misdirect(kind).or_else(|| self.desynchronise(kind))?,
        }
        Some(())
    }

    /// Applies a mutation of messages or their requests.
    fn misdirect(&mut self, kind: Mutation) -> Option<()> {
        match kind {
            Mutation::DropMessage => {
                let (at, _) = self.message(|_| true)?;
                let Instr::Post(request, _) = self.code.instrs.remove(at) else { return None };
                self.unfinish(at, request);
            }
            Mutation::DoubleMessage => {
                let (at, message) = self.message(|_| true)?;
                let message = message.clone();
                let fresh = Request(1 + self.code.instrs.iter().map(highest_request).max().unwrap_or(0));
                let Instr::Post(request, _) = self.code.instrs[at] else { return None };
                self.code.instrs.insert(at + 1, Instr::Post(fresh, message));
                let finish = self.finish_of(at, request)?;
                if let Instr::Finish(requests) = &mut self.code.instrs[finish] {
                    requests.push(Run::new(fresh.0.into(), 1, 0, 1));
                }
            }
            Mutation::Peer => {
                let others: Vec<Rank> = (0..self.ranks).map(Rank).filter(|&r| r != self.rank).collect();
                let other = *self.random.pick(&others)?;
                self.message(|m| m.peer != other)?.1.peer = other;
            }
            Mutation::Size => {
                let (_, message) = self.message(|m| m.len() > 1)?;
                let last = message.places.len() - 1;
                let mut members: Vec<u64> = message.places[last].set.iter().collect();
                members.pop();
                message.places[last].set = members.into_iter().collect();
                message.places.retain(|p| !p.set.is_empty());
            }
            Mutation::Owner => {
                let (ranks, more) = (self.ranks, self.random.bits());
                let place = self.place(|place| place.area.remote().is_some())?;
                let other = |rank: Rank| Rank((rank.0 + 1 + (more % u64::from(ranks.max(2) - 1)) as u32) % ranks);
                place.area = match place.area {
                    Area::InOf(rank) => Area::InOf(other(rank)),
                    Area::OutOf(rank) => Area::OutOf(other(rank)),
                    area => area,
                };
            }
            Mutation::Tag => {
                let (_, message) = self.message(|_| true)?;
                message.tag = Tag(message.tag.0 + 1);
            }
            Mutation::Order => {
                let (_, message) = self.message(|m| m.places.iter().any(|p| p.set.len() > 1))?;
                let place = message.places.iter_mut().find(|p| p.set.len() > 1)?;
                let mut members: Vec<u64> = place.set.iter().collect();
                members.reverse();
                place.set = members.into_iter().collect();
            }
            Mutation::Finish => {
                let at = self.find(|i| matches!(i, Instr::Finish(_)))?;
                let Instr::Finish(requests) = &mut self.code.instrs[at] else { return None };
                let mut members: Vec<u64> = requests.iter().collect();
                members.remove(self.random.below(members.len() as u64) as usize);
                *requests = members.into_iter().collect();
                if requests.is_empty() {
                    self.code.instrs.remove(at);
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Removes a random local operation that satisfies `wanted`.
    fn drop(&mut self, wanted: impl Fn(&LocalOp) -> bool) -> Option<()> {
        let at = self.find(|instr| matches!(instr, Instr::Local(local) if wanted(local)))?;
        self.code.instrs.remove(at);
        Some(())
    }

    /// Applies a mutation of synchronisation.
    fn desynchronise(&mut self, kind: Mutation) -> Option<()> {
        match kind {
            Mutation::Signal => self.drop(|local| matches!(local, LocalOp::Signal { .. }))?,
            Mutation::Enter => self.drop(|local| matches!(local, LocalOp::Enter { .. }))?,
            Mutation::Wait => self.drop(|local| matches!(local, LocalOp::Wait { .. }))?,
            Mutation::Open => {
                let at = self.find(|i| matches!(i, Instr::Local(LocalOp::Open)))?;
                let open = self.code.instrs.remove(at);
                let signals = |i: &Instr| matches!(i, Instr::Local(LocalOp::Signal { .. } | LocalOp::Barrier(_)));
                let next = (at..self.code.instrs.len()).find(|&i| signals(&self.code.instrs[i]));
                if let Some(next) = next.filter(|_| self.random.below(2) == 0) {
                    self.code.instrs.insert(next + 1, open);
                }
            }
            Mutation::Leave => {
                let at = self.find(|i| matches!(i, Instr::Local(LocalOp::Leave(_))))?;
                let leave = self.code.instrs.remove(at);
                let shares = |i: &Instr| i.places().any(|place| matches!(place.area, Area::Shared(..)));
                let last = (0..at).rev().find(|&i| shares(&self.code.instrs[i]));
                if let Some(last) = last.filter(|_| self.random.below(2) == 0) {
                    self.code.instrs.insert(last, leave);
                }
            }
            Mutation::For => {
                let at = self.find(|i| matches!(i, Instr::Local(local) if local.chunks().is_some()))?;
                let Instr::Local(local) = &mut self.code.instrs[at] else { return None };
                let chunk = self.random.below(self.chunks);
                *local = local.clone().map_chunks(|_| Set::one(chunk));
            }
            _ => return None,
        }
        Some(())
    }

    /// Returns the index of the `finish` of a request, searching from instruction `after` on.
    fn finish_of(&self, after: usize, request: Request) -> Option<usize> {
        let names = |i: &Instr| matches!(i, Instr::Finish(set) if set.position(request.0.into()).is_some());
        (after..self.code.instrs.len()).find(|&i| names(&self.code.instrs[i]))
    }

    fn unfinish(&mut self, after: usize, request: Request) {
        let Some(at) = self.finish_of(after, request) else { return };
        if let Instr::Finish(requests) = &mut self.code.instrs[at] {
            *requests = requests.iter().filter(|&r| r != u64::from(request.0)).collect::<Set>();
            if requests.is_empty() {
                self.code.instrs.remove(at);
            }
        }
    }

    /// Returns pairs of private lines that are in use at the same time: the two operands of a reduction, or a line to send and a line to
    /// receive into while both messages are in flight.
    fn lines_used_together(&self) -> Vec<(Area, Area)> {
        let mut pairs = Vec::new();
        let mut under_way: Vec<(End, Area)> = Vec::new();
        for instr in &self.code.instrs {
            match instr {
                Instr::Local(LocalOp::Reduce { into, with }) => pairs.push((into.area, with.area)),
                Instr::Post(_, message) => {
                    for place in &message.places {
                        for &(end, area) in &under_way {
                            if end != message.end {
                                pairs.push((area, place.area));
                            }
                        }
                        under_way.push((message.end, place.area));
                    }
                }
                Instr::Finish(_) => under_way.clear(),
                Instr::Local(_) => {}
            }
        }
        let private = |area| matches!(area, Area::Line(_));
        pairs.retain(|&(a, b)| a != b && private(a) && private(b));
        pairs
    }
}

fn places_mut(instr: &mut Instr) -> Vec<&mut Place> {
    match instr {
        Instr::Post(_, message) => message.places.iter_mut().collect(),
        Instr::Local(LocalOp::Copy { to, from }) => vec![to, from],
        Instr::Local(LocalOp::Reduce { into, with }) => vec![into, with],
        _ => Vec::new(),
    }
}

fn pick_place<'a>(
    mut places: Vec<&'a mut Place>,
    wanted: impl Fn(&Place) -> bool,
    random: &mut Random,
) -> Option<&'a mut Place> {
    places.retain(|place| wanted(place));
    if places.is_empty() {
        return None;
    }
    let at = random.below(places.len() as u64) as usize;
    Some(places.swap_remove(at))
}

fn written_mut(instr: &mut Instr) -> Vec<&mut Place> {
    match instr {
        Instr::Post(_, message) if message.end == End::Recv => message.places.iter_mut().collect(),
        Instr::Local(LocalOp::Copy { to, .. }) => vec![to],
        Instr::Local(LocalOp::Reduce { into, .. }) => vec![into],
        _ => Vec::new(),
    }
}

fn highest_request(instr: &Instr) -> u32 {
    match instr {
        Instr::Post(request, _) => request.0,
        _ => 0,
    }
}

/// Whether the second of two neighbouring instructions depends on the first.
fn needs(first: &Instr, second: &Instr) -> bool {
    let touches = |a: &Place, b: &Place| a.area == b.area && a.set.iter().any(|chunk| b.set.position(chunk).is_some());
    let written = written_by(first);
    let shares = |instr: &Instr| instr.places().any(|p| matches!(p.area, Area::Shared(..)));
    match (first, second) {
        // A value must be written before it is used; two reductions into one slot may be swapped.
        (_, Instr::Local(LocalOp::Copy { from, .. })) if written.is_some() => written.is_some_and(|w| touches(w, from)),
        (_, Instr::Local(LocalOp::Reduce { with, .. })) if written.is_some() => {
            written.is_some_and(|w| touches(w, with))
        }
        (_, Instr::Post(_, message)) if message.end == End::Send => {
            written.is_some_and(|w| message.places.iter().any(|p| touches(w, p)))
        }
        (Instr::Post(request, _), Instr::Finish(requests)) => requests.position(request.0.into()).is_some(),
        // A write to shared memory must precede the signal or barrier that tells other ranks of it, and a read must follow the barrier.
        (_, Instr::Local(LocalOp::Signal { .. })) => written.is_some_and(|w| matches!(w.area, Area::Shared(..))),
        (_, Instr::Local(LocalOp::Barrier(_))) => written.is_some_and(|w| matches!(w.area, Area::Shared(..))),
        (Instr::Local(LocalOp::Barrier(_)), _) => {
            shares(second) && written_by(second).is_none_or(|w| !matches!(w.area, Area::Shared(..)))
        }
        _ => false,
    }
}

fn written_by(instr: &Instr) -> Option<&Place> {
    match instr {
        Instr::Local(LocalOp::Copy { to, .. }) => Some(to),
        Instr::Local(LocalOp::Reduce { into, .. }) => Some(into),
        _ => None,
    }
}

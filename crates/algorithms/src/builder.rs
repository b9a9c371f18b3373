//! Builds one rank's rounds, operation by operation.

use bruckner_schedule::{Area, Flag, Level, LocalOp, Message, Place, Rank, Round, Set};

/// Builder of rounds. In a round, messages come before local operations, so a message added after a local operation starts a new round.
#[derive(Default)]
pub struct Builder {
    rounds: Vec<Round>,
}

impl Builder {
    /// Creates a builder without rounds.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Starts a new round, which stays empty if the rank has nothing to do while other ranks communicate.
    pub fn round(&mut self) {
        self.rounds.push(Round::default());
    }

    fn messages(&mut self) -> &mut Vec<Message> {
        if self.rounds.last().is_none_or(|r| !r.local.is_empty()) {
            self.rounds.push(Round::default());
        }
        &mut self.rounds.last_mut().expect("just pushed").messages
    }

    fn local(&mut self, local: LocalOp) {
        if self.rounds.is_empty() {
            self.rounds.push(Round::default());
        }
        self.rounds.last_mut().expect("not empty").local.push(local);
    }

    /// Adds a message, unless the message has no slots.
    pub fn message(&mut self, message: Message) {
        if !message.is_empty() {
            self.messages().push(message);
        }
    }

    /// Adds a send of the values at `place`.
    pub fn send(&mut self, place: Place, to: Rank) {
        self.message(Message::send(place, to));
    }

    /// Adds a receive of values into `place`.
    pub fn recv(&mut self, place: Place, from: Rank) {
        self.message(Message::recv(place, from));
    }

    /// Adds a copy, unless there is nothing to copy.
    pub fn copy(&mut self, to: Place, from: Place) {
        if !to.set.is_empty() {
            self.local(LocalOp::Copy { to, from });
        }
    }

    /// Adds a reduction, unless there is nothing to reduce: `into` becomes `with ⊕ into`.
    pub fn reduce(&mut self, into: Place, with: Place) {
        if !into.set.is_empty() {
            self.local(LocalOp::Reduce { into, with });
        }
    }

    /// Adds the reduction of the same slots of several areas into these slots of `into`: a₀ ⊕ (a₁ ⊕ (… ⊕ aₙ)). The operands keep the order
    /// of `areas`; the last two are combined first. The area `into` must not be one of `areas`.
    pub fn reduce_all(&mut self, into: Area, areas: &[Area], set: &Set) {
        let place = |area| Place::new(area, set.clone());
        for (i, &area) in areas.iter().rev().enumerate() {
            if i == 0 {
                self.copy(place(into), place(area));
            } else {
                self.reduce(place(into), place(area));
            }
        }
    }

    /// Adds a signal, which raises a flag of this rank.
    pub fn signal(&mut self, flag: Flag) {
        self.local(LocalOp::Signal { flag, chunks: None });
    }

    /// Adds a wait for a flag of rank `of`.
    pub fn wait(&mut self, flag: Flag, of: Rank) {
        self.local(LocalOp::Wait { flag, of, chunks: None });
    }

    /// Adds a signal that is skipped if all of `chunks` have zero elements; adds nothing if `chunks` is an empty set.
    pub fn signal_for(&mut self, flag: Flag, chunks: Set) {
        if !chunks.is_empty() {
            self.local(LocalOp::Signal { flag, chunks: Some(chunks) });
        }
    }

    /// Adds a wait that is skipped if all of `chunks` have zero elements; adds nothing if `chunks` is an empty set.
    pub fn wait_for(&mut self, flag: Flag, of: Rank, chunks: Set) {
        if !chunks.is_empty() {
            self.local(LocalOp::Wait { flag, of, chunks: Some(chunks) });
        }
    }

    /// Adds the wait for a free slot of the segment's ring, needed before `chunks` are copied there; adds nothing if `chunks` is an empty
    /// set.
    pub fn enter_for(&mut self, level: Level, chunks: Set) {
        if !chunks.is_empty() {
            self.local(LocalOp::Enter { level, chunks: Some(chunks) });
        }
    }

    /// Adds the operation that lets the other ranks of the node read this rank's input and output directly.
    pub fn open(&mut self) {
        self.local(LocalOp::Open);
    }

    /// Adds a barrier of this rank's region.
    pub fn barrier(&mut self, level: Level) {
        self.local(LocalOp::Barrier(level));
    }

    /// Adds a new round with the operations of `round`.
    pub fn add(&mut self, round: Round) {
        self.round();
        round.messages.into_iter().for_each(|message| self.message(message));
        for local in round.local {
            match local {
                LocalOp::Copy { to, from } => self.copy(to, from),
                LocalOp::Reduce { into, with } => self.reduce(into, with),
                other => self.local(other),
            }
        }
    }

    /// Returns the rounds. [`crate::TaskPlan::rounds`] adds the final barriers or ring operations that keep executions apart in shared
    /// memory.
    pub fn finish(self) -> Vec<Round> {
        self.rounds
    }
}

/// Returns a copy of a round in which every rank, place and flag is replaced by the result of the given functions.
pub(crate) fn renamed(
    round: &Round,
    rank: impl Fn(Rank) -> Rank,
    place: impl Fn(Place) -> Place,
    flag: impl Fn(Flag) -> Flag,
) -> Round {
    let message = |message: &Message| Message {
        places: message.places.iter().cloned().map(&place).collect(),
        peer: rank(message.peer),
        ..message.clone()
    };
    let local = |local: &LocalOp| {
        let local = local.clone().map_chunks(|chunks| place(Place::new(Area::Out, chunks.clone())).set);
        match local.map(&place) {
            LocalOp::Signal { flag: of_round, chunks } => LocalOp::Signal { flag: flag(of_round), chunks },
            LocalOp::Wait { flag: of_round, of, chunks } => {
                LocalOp::Wait { flag: flag(of_round), of: rank(of), chunks }
            }
            other => other,
        }
    };
    Round { messages: round.messages.iter().map(message).collect(), local: round.local.iter().map(local).collect() }
}

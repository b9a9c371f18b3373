//! Writes one rank's rounds, an operation at a time.

use bruckner_schedule::{Area, Flag, Level, Local, Message, Place, Rank, Round, Set};

/// Rounds being written. A message after local work starts a new round.
#[derive(Default)]
pub struct Builder {
    rounds: Vec<Round>,
}

impl Builder {
    /// Nothing yet.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Starts a new round. It may stay empty: then this rank is idle while others are not.
    pub fn round(&mut self) {
        self.rounds.push(Round::default());
    }

    fn messages(&mut self) -> &mut Vec<Message> {
        if self.rounds.last().is_none_or(|r| !r.local.is_empty()) {
            self.rounds.push(Round::default());
        }
        &mut self.rounds.last_mut().expect("just pushed").messages
    }

    fn local(&mut self, local: Local) {
        if self.rounds.is_empty() {
            self.rounds.push(Round::default());
        }
        self.rounds.last_mut().expect("not empty").local.push(local);
    }

    /// Adds a message, unless it carries nothing.
    pub fn message(&mut self, message: Message) {
        if !message.is_empty() {
            self.messages().push(message);
        }
    }

    /// Sends values.
    pub fn send(&mut self, place: Place, to: Rank) {
        self.message(Message::send(place, to));
    }

    /// Receives values.
    pub fn recv(&mut self, place: Place, from: Rank) {
        self.message(Message::recv(place, from));
    }

    /// Copies, unless there is nothing to copy.
    pub fn copy(&mut self, to: Place, from: Place) {
        if !to.set.is_empty() {
            self.local(Local::Copy { to, from });
        }
    }

    /// Combines: `into` becomes `with ⊕ into`.
    pub fn reduce(&mut self, into: Place, with: Place) {
        if !into.set.is_empty() {
            self.local(Local::Reduce { into, with });
        }
    }

    /// Reduces equally named slots of several areas, given from left to right, into `into`, which is none of
    /// them: a₀ ⊕ (a₁ ⊕ (… ⊕ aₙ)).
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

    /// Raises a flag.
    pub fn signal(&mut self, flag: Flag) {
        self.local(Local::Signal { flag, chunks: None });
    }

    /// Awaits a flag.
    pub fn wait(&mut self, flag: Flag, of: Rank) {
        self.local(Local::Wait { flag, of, chunks: None });
    }

    /// Raises a flag for some chunks, unless there are none.
    pub fn signal_for(&mut self, flag: Flag, chunks: Set) {
        if !chunks.is_empty() {
            self.local(Local::Signal { flag, chunks: Some(chunks) });
        }
    }

    /// Awaits a flag for some chunks, unless there are none.
    pub fn wait_for(&mut self, flag: Flag, of: Rank, chunks: Set) {
        if !chunks.is_empty() {
            self.local(Local::Wait { flag, of, chunks: Some(chunks) });
        }
    }

    /// Enters a segment to put some chunks there, unless there are none.
    pub fn enter_for(&mut self, level: Level, chunks: Set) {
        if !chunks.is_empty() {
            self.local(Local::Enter { level, chunks: Some(chunks) });
        }
    }

    /// Opens the rank's buffers to its node.
    pub fn open(&mut self) {
        self.local(Local::Open);
    }

    /// Meets the region.
    pub fn barrier(&mut self, level: Level) {
        self.local(Local::Barrier(level));
    }

    /// Adds what is done in a round, as a round of its own.
    pub fn add(&mut self, round: Round) {
        self.round();
        round.messages.into_iter().for_each(|message| self.message(message));
        for local in round.local {
            match local {
                Local::Copy { to, from } => self.copy(to, from),
                Local::Reduce { into, with } => self.reduce(into, with),
                other => self.local(other),
            }
        }
    }

    /// The rounds. Segments that they use are closed by [`crate::Plan::rounds`].
    pub fn finish(self) -> Vec<Round> {
        self.rounds
    }
}

/// A round that was written for other ranks, places and flags.
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
    let local = |local: &Local| {
        let local = local.clone().map_chunks(|chunks| place(Place::new(Area::Out, chunks.clone())).set);
        match local.map(&place) {
            Local::Signal { flag: of_round, chunks } => Local::Signal { flag: flag(of_round), chunks },
            Local::Wait { flag: of_round, of, chunks } => {
                Local::Wait { flag: flag(of_round), of: rank(of), chunks }
            }
            other => other,
        }
    };
    Round {
        messages: round.messages.iter().map(message).collect(),
        local: round.local.iter().map(local).collect(),
    }
}

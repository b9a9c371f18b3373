//! Writes one rank's rounds, an operation at a time.

use std::collections::BTreeSet;

use bruckner_schedule::{Area, Flag, Level, Local, Message, Place, Rank, Round, Set};

/// Rounds being written. A message after local work starts a new round.
#[derive(Default)]
pub struct Builder {
    rounds: Vec<Round>,
    /// Levels whose segments were used.
    shared: BTreeSet<Level>,
}

impl Builder {
    /// Nothing yet.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Starts a new round, unless the last one is still empty.
    pub fn round(&mut self) {
        if self.rounds.last().is_none_or(|r| !r.messages.is_empty() || !r.local.is_empty()) {
            self.rounds.push(Round::default());
        }
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

    fn note(&mut self, places: [&Place; 2]) -> bool {
        for place in places {
            if let Area::Shared(level, _) = place.area {
                self.shared.insert(level);
            }
        }
        !places[0].set.is_empty()
    }

    /// Copies, unless there is nothing to copy.
    pub fn copy(&mut self, to: Place, from: Place) {
        if self.note([&to, &from]) {
            self.local(Local::Copy { to, from });
        }
    }

    /// Combines: `into` becomes `with ⊕ into`.
    pub fn reduce(&mut self, into: Place, with: Place) {
        if self.note([&into, &with]) {
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
        self.local(Local::Signal(flag));
    }

    /// Awaits a flag.
    pub fn wait(&mut self, flag: Flag, of: Rank) {
        self.local(Local::Wait { flag, of });
    }

    /// Meets the region.
    pub fn barrier(&mut self, level: Level) {
        self.local(Local::Barrier(level));
    }

    /// The rounds as they are, segments open.
    pub fn into_rounds(self) -> Vec<Round> {
        self.rounds
    }

    /// The rounds. Segments that were used are closed by a barrier, so that the next execution finds everyone
    /// gone from them; lowering replaces that barrier by alternating halves where it can.
    pub fn finish(mut self) -> Vec<Round> {
        for level in std::mem::take(&mut self.shared) {
            self.barrier(level);
        }
        self.rounds
    }
}

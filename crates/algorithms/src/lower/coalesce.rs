//! Joins the messages of a round that go to, or come from, the same rank.
//!
//! Both ends list their messages with each other in the same order, so both join the same ones, and the joined
//! message carries the chunks in that order. Places of one area that follow each other become one.

use bruckner_schedule::{Message, Place, Round, Schedule};

/// Runs the pass.
pub fn run(schedule: &Schedule) -> Schedule {
    schedule.map(|_, rounds| rounds.iter().map(join).collect())
}

fn join(round: &Round) -> Round {
    let mut messages: Vec<Message> = Vec::new();
    for message in &round.messages {
        let alike = |m: &&mut Message| {
            (m.end, m.payload, m.peer, m.tag) == (message.end, message.payload, message.peer, message.tag)
        };
        let joined = match messages.iter_mut().find(alike) {
            Some(first) => first,
            None => {
                messages.push(Message { places: Vec::new(), ..message.clone() });
                messages.last_mut().expect("just pushed")
            }
        };
        for place in &message.places {
            Place::join(&mut joined.places, place.clone());
        }
    }
    Round { messages, local: round.local.clone() }
}

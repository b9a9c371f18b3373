//! Joins messages that go the same way at the same time.
//!
//! Two messages from one rank to another become one where they follow each other in the same round at both ends; the
//! joined message carries the chunks in their order. Places of one area that follow each other become one.

use bruckner_schedule::{End, Message, Payload, Place, Rank, Round, Schedule, Tag};
use rustc_hash::FxHashMap as HashMap;

/// Runs the pass. Messages with ranks that the schedule does not have stay as they are.
pub fn run(schedule: &Schedule) -> Schedule {
    let rounds = RoundsOf::new(schedule);
    schedule.map(|rank, body| {
        let mut turns: HashMap<Channel, usize> = HashMap::default();
        body.iter().map(|round| join(rank, round, &rounds, &mut turns)).collect()
    })
}

/// The messages from one rank to another with one tag.
type Channel = (Rank, Rank, Tag);

fn channel(rank: Rank, message: &Message) -> Channel {
    match message.end {
        End::Send => (rank, message.peer, message.tag),
        End::Recv => (message.peer, rank, message.tag),
    }
}

/// For each end of a channel, the round of each of its messages and what it carries.
struct RoundsOf(HashMap<(Channel, End), Vec<(usize, Payload)>>);

impl RoundsOf {
    fn new(schedule: &Schedule) -> RoundsOf {
        let mut rounds: HashMap<_, Vec<_>> = HashMap::default();
        for (&rank, body) in &schedule.ranks {
            for (number, round) in body.iter().enumerate() {
                for message in &round.messages {
                    let key = (channel(rank, message), message.end);
                    rounds.entry(key).or_default().push((number, message.payload));
                }
            }
        }
        RoundsOf(rounds)
    }

    /// Whether a channel's message at this turn belongs with the one before, at both ends.
    fn belongs(&self, channel: Channel, turn: usize) -> bool {
        let at = |end| {
            let messages = self.0.get(&(channel, end))?;
            Some(turn > 0 && messages.get(turn)? == messages.get(turn - 1)?)
        };
        at(End::Send) == Some(true) && at(End::Recv) == Some(true)
    }
}

fn join(rank: Rank, round: &Round, rounds: &RoundsOf, turns: &mut HashMap<Channel, usize>) -> Round {
    let mut messages: Vec<Message> = Vec::new();
    for message in &round.messages {
        let key = channel(rank, message);
        let turn = turns.entry(key).or_insert(0);
        let before = match rounds.belongs(key, *turn) {
            true => messages.iter().rposition(|m| channel(rank, m) == key),
            false => None,
        };
        *turn += 1;
        let at = before.unwrap_or_else(|| {
            messages.push(Message { places: Vec::new(), ..message.clone() });
            messages.len() - 1
        });
        for place in &message.places {
            Place::join(&mut messages[at].places, place.clone());
        }
    }
    Round { messages, local: round.local.clone() }
}

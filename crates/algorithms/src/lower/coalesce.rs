//! Joins messages between the same two ranks in the same round.
//!
//! Two messages from one rank to another become one if they follow each other in the same round at both ends; the joined message carries
//! the chunks in their order. Consecutive places of one area become one place.

use bruckner_schedule::{End, Message, Payload, Place, Places, Rank, Round, Schedule, Tag};
use rustc_hash::FxHashMap as HashMap;

/// Runs the pass. Messages to or from ranks that are not in the schedule stay as they are.
pub fn run(mut schedule: Schedule) -> Schedule {
    // In most schedules there is nothing to join: no two messages of a round have the same peer, direction and tag.
    let mut ways = Vec::new();
    let mut meet = |round: &Round| {
        ways.clear();
        ways.extend(round.messages.iter().map(|message| (message.end, message.peer, message.tag)));
        ways.sort_unstable();
        ways.windows(2).any(|pair| pair[0] == pair[1])
    };
    if schedule.ranks.values().flatten().any(&mut meet) {
        let rounds = RoundsOf::new(&schedule);
        schedule = schedule.into(|rank, body| {
            let mut turns: HashMap<Channel, usize> = HashMap::default();
            body.into_iter().map(|round| join(rank, round, &rounds, &mut turns)).collect()
        });
    }
    for message in schedule.ranks.values_mut().flatten().flat_map(|round| &mut round.messages) {
        if message.places.windows(2).any(|pair| pair[0].area == pair[1].area) {
            let mut joined = Places::new();
            message.places.drain(..).for_each(|place| Place::join(&mut joined, place));
            message.places = joined;
        }
    }
    schedule
}

/// Sender, receiver and tag of a sequence of messages.
type Channel = (Rank, Rank, Tag);

fn channel(rank: Rank, message: &Message) -> Channel {
    match message.end {
        End::Send => (rank, message.peer, message.tag),
        End::Recv => (message.peer, rank, message.tag),
    }
}

/// Round number and payload of each message, in order, for each channel and each of its two ends.
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

    /// Returns whether message number `turn` of a channel has the same round and payload as the message before it, at both ends.
    fn belongs(&self, channel: Channel, turn: usize) -> bool {
        let at = |end| {
            let messages = self.0.get(&(channel, end))?;
            Some(turn > 0 && messages.get(turn)? == messages.get(turn - 1)?)
        };
        at(End::Send) == Some(true) && at(End::Recv) == Some(true)
    }
}

fn join(rank: Rank, round: Round, rounds: &RoundsOf, turns: &mut HashMap<Channel, usize>) -> Round {
    let mut messages: Vec<Message> = Vec::new();
    for message in round.messages {
        let key = channel(rank, &message);
        let turn = turns.entry(key).or_insert(0);
        let before = match rounds.belongs(key, *turn) {
            true => messages.iter().rposition(|m| channel(rank, m) == key),
            false => None,
        };
        *turn += 1;
        match before {
            Some(at) => messages[at].places.extend(message.places),
            None => messages.push(message),
        }
    }
    Round { messages, ..round }
}

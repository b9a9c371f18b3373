//! Drops chunks that all ranks know to have no elements, and then whatever carries nothing.
//!
//! So an allgather in which only the root's count is not zero becomes a broadcast along the same tree.
//! Signals and barriers stay: what they order is not theirs to know.

use bruckner_schedule::{Local, Message, Place, Problem, Round, Schedule};

/// Runs the pass.
pub fn run(schedule: &Schedule) -> Schedule {
    let problem = &schedule.problem;
    schedule.map(|_, rounds| rounds.iter().filter_map(|round| prune(problem, round)).collect())
}

fn prune(problem: &Problem, round: &Round) -> Option<Round> {
    let messages = round.messages.iter().map(|m| prune_message(problem, m)).filter(|m| !m.is_empty());
    let local = round.local.iter().filter_map(|local| match local {
        Local::Copy { to, from } => {
            let (to, from) = (filled(problem, to), filled(problem, from));
            (!to.set.is_empty()).then_some(Local::Copy { to, from })
        }
        Local::Reduce { into, with } => {
            let (into, with) = (filled(problem, into), filled(problem, with));
            (!into.set.is_empty()).then_some(Local::Reduce { into, with })
        }
        other => Some(other.clone()),
    });
    let round = Round { messages: messages.collect(), local: local.collect() };
    (!round.messages.is_empty() || !round.local.is_empty()).then_some(round)
}

fn prune_message(problem: &Problem, message: &Message) -> Message {
    let places = message.places.iter().map(|p| filled(problem, p)).filter(|p| !p.set.is_empty());
    Message { places: places.collect(), ..message.clone() }
}

/// The slots of a place whose chunks have elements.
fn filled(problem: &Problem, place: &Place) -> Place {
    Place { area: place.area, set: problem.filled(&place.set) }
}

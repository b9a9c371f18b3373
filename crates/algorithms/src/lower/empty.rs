//! Drops chunks that all ranks know to have no elements, and then whatever carries nothing.
//!
//! So an allgather in which only the root's count is not zero becomes a broadcast along the same tree.
//! Signals and barriers stay: what they order is not theirs to know. For the same reason messages stay, empty as
//! they are, in a schedule that shares memory.

use bruckner_schedule::{Area, Local, Message, Place, Problem, Round, Schedule};

/// Runs the pass.
pub fn run(schedule: &Schedule) -> Schedule {
    let problem = &schedule.problem;
    let mut locals = schedule.ranks.values().flatten().flat_map(|round| &round.local);
    let shared = |local: &Local| {
        let in_segment = |place: &Place| matches!(place.area, Area::Shared(..));
        match local {
            Local::Copy { to: a, from: b } | Local::Reduce { into: a, with: b } => {
                in_segment(a) || in_segment(b)
            }
            _ => false,
        }
    };
    let purpose = if locals.any(shared) { Purpose::OrdersMemory } else { Purpose::CarriesData };
    schedule.map(|_, rounds| rounds.iter().filter_map(|round| prune(problem, purpose, round)).collect())
}

/// What a message is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    CarriesData,
    OrdersMemory,
}

fn prune(problem: &Problem, purpose: Purpose, round: &Round) -> Option<Round> {
    let messages = round.messages.iter().filter_map(|message| {
        let pruned = prune_message(problem, message);
        match purpose {
            _ if !pruned.is_empty() => Some(pruned),
            Purpose::CarriesData => None,
            Purpose::OrdersMemory => Some(message.clone()),
        }
    });
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

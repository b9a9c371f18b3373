//! Drops chunks that all ranks know to have no elements, and then whatever carries nothing.
//!
//! So an allgather in which only the root's count is not zero becomes a broadcast along the same tree.
//! Signals and barriers stay: what they order is not theirs to know. For the same reason messages stay, empty as
//! they are, in a schedule that shares memory.

use bruckner_schedule::{Local, Place, Places, Problem, Round, Schedule};

/// Runs the pass.
pub fn run(schedule: Schedule) -> Schedule {
    let problem = schedule.problem.clone();
    let mut locals = schedule.ranks.values().flatten().flat_map(|round| &round.local);
    let shares = locals.any(|local| local.shared().next().is_some());
    let purpose = if shares { Purpose::OrdersMemory } else { Purpose::CarriesData };
    schedule
        .into(|_, rounds| rounds.into_iter().filter_map(|round| prune(&problem, purpose, round)).collect())
}

/// What a message is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    CarriesData,
    OrdersMemory,
}

fn prune(problem: &Problem, purpose: Purpose, mut round: Round) -> Option<Round> {
    round.messages.retain_mut(|message| {
        let places = message.places.iter().map(|place| filled(problem, place));
        let places: Places = places.filter(|place| !place.set.is_empty()).collect();
        let carries = !places.is_empty();
        if carries {
            message.places = places;
        }
        carries || purpose == Purpose::OrdersMemory
    });
    round.local = round.local.into_iter().map(|local| local.map(|place| filled(problem, &place))).collect();
    round.local.retain(|local| match local {
        Local::Copy { to: place, .. } | Local::Reduce { into: place, .. } => !place.set.is_empty(),
        _ => true,
    });
    (round != Round::default()).then_some(round)
}

/// The slots of a place whose chunks have elements.
fn filled(problem: &Problem, place: &Place) -> Place {
    Place { area: place.area, set: problem.filled(&place.set) }
}

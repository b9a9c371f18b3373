//! Drops chunks that all ranks know to have no elements, and then whatever carries nothing.
//!
//! So an allgather in which only the root's count is not zero becomes a broadcast along the same tree.
//! Signals and barriers stay, unless they say for which chunks they are: what they order is not theirs to know. For the same
//! reason messages stay, empty as they are, in a schedule that shares memory and does not order that by flags alone.

use bruckner_schedule::{Level, Local, Place, Places, Problem, Round, Schedule, Topology};

use crate::expression::{Expression, Plain};

/// Runs the pass.
pub fn run(schedule: Schedule, purpose: Purpose) -> Schedule {
    let problem = schedule.problem.clone();
    schedule
        .into(|_, rounds| rounds.into_iter().filter_map(|round| prune(&problem, purpose, round)).collect())
}

/// What messages are for. All ranks must see it alike, also one that is lowered without the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Only to carry data.
    CarriesData,
    /// Also to order what ranks do to shared memory.
    OrdersMemory,
}

impl Purpose {
    /// As seen from all ranks of a schedule.
    pub fn of(schedule: &Schedule) -> Purpose {
        let locals = || schedule.ranks.values().flatten().flat_map(|round| &round.local);
        let rings = locals().any(|local| matches!(local, Local::Leave(_)));
        match !rings && locals().any(|local| local.shared().next().is_some()) {
            true => Purpose::OrdersMemory,
            false => Purpose::CarriesData,
        }
    }

    /// As known before any schedule is there.
    pub(crate) fn expected(expression: &Expression, topology: &Topology) -> Purpose {
        match uses_segment(expression, topology, Level::NODE) {
            true => Purpose::OrdersMemory,
            false => Purpose::CarriesData,
        }
    }
}

/// Whether an algorithm within regions of a level goes through a segment.
fn uses_segment(expression: &Expression, topology: &Topology, level: Level) -> bool {
    match expression {
        Expression::Plain(Plain::Shm | Plain::ShmSplit | Plain::ShmRotate) | Expression::ShmTree(_) => {
            topology.largest(level) > 1
        }
        Expression::Locality { level, inside, .. } => uses_segment(inside, topology, *level),
        Expression::Leader { level, .. } | Expression::MultiLane { level, .. } => {
            topology.largest(*level) > 1
        }
        Expression::Pipeline { of, .. } | Expression::Halves(of) => uses_segment(of, topology, level),
        Expression::File(written) => written.shares_memory(),
        _ => false,
    }
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
        local => !local.is_left_out(problem),
    });
    (round != Round::default()).then_some(round)
}

/// The slots of a place whose chunks have elements.
fn filled(problem: &Problem, place: &Place) -> Place {
    Place { area: place.area, set: problem.filled(&place.set) }
}

//! Drops chunks that all ranks know to be empty, and then the operations and messages that have no chunks left.
//!
//! For example, an allgather in which only the root's count is not zero becomes a broadcast along the same tree. Signals and barriers
//! stay, because other operations may depend on the order that they impose; only a signal, wait or ring entry that names its chunks is
//! dropped if all these chunks are empty. For the same reason empty messages stay in a schedule that uses shared memory, unless a ring's
//! flags order all accesses.

use bruckner_schedule::{Level, LocalOp, Place, Places, Problem, Round, Schedule, Topology};

use crate::expression::{Expression, Plain};

/// Runs the pass.
pub fn run(schedule: Schedule, purpose: MessagePurpose) -> Schedule {
    let problem = schedule.problem.clone();
    schedule.into(|_, rounds| rounds.into_iter().filter_map(|round| prune(&problem, purpose, round)).collect())
}

/// Purpose of the messages of a schedule. All ranks must use the same value, even a rank that is lowered alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessagePurpose {
    /// Messages only carry data.
    CarriesData,
    /// Messages also order accesses to shared memory.
    OrdersMemory,
}

impl MessagePurpose {
    /// Returns the purpose for a schedule of all ranks.
    pub fn of(schedule: &Schedule) -> MessagePurpose {
        let locals = || schedule.ranks.values().flatten().flat_map(|round| &round.local);
        let rings = locals().any(|local| matches!(local, LocalOp::Leave(_)));
        match !rings && locals().any(|local| local.shared().next().is_some()) {
            true => MessagePurpose::OrdersMemory,
            false => MessagePurpose::CarriesData,
        }
    }

    /// Returns the purpose before a schedule exists, from expression and topology.
    pub(crate) fn expected(expression: &Expression, topology: &Topology) -> MessagePurpose {
        match uses_segment(expression, topology, Level::NODE) {
            true => MessagePurpose::OrdersMemory,
            false => MessagePurpose::CarriesData,
        }
    }
}

/// Whether an algorithm that runs within regions of `level` uses a shared-memory segment.
fn uses_segment(expression: &Expression, topology: &Topology, level: Level) -> bool {
    match expression {
        Expression::Plain(Plain::Shm | Plain::ShmSplit | Plain::ShmRotate) | Expression::ShmTree(_) => {
            topology.largest(level) > 1
        }
        Expression::Locality { level, inside, .. } => uses_segment(inside, topology, *level),
        Expression::Leader { level, .. } | Expression::MultiLane { level, .. } => topology.largest(*level) > 1,
        Expression::Pipeline { of, .. } | Expression::ReduceScatterAllgather(of) => uses_segment(of, topology, level),
        Expression::File(written) => written.shares_memory(),
        _ => false,
    }
}

fn prune(problem: &Problem, purpose: MessagePurpose, mut round: Round) -> Option<Round> {
    round.messages.retain_mut(|message| {
        let places = message.places.iter().map(|place| filled(problem, place));
        let places: Places = places.filter(|place| !place.set.is_empty()).collect();
        let carries = !places.is_empty();
        if carries {
            message.places = places;
        }
        carries || purpose == MessagePurpose::OrdersMemory
    });
    round.local = round.local.into_iter().map(|local| local.map(|place| filled(problem, &place))).collect();
    round.local.retain(|local| match local {
        LocalOp::Copy { to: place, .. } | LocalOp::Reduce { into: place, .. } => !place.set.is_empty(),
        local => !local.is_skipped(problem),
    });
    (round != Round::default()).then_some(round)
}

/// Returns the slots of a place whose chunks have elements.
fn filled(problem: &Problem, place: &Place) -> Place {
    Place { area: place.area, set: problem.nonempty(&place.set) }
}

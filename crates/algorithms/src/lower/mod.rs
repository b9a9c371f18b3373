//! From schedule to program: a chain of passes, each in its own file, each right before and after.
//!
//! | pass | from, to | what it does |
//! |---|---|---|
//! | [`empty`] | schedule, schedule | drops chunks that all know to be empty, and messages that carry nothing |
//! | [`coalesce`] | schedule, schedule | joins the messages of a round that go the same way |
//! | [`forward`] | schedule, schedule | leaves out copies between private lines and the user's buffers |
//! | [`place`] | schedule, program | posts and finishes messages, and gives every line a place in a buffer |
//! | [`pack`] | program, program | gathers scattered slots so that each message is one stretch of memory |
//! | [`overlap`] | program, program | starts messages early where rounds overlap |
//! | [`alternate`] | program, program | replaces the closing barrier by two halves of a segment used in turn |
//! | [`unshare`] | program, program | replaces shared memory by messages within the node |
//!
//! Which values are needed at all (the paper's dead lines) is not a pass: [`crate::factors`] generates live
//! lines only, because at scale the dead ones could not even be written down.

pub mod alternate;
pub mod coalesce;
pub mod empty;
pub mod forward;
mod lines;
pub mod overlap;
pub mod pack;
pub mod place;
pub mod unshare;

use bruckner_schedule::{Program, Schedule};
pub use empty::Purpose;

/// How ranks of a node exchange.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnNode {
    /// Through their segment.
    #[default]
    Segment,
    /// By messages, where no segment can be had.
    Messages,
}

/// How private lines lie in temporary memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Room {
    /// Lines that are not in use at the same time share room.
    #[default]
    Shared,
    /// Every slot has room of its own: its size may be that of its chunk, whatever that is.
    Own,
}

/// The whole chain, for a schedule of all ranks.
pub fn lower(schedule: &Schedule, on_node: OnNode) -> Program {
    lower_part(schedule, on_node, Purpose::of(schedule), Room::Shared)
}

/// The whole chain, for a schedule of some ranks: those of whole nodes where it shares memory.
pub fn lower_part(schedule: &Schedule, on_node: OnNode, purpose: Purpose, room: Room) -> Program {
    let schedule = forward::run(coalesce::run(empty::run(schedule.clone(), purpose)));
    let program = overlap::run(pack::run(place::run(schedule, room), room));
    match on_node {
        OnNode::Segment => alternate::run(program),
        OnNode::Messages => pack::run(unshare::run(program), room),
    }
}

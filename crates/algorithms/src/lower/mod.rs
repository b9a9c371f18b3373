//! From schedule to program: a chain of passes, one per file; tests verify the input and the output of each pass.
//!
//! | pass | from, to | what it does |
//! |---|---|---|
//! | [`empty`] | schedule, schedule | drops chunks that all ranks know to be empty, and messages that carry nothing |
//! | [`coalesce`] | schedule, schedule | joins messages between the same two ranks in the same round |
//! | [`forward`] | schedule, schedule | removes copies between private lines and the user's buffers |
//! | [`place`] | schedule, program | posts and finishes messages, and gives every line an offset in a buffer |
//! | [`pack`] | program, program | copies scattered slots together so that each message is contiguous in memory |
//! | [`overlap`] | program, program | starts messages early where rounds overlap |
//! | [`alternate`] | program, program | replaces the closing barrier by two halves of a segment used in turn |
//! | [`unshare`] | program, program | replaces shared memory by messages within the node |
//!
//! Omitting values that no result needs (the paper's dead lines) is not a pass: [`crate::factors`] generates only lines that a result
//! depends on, because with many ranks there are too many dead lines to generate.

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
pub use empty::MessagePurpose;

/// How ranks of a node exchange data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnNode {
    /// Ranks exchange data through a shared-memory segment.
    #[default]
    Segment,
    /// Ranks exchange data by messages, for nodes where no segment is available.
    Messages,
}

/// How private lines are allocated in temporary memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LineMemory {
    /// Lines that are not in use at the same time share memory.
    #[default]
    Shared,
    /// Every slot has memory of its own, so chunks can have any sizes.
    Own,
}

/// Runs all passes on a schedule of all ranks.
pub fn lower(schedule: &Schedule, on_node: OnNode) -> Program {
    lower_part(schedule, on_node, MessagePurpose::of(schedule), LineMemory::Shared)
}

/// Runs all passes on a schedule of some ranks. For [`OnNode::Messages`], a schedule that uses shared memory must contain all ranks.
pub fn lower_part(schedule: &Schedule, on_node: OnNode, purpose: MessagePurpose, line_memory: LineMemory) -> Program {
    let schedule = forward::run(coalesce::run(empty::run(schedule.clone(), purpose)));
    let program = overlap::run(pack::run(place::run(schedule, line_memory), line_memory));
    match on_node {
        OnNode::Segment => alternate::run(program),
        OnNode::Messages => pack::run(unshare::run(program), line_memory),
    }
}

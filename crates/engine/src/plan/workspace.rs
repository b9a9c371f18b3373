//! The memory of plans.

use bruckner_runtime::{Needs, Scratch, SegmentSize, Segments};

use crate::reuse::SharedSegment;

/// Number of topology levels that can have segments: node and socket.
pub(crate) const LEVELS: usize = 2;

/// The memory of plans: segments of the regions that a rank belongs to, and memory of the rank alone. Its sizes are the same on all ranks.
pub(crate) struct Workspace {
    pub(crate) segments: Segments,
    pub(super) leased: [Option<SharedSegment>; LEVELS],
    pub(super) sizes: [SegmentSize; LEVELS],
    /// Bytes for each member in a segment's ring: slots of the segment that consecutive executions use in turn.
    ring: usize,
    pub(crate) temporary: Scratch,
    pub(super) reserved: usize,
}

/// Bytes for each member in a segment's ring: for a communicator, and for a persistent operation. A program may have many operations, so
/// their rings are small.
const RING_OF_COMMUNICATOR: usize = 64 << 10;
const RING_OF_OPERATION: usize = 4 << 10;

impl Workspace {
    /// Creates an empty workspace for a communicator.
    pub(crate) fn of_communicator() -> Workspace {
        Workspace::with_ring(RING_OF_COMMUNICATOR)
    }

    /// Creates an empty workspace for a persistent operation.
    pub(crate) fn of_operation() -> Workspace {
        Workspace::with_ring(RING_OF_OPERATION)
    }

    fn with_ring(ring: usize) -> Workspace {
        Workspace {
            ring,
            segments: vec![None; LEVELS],
            leased: [const { None }; LEVELS],
            sizes: [SegmentSize::default(); LEVELS],
            temporary: Scratch::new(0),
            reserved: 0,
        }
    }

    /// Removes and returns the segments of the workspace. No rank may run a plan on them any more.
    pub(super) fn leave(&mut self) -> [Option<SharedSegment>; LEVELS] {
        self.segments.clear();
        std::mem::take(&mut self.leased)
    }

    /// Returns the size to which a segment of size `there` is enlarged if a plan needs `need`, for regions of at most `members` ranks.
    /// Sizes are rounded up, so that segments are seldom replaced.
    pub(super) fn larger(&self, members: u32, there: SegmentSize, need: SegmentSize) -> SegmentSize {
        let grown = |there: usize, need: usize, by: usize| {
            if need > there { need.next_multiple_of(by) } else { there }
        };
        let part = grown(there.part, need.part, need.part.next_power_of_two().max(4096));
        // A ring has many slots, so their size is rounded up less.
        let slot = grown(there.slot, need.slot, need.slot.next_power_of_two() / 4);
        SegmentSize { part, slot, slots: 0 }.with_ring(self.ring * members as usize)
    }

    /// Whether the workspace is smaller than needed.
    pub(crate) fn lacks(&self, needs: &Needs) -> bool {
        let lacks = |level: usize| needs.parts[level].is_some_and(|size| !self.sizes[level].has(size));
        needs.temporary > self.reserved || (0..LEVELS).any(lacks)
    }
}

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
    /// Bytes of a segment's ring for each of its members.
    ring: usize,
    pub(crate) temporary: Scratch,
    pub(super) reserved: usize,
}

/// Ring bytes for each member of a segment: of a communicator, and of a persistent operation, of which a program may have many.
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

    /// Removes and returns its segments, on which no rank runs a plan any more.
    pub(super) fn leave(&mut self) -> [Option<SharedSegment>; LEVELS] {
        self.segments.clear();
        std::mem::take(&mut self.leased)
    }

    /// Returns the size of a segment enlarged to `need`, in large steps, for regions of at most `members` ranks.
    pub(super) fn larger(&self, members: u32, there: SegmentSize, need: SegmentSize) -> SegmentSize {
        let grown = |there: usize, need: usize, by: usize| {
            if need > there { need.next_multiple_of(by) } else { there }
        };
        let part = grown(there.part, need.part, need.part.next_power_of_two().max(4096));
        // A ring has many slots, so these grow in smaller steps.
        let slot = grown(there.slot, need.slot, need.slot.next_power_of_two() / 4);
        SegmentSize { part, slot, slots: 0 }.with_ring(self.ring * members as usize)
    }

    /// Whether the workspace is smaller than needed.
    pub(crate) fn lacks(&self, needs: &Needs) -> bool {
        let lacks = |level: usize| needs.parts[level].is_some_and(|size| !self.sizes[level].has(size));
        needs.temporary > self.reserved || (0..LEVELS).any(lacks)
    }
}

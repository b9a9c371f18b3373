//! The memory of plans.

use bruckner_runtime::{Needs, Scratch, Segments, Size};

use crate::reuse::SharedSegment;

/// Levels that can have segments here: node and socket.
pub(crate) const LEVELS: usize = 2;

/// The memory of plans: segments of the regions that a rank is in, and what is this rank's alone. How large they are is the
/// same on all ranks.
pub(crate) struct Workspace {
    pub(crate) segments: Segments,
    pub(super) leased: [Option<SharedSegment>; LEVELS],
    pub(super) sizes: [Size; LEVELS],
    /// How many bytes of a segment's ring there are for each of its members.
    ring: usize,
    pub(crate) temporary: Scratch,
    pub(super) reserved: usize,
}

/// For all plans of a communicator, and for an operation that has a segment of its own: a program may have many of those.
const RING_OF_COMMUNICATOR: usize = 64 << 10;
const RING_OF_OPERATION: usize = 4 << 10;

impl Workspace {
    /// None yet, for a communicator.
    pub(crate) fn of_communicator() -> Workspace {
        Workspace::with_ring(RING_OF_COMMUNICATOR)
    }

    /// None yet, for one operation.
    pub(crate) fn of_operation() -> Workspace {
        Workspace::with_ring(RING_OF_OPERATION)
    }

    fn with_ring(ring: usize) -> Workspace {
        Workspace {
            ring,
            segments: vec![None; LEVELS],
            leased: [const { None }; LEVELS],
            sizes: [Size::default(); LEVELS],
            temporary: Scratch::new(0),
            reserved: 0,
        }
    }

    /// Leaves its segments, on which nobody runs a plan any more.
    pub(super) fn leave(&mut self) -> [Option<SharedSegment>; LEVELS] {
        self.segments.clear();
        std::mem::take(&mut self.leased)
    }

    /// The size of a segment that is grown to what is needed, by large steps, for regions of at most `members` ranks.
    pub(super) fn larger(&self, members: u32, there: Size, need: Size) -> Size {
        let grown = |there: usize, need: usize, by: usize| {
            if need > there { need.next_multiple_of(by) } else { there }
        };
        let part = grown(there.part, need.part, need.part.next_power_of_two().max(4096));
        // There are many slots: by smaller steps.
        let slot = grown(there.slot, need.slot, need.slot.next_power_of_two() / 4);
        Size { part, slot, slots: 0 }.with_ring(self.ring * members as usize)
    }

    /// Whether there is less than is needed.
    pub(crate) fn lacks(&self, needs: &Needs) -> bool {
        let lacks = |level: usize| needs.parts[level].is_some_and(|size| !self.sizes[level].has(size));
        needs.temporary > self.reserved || (0..LEVELS).any(lacks)
    }
}

//! The memory of plans.

use bruckner_runtime::{Needs, Scratch, Segments, Size};

use super::keeper::Rented;

/// Levels that can have segments here: node and socket.
pub(crate) const LEVELS: usize = 2;

/// The memory of plans: segments of the regions that a rank is in, and what is this rank's alone. How large they are is the
/// same on all ranks.
pub(crate) struct Room {
    pub(crate) segments: Segments,
    pub(super) rented: [Option<Rented>; LEVELS],
    pub(super) sizes: [Size; LEVELS],
    pub(crate) temporary: Scratch,
    pub(super) reserved: usize,
}

impl Room {
    pub(crate) fn none() -> Room {
        Room {
            segments: vec![None; LEVELS],
            rented: [const { None }; LEVELS],
            sizes: [Size::default(); LEVELS],
            temporary: Scratch::new(0),
            reserved: 0,
        }
    }

    /// Whether there is less than is needed.
    pub(super) fn lacks(&self, needs: &Needs) -> bool {
        let lacks = |level: usize| needs.parts[level].is_some_and(|size| !self.sizes[level].has(size));
        needs.temporary > self.reserved || (0..LEVELS).any(lacks)
    }
}

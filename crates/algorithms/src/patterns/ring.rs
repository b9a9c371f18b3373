//! The ring: every member sends its right neighbour the block that it received last from its left neighbour.
//!
//! ```text
//! 4 members   0 ─► 1 ─► 2 ─► 3 ─► 0     step s carries the block of the member s back
//! ```
//!
//! Cost: n − 1 steps of one block.

use bruckner_schedule::Set;

use super::{Pattern, PatternStep};

/// The ring allgather pattern.
pub struct Ring;

impl Pattern for Ring {
    fn steps(&self, n: u32, me: u32) -> Vec<PatternStep> {
        let back = |distance: u32| Set::one(u64::from((me + n - distance % n) % n));
        let (right, left) = ((me + 1) % n, (me + n - 1) % n);
        (0..n - 1).map(|s| PatternStep::exchange(right, back(s), left, back(s + 1))).collect()
    }
}

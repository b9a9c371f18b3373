//! Recursive doubling: partners at distances 1, 2, 4, … exchange all the blocks they hold.
//!
//! ```text
//! 4 members   step 1  0 ◄─► 1, 2 ◄─► 3       step 2  0 ◄─► 2, 1 ◄─► 3
//! ```
//!
//! If the number of members is not a power of two, the first members also act for the last ones; see [`Fold`].
//!
//! Cost: log2 n steps and n − 1 blocks for a power of two, otherwise ⌊log2 n⌋ + 2 steps.

use bruckner_schedule::Set;

use super::{Fold, Pattern, PatternStep};

/// The recursive-doubling allgather pattern, for any number of members.
pub struct RecursiveDoubling;

impl Pattern for RecursiveDoubling {
    fn steps(&self, n: u32, me: u32) -> Vec<PatternStep> {
        Fold { core: 1 << n.ilog2(), inside: Box::new(PowerOfTwo) }.steps(n, me)
    }

    fn owners(&self, n: u32) -> u32 {
        1 << n.ilog2()
    }
}

struct PowerOfTwo;

impl Pattern for PowerOfTwo {
    fn steps(&self, n: u32, me: u32) -> Vec<PatternStep> {
        let group = |member: u32, d: u32| Set::from(u64::from(member / d * d)..u64::from(member / d * d + d));
        let distances = (0..n.ilog2()).map(|s| 1 << s);
        distances.map(|d| PatternStep::exchange(me ^ d, group(me, d), me ^ d, group(me ^ d, d))).collect()
    }
}

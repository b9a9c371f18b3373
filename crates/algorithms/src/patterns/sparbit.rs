//! Sparbit (Loch and Koslovski 2021).
//!
//! Every member is the root of a binomial tree that carries its block; all trees run at once, each shifted by its root. In Bruck's
//! algorithm the distance doubles while the data grows. In Sparbit the distance halves, so large messages go to nearby members, and every
//! block arrives at its final place without a last rotation.
//!
//! Path of the block of member 0 among 5 members, with distances 4, 2, 1:
//!
//! ```text
//! d = 4   0 ────────────────► 4
//! d = 2   0 ────────► 2
//! d = 1   0 ───► 1    2 ───► 3
//! ```
//!
//! Cost: ⌈log2 n⌉ steps, n − 1 blocks. At distance d a member sends ⌈n/d⌉ − ⌈n/2d⌉ blocks.

use bruckner_schedule::Set;

use super::{Pattern, PatternStep};

/// The Sparbit allgather pattern.
pub struct Sparbit;

impl Pattern for Sparbit {
    fn steps(&self, n: u32, me: u32) -> Vec<PatternStep> {
        let (p, me) = (u64::from(n), u64::from(me));
        let member = |at: u64| (at % p) as u32;
        let mut steps = Vec::new();
        let mut d = p.next_power_of_two() / 2;
        while d >= 1 {
            let blocks = p.div_ceil(d) - p.div_ceil(2 * d);
            // Sends the blocks me − 2jd to the member d further on, and receives the blocks me − (2j+1)d.
            let every = |start: u64| Set::cyclic_run(start, 1, -2 * d as i64, blocks, p);
            let (to, from) = (member(me + d), member(me + p - d));
            steps.push(PatternStep::exchange(to, every(me), from, every((me + p - d) % p)));
            d /= 2;
        }
        steps
    }
}

//! The cyclic shift (Bruck et al. 1997), with a separate number of ports for each step (Jocksch et al. 2021).
//!
//! A member that holds the blocks of h members, its own and the next h − 1, receives through port j the h blocks that the member j·h
//! further on holds; with q ports it then holds (q + 1)·h blocks. The last step receives only the missing blocks.
//!
//! ```text
//! 5 members, one port   h = 1  0 ◄── 1        h = 2  0 ◄── 2, 3        h = 4  0 ◄── 4
//! ```
//!
//! Cost: with radix r, that is r − 1 ports, ⌈log_r n⌉ steps and n − 1 blocks.

use bruckner_schedule::Set;

use super::{Parcel, Pattern, PatternStep};

/// The cyclic-shift allgather pattern.
pub struct CyclicShift {
    /// Number of ports of each step; steps in which nothing is left to receive are omitted.
    pub ports: Vec<u32>,
}

/// The cyclic shift with one radix for all steps: radix-r Bruck.
pub struct Bruck(pub u32);

impl Pattern for Bruck {
    fn steps(&self, n: u32, me: u32) -> Vec<PatternStep> {
        // 32 steps are enough for any number of members.
        CyclicShift { ports: vec![self.0 - 1; 32] }.steps(n, me)
    }
}

impl Pattern for CyclicShift {
    fn steps(&self, n: u32, me: u32) -> Vec<PatternStep> {
        let (p, me, mut h) = (u64::from(n), u64::from(me), 1);
        let mut steps = Vec::new();
        for &ports in &self.ports {
            let mut step = PatternStep::default();
            for by in (1..=u64::from(ports)).map(|j| j * h).take_while(|&by| by < p) {
                let count = h.min(p - by);
                let member = |at: u64| (at % p) as u32;
                step.sends.push(Parcel { peer: member(me + p - by), blocks: Set::cyclic(me, count, p) });
                step.recvs.push(Parcel { peer: member(me + by), blocks: Set::cyclic(me + by, count, p) });
            }
            if step.sends.is_empty() {
                break;
            }
            h = (h * (u64::from(ports) + 1)).min(p);
            steps.push(step);
        }
        steps
    }
}

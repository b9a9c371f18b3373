//! Every member sends its block directly to every other: to all at once, to a few partners per step, or to one.
//!
//! ```text
//! 4 members, pairwise   step 1  0 ─► 1 ─► 2 ─► 3 ─► 0     step 2  0 ◄─► 2, 1 ◄─► 3     step 3  0 ─► 3 ─► 2 ─► 1 ─► 0
//! ```
//!
//! Cost: n − 1 messages of one block; with w messages per step, ⌈(n − 1)/w⌉ steps.

use bruckner_schedule::Set;

use super::{Parcel, Pattern, PatternStep};

/// Pattern in which a member sends and receives at most this many messages per step.
pub struct SpreadOut(pub u32);

impl SpreadOut {
    /// Sends to and receives from all other members in one step.
    pub const AT_ONCE: SpreadOut = SpreadOut(u32::MAX);
    /// Sends to one partner and receives from one in each step.
    pub const PAIRWISE: SpreadOut = SpreadOut(1);
}

fn step(n: u32, me: u32, distance: u32) -> PatternStep {
    let (to, from) = ((me + distance) % n, (me + n - distance) % n);
    PatternStep::exchange(to, Set::one(me.into()), from, Set::one(from.into()))
}

impl Pattern for SpreadOut {
    fn steps(&self, n: u32, me: u32) -> Vec<PatternStep> {
        let distances: Vec<u32> = (1..n).collect();
        let together = |distances: &[u32]| {
            let (sends, recvs): (Vec<Vec<Parcel>>, Vec<Vec<Parcel>>) =
                distances.iter().map(|distance| step(n, me, *distance)).map(|s| (s.sends, s.recvs)).unzip();
            PatternStep { sends: sends.concat(), recvs: recvs.concat() }
        };
        distances.chunks(self.0.max(1) as usize).map(together).collect()
    }
}

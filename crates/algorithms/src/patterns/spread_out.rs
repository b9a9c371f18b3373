//! Every member sends its block directly to every other: to all at once, or to one partner per step.
//!
//! ```text
//! 4 members, pairwise   step 1  0 ─► 1 ─► 2 ─► 3 ─► 0     step 2  0 ◄─► 2, 1 ◄─► 3     step 3  0 ─► 3 ─► 2 ─► 1 ─► 0
//! ```
//!
//! Cost: n − 1 messages of one block; in one step, or in n − 1.

use bruckner_schedule::Set;

use super::{Parcel, Pattern, PatternStep};

/// Pattern that sends to and receives from all other members in one step.
pub struct SpreadOut;

/// Pattern that sends to one partner and receives from one in each step.
pub struct Pairwise;

fn step(n: u32, me: u32, distance: u32) -> PatternStep {
    let (to, from) = ((me + distance) % n, (me + n - distance) % n);
    PatternStep::exchange(to, Set::one(me.into()), from, Set::one(from.into()))
}

impl Pattern for Pairwise {
    fn steps(&self, n: u32, me: u32) -> Vec<PatternStep> {
        (1..n).map(|distance| step(n, me, distance)).collect()
    }
}

impl Pattern for SpreadOut {
    fn steps(&self, n: u32, me: u32) -> Vec<PatternStep> {
        let (sends, recvs): (Vec<Vec<Parcel>>, Vec<Vec<Parcel>>) =
            (1..n).map(|distance| step(n, me, distance)).map(|s| (s.sends, s.recvs)).unzip();
        if n < 2 { Vec::new() } else { vec![PatternStep { sends: sends.concat(), recvs: recvs.concat() }] }
    }
}

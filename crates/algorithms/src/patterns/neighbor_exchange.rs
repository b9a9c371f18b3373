//! Neighbor exchange (Chen et al. 2005): members exchange alternately with their right and their left neighbour.
//!
//! First each pair (0 1), (2 3), … exchanges its blocks; from then on, alternating between its two neighbours, a member sends the pair of
//! blocks that it completed last.
//!
//! ```text
//! 6 members, member 2   step 0 ◄─► 3 (block 3)   step 1 ◄─► 1 (blocks 0 1)   step 2 ◄─► 3 (blocks 4 5)
//! ```
//!
//! Cost: n/2 steps, n − 1 blocks. With an odd number of members, the first member also acts for the last one (see [`Fold`]).

use bruckner_schedule::Set;

use super::{Fold, Pattern, PatternStep};

/// The neighbor-exchange allgather pattern, for any number of members.
pub struct NeighborExchange;

impl Pattern for NeighborExchange {
    fn steps(&self, n: u32, me: u32) -> Vec<PatternStep> {
        Fold { core: if n > 1 { n - n % 2 } else { 1 }, inside: Box::new(Even) }.steps(n, me)
    }
}

struct Even;

impl Pattern for Even {
    fn steps(&self, n: u32, me: u32) -> Vec<PatternStep> {
        let (pairs, own) = (i64::from(n / 2), i64::from(me / 2));
        let up = if me.is_multiple_of(2) { 1 } else { -1 };
        let pair = |number: i64| {
            let first = 2 * number.rem_euclid(pairs) as u64;
            Set::from(first..first + 2)
        };
        // Returns the number of the pair whose blocks arrive at step s: alternately a pair on one side of this member and on the other, at
        // growing distance.
        let arriving = |s: i64| own + if s % 2 == 1 { -up * ((s + 1) / 2) } else { up * (s / 2) };
        (0..pairs)
            .map(|s| {
                let partner = (i64::from(me) + if s % 2 == 0 { up } else { -up }).rem_euclid(n.into()) as u32;
                match s {
                    0 => PatternStep::exchange(partner, Set::one(me.into()), partner, Set::one(partner.into())),
                    _ => {
                        let last = if s == 1 { own } else { arriving(s - 1) };
                        PatternStep::exchange(partner, pair(last), partner, pair(arriving(s)))
                    }
                }
            })
            .collect()
    }
}

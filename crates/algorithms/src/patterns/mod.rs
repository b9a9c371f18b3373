//! Allgather patterns: which member sends which blocks to which other, by arithmetic on member numbers.
//!
//! A pattern depends only on the number of members and on the member's own number. One pattern yields an allgather, by time reversal a
//! reduce_scatter, and from both an allreduce; with counts that are zero except at a root, a broadcast and a reduce. It can also run
//! inside a region or between regions. So a new algorithm needs nothing but a pattern.
//!
//! ```
//! use bruckner_algorithms::patterns::{Pattern, Ring};
//! let steps = Ring.steps(5, 0);
//! assert_eq!(steps.len(), 4);
//! assert_eq!(steps[1].sends[0].peer, 1);
//! assert_eq!(steps[1].sends[0].blocks.to_string(), "4");
//! ```

mod cyclic_shift;
mod fold;
mod halves;
mod neighbor_exchange;
mod recursive_doubling;
pub(crate) mod reordered;
mod ring;
mod sparbit;
mod spread_out;

pub use cyclic_shift::{Bruck, CyclicShift};
pub use fold::Fold;
pub use halves::Halves;
pub use neighbor_exchange::NeighborExchange;
pub use recursive_doubling::RecursiveDoubling;
pub use reordered::{Reordered, order};
pub use ring::Ring;
pub use sparbit::Sparbit;
pub use spread_out::SpreadOut;

use bruckner_schedule::Set;

/// Blocks that one member sends to another in one message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parcel {
    /// The other member: the receiver in [`PatternStep::sends`], the sender in [`PatternStep::recvs`].
    pub peer: u32,
    /// Block numbers, in message order; block i is the block of member i.
    pub blocks: Set,
}

/// Messages that one member sends and receives concurrently.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PatternStep {
    /// Messages that the member sends: for each receiver, the blocks.
    pub sends: Vec<Parcel>,
    /// Messages that the member receives: for each sender, the blocks.
    pub recvs: Vec<Parcel>,
}

impl PatternStep {
    /// Creates a step that sends the blocks `give` to member `to` and receives the blocks `get` from member `from`.
    pub fn exchange(to: u32, give: Set, from: u32, get: Set) -> PatternStep {
        PatternStep { sends: vec![Parcel { peer: to, blocks: give }], recvs: vec![Parcel { peer: from, blocks: get }] }
    }
}

/// An allgather among n members. Every member receives every block but its own exactly once; this makes a pattern reversible.
pub trait Pattern: Send + Sync {
    /// Returns the steps of member `me` of `n`.
    fn steps(&self, n: u32, me: u32) -> Vec<PatternStep>;

    /// Returns how many of n members own a piece of the vector in an allreduce: the first ones. The others only send and receive pieces.
    fn owners(&self, n: u32) -> u32 {
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Simulates a pattern and checks that members send only blocks they hold, and that every block arrives as sent, exactly once.
    fn check(pattern: &dyn Pattern, n: u32, what: &str) {
        let mut has: Vec<BTreeSet<u64>> = (0..n).map(|m| BTreeSet::from([m.into()])).collect();
        let all: Vec<Vec<PatternStep>> = (0..n).map(|m| pattern.steps(n, m)).collect();
        let rounds = all.iter().map(Vec::len).max().unwrap_or(0);
        for round in 0..rounds {
            let mut mail: BTreeMap<(u32, u32), Vec<u64>> = BTreeMap::new();
            for m in 0..n {
                for parcel in all[m as usize].get(round).iter().flat_map(|s| &s.sends) {
                    let blocks: Vec<u64> = parcel.blocks.iter().collect();
                    assert!(blocks.iter().all(|b| has[m as usize].contains(b)), "{what}, {n}, round {round}");
                    assert!(mail.insert((m, parcel.peer), blocks).is_none(), "{what}: one parcel at a time");
                }
            }
            for m in 0..n {
                for parcel in all[m as usize].get(round).iter().flat_map(|s| &s.recvs) {
                    let sent = mail.remove(&(parcel.peer, m));
                    let want: Vec<u64> = parcel.blocks.iter().collect();
                    assert_eq!(sent.as_ref(), Some(&want), "{what}, {n} members, round {round}, member {m}");
                    for block in want {
                        assert!(has[m as usize].insert(block), "{what}, {n}: block {block} comes twice to {m}");
                    }
                }
            }
            assert!(mail.is_empty(), "{what}, {n}: parcels are lost");
        }
        assert!(has.iter().all(|blocks| blocks.len() == n as usize), "{what}, {n}: blocks are missing");
    }

    #[test]
    fn every_block_comes_once_to_everyone() {
        for n in 1..70 {
            check(&Ring, n, "ring");
            check(&NeighborExchange, n, "neighbor exchange");
            check(&RecursiveDoubling, n, "recursive doubling");
            check(&Sparbit, n, "sparbit");
            for window in [1, 2, 3, 32, u32::MAX] {
                check(&SpreadOut(window), n, "spread-out");
            }
            for radix in 2..9 {
                check(&Bruck(radix), n, "bruck");
            }
            let sizes: Vec<u64> = (0..n.into()).map(|i: u64| i * 7 % 5).collect();
            check(&Reordered::new(&sizes, Box::new(Bruck(2))), n, "reordered bruck");
            check(&Fold { core: n.div_ceil(2), inside: Box::new(Ring) }, n, "folded ring");
        }
        check(&CyclicShift { ports: vec![2, 4, 10] }, 160, "160(2 4 10)");
    }

    #[test]
    fn logarithmic_patterns_are_logarithmic() {
        for n in 2u32..300 {
            let log = n.next_power_of_two().trailing_zeros() as usize;
            for me in [0, n / 2, n - 1] {
                assert_eq!(Sparbit.steps(n, me).len(), log);
                assert_eq!(Bruck(2).steps(n, me).len(), log);
                let fold = if n.is_power_of_two() { 0 } else { 1 };
                assert_eq!(RecursiveDoubling.steps(n, me).len(), log + fold);
            }
        }
    }
}

//! Subsets of the ranks that are tuned in one launch, because programs use communicators not only of all ranks, but also of the ranks of
//! one node, of one rank of each node, or of half of the nodes.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Result;
use bruckner::Communicator;
use bruckner_model::Shape;
use bruckner_schedule::{Level, Rank, Topology};

/// A subset of the ranks.
pub(super) struct RankSubset {
    pub(super) topology: Topology,
    pub(super) shape: Shape,
    /// For each rank, whether it belongs to the subset; rank 0 always does.
    pub(super) members: Vec<bool>,
}

/// Returns subsets of the ranks with distinct shapes (nodes x ranks on each): all ranks, those of one node, one of each node, those of
/// half the nodes, and all but one. A subset with unequal numbers of ranks on its nodes is left out, because a profile cannot describe it.
pub(super) fn parts(topology: &Topology) -> Vec<RankSubset> {
    let ranks = topology.ranks();
    let node = |rank: u32| topology.region_of(Level::NODE, Rank(rank));
    let nodes = topology.regions(Level::NODE);
    let mut seen = HashSet::new();
    let firsts: Vec<bool> = (0..ranks).map(|rank| seen.insert(node(rank))).collect();
    let wanted: [&dyn Fn(u32) -> bool; 5] = [
        &|_| true,
        &|rank| node(rank) == node(0),
        &|rank| firsts[rank as usize],
        &|rank| node(rank) < nodes / 2,
        &|rank| rank + 1 < ranks,
    ];
    let mut parts: Vec<RankSubset> = Vec::new();
    for is_member in wanted {
        let members: Vec<bool> = (0..ranks).map(is_member).collect();
        let place = |rank: u32| {
            let region = |level| u64::from(topology.region_of(level, Rank(rank)));
            (region(Level::NODE), region(Level::SOCKET))
        };
        let places: Vec<(u64, u64)> = (0..ranks).filter(|rank| members[*rank as usize]).map(place).collect();
        if !members[0] || places.len() < 2 {
            continue;
        }
        let topology = Topology::of(&places);
        let shape = Shape::of(&topology);
        let known = parts.iter().any(|part| part.shape == shape);
        if !known && shape.ranks() == topology.ranks() {
            parts.push(RankSubset { topology, shape, members });
        }
    }
    parts
}

/// Waits for all ranks, and sleeps meanwhile, because the ranks that still measure need the cores. Collective.
pub(super) fn sleeping_barrier(ranks: Communicator) -> Result<()> {
    ranks.barrier()?.plan("native")?.overlap(|barrier| -> Result<()> {
        while !barrier.advance()? {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(topology: &str) -> String {
        let parts = parts(&topology.parse().unwrap());
        assert!(
            parts
                .iter()
                .all(|part| { part.members.iter().filter(|is| **is).count() == part.topology.ranks() as usize })
        );
        parts.iter().map(|part| part.shape.to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_shape_is_raced_once() {
        assert_eq!(shapes("4x4"), "4x4 1x4 4x1 2x4");
        assert_eq!(shapes("8x2"), "8x2 1x2 8x1 4x2");
        assert_eq!(shapes("2x8"), "2x8 1x8 2x1");
        assert_eq!(shapes("1x8"), "1x8 1x7");
        assert_eq!(shapes("1x2"), "1x2");
        assert_eq!(shapes("5x1"), "5x1 2x1 4x1");
        assert_eq!(shapes("4x2:cyclic"), "4x2:cyclic 1x2 4x1 2x2:cyclic");
    }
}

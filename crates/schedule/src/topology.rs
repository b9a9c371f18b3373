//! Topologies: nested regions of ranks, outermost first, possibly of unequal sizes, with any placement of ranks.
//!
//! | text | meaning |
//! |---|---|
//! | `16x4` | 16 nodes of 4 ranks |
//! | `16x2x8` | 16 nodes of 2 sockets of 8 ranks |
//! | `4,4,3,1` | the ranks of each node |
//! | `2+2,2+1,1` | the ranks of each socket of each node |
//! | `16x4:cyclic` | ranks placed on the nodes round-robin |
//! | `16x4:permuted=7` | ranks shuffled by seed 7 |
//! | `2,2:ranks=0,3,1,2` | the rank at each position, node by node |
//!
//! *Positions* number the process slots of the machine node by node; a region is a range of positions. A placement assigns a rank to each
//! position. If the topology lacks a level, its regions are those of the next level outwards: on `4,4,3,1` each node is one socket.
//!
//! ```
//! use bruckner_schedule::{Level, Rank, Topology};
//! let t: Topology = "2+2,2+1,1:cyclic".parse().unwrap();
//! assert_eq!((t.ranks(), t.regions(Level::NODE), t.regions(Level::SOCKET)), (8, 3, 5));
//! assert_eq!(t.node_of(Rank(4)), 1);
//! ```

mod text;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use crate::random::Random;
use crate::{Level, Rank, Run, Set};

/// Regions of a machine and placement of ranks. A topology such as `16x4`, with block or cyclic placement, takes constant memory.
#[derive(Clone, Debug)]
pub struct Topology {
    shape: Shape,
    placement: Placement,
    /// Rank at each position and position of each rank, for placements that have no formula. Computed at first use.
    table: OnceLock<Table>,
}

impl PartialEq for Topology {
    fn eq(&self, other: &Topology) -> bool {
        (&self.shape, &self.placement) == (&other.shape, &other.placement)
    }
}

impl Eq for Topology {}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Shape {
    /// All regions of a level are equal. For each level, outermost first, the number of its regions within a region of the next outer
    /// level. The last number is the number of ranks in an innermost region.
    Regular(Vec<u32>),
    /// Regions of a level may differ. `nodes` has the number of ranks in each socket of each node; `starts` has, for each level, the first
    /// position of each region.
    Listed { nodes: Vec<Vec<u32>>, starts: Vec<Vec<u32>> },
}

impl Shape {
    /// Creates a shape from the number of ranks in each socket of each node.
    fn listed(nodes: Vec<Vec<u32>>) -> Shape {
        let starts_of = |sizes: &mut dyn Iterator<Item = u32>| -> Vec<u32> {
            sizes.scan(0, |at, n| Some(std::mem::replace(at, *at + n))).collect()
        };
        let mut starts = vec![starts_of(&mut nodes.iter().map(|n| n.iter().sum()))];
        if nodes.iter().any(|n| n.len() > 1) {
            starts.push(starts_of(&mut nodes.iter().flatten().copied()));
        }
        Shape::Listed { nodes, starts }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Placement {
    Block,
    Cyclic,
    Permuted(u64),
    /// An explicit placement: the rank at each position.
    Listed(Vec<u32>),
}

/// Position of each rank, and rank at each position.
#[derive(Clone, Debug)]
struct Table {
    position: Vec<u32>,
    rank: Vec<u32>,
}

/// Error in the text of a topology.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{reason} at column {column} of `{text}`; 16x4, for example, is 16 nodes with 4 ranks each")]
pub struct TopologyError {
    text: String,
    column: usize,
    reason: &'static str,
}

impl Topology {
    /// Maximum number of ranks in a topology.
    pub const MAX_RANKS: u32 = 1 << 24;

    /// Returns a topology of `p` nodes with one rank each.
    pub fn flat(p: u32) -> Topology {
        Topology::build(Shape::Regular(vec![p, 1]), Placement::Block)
    }

    fn build(shape: Shape, placement: Placement) -> Topology {
        Topology { shape, placement, table: OnceLock::new() }
    }

    /// Builds the topology from the node and socket numbers of each rank. Nodes are ordered by their lowest ranks, and so are the sockets
    /// within a node.
    ///
    /// ```
    /// use bruckner_schedule::Topology;
    /// assert_eq!(Topology::of(&[(7, 0), (7, 0), (3, 0), (3, 0)]).to_string(), "2x2");
    /// assert_eq!(Topology::of(&[(1, 0), (0, 0), (1, 0), (0, 0)]).to_string(), "2x2:cyclic");
    /// assert_eq!(Topology::of(&[(1, 4), (0, 5), (1, 2), (1, 4)]).to_string(), "2+1,1:ranks=0,3,2,1");
    /// ```
    ///
    /// # Panics
    /// If there are no ranks.
    pub fn of(places: &[(u64, u64)]) -> Topology {
        assert!(!places.is_empty(), "a topology has ranks");
        // For each node, its sockets: socket number and ranks.
        let mut nodes: Vec<Vec<(u64, Vec<u32>)>> = Vec::new();
        let mut known: BTreeMap<u64, usize> = BTreeMap::new();
        for (rank, &(node, socket)) in places.iter().enumerate() {
            let at = *known.entry(node).or_insert(nodes.len());
            if at == nodes.len() {
                nodes.push(Vec::new());
            }
            let sockets = &mut nodes[at];
            match sockets.iter_mut().find(|(name, _)| *name == socket) {
                Some((_, ranks)) => ranks.push(rank as u32),
                None => sockets.push((socket, vec![rank as u32])),
            }
        }
        let ranks: Vec<u32> = nodes.iter().flatten().flat_map(|(_, ranks)| ranks.clone()).collect();
        let sizes: Vec<Vec<u32>> =
            nodes.iter().map(|sockets| sockets.iter().map(|(_, ranks)| ranks.len() as u32).collect()).collect();
        let (first, sockets) = (sizes[0][0], sizes[0].len());
        let regular = sizes.iter().all(|node| node.len() == sockets && node.iter().all(|&n| n == first));
        let shape = match (regular, sockets) {
            (true, 1) => Shape::Regular(vec![sizes.len() as u32, first]),
            (true, _) => Shape::Regular(vec![sizes.len() as u32, sockets as u32, first]),
            (false, _) => Shape::listed(sizes),
        };
        if ranks.is_sorted() {
            return Topology::build(shape, Placement::Block);
        }
        let cyclic = Topology::build(shape, Placement::Cyclic);
        if (0..cyclic.ranks()).all(|at| cyclic.rank_at(at).0 == ranks[at as usize]) {
            return cyclic;
        }
        Topology::build(cyclic.shape, Placement::Listed(ranks))
    }

    fn rank_mapping(&self) -> Seats<'_> {
        match (&self.placement, &self.shape) {
            (Placement::Block, _) => Seats::Block,
            (Placement::Cyclic, Shape::Regular(dims)) => {
                Seats::Cyclic { nodes: dims[0], per_node: self.ranks() / dims[0] }
            }
            (Placement::Cyclic, _) => Seats::Table(self.table.get_or_init(|| Table::from_ranks(self.round_robin()))),
            (Placement::Permuted(seed), _) => {
                Seats::Table(self.table.get_or_init(|| Table::from_ranks(shuffle(self.ranks(), *seed))))
            }
            (Placement::Listed(ranks), _) => Seats::Table(self.table.get_or_init(|| Table::from_ranks(ranks.clone()))),
        }
    }

    /// Returns the rank at each position for round-robin placement on the nodes, with full nodes skipped.
    fn round_robin(&self) -> Vec<u32> {
        let mut next: Vec<Range<u32>> = (0..self.regions(Level::NODE)).map(|n| self.span(Level::NODE, n)).collect();
        let mut ranks = vec![0; self.ranks() as usize];
        let mut rank = 0;
        while rank < self.ranks() {
            for position in next.iter_mut().filter_map(Iterator::next) {
                ranks[position as usize] = rank;
                rank += 1;
            }
        }
        ranks
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> u32 {
        match &self.shape {
            Shape::Regular(dims) => dims.iter().product(),
            Shape::Listed { nodes, .. } => nodes.iter().flatten().sum(),
        }
    }

    /// Returns the number of levels that the topology distinguishes.
    pub fn levels(&self) -> u8 {
        match &self.shape {
            Shape::Regular(dims) => dims.len() as u8 - 1,
            Shape::Listed { starts, .. } => starts.len() as u8,
        }
    }

    fn clamp_level(&self, level: Level) -> usize {
        usize::from(level.0.min(self.levels() - 1))
    }

    /// Returns the number of regions of a level.
    pub fn regions(&self, level: Level) -> u32 {
        let level = self.clamp_level(level);
        match &self.shape {
            Shape::Regular(dims) => dims[..=level].iter().product(),
            Shape::Listed { starts, .. } => starts[level].len() as u32,
        }
    }

    /// Returns the positions of a region.
    pub fn span(&self, level: Level, region: u32) -> Range<u32> {
        let level = self.clamp_level(level);
        match &self.shape {
            Shape::Regular(dims) => {
                let size: u32 = dims[level + 1..].iter().product();
                region * size..(region + 1) * size
            }
            Shape::Listed { starts, .. } => {
                let end = starts[level].get(region as usize + 1).copied().unwrap_or_else(|| self.ranks());
                starts[level][region as usize]..end
            }
        }
    }

    /// Returns the region of a position.
    pub fn region_at(&self, level: Level, position: u32) -> u32 {
        let level = self.clamp_level(level);
        match &self.shape {
            Shape::Regular(dims) => position / dims[level + 1..].iter().product::<u32>(),
            Shape::Listed { starts, .. } => starts[level].partition_point(|&s| s <= position) as u32 - 1,
        }
    }

    /// Returns the region of a rank.
    pub fn region_of(&self, level: Level, rank: Rank) -> u32 {
        self.region_at(level, self.position(rank))
    }

    /// Returns the node of a rank.
    pub fn node_of(&self, rank: Rank) -> u32 {
        self.region_of(Level::NODE, rank)
    }

    /// Returns the outermost level at which two ranks are in different regions, or `None` if they are in the same innermost region.
    pub fn outermost_difference(&self, a: Rank, b: Rank) -> Option<Level> {
        (0..self.levels()).map(Level).find(|&level| self.region_of(level, a) != self.region_of(level, b))
    }

    /// Returns the number of ranks in each region of a level, or `None` if the topology lists its regions one by one.
    pub fn uniform_size(&self, level: Level) -> Option<u32> {
        match &self.shape {
            Shape::Regular(_) => Some(self.span(level, 0).len() as u32),
            Shape::Listed { .. } => None,
        }
    }

    /// Returns the number of ranks in the largest region of a level.
    pub fn largest(&self, level: Level) -> u32 {
        match &self.shape {
            Shape::Regular(_) => self.span(level, 0).len() as u32,
            Shape::Listed { .. } => {
                (0..self.regions(level)).map(|r| self.span(level, r).len() as u32).max().unwrap_or(0)
            }
        }
    }

    /// Returns the position of a rank.
    pub fn position(&self, rank: Rank) -> u32 {
        match self.rank_mapping() {
            Seats::Block => rank.0,
            Seats::Cyclic { nodes, per_node } => rank.0 % nodes * per_node + rank.0 / nodes,
            Seats::Table(table) => table.position[rank.0 as usize],
        }
    }

    /// Returns the rank at a position.
    pub fn rank_at(&self, position: u32) -> Rank {
        Rank(match self.rank_mapping() {
            Seats::Block => position,
            Seats::Cyclic { nodes, per_node } => position % per_node * nodes + position / per_node,
            Seats::Table(table) => table.rank[position as usize],
        })
    }

    /// Whether rank r is at position r, for every rank.
    pub fn is_in_rank_order(&self) -> bool {
        match self.rank_mapping() {
            Seats::Block => true,
            Seats::Cyclic { nodes, per_node } => nodes == 1 || per_node == 1,
            Seats::Table(table) => table.rank.is_sorted(),
        }
    }

    /// Returns the ranks at a range of positions, ascending. The set is a single run for block placement, and for whole nodes of equal
    /// size with cyclic placement.
    pub fn ranks_at(&self, positions: Range<u32>) -> Set {
        match self.rank_mapping() {
            _ if positions.is_empty() => Set::new(),
            Seats::Block => Set::from(u64::from(positions.start)..u64::from(positions.end)),
            Seats::Cyclic { nodes, per_node }
                if positions.start.is_multiple_of(per_node) && positions.end.is_multiple_of(per_node) =>
            {
                let (first, n) = (positions.start / per_node, positions.len() as u32 / per_node);
                Run::new(first.into(), n.into(), nodes.into(), per_node.into()).into()
            }
            _ => {
                let mut ranks: Vec<u64> = positions.map(|at| u64::from(self.rank_at(at).0)).collect();
                ranks.sort_unstable();
                ranks.into_iter().collect()
            }
        }
    }
}

impl Topology {
    /// Returns the ranks at a set of positions. For block placement they have the order of the set. Otherwise they are ascending within
    /// each block of consecutive positions.
    pub fn ranks_of(&self, positions: &Set) -> Set {
        if let Seats::Block = self.rank_mapping() {
            return positions.clone();
        }
        let mut ranks = Set::new();
        for block in positions.runs().iter().flat_map(Run::blocks) {
            ranks.extend(&self.ranks_at(block.start as u32..block.end as u32));
        }
        ranks
    }
}

/// Mapping between ranks and positions: by formula or by table.
enum Seats<'a> {
    Block,
    Cyclic { nodes: u32, per_node: u32 },
    Table(&'a Table),
}

impl Table {
    fn from_ranks(rank: Vec<u32>) -> Table {
        let mut position = vec![0; rank.len()];
        for (at, &r) in rank.iter().enumerate() {
            position[r as usize] = at as u32;
        }
        Table { position, rank }
    }
}

/// Returns a random permutation of 0..`n` (Fisher–Yates shuffle).
fn shuffle(n: u32, seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    let mut ranks: Vec<u32> = (0..n).collect();
    for i in (1..ranks.len()).rev() {
        ranks.swap(i, random.below(i as u64 + 1) as usize);
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placement_is_a_bijection_and_regions_partition() {
        for text in [
            "16x4",
            "3x2x5",
            "4,4,3,1",
            "2+2,1,3+1",
            "4,4,3,1:cyclic",
            "4x3:cyclic",
            "3x2x2:permuted=9",
            "2,3:ranks=4,0,2,1,3",
        ] {
            let t: Topology = text.parse().unwrap();
            assert_eq!(t.to_string(), text);
            for position in 0..t.ranks() {
                assert_eq!(t.position(t.rank_at(position)), position, "{text}");
            }
            for level in [Level::NODE, Level::SOCKET] {
                let mut at = 0;
                for region in 0..t.regions(level) {
                    let span = t.span(level, region);
                    assert_eq!(span.start, at, "{text}");
                    assert!(span.clone().all(|p| t.region_at(level, p) == region), "{text}");
                    let ranks: Vec<u64> = t.ranks_at(span.clone()).iter().collect();
                    let mut want: Vec<u64> = span.clone().map(|p| t.rank_at(p).0.into()).collect();
                    want.sort_unstable();
                    assert_eq!(ranks, want, "{text}");
                    at = span.end;
                }
                assert_eq!(at, t.ranks(), "{text}");
            }
        }
    }

    #[test]
    fn a_missing_level_is_the_one_around_it() {
        let t: Topology = "4,4,3,1".parse().unwrap();
        assert_eq!(t.span(Level::SOCKET, 2), t.span(Level::NODE, 2));
    }
}

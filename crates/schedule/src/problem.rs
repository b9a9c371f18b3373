//! Problems: a collective, its counts, and the order that its reduction requires.
//!
//! Data consists of blocks, and every block is cut into the same number of pieces, one by default. Each piece is a chunk; chunks are
//! numbered from 0, block by block. The meaning of block `i` depends on the collective: in an allgather it comes from rank `i`; in a
//! reduce_scatter it is the result for rank `i`; in an alltoall, block `i` of the input goes to rank `i` and block `i` of the output comes
//! from rank `i`; an allreduce has one block, the vector. Broadcast and reduce are an allgather and a reduce_scatter in which only the
//! root's count is not zero.

use std::fmt;
use std::ops::Range;

use crate::{Rank, Run, Set};

/// Collectives with different inputs and outputs. Broadcast, reduce and barrier are special cases of these.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Collective {
    /// Every rank gets the block of every rank.
    Allgather,
    /// Every rank gets the elementwise reduction of all ranks' vectors.
    Allreduce,
    /// Every rank gets its own block of the reduction of all ranks' vectors.
    ReduceScatter,
    /// Every rank sends a separate block to every rank.
    Alltoall,
}

impl Collective {
    /// All collectives.
    pub const ALL: [Collective; 4] =
        [Collective::Allgather, Collective::Allreduce, Collective::ReduceScatter, Collective::Alltoall];

    /// Whether the collective combines values by a reduction.
    pub fn reduces(self) -> bool {
        matches!(self, Collective::Allreduce | Collective::ReduceScatter)
    }

    /// Parses the name of a collective.
    pub fn from_name(name: &str) -> Option<Collective> {
        Collective::ALL.into_iter().find(|c| c.to_string() == name)
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Collective::Allgather => "allgather",
            Collective::Allreduce => "allreduce",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::Alltoall => "alltoall",
        })
    }
}

/// Number of elements in each block.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Counts {
    /// All blocks have this number of elements.
    Equal(u64),
    /// Only the root's block has elements, as in a broadcast or reduce.
    Root {
        /// Rank whose block has elements.
        root: Rank,
        /// Number of elements in the root's block.
        count: u64,
    },
    /// One count for each rank's block, known to all ranks.
    Listed(Vec<u64>),
    /// Each rank knows only the sizes of the blocks that it sends and receives, as in an alltoallv.
    Local,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Counts::Equal(n) => write!(f, "equal {n}"),
            Counts::Root { root, count } => write!(f, "root {root} {count}"),
            Counts::Listed(counts) => {
                let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
                write!(f, "listed {}", counts.join(","))
            }
            Counts::Local => f.write_str("local"),
        }
    }
}

/// Order in which a reduction may combine operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Order {
    /// Any order: the operation is commutative.
    #[default]
    Any,
    /// Rank order only: the operation may not be commutative.
    Ranks,
}

/// A collective with its counts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Problem {
    /// The collective.
    pub collective: Collective,
    /// Number of ranks.
    pub ranks: u32,
    /// Number of elements in each block.
    pub counts: Counts,
    /// Number of pieces, of nearly equal length, into which each block is cut.
    pub pieces: u64,
    /// Bytes per element. 0 for tokens that carry no data: a barrier is an allgather of one token per rank.
    pub element: u32,
    /// Order that the reduction requires.
    pub order: Order,
}

impl Problem {
    /// Maximum number of bytes in all blocks together; sums of sizes cannot overflow.
    pub const MOST_BYTES: u64 = 1 << 48;

    /// Creates a problem with one piece per block, or returns the reason why it is invalid.
    pub fn new(collective: Collective, ranks: u32, counts: Counts, element: u32) -> Result<Problem, &'static str> {
        Problem { collective, ranks, counts, pieces: 1, element, order: Order::Any }.cut(1)
    }

    /// Returns the problem with every block cut into `pieces` pieces, or the reason why that is invalid.
    pub fn cut(mut self, pieces: u64) -> Result<Problem, &'static str> {
        self.set_pieces(pieces).map(|()| self)
    }

    /// Sets the number of pieces into which every block is cut, or returns the reason why that is invalid.
    pub fn set_pieces(&mut self, pieces: u64) -> Result<(), &'static str> {
        self.pieces = pieces;
        self.check()
    }

    /// Returns the problem with one element per chunk. Which chunks go where does not depend on their sizes, so what is verified for this
    /// problem is true for blocks of any size. Local counts stay as they are.
    pub fn in_chunks(mut self) -> Problem {
        if self.counts != Counts::Local {
            self.counts = Counts::Equal(self.pieces);
        }
        self
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.ranks == 0 {
            return Err("there must be at least 1 rank");
        }
        let total = match &self.counts {
            Counts::Equal(n) => n.checked_mul(self.blocks()),
            Counts::Root { count, .. } => Some(*count),
            Counts::Listed(counts) => counts.iter().try_fold(0u64, |sum, n| sum.checked_add(*n)),
            Counts::Local => Some(0),
        };
        let bytes = total.and_then(|n| n.checked_mul(self.element.into()));
        if bytes.is_none_or(|n| n > Problem::MOST_BYTES) {
            return Err("all blocks together may have at most 2^48 bytes");
        }
        let most = u64::from(crate::Topology::MAX_RANKS);
        if self.blocks().checked_mul(self.pieces).is_none_or(|chunks| chunks > most) {
            return Err("at most 2^24 chunks are supported");
        }
        match (&self.counts, self.collective) {
            _ if self.pieces == 0 => Err("a block must have at least one piece"),
            (Counts::Local, _) if self.pieces > 1 => Err("blocks with counts `local` cannot be cut into pieces"),
            (Counts::Root { .. } | Counts::Listed(_), Collective::Allreduce) => {
                Err("an allreduce must have counts `equal N`")
            }
            (Counts::Local, Collective::Alltoall) | (Counts::Equal(_), _) => Ok(()),
            (Counts::Local, _) => Err("counts `local` are only allowed for an alltoall"),
            (_, Collective::Alltoall) => Err("an alltoall must have counts `equal N` or `local`"),
            (Counts::Root { root, .. }, _) if root.0 >= self.ranks => Err("the root is not one of the ranks"),
            (Counts::Listed(counts), _) if counts.len() != self.ranks as usize => {
                Err("`listed` needs one count for each rank")
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> u64 {
        match self.collective {
            Collective::Allreduce => 1,
            _ => self.ranks.into(),
        }
    }

    /// Returns the number of chunks.
    pub fn chunks(&self) -> u64 {
        self.blocks() * self.pieces
    }

    /// Returns the number of elements in a chunk, or `None` if sizes are known only locally. With listed counts, a chunk number that is
    /// too large gives 0.
    pub fn elements(&self, chunk: u64) -> Option<u64> {
        let (block, piece) = match self.pieces {
            1 => (chunk, 0),
            pieces => (chunk / pieces, chunk % pieces),
        };
        let elements = match &self.counts {
            Counts::Equal(n) => *n,
            Counts::Root { root, count } if block == u64::from(root.0) => *count,
            Counts::Root { .. } => 0,
            Counts::Listed(counts) => counts.get(block as usize).copied().unwrap_or(0),
            Counts::Local => return None,
        };
        if self.pieces == 1 {
            return Some(elements);
        }
        Some(self.piece_start(elements, piece + 1) - self.piece_start(elements, piece))
    }

    /// Returns the number of elements in the largest block; 0 if sizes are known only locally.
    pub fn largest_block(&self) -> u64 {
        match &self.counts {
            Counts::Equal(n) => *n,
            Counts::Root { count, .. } => *count,
            Counts::Listed(counts) => counts.iter().copied().max().unwrap_or(0),
            Counts::Local => 0,
        }
    }

    /// Sets the number of elements of all non-empty blocks, if they have equal sizes; does nothing for listed or local counts.
    pub fn set_largest(&mut self, elements: u64) {
        match &mut self.counts {
            Counts::Equal(count) | Counts::Root { count, .. } => *count = elements,
            Counts::Listed(_) | Counts::Local => {}
        }
    }

    /// Returns the number of elements in all blocks together; 0 if sizes are known only locally.
    pub fn total(&self) -> u64 {
        match &self.counts {
            Counts::Equal(n) => n * self.blocks(),
            Counts::Root { count, .. } => *count,
            Counts::Listed(counts) => counts.iter().sum(),
            Counts::Local => 0,
        }
    }

    /// Returns the number of elements per chunk if it is the same for all chunks. If sizes are known only locally, returns 1, because
    /// addresses then count slots instead of elements.
    pub fn chunk_elements(&self) -> Option<u64> {
        match self.counts {
            Counts::Equal(n) if n.is_multiple_of(self.pieces) => Some(n / self.pieces),
            Counts::Local => Some(1),
            _ => None,
        }
    }

    /// Returns the number of elements in a set of chunks, or `None` if sizes are known only locally. If all chunks are equal, takes time
    /// per run of the set, not per chunk.
    pub fn elements_of(&self, set: &Set) -> Option<u64> {
        let blocks = || set.runs().iter().flat_map(Run::blocks);
        match &self.counts {
            Counts::Local if !set.is_empty() => None,
            Counts::Equal(n) if n.is_multiple_of(self.pieces) => Some(n / self.pieces * set.len()),
            Counts::Root { root, count } if self.pieces == 1 => Some(set.position(root.0.into()).map_or(0, |_| *count)),
            Counts::Listed(counts) if self.pieces == 1 => {
                let of = |range: Range<u64>| counts.get(range.start as usize..range.end as usize);
                Some(blocks().map(|range| of(range).map_or(0, |counts| counts.iter().sum())).sum())
            }
            // For pieces of one vector, sums over blocks of consecutive pieces: the end of the last piece minus the start of the first.
            Counts::Equal(n) if self.collective == Collective::Allreduce => {
                Some(blocks().map(|range| self.piece_start(*n, range.end) - self.piece_start(*n, range.start)).sum())
            }
            _ => set.iter().map(|i| self.elements(i)).sum(),
        }
    }

    /// Returns the first element of a piece in a block of `elements` elements.
    pub fn piece_start(&self, elements: u64, piece: u64) -> u64 {
        match piece.checked_mul(elements) {
            Some(product) => product / self.pieces,
            None => (u128::from(piece) * u128::from(elements) / u128::from(self.pieces)) as u64,
        }
    }

    /// Whether all ranks know that a chunk has no elements.
    pub fn is_empty(&self, chunk: u64) -> bool {
        self.elements(chunk) == Some(0)
    }

    /// Returns the chunks of a set that are not known to be empty. If counts are equal, with at least one element per piece, these are all
    /// chunks of the set.
    pub fn nonempty(&self, set: &Set) -> Set {
        match self.counts {
            Counts::Local => set.clone(),
            Counts::Equal(n) if n >= self.pieces => set.clone(),
            Counts::Equal(0) => Set::new(),
            Counts::Root { root, count } if self.pieces == 1 => {
                let root = u64::from(root.0);
                if count > 0 && set.position(root).is_some() { Set::one(root) } else { Set::new() }
            }
            // If a vector has fewer elements than pieces, each element is a piece of its own, and the other pieces are empty.
            Counts::Equal(n) if self.collective == Collective::Allreduce && n < set.len() => {
                let piece = |element: u64| ((element + 1) * self.pieces).div_ceil(n) - 1;
                let mut filled: Vec<(u64, u64)> =
                    (0..n).filter_map(|element| Some((set.position(piece(element))?, piece(element)))).collect();
                filled.sort_unstable();
                filled.into_iter().map(|(_, piece)| piece).collect()
            }
            _ => set.iter().filter(|&c| !self.is_empty(c)).collect(),
        }
    }

    /// Whether a set has a chunk that is not known to be empty.
    pub fn any_nonempty(&self, set: &Set) -> bool {
        match self.counts {
            Counts::Equal(n) if n == 0 || n >= self.pieces => n > 0 && !set.is_empty(),
            Counts::Root { root, .. } => {
                let root = u64::from(root.0) * self.pieces;
                let mut pieces = root..root + self.pieces;
                pieces.any(|chunk| !self.is_empty(chunk) && set.position(chunk).is_some())
            }
            _ => set.iter().any(|chunk| !self.is_empty(chunk)),
        }
    }

    /// Returns the chunks in a rank's input buffer.
    pub fn input(&self, rank: Rank) -> Set {
        match self.collective {
            Collective::Allgather => self.block(rank),
            _ => Set::from(0..self.chunks()),
        }
    }

    /// Returns the chunks that a rank's output buffer must hold after the collective.
    pub fn output(&self, rank: Rank) -> Set {
        match self.collective {
            Collective::ReduceScatter => self.block(rank),
            _ => Set::from(0..self.chunks()),
        }
    }

    /// Returns the chunks of a rank's block.
    pub fn block(&self, rank: Rank) -> Set {
        let first = u64::from(rank.0) * self.pieces;
        Set::from(first..first + self.pieces)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ranks {} counts {}", self.collective, self.ranks, self.counts)?;
        if self.pieces != 1 {
            write!(f, " pieces {}", self.pieces)?;
        }
        write!(f, " element {}", self.element)?;
        match self.order {
            Order::Any => Ok(()),
            Order::Ranks => f.write_str(" ordered"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_vector() {
        for elements in [0, 1, 7, 12, 100] {
            for pieces in 1..20 {
                let vector = Problem::new(Collective::Allreduce, 4, Counts::Equal(elements), 8).unwrap();
                let problem = vector.cut(pieces).unwrap();
                let sizes: Vec<u64> = (0..pieces).map(|i| problem.elements(i).unwrap()).collect();
                assert_eq!(sizes.iter().sum::<u64>(), elements);
                assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(Problem::new(Collective::Allgather, 3, Counts::Listed(vec![1, 2]), 8).is_err());
        assert!(Problem::new(Collective::Allgather, 3, Counts::Local, 8).is_err());
        assert!(Problem::new(Collective::Allreduce, 3, Counts::Local, 8).is_err());
        assert!(Problem::new(Collective::Alltoall, 3, Counts::Local, 8).unwrap().cut(2).is_err());
        assert!(Problem::new(Collective::Allgather, 3, Counts::Equal(1), 8).unwrap().cut(0).is_err());
    }

    #[test]
    fn blocks_are_cut_one_behind_the_other() {
        let counts = Counts::Listed(vec![5, 0, 2]);
        let problem = Problem::new(Collective::Allgather, 3, counts, 8).unwrap().cut(2).unwrap();
        assert_eq!(problem.chunks(), 6);
        assert_eq!((0..6).map(|c| problem.elements(c).unwrap()).collect::<Vec<_>>(), [2, 3, 0, 0, 1, 1]);
        assert_eq!(problem.input(Rank(2)).to_string(), "4..6");
    }

    #[test]
    fn short_vectors_fill_few_pieces() {
        for (elements, pieces) in [(1, 8), (3, 8), (5, 12), (7, 12), (2, 13)] {
            let vector = Problem::new(Collective::Allreduce, 4, Counts::Equal(elements), 8).unwrap();
            let problem = vector.cut(pieces).unwrap();
            for set in [Set::from(0..pieces), Set::cyclic(pieces / 2, pieces - 1, pieces)] {
                let one_by_one: Set = set.iter().filter(|&c| !problem.is_empty(c)).collect();
                assert_eq!(problem.nonempty(&set), one_by_one, "{elements} in {pieces}");
            }
        }
    }

    #[test]
    fn sets_have_the_elements_of_their_chunks() {
        let listed = Counts::Listed(vec![3, 0, 2, 7, 1]);
        for (collective, counts, pieces) in [
            (Collective::Allgather, Counts::Equal(3), 1),
            (Collective::Allgather, listed.clone(), 1),
            (Collective::Allgather, listed, 3),
            (Collective::Allreduce, Counts::Equal(13), 5),
            (Collective::Allgather, Counts::Root { root: Rank(2), count: 4 }, 1),
        ] {
            let problem = Problem::new(collective, 5, counts, 8).unwrap().cut(pieces).unwrap();
            for set in [Set::from(1..4), Set::cyclic_run(0, 1, 2, 3, 5), Set::new(), Set::from(0..5)] {
                let one_by_one: u64 = set.iter().map(|chunk| problem.elements(chunk).unwrap()).sum();
                assert_eq!(problem.elements_of(&set), Some(one_by_one), "{problem}, {set}");
            }
        }
    }
}

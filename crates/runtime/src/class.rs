//! Decisions that depend on the amount of data.
//!
//! A plan is made for chunks of any size, and is bound to sizes when it runs. There are two forms of plans: one for chunks of equal size,
//! and one for chunks of different sizes. Binding decides how data lies in a segment, and which messages are posted first. Decisions on
//! which all ranks must agree depend only on values that all ranks know.

use bruckner_schedule::{Counts, Problem};

use crate::segment::FLAG_DATA_BYTES;

/// Largest chunk, in bytes, that may have a cache line of its own: the size of a cache line.
pub const SPREAD_CHUNK_BYTES: usize = 64;

/// Size limits for data layouts and for the order of messages. They are parameters, so that tests with little data reach every branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest line of slots (one for each chunk), in bytes, that is stored behind a flag, in the same cache line; at most
    /// [`FLAG_DATA_BYTES`].
    pub beside: usize,
    /// Largest chunk, in bytes, that gets a cache line of its own; at most [`SPREAD_CHUNK_BYTES`].
    pub spread: usize,
    /// Largest number of chunks that get cache lines of their own. With more chunks a reader would access too many cache lines.
    pub chunks: u64,
    /// Largest message, in bytes, that counts as short. If all messages that a rank sends together are short, they are posted before its
    /// receives.
    pub short: usize,
}

impl Limits {
    /// Limits measured on real machines.
    pub const MEASURED: Limits = Limits { beside: FLAG_DATA_BYTES, spread: SPREAD_CHUNK_BYTES, chunks: 16, short: 256 };
}

/// Layout of the lines (rows of slots) in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LineLayout {
    /// Each line lies on the cache line of a flag, so that a rank that reads the flag also gets the data. Lines for which there is no flag
    /// are dense.
    Beside,
    /// Each chunk has a cache line of its own, which avoids false sharing between ranks.
    Spread,
    /// The chunks of a line are contiguous.
    Dense,
}

impl LineLayout {
    /// Returns the layout for a problem whose sizes all ranks know. A smaller problem never needs more memory. The lines of a problem with
    /// a root are never spread, because only one block is non-empty, so there is no false sharing.
    pub fn of(problem: &Problem, limits: &Limits) -> LineLayout {
        let (element, chunks) = (u64::from(problem.element), problem.chunks());
        let few = chunks > 1 && chunks <= limits.chunks && !matches!(problem.counts, Counts::Root { .. });
        let largest = problem.largest_block().div_ceil(problem.pieces);
        if few && largest * element <= limits.spread as u64 {
            LineLayout::Spread
        } else if problem.total() * element <= limits.beside as u64 {
            LineLayout::Beside
        } else {
            LineLayout::Dense
        }
    }

    /// Returns the size of a line in bytes, a multiple of the cache line size.
    pub(crate) fn bytes(self, problem: &Problem) -> usize {
        match self {
            LineLayout::Spread => SPREAD_CHUNK_BYTES * problem.chunks() as usize,
            _ => (problem.total() as usize * problem.element as usize).next_multiple_of(SPREAD_CHUNK_BYTES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bruckner_schedule::{Collective, Rank};

    /// A plan that has enough memory for some count also has enough for every smaller count; the call cache relies on that.
    #[test]
    fn less_data_never_takes_more_room() {
        for ranks in [1, 2, 3, 5, 8, 13, 16, 17, 40] {
            for element in [1, 4, 8, 16] {
                for root in [false, true] {
                    let line = |count| {
                        let counts = match root {
                            true => Counts::Root { root: Rank(0), count },
                            false => Counts::Equal(count),
                        };
                        let problem = Problem::new(Collective::Allgather, ranks, counts, element).unwrap();
                        LineLayout::of(&problem, &Limits::MEASURED).bytes(&problem)
                    };
                    let lines: Vec<usize> = (1..200).map(line).collect();
                    assert!(lines.is_sorted(), "{ranks} ranks, elements of {element}, root {root}");
                }
            }
        }
    }
}

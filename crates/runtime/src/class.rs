//! Size classes: what depends on how much data there is.
//!
//! A plan is made for chunks of any size, and bound to sizes when it runs. It is made in one of two forms: for chunks that
//! are all equal, and for others. How data lies in a segment, and which messages are posted first, is decided when it is
//! bound. Whatever ranks must do alike is decided from what they share.

use bruckner_schedule::{Counts, Problem};

use crate::segment::BESIDE;

/// A cell up to this size may have a cache line of its own.
pub const CELL: usize = 64;

/// Up to what sizes forms are used. Parameters, so that small programs reach every branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most bytes of a line that lies beside a flag; at most [`BESIDE`].
    pub beside: usize,
    /// The most bytes of a chunk that has a cache line of its own; at most [`CELL`].
    pub spread: usize,
    /// The most chunks that are spread: reading more would touch too many cache lines.
    pub chunks: u64,
    /// The most bytes of messages that are sent before receives are posted.
    pub short: usize,
}

impl Limits {
    /// As measured on real machines.
    pub const MEASURED: Limits = Limits { beside: BESIDE, spread: CELL, chunks: 16, short: 256 };
}

/// How the lines of a segment lie for some sizes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lines {
    /// A line lies on the cache line of a flag, and travels with it.
    Beside,
    /// Every chunk has a cache line of its own, so that ranks do not write into each other's.
    Spread,
    /// Chunks lie one behind the other.
    Dense,
}

impl Lines {
    /// How they lie for a problem whose sizes all ranks know. Less data never takes more room. Where only one rank's block is
    /// not empty, nobody writes beside another.
    pub fn of(problem: &Problem, limits: &Limits) -> Lines {
        let (element, chunks) = (u64::from(problem.element), problem.chunks());
        let few = chunks > 1 && chunks <= limits.chunks && !matches!(problem.counts, Counts::Root { .. });
        let largest = problem.largest().div_ceil(problem.pieces);
        if few && largest * element <= limits.spread as u64 {
            Lines::Spread
        } else if problem.total() * element <= limits.beside as u64 {
            Lines::Beside
        } else {
            Lines::Dense
        }
    }

    /// The bytes of a line. Lines start on cache lines.
    pub(crate) fn bytes(self, problem: &Problem) -> usize {
        match self {
            Lines::Spread => CELL * problem.chunks() as usize,
            _ => (problem.total() as usize * problem.element as usize).next_multiple_of(CELL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bruckner_schedule::{Collective, Rank};

    /// A plan that has room for some count has room for every smaller one: calls are recognised by that.
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
                        Lines::of(&problem, &Limits::MEASURED).bytes(&problem)
                    };
                    let lines: Vec<usize> = (1..200).map(line).collect();
                    assert!(lines.is_sorted(), "{ranks} ranks, elements of {element}, root {root}");
                }
            }
        }
    }
}

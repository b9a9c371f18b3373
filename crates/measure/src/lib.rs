//! Measured times: the results file of `bruckner bench`, and the statistics of its samples. No MPI and no clock.
//!
//! [`Results`] are the contents of a file that `bruckner bench` writes: launches consist of cases, cases of blocks, and a block has the
//! times of all repetitions of each contender on every rank. [`Joined`] is one case over all launches. It gives the [`Times`] of one
//! contender and a [`Comparison`] of two, which uses only times measured in the same block.
//!
//! ```
//! use bruckner_measure::{compare, Verdict};
//! // Two launches of four blocks: what one contender took, divided by what the other took next to it.
//! let launches = [vec![0.70, 0.72, 0.69, 0.71], vec![0.74, 0.73, 0.75, 0.72]];
//! let comparison = compare(&launches, 0.99).unwrap();
//! assert_eq!(comparison.verdict(), Verdict::Faster);
//! ```

mod join;
pub mod native;
mod random;
mod results;
mod said;
mod statistics;

pub use join::{Joined, join, ratios};
pub use random::Random;
pub use results::{Block, Case, Contender, Launch, Look, Machine, MpiInfo, Results, Run, WrongFile};
pub use said::{bytes as bytes_text, shortened, time as time_text};
pub use statistics::{
    Comparison, Interval, Times, Verdict, compare, median, median_interval, paired, quantile, times,
};

//! Measured times: the results file of `bruckner bench`, and the statistics of its samples. No MPI and no clock.
//!
//! [`Results`] are the contents of a file that `bruckner bench` writes: launches consist of cases, cases of blocks, and a block has the
//! times of all repetitions of each contender on every rank. [`JoinedCase`] is one case over all launches. It gives the [`Times`] of one
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

pub use join::{JoinedCase, join_cases, ratios};
pub use random::SplitMix64;
pub use results::{Block, BlockTimes, Case, Contender, Host, Launch, MpiInfo, Results, ResultsError, TimingMethod};
pub use said::{bytes as bytes_text, shortened, time as time_text};
pub use statistics::{
    Comparison, ComparisonResult, Interval, Times, compare, median, median_interval, quantile, times, wilcoxon_interval,
};

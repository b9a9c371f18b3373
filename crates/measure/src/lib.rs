//! Measured times: the results file of `bruckner bench`, and statistics of the times in it. The crate uses no MPI and no clock.
//!
//! [`Results`] are the contents of a file that `bruckner bench` writes. A launch is one start of all ranks; it measures cases, each of
//! which is a collective at one size. A case consists of blocks; in a block, each contender runs once, and the block has the times of all
//! its repetitions on every rank. [`JoinedCase`] is one case over all launches. It returns the [`Times`] of one contender and a
//! [`Comparison`] of two contenders, which uses only times measured in the same block.
//!
//! ```
//! use bruckner_measure::{ComparisonResult, compare};
//! // Two launches of four blocks: in each block, the time of one contender divided by the time of the other.
//! let launches = [vec![0.70, 0.72, 0.69, 0.71], vec![0.74, 0.73, 0.75, 0.72]];
//! let comparison = compare(&launches, 0.99).unwrap();
//! assert_eq!(comparison.result(), ComparisonResult::Faster);
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

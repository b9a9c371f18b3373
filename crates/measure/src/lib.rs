//! Measured times: the file that keeps them, and what may be concluded from them. No MPI and no clock.
//!
//! [`Results`] are what `bruckner bench` writes: launches, each with its cases, each with its blocks, each with the time of
//! every repetition on every rank. [`Joined`] is one case over all launches; it gives [`Times`] of one contender and a
//! [`Comparison`] of two, which compares only what was measured side by side in the same block.
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

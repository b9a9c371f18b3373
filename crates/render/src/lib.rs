//! Figures and reports of benchmark results, and schedules in the trace format of SimGrid.
//!
//! A [`Figure`] is a set of [`Chart`]s that share a legend; [`times`], [`speeds`] and [`against`] make figures of results, [`Heat`] maps
//! the fastest contender for each collective and size, and [`report`] puts all of them on one HTML page. Pictures are SVG, embedded in the
//! page: text stays selectable, lines stay sharp, and no other file is needed.

mod chart;
mod figures;
mod heat;
mod markdown;
mod report;
mod ti;

pub use chart::{Chart, Figure, Mark, NoPicture, Point, Scale, Series};
pub use figures::{against, speeds, times};
pub use heat::Heat;
pub use markdown::markdown;
pub use report::report;
pub use ti::ti;

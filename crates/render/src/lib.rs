//! Figures and reports of benchmark results, and schedules in the trace format of SimGrid.
//!
//! A [`Figure`] is a set of [`Chart`]s that share a legend; [`times`], [`speedups`] and [`by_label`] make figures of results, [`HeatMap`] maps
//! the fastest contender for each collective and size, and [`report`] puts all of them on one HTML page. Pictures are SVG, embedded in the
//! page: text stays selectable, lines stay sharp, and no other file is needed.

mod chart;
mod figures;
mod heat;
mod markdown;
mod report;
mod ti;

pub use chart::{Chart, DrawError, Figure, Mark, Point, Scale, Series};
pub use figures::{by_label, speedups, times};
pub use heat::HeatMap;
pub use markdown::markdown;
pub use report::report;
pub use ti::ti;

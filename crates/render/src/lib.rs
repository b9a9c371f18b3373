//! Pictures and reports of what was measured, and schedules in the forms of others.
//!
//! A [`Figure`] is some [`Chart`]s that share their legend; [`times`], [`speeds`] and [`against`] make figures of results,
//! [`Heat`] is the map of who wins where, and [`report`] puts all of them on one page. Everything becomes SVG: text that is
//! selectable, lines that stay sharp, and no file besides.

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

//! Watching: which algorithm ran, and whether its results are native's.

mod advice;
mod check;
mod ledger;
mod record;
mod report;

pub(crate) use check::Shadow;
pub(crate) use ledger::{Books, By, Event, Ledger};
pub use record::{Checks, Ground, Record, Row, Seen};
pub(crate) use report::Run;
pub use report::{InCollectives, Machine, NoReport, Report};

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

/// The whole report of a run, of what all ranks told, with advice.
pub(crate) fn whole(texts: &[String], run: &Run<'_>) -> Report {
    let mut report = Report::join(texts, run);
    report.advice = advice::advice(&report);
    report
}

//! Watching: which algorithm ran, and whether its results are native's.

mod advice;
mod check;
mod report;

pub(crate) use check::Shadow;
pub(crate) use report::{Books, Event, Ground, Ledger};

use report::Whole;

/// The whole report, of the texts of all ranks.
pub(crate) fn whole(texts: &[String], mpi: &str, mode: &str, seconds: f64, complaints: &[String]) -> Whole {
    let mut whole = report::join(texts, mpi, mode, seconds, complaints);
    whole.advice = advice::advice(&whole.communicators, seconds);
    whole
}

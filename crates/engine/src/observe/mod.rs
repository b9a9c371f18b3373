//! Watching: which algorithm ran, and whether its results are native's.

mod advice;
mod check;
mod report;

pub(crate) use advice::Ground;
pub(crate) use check::Shadow;
pub(crate) use report::{Books, Event, Ledger, join};

//! Watching: which algorithm ran, and whether its results are native's.

mod check;
mod report;

pub(crate) use check::Shadow;
pub(crate) use report::{Books, Event, Ledger, join};

//! Reports about the collectives of a program.
//!
//! While the program runs, each rank adds up the time that it spends in collectives, and the first rank of each communicator counts the
//! communicator's calls ([`Statistics`], [`Counters`]). At the end rank 0 collects the text of all ranks and assembles the [`Report`],
//! which includes advice for the user. Reports of several runs can be added up.

mod advice;
mod record;
mod report;
mod statistics;

pub use record::{Checks, Evidence, Record, Row, Timings};
pub use report::{CollectiveTime, InvalidReport, JobPlacement, Report, RunInfo};
pub use statistics::{Counters, Event, Handler, Statistics};

/// Assembles the report of a run, with advice, from the texts of all ranks' [`Statistics`].
pub fn assemble(texts: &[String], run: &RunInfo<'_>) -> Report {
    let mut report = Report::join(texts, run);
    report.advice = advice::advice(&report);
    report
}

//! The table of results that `suite` and `suites` print.

use anyhow::{Result, bail};

use crate::launch::Outcome;
use crate::mpis::Mpi;

/// Lines of a failed test's output that are repeated at the end.
const LINES: usize = 30;

/// A table of results as they come.
pub(crate) struct Table {
    /// The failed tests, each with the end of its output.
    failed: Vec<String>,
    /// Only these MPIs, if any.
    asked: Vec<Mpi>,
}

impl Table {
    pub(crate) fn new(asked: Vec<Mpi>) -> Table {
        println!(
            "{:<12} {:<40} {:>5} {:>8} {:>8} {:>8}",
            "MPI", "test", "ranks", "cases", "failures", "seconds"
        );
        Table { failed: Vec::new(), asked }
    }

    /// Those of some MPIs that were asked for.
    pub(crate) fn of(&self, mpis: &[Mpi]) -> Vec<Mpi> {
        mpis.iter().copied().filter(|mpi| self.asked.is_empty() || self.asked.contains(mpi)).collect()
    }

    /// One line; the output of the test is shown only if something failed.
    pub(crate) fn tell(&mut self, mpi: &str, test: &str, ranks: u32, outcome: &Outcome) {
        let Outcome { cases, failures, seconds, talk } = outcome;
        println!("{mpi:<12} {test:<40} {ranks:>5} {cases:>8} {failures:>8} {seconds:>8.1}");
        if *failures > 0 {
            eprintln!("{talk}");
            let lines: Vec<&str> = talk.lines().collect();
            let end = lines[lines.len().saturating_sub(LINES)..].join("\n");
            self.failed.push(format!("{mpi} {test}, {ranks} ranks: {failures} of {cases}\n{end}"));
        }
    }

    /// Names the failed tests once more, where a reader of a long output looks first.
    pub(crate) fn end(self) -> Result<()> {
        if self.failed.is_empty() {
            return Ok(());
        }
        bail!("{} tests failed:\n\n{}", self.failed.len(), self.failed.join("\n\n"))
    }
}

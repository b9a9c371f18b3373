//! The table of results that `suite` and `suites` print.

use anyhow::{Result, bail};

use crate::launch::Outcome;
use crate::mpis::Mpi;

/// Number of lines of a failed test's output that are repeated at the end.
const LINES: usize = 30;

/// A table of results; each result is printed as soon as it is known.
pub(crate) struct Table {
    /// The failed tests, each with the end of its output.
    failed: Vec<String>,
    /// MPIs to test; empty for all.
    asked: Vec<Mpi>,
}

impl Table {
    pub(crate) fn new(asked: Vec<Mpi>) -> Table {
        println!("{:<12} {:<40} {:>5} {:>8} {:>8} {:>8}", "MPI", "test", "ranks", "cases", "failures", "seconds");
        Table { failed: Vec::new(), asked }
    }

    /// Returns those of `mpis` that are to be tested.
    pub(crate) fn of(&self, mpis: &[Mpi]) -> Vec<Mpi> {
        mpis.iter().copied().filter(|mpi| self.asked.is_empty() || self.asked.contains(mpi)).collect()
    }

    /// Prints one line; the output of the test is shown only if something failed.
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

    /// Returns an error that lists the failed tests again, if any, because people read the end of a long output first.
    pub(crate) fn end(self) -> Result<()> {
        if self.failed.is_empty() {
            return Ok(());
        }
        bail!("{} tests failed:\n\n{}", self.failed.len(), self.failed.join("\n\n"))
    }
}

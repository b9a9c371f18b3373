//! `bruckner report`: reads the reports of one or more runs and adds them up.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use bruckner_report::Report;
use clap::Args;

use crate::columns::folded;
use crate::{Answer, print};

/// Show the report of a run with BRUCKNER_REPORT=FILE.json, or the totals of several runs
#[derive(Args)]
#[command(after_help = "Examples:
  BRUCKNER_REPORT=run-%j.json mpirun -n 4 bruckner exec ./app
  bruckner report run-*.json")]
pub(crate) struct ReportOf {
    /// Report files; several must be from runs with the same MPI and the same value of BRUCKNER
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print JSON, as in the files, instead of a table
    #[arg(long)]
    json: bool,
}

impl ReportOf {
    pub(crate) fn run(&self) -> Result<Answer> {
        let mut all: Option<Report> = None;
        for file in &self.files {
            let new = read(file)?;
            match &mut all {
                None => all = Some(new),
                Some(all) => {
                    let both = |report: &Report| format!("{}, BRUCKNER={}", report.mpi, report.mode);
                    ensure!(
                        both(all) == both(&new),
                        "cannot add up reports: {} was written with {}, the files before it with {}",
                        file.display(),
                        both(&new),
                        both(all)
                    );
                    all.add(new);
                }
            }
        }
        let all = all.context("no report was given")?;
        print(&if self.json { all.json() } else { folded(&all.table()) })?;
        Ok(Answer::Success)
    }
}

/// Reads the report in a file.
pub(crate) fn read(file: &Path) -> Result<Report> {
    let shown = || file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(shown)?;
    Report::read(&text).with_context(shown)
}

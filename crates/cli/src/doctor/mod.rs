//! `bruckner doctor`: shows the MPI, the machine and a program as the library sees them, and reports problems.

mod installed;
mod program;
mod ranks;

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use bruckner_config::show_settings;
use bruckner_engine::Mpi;
use clap::Args;
use serde::Serialize;

use crate::columns::folded;
use crate::{Answer, print};

/// Check the MPI, the topology, shared memory and the settings for problems; under a launcher, on all ranks
///
/// Launch doctor the way you launch your program. If you name the program, doctor also checks whether the library can intercept its calls.
/// Exit status: 0 if no problem was found, otherwise 1.
#[derive(Args)]
#[command(after_help = "Examples:
  bruckner doctor ./app
  mpirun -n 4 bruckner doctor ./app
  srun -N 2 bruckner doctor --json")]
pub(crate) struct Doctor {
    /// Check whether the library can intercept the MPI calls of this program
    program: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Findings of a diagnosis.
#[derive(Default, Serialize)]
struct Findings {
    /// Facts as pairs of name and value.
    found: Vec<(&'static str, String)>,
    /// Conditions that may make collectives slow.
    notes: Vec<String>,
    /// Problems that keep the library from working.
    wrong: Vec<String>,
}

impl Findings {
    fn found(&mut self, what: &'static str, value: impl Into<String>) {
        self.found.push((what, value.into()));
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let notes = self.notes.iter().map(|note| ("note", note));
        let wrong = self.wrong.iter().map(|wrong| ("problem", wrong));
        for (what, value) in self.found.iter().map(|(what, value)| (*what, value)).chain(notes).chain(wrong) {
            let _ = writeln!(text, "{what:<14} {value}");
        }
        if self.wrong.is_empty() {
            text.push_str("no problems found\n");
        }
        text
    }
}

impl Doctor {
    pub(crate) fn run(&self) -> Result<Answer> {
        let mut findings = Findings::default();
        let mut family = None;
        let first = match Mpi::find_or_load() {
            Ok(mpi) => {
                family = Some(mpi.family);
                mpi.start()?;
                let first = mpi.rank(mpi.comm_world())? == 0 && ranks::is_first_of_job();
                if let Err(error) = ranks::examine(mpi, &mut findings) {
                    findings.wrong.push(format!("{error:#}"));
                }
                mpi.stop()?;
                first
            }
            Err(error) => {
                findings.found("MPI", format!("none: {error}"));
                findings.wrong.push(installed::where_to_look());
                let (_, complaints) = show_settings();
                findings.wrong.extend(complaints);
                ranks::is_first_of_job()
            }
        };
        if let Some(program) = self.program.as_deref().filter(|_| first) {
            program::examine(program, family, &mut findings);
        }
        if first {
            match self.json {
                true => print(&(serde_json::to_string_pretty(&findings)? + "\n"))?,
                false => print(&folded(&findings.text()))?,
            }
        }
        // Only the first rank returns a failure: a launcher kills all ranks when one fails, perhaps before the first has printed.
        Ok(if !first || findings.wrong.is_empty() { Answer::Success } else { Answer::Failure })
    }
}

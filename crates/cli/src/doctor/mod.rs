//! `bruckner doctor`: which MPI there is, what the library sees of the machine and of a program, and what is wrong.

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

/// Looks at the MPI, the topology, the shared memory and the settings; under mpirun, of all its ranks
///
/// Launch it the way you launch your program, and give it the program to have that looked at, too. Exit status 1: something is wrong.
#[derive(Args)]
#[command(after_help = "Examples:
  bruckner doctor ./app
  mpirun -n 4 bruckner doctor ./app
  srun -N 2 bruckner doctor --json")]
pub(crate) struct Doctor {
    /// The program, to see whether the library can serve it
    program: Option<PathBuf>,
    /// JSON instead of lines
    #[arg(long)]
    json: bool,
}

/// What there is to tell.
#[derive(Default, Serialize)]
struct Findings {
    /// What there is, by name.
    found: Vec<(&'static str, String)>,
    /// What may be slow.
    notes: Vec<String>,
    /// What does not work.
    wrong: Vec<String>,
}

impl Findings {
    fn found(&mut self, what: &'static str, value: impl Into<String>) {
        self.found.push((what, value.into()));
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let notes = self.notes.iter().map(|note| ("note", note));
        let wrong = self.wrong.iter().map(|wrong| ("wrong", wrong));
        for (what, value) in self.found.iter().map(|(what, value)| (*what, value)).chain(notes).chain(wrong) {
            let _ = writeln!(text, "{what:<14} {value}");
        }
        if self.wrong.is_empty() {
            text.push_str("nothing is wrong\n");
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
        // A launcher ends all ranks when one fails, also the one that has not spoken yet: it alone answers.
        Ok(if !first || findings.wrong.is_empty() { Answer::Holds } else { Answer::DoesNotHold })
    }
}

//! `bruckner compare`: measures whether the library makes a program faster.
//!
//! The program runs without and with the library in turns. Every second pair of runs is in opposite order, so that slow changes of the
//! machine affect both alike. These runs write no report, as in normal use. Then the program runs twice more with a report, once with the
//! library switched off and once switched on; the reports give the time that ranks spend in collectives.

mod verdict;
mod words;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use bruckner_report::{CollectiveTime, Report};
use clap::Args;

use self::verdict::{Outcome, Times};
use self::words::CommandLine;
use crate::bar::bar;
use crate::columns::folded;
use crate::exec::find_program;
use crate::{Answer, print, report};

/// Compare the run times of a program with and without the library: bruckner compare -- mpirun -n 4 ./app
#[derive(Args)]
#[command(after_help = "Examples:
  bruckner compare -- mpirun -n 4 ./app input
  bruckner compare --launches 20 -- srun -n 64 python3 app.py
  bruckner compare -- mpirun -n 4 bruckner exec app      # marks the program, if compare does not find it

Exit status: 0 if the program is faster with the library or there is no difference, 1 if it is slower.")]
pub(crate) struct Compare {
    /// Number of launches with the library, and the same number without it; at least 7, because fewer cannot show a difference
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(7..=1000))]
    launches: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Show the output of the program
    #[arg(long)]
    talk: bool,
    /// The launcher, the program and their arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Whether the program runs with the library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Without,
    With,
}

impl Compare {
    pub(crate) fn run(&self) -> Result<Answer> {
        let words = CommandLine::of(&self.command, &|word| find_program(word.as_ref()).is_some())?;
        let here = std::env::current_exe().context("cannot find the path of this command")?;
        let exec = [here.display().to_string(), "exec".to_owned()];
        let ways = [words.with(&[]), words.with(&exec)];
        if !self.json {
            eprintln!("without: {}\nwith:    {}", ways[0].join(" "), ways[1].join(" "));
        }
        let bar = bar(u64::from(2 * self.launches + 2));
        let mut times = Times::default();
        for pair in 0..self.launches {
            let mut order = [Variant::Without, Variant::With];
            if pair % 2 == 1 {
                order.reverse();
            }
            let mut took = [0.0; 2];
            for way in order {
                took[way as usize] = self.launch(&ways[way as usize])?;
                bar.inc(1);
            }
            times.push(took);
        }
        let mut reported = [None; 2];
        for (reported, mode) in reported.iter_mut().zip(["off", "on"]) {
            *reported = self.reported(&words, &exec, mode)?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        let outcome = Outcome::of(&times, reported);
        print(&if self.json { outcome.json() } else { folded(&outcome.table()) })?;
        Ok(if outcome.is_slower() { Answer::Failure } else { Answer::Success })
    }

    /// Runs a command and returns its wall time in seconds.
    fn launch(&self, words: &[String]) -> Result<f64> {
        let mut command = Command::new(&words[0]);
        // Libraries that the user preloads stay, in both kinds of run.
        command.args(&words[1..]).env("LD_PRELOAD", without_library()).stdin(Stdio::null());
        // The variable overrides the user's settings file.
        command.env("BRUCKNER", "on").env_remove("BRUCKNER_REPORT");
        if !self.talk {
            command.stdout(Stdio::null()).stderr(Stdio::piped());
        }
        let start = Instant::now();
        let ended = command.spawn().and_then(std::process::Child::wait_with_output);
        let seconds = start.elapsed().as_secs_f64();
        let ended = ended.with_context(|| words[0].clone())?;
        if !ended.status.success() {
            let said = String::from_utf8_lossy(&ended.stderr);
            let tail: String = said.chars().skip(said.chars().count().saturating_sub(4000)).collect();
            bail!("{tail}`{}` failed ({}): no comparison is possible", words.join(" "), ended.status);
        }
        Ok(seconds)
    }

    /// Runs the program with a report and returns the time in collectives; `None` if the library wrote no report.
    fn reported(&self, words: &CommandLine, exec: &[String], mode: &str) -> Result<Option<CollectiveTime>> {
        let file = TempFile::new()?;
        let env = ["env".to_owned(), format!("BRUCKNER={mode}"), format!("BRUCKNER_REPORT={}", file.0.display())];
        self.launch(&words.with(&[&env[..], exec].concat()))?;
        match file.0.exists() {
            true => report::read(&file.0).map(|report: Report| report.in_collectives),
            false => Ok(None),
        }
    }
}

/// Path of a temporary file, which is removed on drop.
struct TempFile(PathBuf);

impl TempFile {
    fn new() -> Result<TempFile> {
        let name = format!("bruckner-compare-{}.json", std::process::id());
        // The file lies in the current directory, which other nodes probably share, because rank 0 may run on one of them.
        let file = std::env::current_dir().context("cannot find the current directory")?.join(name);
        ensure!(!file.exists(), "{} exists already: remove it, or run from another directory", file.display());
        Ok(TempFile(file))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns `LD_PRELOAD` without the library.
fn without_library() -> String {
    let all = std::env::var("LD_PRELOAD").unwrap_or_default();
    let is_other = |one: &&str| !one.is_empty() && !one.contains("libbruckner");
    all.split([':', ' ']).filter(is_other).collect::<Vec<_>>().join(":")
}

//! Messages from a rank to the process that started its launcher, and the progress bar.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use bruckner_measure::Launch;
use indicatif::{ProgressBar, ProgressStyle};

/// Prefixes of lines for the process that started the launcher.
const PROGRESS: &str = "bruckner-bench-progress ";
const LAUNCH: &str = "bruckner-bench-launch ";

/// Content of a line that a rank has written.
pub(crate) enum Message<'a> {
    /// Fraction of the launch that is done.
    Progress(f64),
    /// Results of the launch.
    Launch(Box<Launch>),
    /// Any other output, for the user.
    Other(&'a str),
}

/// Parses a line of output. The launcher may have put a prefix before it.
pub(crate) fn hear(line: &str) -> Message<'_> {
    let after = |mark: &str| line.find(mark).map(|at| line[at + mark.len()..].trim_end());
    if let Some(part) = after(PROGRESS).and_then(|part| part.parse().ok()) {
        return Message::Progress(part);
    }
    match after(LAUNCH).and_then(|launch| serde_json::from_str(launch).ok()) {
        Some(launch) => Message::Launch(launch),
        None => Message::Other(line),
    }
}

/// Writes the results of a launch for the process that started the launcher.
pub(crate) fn send(launch: &Launch) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{LAUNCH}{}\n", serde_json::to_string(launch)?).as_bytes())?;
    Ok(out.flush()?)
}

/// Returns a progress bar of 1000 steps with the remaining time.
pub(crate) fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent} % {eta} left  {msg}").expect("a fixed template");
    ProgressBar::new(1000).with_style(style)
}

/// Reports the progress of a launch: by a bar, by lines for the process that started the launcher, or not at all.
pub(crate) struct Progress {
    bar: ProgressBar,
    speak: bool,
    cases: usize,
    done: usize,
    last: Instant,
}

impl Progress {
    pub(crate) fn new(first: bool, speak: bool, cases: usize) -> Progress {
        let bar = if first && !speak { bar() } else { ProgressBar::hidden() };
        Progress { bar, speak: speak && first, cases: cases.max(1), done: 0, last: Instant::now() }
    }

    /// Reports that the fraction `part` of the current case is done, at most every 200 ms, so that output does not disturb the
    /// measurement.
    pub(crate) fn told(&mut self, part: f64) {
        if self.last.elapsed() > Duration::from_millis(200) {
            self.last = Instant::now();
            self.say(part);
        }
    }

    fn say(&self, part: f64) {
        let all = (self.done as f64 + part) / self.cases as f64;
        self.bar.set_position((all * 1000.0) as u64);
        if self.speak {
            // A write error is ignored: if the launcher is gone, it ends this process.
            let _ = writeln!(std::io::stdout(), "{PROGRESS}{all:.3}");
        }
    }

    pub(crate) fn case_done(&mut self) {
        self.done += 1;
        self.say(0.0);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Restarts this command with environment variables that MPI reads at start-up. Returns `None` if the variables are already set, or the
/// error if the restart fails.
pub(crate) fn restart_with_environment(variables: &[(String, String)]) -> Option<std::io::Error> {
    let set = |(name, value): &(String, String)| std::env::var(name).is_ok_and(|now| now == *value);
    if variables.iter().all(set) {
        return None;
    }
    let this = match std::env::current_exe() {
        Ok(this) => this,
        Err(error) => return Some(error),
    };
    Some(Command::new(this).args(std::env::args_os().skip(1)).envs(variables.iter().cloned()).exec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_may_mark_lines() {
        assert!(
            matches!(hear("[1,0]<stdout>: bruckner-bench-progress 0.250"), Message::Progress(part) if part == 0.25)
        );
        assert!(matches!(hear("something else"), Message::Other("something else")));
    }
}

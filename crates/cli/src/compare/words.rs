//! Finds the program in a launcher's command line.

use std::path::Path;

use anyhow::{Result, bail};

/// Options of launchers that have no value, so the next word may be the program. Every other option may have a value.
const FLAGS: [&str; 24] = [
    "--allow-run-as-root",
    "--oversubscribe",
    "-oversubscribe",
    "--overcommit",
    "-O",
    "--exclusive",
    "--label",
    "-l",
    "--unbuffered",
    "-u",
    "--report-bindings",
    "--display-map",
    "--tag-output",
    "--verbose",
    "-v",
    "-q",
    "--quiet",
    "--do-not-launch-daemons",
    "--use-hwthread-cpus",
    "--timestamp-output",
    "--nolocal",
    "-prepend-rank",
    "-print-all-exitcodes",
    "-K",
];

/// Options of launchers with two values.
const PAIRS: [&str; 8] = ["--mca", "-mca", "--gmca", "-gmca", "--prtemca", "-genv", "-env", "--pmixmca"];

/// Options of launchers whose value may be the name of a program.
const PROGRAMS: [&str; 4] = ["-launcher-exec", "-bootstrap-exec", "--launch-agent", "-rmk"];

/// Prefixes of launchers' names. Other commands may precede a launcher: `env`, `timeout`.
const LAUNCHERS: [&str; 9] = ["mpirun", "mpiexec", "orterun", "prterun", "prun", "srun", "aprun", "jsrun", "ibrun"];

/// Whether a word is the name of a launcher.
fn is_launcher(word: &str) -> bool {
    let name = Path::new(word).file_name().unwrap_or_default().to_string_lossy();
    LAUNCHERS.iter().any(|launcher| name.starts_with(launcher))
}

/// A launcher's command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    words: Vec<String>,
    /// Indices of the programs in `words`; a job may have several programs, separated by `:`.
    programs: Vec<usize>,
}

impl CommandLine {
    /// Parses a command line. `is_program` says whether a word is an executable file, or a command found in `PATH`.
    pub(super) fn of(words: &[String], is_program: &dyn Fn(&str) -> bool) -> Result<CommandLine> {
        let mut all = CommandLine { words: Vec::new(), programs: Vec::new() };
        for (number, part) in words.split(|word| word == ":").enumerate() {
            if number > 0 {
                all.words.push(":".to_owned());
            }
            let part = without_exec(part);
            // If no word has a launcher's name, the first word is the launcher.
            let launcher = || part.words.iter().position(|word| is_launcher(word)).unwrap_or(0);
            let from = if number == 0 { launcher() + 1 } else { 0 };
            let Some(at) = program_of(&part.words, from, part.at, is_program) else {
                bail!(
                    "cannot tell which word of `{}` is the program: give its path, as in `bruckner compare -- mpirun -n 4 ./app`, or put \
                     `bruckner exec` before it, as in `bruckner compare -- mpirun -n 4 bruckner exec app`",
                    words.join(" ")
                );
            };
            all.programs.push(all.words.len() + at);
            all.words.extend(part.words);
        }
        Ok(all)
    }

    /// Returns the command line with the words of `before` inserted before each program.
    pub(super) fn with(&self, before: &[String]) -> Vec<String> {
        let mut all = Vec::new();
        for (at, word) in self.words.iter().enumerate() {
            if self.programs.contains(&at) {
                all.extend_from_slice(before);
            }
            all.push(word.clone());
        }
        all
    }
}

/// The words of one program's command without `bruckner exec`, and the index where `bruckner exec` stood.
struct Part {
    words: Vec<String>,
    at: Option<usize>,
}

fn without_exec(words: &[String]) -> Part {
    let is_exec =
        |pair: &[String]| Path::new(&pair[0]).file_name().is_some_and(|name| name == "bruckner") && pair[1] == "exec";
    let at = words.windows(2).position(is_exec);
    let mut words = words.to_vec();
    if let Some(at) = at {
        words.drain(at..at + 2);
    }
    Part { words, at }
}

/// Returns the index of the program: `said` if the user marked it, else the first executable after the launcher that cannot be an option's
/// value.
fn program_of(words: &[String], from: usize, said: Option<usize>, is_program: &dyn Fn(&str) -> bool) -> Option<usize> {
    if let Some(at) = said {
        return (at < words.len()).then_some(at);
    }
    (from..words.len()).find(|&at| {
        let word = words[at].as_str();
        let at_back = |by: usize| at.checked_sub(by).map_or("", |before| words[before].as_str());
        let before = at_back(1);
        if PAIRS.contains(&before) || PAIRS.contains(&at_back(2)) || PROGRAMS.contains(&before) {
            return false;
        }
        // A value such as `node` may also be the name of a command.
        let may_be_value = before.starts_with('-') && !before.contains('=') && !FLAGS.contains(&before);
        !word.starts_with('-') && (word.contains('/') || !may_be_value) && is_program(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn found(text: &str) -> Result<String> {
        let known = |word: &str| ["./app", "/opt/lmp", "python3", "node", "mpirun", "4"].contains(&word);
        Ok(CommandLine::of(&words(text), &known)?.with(&words("bruckner exec")).join(" "))
    }

    #[test]
    fn the_program_is_found_behind_the_launcher() {
        let same = [
            ("mpirun -n 4 ./app x", "mpirun -n 4 bruckner exec ./app x"),
            ("mpirun --map-by node -n 4 ./app", "mpirun --map-by node -n 4 bruckner exec ./app"),
            ("mpirun --oversubscribe python3 x.py", "mpirun --oversubscribe bruckner exec python3 x.py"),
            ("srun --mpi=pmix python3 x.py", "srun --mpi=pmix bruckner exec python3 x.py"),
            ("mpirun -n 4 python3 x.py", "mpirun -n 4 bruckner exec python3 x.py"),
            ("mpirun -n 2 ./app : -n 2 /opt/lmp", "mpirun -n 2 bruckner exec ./app : -n 2 bruckner exec /opt/lmp"),
            ("env X=1 mpirun -n 4 ./app", "env X=1 mpirun -n 4 bruckner exec ./app"),
            ("mylauncher ./app", "mylauncher bruckner exec ./app"),
            ("mpirun --mca plm node -n 4 ./app", "mpirun --mca plm node -n 4 bruckner exec ./app"),
            ("mpirun -genv X python3 -n 4 ./app", "mpirun -genv X python3 -n 4 bruckner exec ./app"),
            ("mpirun -launcher-exec /opt/lmp ./app", "mpirun -launcher-exec /opt/lmp bruckner exec ./app"),
            ("mpirun --nolocal python3 x.py", "mpirun --nolocal bruckner exec python3 x.py"),
            // Here `bruckner exec` marks the program.
            ("mpirun -n 4 /usr/bin/bruckner exec other y", "mpirun -n 4 bruckner exec other y"),
        ];
        for (asked, wanted) in same {
            assert_eq!(found(asked).unwrap(), wanted);
        }
    }

    #[test]
    fn where_there_is_none_a_right_spelling_is_shown() {
        for wrong in ["mpirun -n 4", "mpirun -n 4 app", "./app", "mpirun -n 2 ./app :"] {
            let why = found(wrong).unwrap_err().to_string();
            assert!(why.contains("bruckner compare -- mpirun -n 4 ./app"), "{wrong}: {why}");
        }
    }
}

//! `bruckner tune`: measures which algorithms are fastest here, and writes the profile of the machine.

mod check;
mod diff;
mod export;
mod learn;
mod natives;
mod shapes;
mod tuning_run;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use bruckner::{Communicator, Name};
use bruckner_choose::{
    Ability, DecisionTables, Knowledge, Origin, Policy, Profile, Provenance, Question, Source, TuningResult, VERSION,
    Vendor,
};
use bruckner_engine::mpi::AgreeOp;
use bruckner_engine::{Engine, Mpi};
use bruckner_measure::{bytes_text, time_text};
use bruckner_model::Shape;
use bruckner_schedule::{Collective, Counts, Problem, Topology};
use clap::Args;

use crate::bench::Progress;
use crate::columns::folded;
use crate::explain::read_profile;
use crate::machines::in_json;
use crate::{Answer, ask, bench, print, probe};
use tuning_run::{CaseResult, tune_case};

/// Measure which algorithms are fastest on this machine, and write the results to its profile
///
/// `bruckner tune -o here.toml -- mpirun -n 16` starts the launcher twice, because programs use an algorithm only after it has won in two
/// launches. Started by a launcher, `mpirun -n 16 bruckner tune -o here.toml` is one launch: run it again with the same file to confirm
/// the winners. The file is written after each case (one collective at one size), so tuning can be interrupted and continued.
///
/// First the costs of messages and shared memory are measured, as by `bruckner probe`. Then, for each collective and size, the algorithms
/// that the model predicts to be fastest are measured against the MPI's own function, in blocks that run each once. To win, an algorithm
/// must be faster than that function with 99 % confidence, and by at least 5 % in the median. In nineteen of twenty blocks it must not be
/// more than 5 % slower.
///
/// The library reads the profile that BRUCKNER_PROFILE names; without that setting, /etc/bruckner/profile.toml, else
/// ~/.config/bruckner/profile.toml.
#[derive(Args)]
pub(crate) struct Tune {
    /// Profile to write; if it already has results for this MPI, they are kept until they are measured again. With --export, the directory
    /// for the tuning files
    #[arg(short, long, value_name = "FILE", required_unless_present = "diff")]
    output: Option<PathBuf>,
    /// Time limit for all launches together, such as 90s, 10m or 1h
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
    budget: Duration,
    /// Collectives to tune
    #[arg(long, value_name = "NAME,NAME…", value_delimiter = ',', value_parser = collective,
          default_value = "allgather,allreduce,reduce_scatter,alltoall")]
    collectives: Vec<Collective>,
    /// Message sizes, counted as in `bruckner explain`
    #[arg(long, value_name = "N,N…", value_delimiter = ',', default_value = "8,64,512,4096,32768,262144,1048576",
          value_parser = size)]
    bytes: Vec<u64>,
    /// Number of algorithms to measure against the MPI's own function for each collective and size
    #[arg(long, value_name = "N", default_value_t = 3)]
    candidates: usize,
    /// Also find the fastest of the MPI's own algorithms, for `--export`: uses half of the budget, and one launch for each setting of the
    /// MPI that selects an algorithm
    #[arg(long, requires = "launcher")]
    natives: bool,
    /// Write tuning files with which this MPI uses the fastest of its own algorithms, and print the shell commands that enable them;
    /// measures nothing
    #[arg(long, value_name = "MPI", requires = "from", conflicts_with_all = ["diff", "launcher"])]
    export: Option<export::Format>,
    /// Profile to export, written by `bruckner tune --natives`
    #[arg(long, value_name = "FILE", requires = "export")]
    from: Option<PathBuf>,
    /// Add the results of online tuning in these reports (`BRUCKNER_REPORT=FILE.json`) to the profile; they take effect after a tuning
    /// run has confirmed them; measures nothing
    #[arg(long, value_name = "REPORT", num_args = 1.., conflicts_with_all = ["diff", "export", "natives", "launcher"])]
    learn: Vec<PathBuf>,
    /// Show the differences between two profiles; measures nothing
    #[arg(long, value_names = ["OLD", "NEW"], num_args = 2, conflicts_with = "output")]
    diff: Option<Vec<PathBuf>>,
    /// Print the profile, or with `--diff` the differences, as JSON
    #[arg(long, conflicts_with_all = ["export", "learn"])]
    json: bool,
    /// Launcher and its options, such as mpirun -n 16; if omitted, start this command with a launcher
    #[arg(last = true, value_name = "LAUNCHER")]
    launcher: Vec<String>,
}

fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let unit = match unit {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("expected a time such as 90s, 10m or 1h".into()),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * unit);
    let seconds = seconds.filter(|seconds| (1.0..=1e6).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected a time such as 90s, 10m or 1h".to_owned())
}

fn collective(text: &str) -> Result<Collective, String> {
    let all = || Collective::ALL.map(|collective| collective.to_string()).join(", ");
    let name = ask::collective(text)?;
    Collective::from_name(&name).ok_or_else(|| format!("expected one of {}", all()))
}

/// Parses a number of bytes in the range that can be tuned.
fn size(text: &str) -> Result<u64, String> {
    let bytes = ask::parse_bytes(text)?;
    if (8..=1 << 30).contains(&bytes) { Ok(bytes) } else { Err("expected a size from 8 bytes to 1 GiB".to_owned()) }
}

/// Number of launches that must agree on a winner.
const LAUNCHES: u32 = 2;

/// Parameters of the tuning of one communicator: ranks, candidates, time limit and profile file.
struct TuneParameters<'a> {
    mpi: &'static Mpi,
    ranks: Communicator,
    tables: DecisionTables,
    time: Duration,
    output: &'a Path,
}

impl Tune {
    pub(crate) fn run(self) -> Result<Answer> {
        if let Some(files) = &self.diff {
            let [old, new] = &files[..] else { bail!("--diff takes two profiles") };
            let changes = diff::diff(&read_profile(old)?, &read_profile(new)?);
            print(&if self.json { diff::json(&changes) } else { folded(&diff::text(&changes)) })?;
            return Ok(Answer::Success);
        }
        let output = self.output.as_deref().context("a file for the profile")?;
        if let (Some(format), Some(from)) = (self.export, &self.from) {
            print(&export::export(format, &read_profile(from)?, output)?)?;
            return Ok(Answer::Success);
        }
        if !self.learn.is_empty() {
            print(&learn::learn(&self.learn, output)?)?;
            return Ok(Answer::Success);
        }
        if self.launcher.is_empty() { self.as_a_rank(output) } else { self.start(output) }
    }

    /// Starts the launcher twice, so that the second launch confirms the winners of the first.
    fn start(&self, output: &Path) -> Result<Answer> {
        let this = std::env::current_exe()?;
        for launch in 1..=LAUNCHES {
            eprintln!("bruckner tune: launch {launch} of {LAUNCHES}");
            let list = |all: Vec<String>| all.join(",");
            let mut command = Command::new(&self.launcher[0]);
            command.args(&self.launcher[1..]).arg(&this).arg("tune").arg("--output").arg(output);
            let seconds = self.tuning_time().as_secs_f64() / f64::from(LAUNCHES);
            command.arg("--budget").arg(format!("{}s", seconds.max(1.0)));
            command.arg("--collectives").arg(list(self.collectives.iter().map(ToString::to_string).collect()));
            command.arg("--bytes").arg(list(self.bytes.iter().map(ToString::to_string).collect()));
            command.arg("--candidates").arg(self.candidates.to_string());
            if self.json {
                command.stdout(Stdio::null());
            }
            let status = command.status().with_context(|| self.launcher[0].clone())?;
            ensure!(status.success(), "{} ended with {status}", self.launcher[0]);
        }
        if self.natives {
            eprintln!("bruckner tune: measuring the MPI's own algorithms");
            let time = self.budget.saturating_sub(self.tuning_time());
            let found = natives::find(&self.launcher, &self.collectives, &self.bytes, time, output)?;
            if !self.json {
                print(&found)?;
            }
        }
        if self.json {
            print(&in_json(&std::fs::read_to_string(output)?)?)?;
        }
        Ok(Answer::Success)
    }

    /// Returns the part of the budget for measuring the library's algorithms; the rest is for the MPI's own algorithms.
    fn tuning_time(&self) -> Duration {
        if self.natives { self.budget / 2 } else { self.budget }
    }

    fn as_a_rank(&self, output: &Path) -> Result<Answer> {
        let mpi = Mpi::find_or_load()?;
        mpi.start()?;
        Engine::get()?.init()?;
        let done = self.under_mpi(mpi, output).unwrap_or_else(|error| {
            eprintln!("bruckner: {error:#}");
            mpi.abort(2)
        });
        mpi.stop()?;
        match done {
            Some(_) if self.json => print(&in_json(&std::fs::read_to_string(output)?)?)?,
            Some(text) => print(&text)?,
            None => {}
        }
        Ok(Answer::Success)
    }

    /// Runs all measurements. Returns the text to print, on the first rank. Collective.
    fn under_mpi(&self, mpi: &'static Mpi, output: &Path) -> Result<Option<String>> {
        let began = Instant::now();
        let world = mpi.comm_world();
        let first = mpi.rank(world)? == 0;
        let topology: Topology =
            Engine::get()?.findings()?.topology.parse().map_err(|why| anyhow!("the topology: {why}"))?;
        ensure!(
            topology.ranks() > 1,
            "tune needs at least two ranks, such as `mpirun -n 2 bruckner tune -o here.toml`"
        );
        let shape = Shape::of(&topology);
        ensure!(
            shape.ranks() == topology.ranks(),
            "the topology is {topology}: start the same number of ranks on each node"
        );
        // All ranks use the first rank's profile, word for word: clocks and files differ between ranks, and ranks that measured other
        // cases, or in another order, would deadlock.
        let old = if first { self.old(mpi, output)? } else { String::new() };
        let old = mpi.share_text(world, &old)?;
        let read = |text: &str| Ok::<_, anyhow::Error>(Profile::read(text).map_err(|why| anyhow!("{why}"))?.0);
        let kept = if old.is_empty() { None } else { Some(read(&old)?) };
        // A profile measured on one node only lacks the costs between nodes.
        let knows = |profile: &Profile| shape.nodes == 1 || profile.results.iter().any(|tuned| tuned.shape.nodes > 1);
        let mut profile = match kept {
            Some(kept) if knows(&kept) => kept,
            kept => {
                let fresh = fresh(mpi)?;
                let fresh = match kept {
                    Some(kept) => Profile { results: kept.results, natives: kept.natives, ..fresh },
                    None => fresh,
                }
                .write();
                read(&mpi.share_text(world, if first { &fresh } else { "" })?)?
            }
        };
        let steady = Source { machine: profile.machine.clone(), origin: Origin::Profile };
        let known = Knowledge { reproducible: steady, ..Knowledge::defaults(Vendor::of(&profile.provenance.mpi)) };
        let parts = shapes::parts(&topology);
        let sizes = |part: usize| self.bytes.iter().step_by(if part == 0 { 1 } else { 2 });
        let cases = |part: usize| {
            let all = self.collectives.iter().flat_map(|one| sizes(part).map(move |bytes| (*one, *bytes)));
            // A case listed twice is measured once, because one launch cannot confirm itself.
            let mut seen = Vec::new();
            all.filter(|case| {
                !seen.contains(case) && {
                    seen.push(*case);
                    true
                }
            })
            .collect::<Vec<_>>()
        };
        let mut talk = Progress::new(first, false, (0..parts.len()).map(|part| cases(part).len()).sum());
        let mut text = String::new();
        let me = mpi.rank(world)? as usize;
        for (number, part) in parts.iter().enumerate() {
            // The first rank's clock decides for all ranks.
            let mut up = [u64::from(first && number > 0 && began.elapsed() >= self.budget)];
            mpi.agree(world, AgreeOp::Max, &mut up)?;
            if up[0] == 1 {
                break;
            }
            let mine = part.members[me];
            let ranks = match number {
                0 => Communicator::world()?,
                _ => Communicator::world()?.split(u32::from(!mine))?,
            };
            if mine {
                // The communicator of all ranks gets half of the time, because most calls use it.
                let left = self.budget.saturating_sub(began.elapsed());
                let share = if number == 0 { 2 } else { parts.len() - number };
                let time = if parts.len() == 1 { left } else { left / share as u32 };
                let known = Arc::new(known.clone());
                let topology = Arc::new(part.topology.clone());
                let tables = DecisionTables::new(topology, known, Policy::default(), Ability::default());
                let parameters = TuneParameters { mpi, ranks, tables, time, output };
                let at = profile.of_shape(part.shape);
                text.push_str(&self.tune_cases(parameters, &cases(number), &mut profile, at, &mut talk)?);
            }
            shapes::sleeping_barrier(Communicator::world()?)?;
        }
        talk.finish();
        let wins = |result: &&TuningResult| !result.is_native();
        let unconfirmed = profile
            .results
            .iter()
            .flat_map(|tuned| &tuned.results)
            .filter(wins)
            .filter(|result| result.launches < LAUNCHES)
            .count();
        if unconfirmed > 0 {
            text.push_str(&format!(
                "unconfirmed winners: {unconfirmed}; they take effect when another launch confirms them: tune again with the same file\n"
            ));
        }
        text.push_str(&check::self_check(&profile));
        Ok(first.then_some(text))
    }

    /// Measures all cases on the ranks of one communicator, and returns the text to print; only the first rank of the communicator has all
    /// of it. Collective on the communicator.
    fn tune_cases(
        &self,
        parameters: TuneParameters<'_>,
        cases: &[(Collective, u64)],
        profile: &mut Profile,
        at: usize,
        talk: &mut Progress,
    ) -> Result<String> {
        let TuneParameters { mpi, ranks: world, tables, time, output } = parameters;
        let began = Instant::now();
        let first = world.rank()? == 0;
        let mut ranks = bench::Ranks::on(mpi, world, profile.provenance.when)?;
        let mut text = format!("{}\n", profile.results[at].shape);
        for (number, (collective, bytes)) in cases.iter().enumerate() {
            let name = Name::read(&collective.to_string()).context("a collective")?;
            let problem =
                Problem::new(*collective, world.size()?, Counts::Equal(bytes / 8), 8).map_err(|why| anyhow!(why))?;
            let question = Question { name, problem: &problem, is_order_sensitive: collective.reduces() };
            let results = &mut profile.results[at].results;
            let before = results.iter().position(|other| other.name == name && other.bytes == *bytes);
            let racers = tables.tuning_candidates(&question, self.candidates);
            let mut candidates: Vec<String> = racers.iter().map(ToString::to_string).collect();
            if let Some(before) = before {
                let winner = results[before].expression.to_string();
                if !results[before].is_native() && !candidates.contains(&winner) {
                    candidates.push(winner);
                }
            }
            // Time that one case does not use goes to the remaining cases; the first rank's clock decides for all ranks.
            let left = time.saturating_sub(began.elapsed()).as_secs_f64();
            let mine = if first { (left / (cases.len() - number) as f64).max(0.05) } else { 0.0 };
            let mut share = [mine.to_bits()];
            mpi.agree(world.handle(), AgreeOp::Max, &mut share)?;
            let seconds = Duration::from_secs_f64(f64::from_bits(share[0]));
            let known = before.map(|before| &results[before]);
            let tuned = bench::Problem { name, size: bench::Size::Bytes(*bytes) };
            let found = tune_case(&mut ranks, &tuned, &candidates, known, seconds, &mut |part| talk.told(part))?;
            let result = combined(known, &found, name, *bytes);
            if first {
                text.push_str(&row(&result));
            }
            match before {
                Some(before) => results[before] = result,
                None => results.push(result),
            }
            talk.case_done();
            if first {
                write_profile(profile, output)?;
            }
        }
        Ok(text)
    }

    /// Returns the text of an existing profile, or an empty text if there is none. A profile for another MPI is an error.
    fn old(&self, mpi: &Mpi, output: &Path) -> Result<String> {
        if !output.exists() {
            let directory = output.parent().filter(|parent| !parent.as_os_str().is_empty());
            ensure!(directory.is_none_or(Path::is_dir), "{}: there is no such directory", output.display());
            return Ok(String::new());
        }
        let profile = read_profile(output)?;
        let here = bench::mpi_name(mpi);
        ensure!(
            profile.provenance.mpi == here,
            "{} is a profile for {}, but this MPI is {here}: name another file with -o",
            output.display(),
            profile.provenance.mpi
        );
        Ok(profile.write())
    }
}

/// Measures the costs of this machine for a new profile, which has no tuning results yet. Collective.
fn fresh(mpi: &'static Mpi) -> Result<Profile> {
    let mut ranks = probe::Ranks::new(mpi)?;
    let nodes = ranks.nodes();
    let (machine, _) = probe::measure(mpi, &mut ranks, &nodes, "here")?;
    let when = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let provenance = Provenance {
        version: VERSION,
        mpi: bench::mpi_name(mpi),
        bruckner: env!("CARGO_PKG_VERSION").to_owned(),
        cpu: bench::processor(),
        when,
    };
    Ok(Profile { machine, provenance, results: Vec::new(), natives: Vec::new() })
}

/// Writes a profile atomically, by renaming a temporary file.
fn write_profile(profile: &Profile, output: &Path) -> Result<()> {
    let mut name = output.file_name().context("a file")?.to_owned();
    name.push(".new");
    let new = output.with_file_name(name);
    std::fs::write(&new, profile.write()).with_context(|| new.display().to_string())?;
    std::fs::rename(&new, output).with_context(|| output.display().to_string())
}

/// Rounds to three significant digits, so that a very small ratio does not become 0.
fn rounded(number: f64) -> f64 {
    format!("{number:.2e}").parse().unwrap_or(number)
}

/// Combines the result of a measurement with the earlier result for the same case.
fn combined(before: Option<&TuningResult>, found: &CaseResult, name: Name, bytes: u64) -> TuningResult {
    let native = || "native".parse().expect("an expression");
    let (expression, ratio, interval) = match &found.winner {
        Some(winner) => (winner.expression.clone(), winner.ratio, winner.interval),
        None => (native(), 1.0, [1.0, 1.0]),
    };
    let new = TuningResult {
        name,
        bytes,
        expression,
        native_seconds: format!("{:.3e}", found.native).parse().unwrap_or(found.native),
        ratio: rounded(ratio),
        interval: [rounded(interval[0]).min(rounded(ratio)), rounded(interval[1]).max(rounded(ratio))],
        launches: 1,
    };
    let both = new.after(before);
    TuningResult { ratio: rounded(both.ratio), ..both }
}

fn row(result: &TuningResult) -> String {
    let [low, high] = result.interval;
    let what = match result.is_native() {
        false => format!("{:.2} ({low:.2} to {high:.2})", result.ratio),
        true => "no difference".to_owned(),
    };
    format!(
        "{:<15} {:>8} {:>10}  {what:<22} {}\n",
        result.name.to_string(),
        bytes_text(result.bytes),
        time_text(result.native_seconds),
        result.expression
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tuning_run::Winner;

    /// With oversubscription an algorithm may be faster by a factor of thousands; a ratio rounded to 0 would make the profile unreadable.
    #[test]
    fn a_ratio_of_next_to_nothing_is_one() {
        let interval = [0.000_312_3, 0.013];
        let winner = Winner { expression: "shm".parse().unwrap(), ratio: 0.000_345_6, interval };
        let found = CaseResult { native: 0.027, winner: Some(winner) };
        let result = combined(None, &found, Name::Allgather, 8);
        assert_eq!((result.ratio, result.interval), (0.000_346, [0.000_312, 0.013]));
        assert_eq!([0.678_9, 1.0, 1.234_5].map(rounded), [0.679, 1.0, 1.23]);
    }

    #[test]
    fn times_are_read() {
        assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(time("1.5h"), Ok(Duration::from_secs(5400)));
        assert!(["", "s", "10x", "0s", "-1s", "1e9h", "nan"].iter().all(|text| time(text).is_err()));
    }

    #[test]
    fn a_win_counts_when_two_launches_agree() {
        let found = |winner: Option<&str>| CaseResult {
            native: 1e-3,
            winner: winner.map(|text| Winner { expression: text.parse().unwrap(), ratio: 0.5, interval: [0.4, 0.6] }),
        };
        let settle = |before: Option<&TuningResult>, winner| combined(before, &found(winner), Name::Allreduce, 8);
        let text = |result: &TuningResult| (result.expression.to_string(), result.launches);
        let first = settle(None, Some("ring"));
        assert_eq!(text(&first), ("ring".into(), 1));
        assert_eq!(text(&settle(Some(&first), Some("ring"))), ("ring".into(), 2));
        assert_eq!(text(&settle(Some(&first), Some("rabenseifner"))), ("rabenseifner".into(), 1));
        assert_eq!(text(&settle(Some(&first), None)), ("native".into(), 2));
    }
}

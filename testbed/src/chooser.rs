//! `cargo testbed chooser`: measures the algorithms that the library chooses, with a profile of `bruckner tune` and without, beside native
//! and beside other candidates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bruckner_choose::{Ability, DecisionTables, Name, Policy, Profile, Question, Rules, choose};
use bruckner_measure::{JoinedCase, Results, TimingMethod, bytes_text, join_cases, native, time_text};
use bruckner_schedule::{Collective, Counts, Problem, Topology};
use clap::Args;

use crate::claims::geometric_mean;
use crate::cluster::{self, Cluster, Shape};
use crate::measure::{place, with_algorithms};
use crate::mpis::{Mpi, root};

/// Options of `cargo testbed chooser`.
#[derive(Args)]
pub(crate) struct Options {
    /// Measures only configurations whose names contain this text, such as 4x4-500us or node2-mpich5
    #[arg(long)]
    only: Option<String>,
    /// Measures without a profile, so that the library uses its own calibration and its default machine model
    #[arg(long)]
    without: bool,
    /// Also measures the three algorithms that the model ranks first
    #[arg(long, conflicts_with = "without")]
    best: bool,
    /// Tunes the MPI's own algorithms instead, exports the fastest, and measures the MPI with the exported files and without
    #[arg(long, conflicts_with_all = ["without", "best"])]
    natives: bool,
    /// Maximum time of `bruckner tune` for each configuration
    #[arg(long, default_value = "10m")]
    budget: String,
    /// Number of launches of each case
    #[arg(long, default_value_t = 2)]
    launches: u32,
    /// Maximum time for each case of a launch, in seconds
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Tunes and measures again what an earlier run has tuned and measured
    #[arg(long)]
    again: bool,
}

const COLLECTIVES: [Collective; 4] =
    [Collective::Allgather, Collective::Allreduce, Collective::ReduceScatter, Collective::Alltoall];
const SIZES: [u64; 7] = [8, 64, 512, 4096, 32768, 262_144, 1_048_576];
const CONFIDENCE: f64 = 0.98;
/// Ratio of the library's time to native's time above which a case is slower, with a profile and without one; the library must also take
/// [`LEAST`] seconds longer.
const SLOWER: [f64; 2] = [1.03, 1.05];
const LEAST: f64 = 40e-9;
/// Largest ratio of the time of the library's choice to that of the best candidate with which the choice counts as good.
const NEAR: f64 = 1.05;
/// Number of candidates that are measured beside the library's choice: the first ones in the order of the model.
const CANDIDATES: usize = 3;

/// Endings of the names of profiles: with results for the library's algorithms, and with results for the MPI's own algorithms.
pub(crate) const PROFILE: &str = ".toml";
const NATIVES: &str = "-natives.toml";

/// A configuration of MPI, nodes and ranks in which choices are measured.
pub(crate) struct Configuration {
    pub(crate) name: String,
    pub(crate) mpi: Mpi,
    /// Number of nodes, ranks on each, and delay between nodes in microseconds; a single node has no delay.
    nodes: u32,
    on_node: u32,
    delay: Option<u32>,
}

impl Configuration {
    fn all() -> Vec<Configuration> {
        let mut all = Vec::new();
        for delay in [500, 50] {
            for (nodes, on_node) in [(4, 4), (8, 2), (2, 8)] {
                let name = format!("chooser-{nodes}x{on_node}-{delay}us");
                all.push(Configuration { name, mpi: Mpi::Openmpi5, nodes, on_node, delay: Some(delay) });
            }
        }
        for on_node in [2, 8] {
            for mpi in Mpi::CURRENT {
                let name = format!("chooser-node{on_node}-{}", mpi.name());
                all.push(Configuration { name, mpi: *mpi, nodes: 1, on_node, delay: None });
            }
        }
        all
    }

    /// Returns the configurations whose names contain `only`; returns an error if there are none.
    pub(crate) fn some(only: Option<&str>) -> Result<Vec<Configuration>> {
        let mut all = Configuration::all();
        all.retain(|place| only.is_none_or(|only| place.name.contains(only)));
        ensure!(!all.is_empty(), "no configuration has this text in its name");
        std::fs::create_dir_all(place())?;
        Ok(all)
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.nodes * self.on_node
    }

    /// Brings up the emulated nodes, if the configuration has several nodes.
    pub(crate) fn nodes(&self) -> Result<Option<Cluster>> {
        let Some(delay) = self.delay else { return Ok(None) };
        let (nodes, ppn, delay) = (self.nodes.to_string(), self.on_node.to_string(), format!("{delay}us"));
        let shape = ["--nodes", &nodes, "--ppn", &ppn, "--delay", &delay, "--rate", "1gbit"];
        Ok(Some(Cluster::up(&Shape::of(&shape)?)?))
    }

    /// Returns the path of a profile, which `bruckner tune` makes unless it exists.
    pub(crate) fn tuned(&self, ending: &str, budget: &str, options: &[&str]) -> Result<PathBuf> {
        let profile = self.file(ending);
        if !profile.exists() {
            // A tuning run that was interrupted continues with this file.
            let new = profile.with_extension("tuning");
            let new_text = new.display().to_string();
            let words = ["-o", &new_text, "--budget", budget].into_iter().chain(options.iter().copied());
            let words: Vec<String> = words.map(str::to_owned).collect();
            self.command("tune", &words, &[])?;
            std::fs::rename(&new, &profile)?;
        }
        Ok(profile)
    }

    pub(crate) fn file(&self, ending: &str) -> PathBuf {
        place().join(format!("{}{ending}", self.name))
    }

    /// Runs a command of `bruckner` that starts launchers, with some settings on all ranks.
    fn command(&self, name: &str, ask: &[String], settings: &[String]) -> Result<()> {
        match self.nodes()? {
            Some(nodes) => nodes.command(self.mpi, name, ask, settings),
            None => {
                let launcher = self.mpi.launch(self.on_node, self.on_node > 2);
                let status = cluster::command(name, &launcher, ask, settings).status()?;
                ensure!(status.success(), "bruckner {name} ended with {status}");
                Ok(())
            }
        }
    }

    /// Measures cases with `bruckner bench` and writes a results file, unless the file exists; returns the results in the file.
    fn bench(&self, file: &Path, ask: &[String], effort: &Options, settings: &[String]) -> Result<Results> {
        if !file.exists() {
            let new = file.with_extension("new");
            let _ = std::fs::remove_file(&new);
            let mut ask = ask.to_vec();
            ask.extend(["--launches".into(), effort.launches.to_string()]);
            ask.extend(["--seconds".into(), effort.seconds.to_string(), "--blocks".into(), "15".into()]);
            ask.extend(["-o".into(), new.display().to_string()]);
            self.command("bench", &ask, settings)?;
            std::fs::rename(&new, file)?;
        }
        Ok(Results::read(file)?)
    }
}

/// Summary of the measurements of a configuration: `slower` counts the cases that are slower than native, and `near` counts those of the
/// `compared` cases in which the library's choice is about as fast as the best candidate.
#[derive(Default)]
struct Summary {
    /// Speedups: native's time divided by the library's.
    speeds: Vec<f64>,
    slower: usize,
    near: usize,
    compared: usize,
}

/// Measures all configurations and prints the results; returns an error if choices are not good enough.
pub(crate) fn run(ask: &Options) -> Result<()> {
    let places = Configuration::some(ask.only.as_deref())?;
    let mut broken = Vec::new();
    for place in &places {
        let sum = if ask.natives { exported(place, ask)? } else { measured(place, ask)? };
        let mean = geometric_mean(&sum.speeds);
        let mut text = format!("{}: speedup over native {mean:.2}, {} slower", place.name, sum.slower);
        if sum.compared > 0 {
            text += &format!(", {} of {} within 5 % of the best candidate", sum.near, sum.compared);
        }
        println!("{text}\n");
        let claimed = place.delay == Some(500) || (ask.without && place.delay.is_some());
        let floor = if claimed && !ask.natives { 1.3 } else { 0.0 };
        if sum.slower > 0 || mean < floor || sum.near * 10 < sum.compared * 9 {
            broken.push(text);
        }
    }
    match broken.is_empty() {
        true => Ok(()),
        false => bail!("configurations below their limits:\n{}", broken.join("\n")),
    }
}

fn measured(place: &Configuration, ask: &Options) -> Result<Summary> {
    let kind = if ask.without { "-without" } else { "" };
    let (profile, results) = (place.file(PROFILE), place.file(&format!("{kind}.json")));
    if ask.again {
        let _ = std::fs::remove_file(&results);
        if !ask.without {
            let _ = std::fs::remove_file(&profile);
        }
    }
    let mut settings = vec!["BRUCKNER_ONLINE_TUNING=off".to_owned()];
    if ask.without {
        settings.push("BRUCKNER_PROFILE=off".to_owned());
    } else {
        place.tuned(PROFILE, &ask.budget, &[])?;
        settings.push(format!("BRUCKNER_PROFILE={}", profile.display()));
    }
    let measured = place.bench(&results, &cases("chosen"), ask, &settings)?;
    let tables = match ask.without {
        true => None,
        false => Some(tables(place, &std::fs::read_to_string(&profile)?)?),
    };
    let slower_by = SLOWER[usize::from(ask.without)];
    let mut sum = Summary::default();
    println!("{}, {}", place.name, place.mpi.name());
    for case in join_cases(&measured) {
        let mut row = format!("{:<15} {:>8}", case.collective, bytes_text(case.bytes));
        let ratio = case
            .compare(native::LIBRARY_SELECTION, native::NATIVE, TimingMethod::FromBarrier, CONFIDENCE)
            .context("native beside what is chosen")?;
        let [ours, theirs] = times(&case, native::LIBRARY_SELECTION, native::NATIVE)?;
        row += &format!(
            " {:>9} {:>5.2} ({:.2} to {:.2})",
            time_text(theirs),
            ratio.ratio,
            ratio.interval.low,
            ratio.interval.high
        );
        sum.speeds.push(1.0 / ratio.ratio);
        if ratio.interval.low > slower_by && ours - theirs > LEAST {
            // Launches differ, so a case counts as slower only if a second measurement confirms it.
            let again = place.file(&format!("{kind}-{}-{}.json", case.collective, case.bytes));
            if ask.again {
                let _ = std::fs::remove_file(&again);
            }
            let bytes = case.bytes.to_string();
            let words = with_algorithms(&[case.collective, "--bytes", &bytes], &["chosen"]);
            let again = place.bench(&again, &words, ask, &settings)?;
            let again = &join_cases(&again)[0];
            let second = again
                .compare(native::LIBRARY_SELECTION, native::NATIVE, TimingMethod::FromBarrier, CONFIDENCE)
                .context("the same again")?;
            let [ours, theirs] = times(again, native::LIBRARY_SELECTION, native::NATIVE)?;
            let slower = second.interval.low > slower_by && ours - theirs > LEAST;
            sum.slower += usize::from(slower);
            row += &format!(", again {:.2}{}", second.ratio, if slower { " SLOWER" } else { "" });
        }
        if let Some(tables) = tables.as_ref().filter(|_| ask.best) {
            row += &compare_candidates(place, &case, tables, ask, &settings, &mut sum)?;
        }
        println!("{row}");
    }
    Ok(sum)
}

/// Returns the arguments of `bruckner bench` for all collectives and sizes.
fn cases(algorithm: &str) -> Vec<String> {
    let sizes = SIZES.map(|bytes| bytes.to_string()).join(",");
    let names = COLLECTIVES.map(|collective| collective.to_string());
    let words: Vec<&str> = names.iter().map(String::as_str).chain(["--bytes", &sizes]).collect();
    with_algorithms(&words, &[algorithm])
}

/// Reference algorithm, which no setting of the MPI affects.
const REFERENCE: &str = "locality(node)";

/// Measures the MPI with exported files that select its fastest algorithms, and without. The launches are separate, so both are compared
/// with [`REFERENCE`].
fn exported(place: &Configuration, ask: &Options) -> Result<Summary> {
    let (profile, files) = (place.file(NATIVES), place.file("-natives"));
    if ask.again {
        let _ = std::fs::remove_file(&profile);
    }
    place.tuned(NATIVES, &ask.budget, &["--natives"])?;
    let format = match place.mpi {
        Mpi::Mpich5 => "mpich",
        Mpi::Intel => "intel",
        _ => "open-mpi",
    };
    let mut export = place.mpi.command(root().join("target/release/bruckner"));
    export.args(["tune", "--export", format, "--from"]).arg(&profile).arg("-o").arg(&files);
    let said = export.output()?;
    ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    print!("{said}");
    let settings: Vec<String> =
        said.lines().filter_map(|line| line.strip_prefix("export ")).map(|setting| setting.replace('\'', "")).collect();
    let both = |ending: &str, words: &[String]| -> Result<[Results; 2]> {
        let files = ["with", "without"].map(|which| place.file(&format!("-natives-{which}{ending}.json")));
        if ask.again {
            files.each_ref().map(std::fs::remove_file).into_iter().for_each(drop);
        }
        Ok([place.bench(&files[0], words, ask, &settings)?, place.bench(&files[1], words, ask, &[])?])
    };
    let [with, without] = both("", &cases(REFERENCE))?;
    println!("{}, {}", place.name, place.mpi.name());
    let mut sum = Summary::default();
    for (with, without) in join_cases(&with).iter().zip(&join_cases(&without)) {
        let (text, ratio, mut slower) = compare_native(with, without)?;
        let mut row = format!("{:<15} {:>8} {text}", with.collective, bytes_text(with.bytes));
        if slower {
            // Launches differ, so a case counts as slower only if a second measurement confirms it.
            let bytes = with.bytes.to_string();
            let words = with_algorithms(&[with.collective, "--bytes", &bytes], &[REFERENCE]);
            let [with, without] = both(&format!("-{}-{}", with.collective, with.bytes), &words)?;
            let again = compare_native(&join_cases(&with)[0], &join_cases(&without)[0])?;
            slower = again.2;
            row += &format!(", again {}{}", again.0, if slower { " SLOWER" } else { "" });
        }
        sum.slower += usize::from(slower);
        sum.speeds.push(1.0 / ratio);
        println!("{row}");
    }
    Ok(sum)
}

/// Compares the time of the MPI's own function with exported files to its time without them, each relative to [`REFERENCE`]. Returns the
/// ratio as text and as number, and whether the function is slower with the files.
fn compare_native(with: &JoinedCase<'_>, without: &JoinedCase<'_>) -> Result<(String, f64, bool)> {
    let of = |case: &JoinedCase<'_>| {
        case.compare(native::NATIVE, REFERENCE, TimingMethod::FromBarrier, CONFIDENCE).context("native")
    };
    let (new, old) = (of(with)?, of(without)?);
    let ratio = new.ratio / old.ratio;
    let (low, high) = (new.interval.low / old.interval.high, new.interval.high / old.interval.low);
    let [theirs, _] = times(without, native::NATIVE, REFERENCE)?;
    let slower = low > SLOWER[0] && (ratio - 1.0) * theirs > LEAST;
    Ok((format!("{:>9} {ratio:>5.2} ({low:.2} to {high:.2})", time_text(theirs)), ratio, slower))
}

/// Returns the median times of two contenders, in seconds.
fn times(case: &JoinedCase<'_>, one: &str, other: &str) -> Result<[f64; 2]> {
    let time = |of, beside| case.times(of, beside, TimingMethod::FromBarrier).map(|times| times.median);
    Ok([time(one, other).context("a time")?, time(other, one).context("a time")?])
}

/// Measures the chosen algorithm beside the candidates that the model ranks first, and returns a text about the best.
fn compare_candidates(
    place: &Configuration,
    case: &JoinedCase<'_>,
    tables: &DecisionTables,
    ask: &Options,
    settings: &[String],
    sum: &mut Summary,
) -> Result<String> {
    let (chosen, candidates) = candidates(tables, case.collective, case.bytes)?;
    let file = place.file(&format!("-best-{}-{}.json", case.collective, case.bytes));
    if ask.again {
        let _ = std::fs::remove_file(&file);
    }
    let bytes = case.bytes.to_string();
    let all: Vec<&str> = ["chosen"].into_iter().chain(candidates.iter().map(String::as_str)).collect();
    let words = with_algorithms(&[case.collective, "--bytes", &bytes], &all);
    let measured = place.bench(&file, &words, ask, settings)?;
    let case = &join_cases(&measured)[0];
    let others = case.contenders.iter().filter(|name| **name != native::LIBRARY_SELECTION);
    let ratios = others.filter_map(|name| {
        let found = case.compare(native::LIBRARY_SELECTION, name, TimingMethod::FromBarrier, CONFIDENCE)?;
        Some((found, *name))
    });
    let (worst, name) = ratios.max_by(|a, b| a.0.ratio.total_cmp(&b.0.ratio)).context("a candidate")?;
    sum.compared += 1;
    // If the best candidate is the chosen algorithm itself, it is faster only because its plan is called directly.
    let near = worst.ratio <= NEAR || worst.interval.low <= 1.0 || *name == chosen;
    sum.near += usize::from(near);
    let remark = if near { "" } else { " NOT THE BEST" };
    Ok(format!(", {chosen}: {:.2} times the time of {name}{remark}", worst.ratio))
}

/// Returns the chosen algorithm, and the candidates: those that the model ranks first, and the winner of the tuning run.
fn candidates(tables: &DecisionTables, collective: &str, bytes: u64) -> Result<(String, Vec<String>)> {
    let name = Name::read(collective).context("a collective")?;
    let collective = Collective::from_name(collective).context("a collective")?;
    let problem =
        Problem::new(collective, tables.topology().ranks(), Counts::Equal(bytes / 8), 8).map_err(|why| anyhow!(why))?;
    let question = Question { name, problem: &problem, is_order_sensitive: collective.reduces() };
    let ranked = tables.ranking(&question).0.into_iter().take(CANDIDATES);
    let mut all: Vec<String> = ranked.map(|ranked| ranked.expression.to_string()).collect();
    if let Some(verdict) = tables.result(&question).filter(|verdict| !verdict.is_native()) {
        all.push(verdict.expression.to_string());
    }
    all.sort();
    all.dedup();
    let chosen = choose(&tables.kind(&question), tables, &Rules::default());
    Ok((chosen.first().context("a choice")?.expression.to_string(), all))
}

/// Returns the library's decision tables for a configuration, with a profile.
fn tables(place: &Configuration, profile: &str) -> Result<DecisionTables> {
    let (profile, _) = Profile::read(profile).map_err(|why| anyhow!("{why}"))?;
    let mpi = profile.provenance.mpi.clone();
    let topology: Topology = format!("{}x{}", place.nodes, place.on_node).parse()?;
    let known = profile.knowledge(&mpi).0;
    Ok(DecisionTables::new(Arc::new(topology), Arc::new(known), Policy::default(), Ability::default()))
}

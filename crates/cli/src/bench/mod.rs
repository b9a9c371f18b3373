//! `bruckner bench`: measures several implementations of collectives side by side.

mod about;
mod contender;
mod forced;
mod launches;
mod measure;
mod natives;
mod problem;
mod selftest;
mod show;
mod talk;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use bruckner::Name;
use bruckner_engine::{Engine, Mpi};
use bruckner_measure::{Launch, Results};
use clap::Args;

use crate::ask::{collective, parse_bytes};
use crate::{Answer, columns, print};
pub(crate) use contender::Contender;
use contender::{NATIVE_BEST, REFERENCE};
pub(crate) use measure::{Effort, Ranks};
pub(crate) use natives::best_natives;
pub(crate) use problem::{Problem, Size};
pub(crate) use talk::Progress;

/// Measure implementations of a collective: the MPI's own function, the library's choice, and any algorithm
///
/// Started by a launcher, as in `mpirun -n 16 bruckner bench allreduce`, the command measures one launch. With a launcher at the end, as in
/// `bruckner bench allreduce --launches 5 -- mpirun -n 16`, it starts the launcher several times and joins the results: times vary more
/// between launches than within one, and `native-best` needs separate launches.
///
/// Contenders run in blocks: each block runs every contender once, in random order, on the same communicator and buffers. A time is that of
/// the slowest rank. Speedups are computed within each block and shown with a bootstrap confidence interval. The result of every contender
/// is checked before and after it is measured.
#[derive(Args, Clone)]
pub(crate) struct Bench {
    /// Collectives, such as allreduce or MPI_Allreduce; reduce_scatter with equal sizes is MPI_Reduce_scatter_block
    #[arg(value_parser = collective, value_name = "COLLECTIVE", required_unless_present = "cases")]
    collectives: Vec<String>,
    /// Message sizes, counted as in `bruckner explain`; reductions are of doubles, so their sizes must be multiples of 8
    #[arg(long, value_name = "N,N…", value_delimiter = ',', default_value = "8,1024,32768", value_parser = parse_bytes)]
    bytes: Vec<u64>,
    /// Number of 8-byte elements in each rank's block, such as 2,0,3,1 or 4*2,0*14 (two fours, fourteen zeros), for MPI_Allgatherv,
    /// MPI_Reduce_scatter and MPI_Alltoallv
    #[arg(long, value_name = "LIST", conflicts_with = "bytes")]
    counts: Option<String>,
    /// Contender to compare with the MPI's own function (`native`): an algorithm, such as locality(node); `chosen`, the library's choice;
    /// `native-best`, the MPI under its fastest setting; or `library:FILE`, a shared object that exports collectives under their MPI names.
    /// May be given several times. Default: `chosen`
    #[arg(long = "algorithm", value_name = "EXPR")]
    algorithms: Vec<String>,
    /// Minimum number of blocks of each case; a block runs every contender once
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(2..=400))]
    blocks: u32,
    /// Time limit in seconds for each case (one collective at one size)
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// Add blocks until every speedup is known to within this fraction, or the time limit is reached
    #[arg(long, value_name = "FRACTION", default_value_t = 0.01)]
    precision: f64,
    /// Confidence level of the intervals of speedups
    #[arg(long, value_name = "FRACTION", default_value_t = 0.99)]
    confidence: f64,
    /// Seed of the random order of contenders
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Label for the results, such as delay=500us; results with different labels are kept apart; may be given several times
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// Add the results, with every sample of every rank, to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON: medians, and speedups with their intervals; every sample is in the file of --output
    #[arg(long)]
    json: bool,
    /// Number of times that the launcher is started
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    launches: u32,
    /// Test the benchmark itself with the first collective, the first size, and the first algorithm or `native`: compare this contender
    /// RUNS times with itself, and RUNS times with itself slowed down by 5 %; print how many verdicts are right [default RUNS: 100]
    #[arg(long, value_name = "RUNS", num_args = 0..=1, default_missing_value = "100", value_parser = clap::value_parser!(u32).range(1..))]
    self_test: Option<u32>,
    /// Case to measure, set by the process that starts launchers
    #[arg(long = "case", value_name = "COLLECTIVE:SIZE", hide = true)]
    cases: Vec<Problem>,
    /// This launch is a short trial to find the MPI's fastest setting
    #[arg(long, hide = true)]
    trial: bool,
    /// Write progress and results for the process that starts launchers
    #[arg(long, hide = true)]
    speak: bool,
    /// Environment variable to set before MPI starts
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair, hide = true)]
    set: Vec<(String, String)>,
    /// Label of the MPI's own function in the results of a case, instead of `native`
    #[arg(long = "native-name", value_name = "CASE=NAME", value_parser = pair, hide = true)]
    native_names: Vec<(String, String)>,
    /// Launcher and its options, such as mpirun -n 16; if omitted, start this command with a launcher
    #[arg(last = true, value_name = "LAUNCHER")]
    launcher: Vec<String>,
    /// Filter of the MPI's settings to try, by the name of the MPI, the collective and the name of the setting.
    #[arg(skip = any as fn(&str, Name, &str) -> bool)]
    accepts_setting: fn(&str, Name, &str) -> bool,
}

/// Width in characters of a table that is not printed on a terminal.
const FOR_A_FILE: usize = 100;

/// Filter that accepts every setting.
fn any(_: &str, _: Name, _: &str) -> bool {
    true
}

/// Returns the name and version of an MPI.
pub(crate) fn mpi_name(mpi: &Mpi) -> String {
    about::mpi(mpi).name
}

/// Returns the model name of this host's processor.
pub(crate) fn processor() -> String {
    about::processor()
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let words = "expected NAME=VALUE, such as delay=500us";
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| words.to_owned())
}

impl Bench {
    pub(crate) fn run(self) -> Result<Answer> {
        ensure!(self.confidence > 0.5 && self.confidence < 1.0, "--confidence must be above 0.5 and below 1");
        ensure!(self.precision > 0.0, "--precision must be above 0");
        ensure!(self.seconds > 0.0 && self.seconds <= 1e6, "--seconds must be above 0 and at most 1000000");
        self.problems()?.iter().try_for_each(Problem::check)?;
        let names: Vec<String> = self.contenders()?.iter().map(ToString::to_string).collect();
        for (at, name) in names.iter().enumerate() {
            ensure!(
                !names[..at].contains(name),
                "two contenders have the name `{name}`: rename one of the library files"
            );
        }
        self.read_results()?;
        if !self.launcher.is_empty() {
            return launches::run(&self);
        }
        ensure!(self.launches == 1, "--launches needs a launcher at the end: bruckner bench … -- mpirun -n 16");
        ensure!(
            !self.wants_best(),
            "{NATIVE_BEST} needs a launcher at the end: bruckner bench … --algorithm {NATIVE_BEST} -- mpirun -n 16"
        );
        self.as_a_rank()
    }

    fn wants_best(&self) -> bool {
        self.algorithms.iter().any(|name| name == NATIVE_BEST)
    }

    /// Returns the contenders, native first, without native-best, which needs separate launches.
    fn contenders(&self) -> Result<Vec<Contender>> {
        let mut contenders = vec![Contender::Native];
        for text in self.algorithms.iter().filter(|name| *name != NATIVE_BEST) {
            let contender = text.parse().map_err(anyhow::Error::msg).with_context(|| format!("--algorithm {text}"))?;
            if !contenders.contains(&contender) {
                contenders.push(contender);
            }
        }
        if contenders.len() == 1 {
            contenders.push(Contender::Chosen);
        }
        // Settings of the MPI are compared by an algorithm that they do not change.
        let reference = Contender::Algorithm(REFERENCE.to_owned());
        if self.wants_best() && !contenders.contains(&reference) {
            contenders.push(reference);
        }
        Ok(contenders)
    }

    fn problems(&self) -> Result<Vec<Problem>> {
        if !self.cases.is_empty() {
            return Ok(self.cases.clone());
        }
        let sizes = match &self.counts {
            Some(text) => vec![Size::Counts(problem::counts(text)?)],
            None => self.bytes.iter().map(|bytes| Size::Bytes(*bytes)).collect(),
        };
        let mut problems = Vec::new();
        for collective in &self.collectives {
            let name = Name::read(collective).context("a collective")?;
            // A barrier has one size.
            let sizes = if name == Name::Barrier { vec![Size::Bytes(0)] } else { sizes.clone() };
            for problem in sizes.into_iter().map(|size| Problem { name, size }) {
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
        }
        Ok(problems)
    }

    fn effort(&self) -> Effort {
        Effort {
            blocks: self.blocks as usize,
            most: Duration::from_secs_f64(self.seconds),
            precision: self.precision,
            confidence: self.confidence,
            least: 3,
            hopeless: None,
        }
    }

    /// Measures as one of the ranks that a launcher has started.
    fn as_a_rank(&self) -> Result<Answer> {
        let (problems, contenders) = (self.problems()?, self.contenders()?);
        if let Some(error) = talk::restart_with_environment(&self.set) {
            bail!("{error}");
        }
        let mpi = Mpi::find_or_load()?;
        mpi.start()?;
        // A rank that fails exits without finalising MPI, so that the launcher ends the others, which may be waiting for it.
        let answer = self.under_mpi(mpi, &problems, &contenders)?;
        mpi.stop()?;
        Ok(answer)
    }

    fn under_mpi(&self, mpi: &'static Mpi, problems: &[Problem], contenders: &[Contender]) -> Result<Answer> {
        Engine::get()?.init()?;
        let first = mpi.rank(mpi.comm_world())? == 0;
        let mut ranks = Ranks::new(mpi, self.seed)?;
        if let Some(runs) = self.self_test {
            let contender = contenders.get(1).filter(|_| !self.algorithms.is_empty()).unwrap_or(&contenders[0]);
            let problem = problems.first().context("a case")?;
            return selftest::run(&mut ranks, problem, contender, runs, &self.effort(), first, self.json);
        }
        let mut launch = self.launch(mpi, &ranks)?;
        let mut talk = Progress::new(first, self.speak, problems.len());
        for problem in problems {
            let mut case = ranks.measure(problem, contenders, &self.effort(), &mut |part| talk.told(part))?;
            let called = self.native_names.iter().find(|(case, _)| *case == problem.to_string());
            if let Some((_, name)) = called {
                case.contenders[0].name.clone_from(name);
            }
            launch.cases.push(case);
            talk.case_done();
        }
        launch.machine.load[1] = about::load();
        talk.finish();
        if !first {
            return Ok(Answer::Success);
        }
        if self.speak {
            talk::send(&launch)?;
            return Ok(Answer::Success);
        }
        let mut new = Results::default();
        new.launches.push(launch);
        self.store_results(new)
    }

    /// Returns the description of a launch, without cases. Collective.
    fn launch(&self, mpi: &Mpi, ranks: &Ranks) -> Result<Launch> {
        let found = Engine::get()?.findings()?;
        Ok(Launch {
            when: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            trial: self.trial,
            labels: self.labels.iter().cloned().collect::<BTreeMap<_, _>>(),
            mpi: about::mpi(mpi),
            machine: about::machine(mpi)?,
            topology: found.topology,
            ranks: found.ranks,
            oversubscribed: found.oversubscribed,
            seed: self.seed,
            barrier: ranks.barrier_name.to_owned(),
            cases: Vec::new(),
        })
    }

    /// Reads the results that the output file already holds. Called before the measurement too, to find an unusable path early.
    fn read_results(&self) -> Result<Results> {
        let Some(path) = &self.output else { return Ok(Results::default()) };
        let place = || path.display().to_string();
        if path.exists() {
            return Results::read(path).with_context(place);
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        ensure!(directory.is_none_or(std::path::Path::is_dir), "{}: there is no such directory", place());
        Ok(Results::default())
    }

    /// Prints the table of the new results and adds them to the output file. The answer says whether all results were correct.
    fn store_results(&self, mut new: Results) -> Result<Answer> {
        let table = || show::table(&new, self.confidence, columns::terminal().unwrap_or(FOR_A_FILE));
        print(&if self.json { show::json(&new, self.confidence) } else { table() })?;
        let cases = || new.launches.iter().flat_map(|launch| &launch.cases);
        let wrong = |contender: &bruckner_measure::Contender| contender.refused.as_deref() == Some(measure::WRONG);
        let wrong = cases().flat_map(|case| &case.contenders).any(wrong);
        if let Some(path) = &self.output {
            let mut all = self.read_results()?;
            all.launches.append(&mut new.launches);
            all.write(path).with_context(|| path.display().to_string())?;
        }
        Ok(if wrong { Answer::Failure } else { Answer::Success })
    }
}

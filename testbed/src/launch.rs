//! Starts a program on ranks, with a time limit, and collects its output.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cluster::Cluster;
use crate::mpis::{Mpi, root};
use crate::setup::patient;

/// Time after which a program without a time limit of its own is considered hung. Such programs take less even on the slowest machine.
const HANGS: Duration = Duration::from_secs(600);

/// A program to launch, with its ranks, arguments and environment.
pub(crate) struct Launch<'a> {
    pub(crate) mpi: Mpi,
    pub(crate) ranks: u32,
    pub(crate) program: &'a Path,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(&'static str, String)>,
    pub(crate) preloads: Vec<PathBuf>,
    pub(crate) directory: Option<PathBuf>,
    /// Emulated nodes to run on, if any.
    nodes: Option<&'a Cluster>,
    /// Options of the launcher.
    options: Vec<String>,
    pub(crate) limit: Duration,
}

/// Returns the path of the library.
pub(crate) fn library() -> PathBuf {
    root().join("target/release/libbruckner.so")
}

/// Output and exit status of a program, and its time in seconds.
pub(crate) struct Output {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) succeeded: bool,
    pub(crate) seconds: f64,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(mpi: Mpi, ranks: u32, program: &'a Path) -> Launch<'a> {
        // Programs that use the C API compare it with MPI's own functions, which are therefore not intercepted.
        let environment = vec![("BRUCKNER_PASS_THROUGH", "all".to_owned())];
        Launch {
            mpi,
            ranks,
            program,
            arguments: Vec::new(),
            environment,
            preloads: Vec::new(),
            directory: None,
            nodes: None,
            options: Vec::new(),
            limit: HANGS,
        }
    }

    /// Creates a launch of an unmodified program without the library.
    pub(crate) fn plain(mpi: Mpi, ranks: u32, program: &'a Path) -> Launch<'a> {
        Launch { environment: Vec::new(), ..Launch::new(mpi, ranks, program) }
    }

    /// Creates a launch of an unmodified program with the library preloaded.
    pub(crate) fn preloaded(mpi: Mpi, ranks: u32, program: &'a Path) -> Launch<'a> {
        Launch::plain(mpi, ranks, program).preload(&library())
    }

    /// Preloads an object before those that are preloaded so far.
    pub(crate) fn preload(mut self, object: &Path) -> Launch<'a> {
        self.preloads.insert(0, object.to_owned());
        self
    }

    /// Makes ranks sleep instead of spin while they wait, if the MPI can do that. For launches with more ranks than cores, or on cores
    /// that other programs use, too.
    pub(crate) fn oversubscribed(self) -> Launch<'a> {
        match self.mpi {
            Mpi::Intel | Mpi::IntelAbi => self.set("I_MPI_THREAD_YIELD", "3"),
            // Without this setting, MPICH yields, and gets a core back only when other ranks have used up their time slices.
            Mpi::Mpich5 | Mpi::MpichAbi => self.set("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1"),
            Mpi::Mpich4 if self.ranks > 2 => self.preload(&patient()),
            _ => self,
        }
    }

    pub(crate) fn argument(mut self, argument: impl Into<String>) -> Launch<'a> {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn set(mut self, name: &'static str, value: impl Into<String>) -> Launch<'a> {
        self.environment.push((name, value.into()));
        self
    }

    /// Runs the program on emulated nodes.
    pub(crate) fn across(mut self, nodes: &'a Cluster) -> Launch<'a> {
        self.nodes = Some(nodes);
        self
    }

    /// Adds an option of the launcher.
    pub(crate) fn option(mut self, option: &str) -> Launch<'a> {
        self.options.push(option.to_owned());
        self
    }

    /// Runs the program in a directory.
    pub(crate) fn within(mut self, directory: &Path) -> Launch<'a> {
        self.directory = Some(directory.to_owned());
        self
    }

    pub(crate) fn limit(mut self, seconds: u64) -> Launch<'a> {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Runs the program. If it exceeds its time limit, it is ended, with its launcher, and counts as failed.
    pub(crate) fn run(&self) -> Result<Output> {
        let mut command = match self.nodes {
            Some(nodes) => nodes.launch(self.mpi),
            None => self.mpi.launch(self.ranks, self.ranks > 2),
        };
        command.args(&self.options);
        for (name, value) in &self.environment {
            if *name == "BRUCKNER_REPORT" {
                // A report of an earlier run could otherwise be read instead.
                let _ = std::fs::remove_file(value);
            }
            command.env(name, value);
        }
        if !self.preloads.is_empty() {
            // The launcher sets the variable for its ranks, so that it and its helpers run without the library.
            let list = std::env::join_paths(&self.preloads)?;
            let list = list.to_string_lossy();
            match self.mpi.is_open_mpi() {
                true => command.args(["-x", &format!("LD_PRELOAD={list}")]),
                false => command.args(["-genv", "LD_PRELOAD", &list]),
            };
        }
        command.arg(self.program).args(&self.arguments);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = Instant::now();
        let mut child = command.spawn().with_context(|| format!("{command:?} does not start"))?;
        let out = reader(child.stdout.take().expect("piped"));
        let err = reader(child.stderr.take().expect("piped"));
        let mut note = String::new();
        let mut lost = Vec::new();
        let succeeded = loop {
            if let Some(nodes) = self.nodes {
                nodes.end_lost_nodes(&mut lost);
            }
            if let Some(status) = child.try_wait()? {
                if !status.success() {
                    let _ = writeln!(note, "{}: {status}", self.program.display());
                }
                break status.success();
            }
            if start.elapsed() > self.limit {
                // The launcher passes the signal on to its ranks.
                let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
                std::thread::sleep(Duration::from_secs(2));
                let _ = child.kill();
                let _ = child.wait();
                // Intel's launcher is a script, whose children do not get the signal.
                if let Some(nodes) = self.nodes {
                    nodes.end_all();
                }
                let _ = writeln!(note, "{} still ran after {:?}", self.program.display(), self.limit);
                break false;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let seconds = start.elapsed().as_secs_f64();
        let (out, mut err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
        err.push_str(&note);
        Ok(Output { out, err, succeeded, seconds })
    }

    /// Runs a test program, whose last line is `cases N failures M`.
    pub(crate) fn test(&self) -> Result<Outcome> {
        let said = self.run()?;
        let line = said.out.lines().rev().find_map(|line| {
            let (cases, failures) = line.strip_prefix("cases ")?.split_once(" failures ")?;
            Some((cases.parse().ok()?, failures.trim().parse().ok()?))
        });
        let (cases, failures): (u64, u64) = line.unwrap_or((0, 1));
        let failures = if said.succeeded { failures } else { failures.max(1) };
        let mut talk = said.err;
        if line.is_none() {
            let _ = writeln!(talk, "{} printed no result", self.program.display());
        }
        Ok(Outcome { cases, failures, seconds: said.seconds, talk })
    }
}

/// Result of a test program.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) cases: u64,
    pub(crate) failures: u64,
    pub(crate) seconds: f64,
    pub(crate) talk: String,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: &Outcome) {
        self.cases += other.cases;
        self.failures += other.failures;
        self.seconds += other.seconds;
        if other.failures > 0 {
            self.talk.push_str(&other.talk);
        }
    }
}

fn reader(mut stream: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

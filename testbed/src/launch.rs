//! Starts a program on ranks, within a time, and reads what it says.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cluster::Cluster;
use crate::mpis::{Mpi, root};
use crate::setup::patient;

/// After this time a program is taken to hang: longer than the slowest machine takes for any that has no limit of its own.
const HANGS: Duration = Duration::from_secs(600);

/// A program to run.
pub(crate) struct Launch<'a> {
    pub(crate) mpi: Mpi,
    pub(crate) ranks: u32,
    pub(crate) program: &'a Path,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(&'static str, String)>,
    pub(crate) preloads: Vec<PathBuf>,
    pub(crate) directory: Option<PathBuf>,
    /// Emulated nodes to run on.
    nodes: Option<&'a Cluster>,
    /// Options of the launcher.
    options: Vec<String>,
    pub(crate) limit: Duration,
}

/// The library.
pub(crate) fn library() -> PathBuf {
    root().join("target/release/libbruckner.so")
}

/// What it said.
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) succeeded: bool,
    pub(crate) seconds: f64,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(mpi: Mpi, ranks: u32, program: &'a Path) -> Launch<'a> {
        // Programs that call the C API compare it with MPI's own functions, which are left alone for that.
        let environment = vec![("BRUCKNER_LEAVE", "all".to_owned())];
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

    /// An unmodified program, without the library.
    pub(crate) fn plain(mpi: Mpi, ranks: u32, program: &'a Path) -> Launch<'a> {
        Launch { environment: Vec::new(), ..Launch::new(mpi, ranks, program) }
    }

    /// An unmodified program, with the library preloaded.
    pub(crate) fn preloaded(mpi: Mpi, ranks: u32, program: &'a Path) -> Launch<'a> {
        Launch::plain(mpi, ranks, program).preload(&library())
    }

    /// Preloads something before everything that is preloaded so far.
    pub(crate) fn preload(mut self, object: &Path) -> Launch<'a> {
        self.preloads.insert(0, object.to_owned());
        self
    }

    /// Where ranks outnumber cores, or share them with other programs, an MPI that spins is asked to sleep meanwhile, if it can.
    pub(crate) fn patiently(self) -> Launch<'a> {
        match self.mpi {
            Mpi::Intel | Mpi::IntelAbi => self.set("I_MPI_THREAD_YIELD", "3"),
            // Without this it yields, and gets a core back only when others have used up their time.
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

    /// On emulated nodes.
    pub(crate) fn across(mut self, nodes: &'a Cluster) -> Launch<'a> {
        self.nodes = Some(nodes);
        self
    }

    /// An option of the launcher.
    pub(crate) fn option(mut self, option: &str) -> Launch<'a> {
        self.options.push(option.to_owned());
        self
    }

    /// In a directory.
    pub(crate) fn within(mut self, directory: &Path) -> Launch<'a> {
        self.directory = Some(directory.to_owned());
        self
    }

    pub(crate) fn limit(mut self, seconds: u64) -> Launch<'a> {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Runs it. A program that does not end in time is ended, with its launcher, and has failed.
    pub(crate) fn run(&self) -> Result<Said> {
        let mut command = match self.nodes {
            Some(nodes) => nodes.launch(self.mpi),
            None => self.mpi.launch(self.ranks, self.ranks > 2),
        };
        command.args(&self.options);
        for (name, value) in &self.environment {
            if *name == "BRUCKNER_REPORT" {
                // One of an earlier run would stay, and be read instead.
                let _ = std::fs::remove_file(value);
            }
            command.env(name, value);
        }
        if !self.preloads.is_empty() {
            // By the launcher, so that it and its helpers are left alone.
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
                nodes.lose(&mut lost);
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
                // Intel's launcher is a script, whose own children hear of nothing.
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
        Ok(Said { out, err, succeeded, seconds })
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

/// The result of a test program.
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

//! `cargo testbed`: tests and measurements of Bruckner on real MPIs.

mod apps;
mod chooser;
mod claims;
mod cluster;
mod examples;
mod frames;
mod instructions;
mod interrupt;
mod launch;
mod listing;
mod matrix;
mod measure;
mod mpis;
mod natives;
mod papers;
mod paths;
mod peers;
mod predict;
mod referee;
mod scale;
mod setup;
mod speed;
mod suite;
mod suites;
mod supercomputers;
mod table;
mod watching;
mod worth;

use std::process::Command;

use anyhow::{Result, bail};
use clap::Parser;

use mpis::{Mpi, root};

/// Tests and measurements of Bruckner on real MPIs.
#[derive(Parser)]
enum Ask {
    /// Installs the MPIs: Debian's, and those of Python packages.
    Setup,
    /// Tests every algorithm of every collective on each MPI, against the MPI's own functions.
    Matrix {
        /// Tests only these MPIs.
        #[arg(long = "mpi")]
        mpis: Vec<Mpi>,
        /// Tests only 1, 2 and 5 ranks, and every seventh algorithm, different ones for each MPI.
        #[arg(long)]
        quick: bool,
    },
    /// Compares plans with hand-written loops of the same algorithms; marks ratios above 1.05, fails if a call takes 200 ns longer.
    Overhead {
        /// Measures only these MPIs.
        #[arg(long = "mpi")]
        mpis: Vec<Mpi>,
        /// Number of launches; the median is shown.
        #[arg(long, default_value_t = 5)]
        launches: usize,
        /// Only prints the times, without a limit.
        #[arg(long)]
        only_print: bool,
    },
    /// Counts the instructions of planning and of repeated calls, by valgrind; fails where a count is more than 5 % above
    /// the recorded one.
    Instructions {
        /// Records the counts in testbed/instructions.toml instead.
        #[arg(long)]
        record: bool,
    },
    /// Runs the work that `instructions` counts, in this process.
    #[command(hide = true)]
    Work { part: String },
    /// Compares our simulated times with SimGrid's replay of the same schedules; fails above 1 %.
    Referee {
        /// Numbers of ranks to simulate, multiples of 8.
        #[arg(long = "ranks", value_delimiter = ',', default_values_t = [64, 256, 1024, 4096])]
        ranks: Vec<u32>,
    },
    /// Prints claims of papers beside the results of the model, as in docs/theory/papers.md.
    Papers {
        /// Compares the output with docs/theory/papers.md instead of printing it.
        #[arg(long)]
        check: bool,
    },
    /// Prints what one rank plans, stores and sends as the number of ranks grows, and draws the figure of docs/theory/scale.md.
    Scale {
        /// Compares both with docs/theory/scale.md instead.
        #[arg(long)]
        check: bool,
    },
    /// Compares the MPIs' own functions on emulated nodes with the algorithms that they are taken to use. Needs root privileges.
    Natives {
        /// Number of launches of each case.
        #[arg(long, default_value_t = 3)]
        launches: u32,
        /// Maximum time for each case of a launch, in seconds.
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// Measures again what an earlier run has measured.
        #[arg(long)]
        again: bool,
    },
    /// Compares the model with times that others measured on four supercomputers.
    Supercomputers {
        /// Also prints the fitted machines, predictions by algorithm, and cases in which the selected algorithm is slower.
        #[arg(long)]
        details: bool,
        /// Writes the machine files of the four systems, which come with the library.
        #[arg(long)]
        write: bool,
        /// Compares the output with docs/theory/supercomputers.md instead of printing it.
        #[arg(long, conflicts_with = "details")]
        check: bool,
    },
    /// Compares times of collectives on emulated nodes with what the model predicts from messages between two ranks. Needs root privileges.
    Predict {
        /// Number of launches of each case.
        #[arg(long, default_value_t = 3)]
        launches: u32,
        /// Maximum time for each case of a launch, in seconds.
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// Measures again what an earlier run has measured.
        #[arg(long)]
        again: bool,
    },
    /// Compares the library with the MPI's own collectives on one node, with a core for each rank and oversubscribed.
    Onnode {
        /// Measures only these MPIs.
        #[arg(long = "mpi")]
        mpis: Vec<Mpi>,
        /// Number of launches; the median is shown.
        #[arg(long, default_value_t = 5)]
        launches: usize,
    },
    /// Measures how long the root of a broadcast, and a contributing rank of a reduction, wait for late ranks; fails if they wait 2 us
    /// longer than without the library.
    Roots {
        /// Measures only these MPIs.
        #[arg(long = "mpi")]
        mpis: Vec<Mpi>,
    },
    /// Runs a command on emulated nodes, under an MPI's launcher. Needs root privileges.
    Cluster {
        #[command(flatten)]
        shape: cluster::Shape,
        /// MPI to run on.
        #[arg(long, default_value = "openmpi5")]
        mpi: Mpi,
        /// Command that each rank runs.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Runs `bruckner bench` on emulated nodes with all its launches, including those for native-best; labels the results with delay and
    /// rate. Needs root privileges.
    Bench {
        #[command(flatten)]
        shape: cluster::Shape,
        /// MPI to run on.
        #[arg(long, default_value = "openmpi5")]
        mpi: Mpi,
        /// Arguments of `bruckner bench`.
        #[arg(last = true, required = true)]
        ask: Vec<String>,
    },
    /// Measures the comparisons (sweep, algorithms, ragged) of docs/theory/measured.md on emulated nodes. Needs root privileges.
    Measure {
        /// Measures only these figures.
        #[arg(value_enum)]
        figures: Vec<measure::Figure>,
        /// Number of launches of each case.
        #[arg(long, default_value_t = 5)]
        launches: u32,
        /// Maximum time for each case of a launch, in seconds.
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
        /// Measures again what an earlier run has measured.
        #[arg(long)]
        again: bool,
    },
    /// Measures the speedups that docs/theory/measured.md promises, on emulated nodes and on one node, and fails if one is below its limit. Must
    /// be run as the root user.
    Claims {
        /// Number of launches of each case.
        #[arg(long, default_value_t = 5)]
        launches: u32,
        /// Maximum time for each case of a launch, in seconds.
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// Measures again what an earlier run has measured.
        #[arg(long)]
        again: bool,
    },
    /// Runs `bruckner tune`, and measures the algorithms that the library then chooses beside native and other candidates; fails where
    /// they are slower than native. Needs root privileges.
    Chooser {
        #[command(flatten)]
        ask: chooser::Options,
    },
    /// Measures how soon online tuning replaces the choices of a wrong profile, and what it costs with a right profile. Needs root privileges.
    Watching {
        #[command(flatten)]
        ask: watching::Options,
    },
    /// Runs the first steps of users, administrators, Rust developers and researchers on a clean root file system; prints their times. As
    /// root.
    Paths {
        /// Uses an empty directory of this system instead.
        #[arg(long)]
        quick: bool,
    },
    /// Sets up a Slurm and runs programs under its srun: PMIx with Open MPI, PMI-2 with MPICH. Needs root privileges.
    Slurm,
    /// Runs `bruckner compare` on programs with a known verdict; fails where it is wrong more than once in ten times.
    Worth {
        /// Number of comparisons of each program.
        #[arg(long, default_value_t = 10)]
        times: u32,
        /// Number of launches with the library, and as many without it.
        #[arg(long, default_value_t = 10)]
        launches: u32,
        /// Runs only programs whose descriptions contain this text.
        #[arg(long)]
        only: Option<String>,
    },
    /// Builds other libraries of collectives from given clones, and measures them beside native and this library. Needs root privileges.
    Peers {
        /// A clone of eth-cscs/ext_mpi_collectives.
        #[arg(long, value_name = "DIR")]
        ext_mpi: Option<std::path::PathBuf>,
        /// A clone of mpi-advance/locality_aware.
        #[arg(long, value_name = "DIR")]
        mpi_advance: Option<std::path::PathBuf>,
        #[command(flatten)]
        shape: cluster::Shape,
        /// Number of launches of each case.
        #[arg(long, default_value_t = 5)]
        launches: u32,
        /// Maximum time for each case of a launch, in seconds.
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// Emulates the link between nodes, for `cluster`.
    #[command(hide = true)]
    Link {
        #[command(flatten)]
        wire: cluster::Wire,
        devices: Vec<String>,
    },
    /// Compiles and runs the examples in C, Fortran and Rust, and `bruckner doctor`.
    Examples,
    /// Runs unmodified programs with the library preloaded: the tests of mpi4py and MPICH, random calls, faults, programs on two nodes.
    Suites {
        /// Runs only these suites.
        #[arg(long = "only", value_delimiter = ',')]
        only: Vec<suites::Suite>,
        /// Tests only these MPIs.
        #[arg(long = "mpi")]
        mpis: Vec<Mpi>,
        /// Runs only a part of each suite.
        #[arg(long)]
        quick: bool,
        /// First seed of the random calls.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Runs unmodified applications with the library preloaded: LAMMPS, Quantum ESPRESSO, HPCC, GROMACS and others.
    Apps {
        /// Runs only the quickest applications.
        #[arg(long)]
        quick: bool,
    },
    /// Runs LAMMPS, Quantum ESPRESSO and HPCC on emulated nodes, with and without the library. Needs root privileges.
    AppsOnNodes {
        #[command(flatten)]
        shape: cluster::Shape,
    },
    /// Tests constants, progress, many communicators, threads, objects left in shared memory, and valgrind.
    Suite {
        /// Tests only these MPIs.
        #[arg(long = "mpi")]
        mpis: Vec<Mpi>,
        /// Uses fewer communicators and calls.
        #[arg(long)]
        quick: bool,
    },
}

fn main() -> std::process::ExitCode {
    match ask() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testbed: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn ask() -> Result<()> {
    let ask = Ask::parse();
    let without_mpi = matches!(
        ask,
        Ask::Setup
            | Ask::Link { .. }
            | Ask::Referee { .. }
            | Ask::Papers { .. }
            | Ask::Scale { .. }
            | Ask::Supercomputers { .. }
            | Ask::Instructions { .. }
            | Ask::Work { .. }
    );
    if !without_mpi {
        library()?;
    }
    match ask {
        Ask::Setup => setup::run(),
        Ask::Matrix { mpis, quick } => matrix::run(some(&mpis, Mpi::ALL), quick),
        Ask::Overhead { mpis, launches, only_print } => {
            speed::overhead(some(&mpis, Mpi::CURRENT), launches, only_print)
        }
        Ask::Instructions { record } => instructions::run(record),
        Ask::Work { part } => instructions::run_in_process(&part),
        Ask::Referee { ranks } => referee::run(&ranks),
        Ask::Papers { check } => papers::run(check),
        Ask::Scale { check } => scale::run(check),
        Ask::Natives { launches, seconds, again } => natives::run(launches, seconds, again),
        Ask::Predict { launches, seconds, again } => predict::run(launches, seconds, again),
        Ask::Supercomputers { details, write, check } => supercomputers::run(details, write, check),
        Ask::Onnode { mpis, launches } => speed::onnode(some(&mpis, Mpi::CURRENT), launches),
        Ask::Roots { mpis } => speed::roots(some(&mpis, Mpi::CURRENT)),
        Ask::Cluster { shape, mpi, command } => {
            interrupt::listen()?;
            let code = cluster::Cluster::up(&shape)?.run(mpi, &command)?;
            match code {
                0 => Ok(()),
                code => std::process::exit(code),
            }
        }
        Ask::Bench { shape, mpi, ask } => {
            interrupt::listen()?;
            cluster::Cluster::up(&shape)?.bench(mpi, &ask, &[])
        }
        Ask::Claims { launches, seconds, again } => {
            interrupt::listen()?;
            claims::run(launches, seconds, again)
        }
        Ask::Chooser { ask } => {
            interrupt::listen()?;
            chooser::run(&ask)
        }
        Ask::Paths { quick } => paths::run(quick),
        Ask::Slurm => paths::slurm(),
        Ask::Worth { times, launches, only } => worth::run(times, launches, only.as_deref()),
        Ask::Watching { ask } => {
            interrupt::listen()?;
            watching::run(&ask)
        }
        Ask::Measure { figures, launches, seconds, again } => {
            interrupt::listen()?;
            measure::run(&figures, launches, seconds, again)
        }
        Ask::Peers { ext_mpi, mpi_advance, shape, launches, seconds } => {
            interrupt::listen()?;
            peers::run(ext_mpi.as_deref(), mpi_advance.as_deref(), &shape, launches, seconds)
        }
        Ask::Link { wire, devices } => cluster::link::run(&devices, &wire),
        Ask::Examples => examples::run(),
        Ask::Suites { only, mpis, quick, seed } => suites::run(&only, mpis, quick, seed),
        Ask::Apps { quick } => apps::run(quick),
        Ask::AppsOnNodes { shape } => apps::on_nodes(&shape),
        Ask::Suite { mpis, quick } => suite::run(some(&mpis, Mpi::ALL), quick),
    }
}

fn some<'a>(asked: &'a [Mpi], all: &'a [Mpi]) -> &'a [Mpi] {
    if asked.is_empty() { all } else { asked }
}

/// Builds the library, one file for all MPIs, and checks that the MPIs are installed.
fn library() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--package", "bruckner-preload", "--package", "bruckner-cli"])
        .current_dir(root())
        .status()?;
    if !build.success() {
        bail!("building the library failed");
    }
    let sum = Command::new("sha256sum").arg(root().join("target/release/libbruckner.so")).output()?;
    let sum = String::from_utf8_lossy(&sum.stdout);
    eprintln!("libbruckner.so {}", sum.split_whitespace().next().unwrap_or("?"));
    for mpi in Mpi::ALL {
        if let Some(missing) = mpi.missing().first() {
            bail!("{} is missing: run `cargo testbed setup`", missing.display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn options_do_not_collide() {
        super::Ask::command().debug_assert();
    }
}

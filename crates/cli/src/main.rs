//! The `bruckner` command: explains and verifies collective algorithms, diagnoses the MPI installation, measures and tunes collectives,
//! and starts programs with the library.
//!
//! Data goes to standard output, diagnostics to standard error. Exit status 0: success; 1: a check failed; 2: the command line or its
//! input was wrong.

mod ask;
mod bar;
mod bench;
mod catalogue;
mod columns;
mod compare;
mod compiled;
mod doctor;
mod exec;
mod explain;
mod found;
mod generate;
mod json;
mod machines;
mod overview;
mod plot;
mod probe;
mod ratios;
mod report;
mod settings;
mod simulate;
mod table;
mod tune;
mod verify;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Memory allocator of the command: mimalloc. The verifier allocates very many small lists, and takes a fifth less time with it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "bruckner", version, about = "Plans, explains and proves MPI collectives")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the algorithm that the library would choose, or the steps of any algorithm for each rank
    Explain(explain::Explain),
    /// Prove algorithms and programs correct, or test the verifier itself
    Verify(verify::Verify),
    /// Simulate algorithms on the model of a machine
    Simulate(simulate::Simulate),
    /// List the machine models that come with `simulate`
    Machines(machines::Machines),
    /// Measure the costs of messages and shared memory on this machine, and write them as its profile
    Probe(probe::Probe),
    Tune(tune::Tune),
    /// Diagnose the MPI, the topology and the settings, alone or under mpirun
    Doctor(doctor::Doctor),
    /// Measure collectives side by side: the MPI's own function, the library's choice, and any algorithm
    Bench(bench::Bench),
    /// Draw the results of `bruckner bench`
    Plot(plot::Plot),
    /// Run a program with the library preloaded: mpirun -n 4 bruckner exec ./app
    Exec(exec::Exec),
    /// Compare run times of a program with and without the library: bruckner compare -- mpirun -n 4 ./app
    Compare(compare::Compare),
    /// Show reports written by BRUCKNER_REPORT=FILE.json, and add up several runs
    Report(report::ReportOf),
    Settings(settings::SettingsHere),
    #[command(hide = true)]
    Generate(generate::Generate),
}

/// Outcome of a command, from which its exit status follows.
enum Answer {
    Success,
    Failure,
}

fn main() -> ExitCode {
    let answer = match Cli::parse().command {
        Command::Explain(explain) => explain.run(),
        Command::Verify(verify) => verify.run(),
        Command::Simulate(simulate) => simulate.run(),
        Command::Machines(machines) => machines.run(),
        Command::Probe(probe) => probe.run(),
        Command::Tune(tune) => tune.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Bench(bench) => bench.run(),
        Command::Plot(plot) => plot.run(),
        Command::Exec(exec) => return exec.run(),
        Command::Compare(compare) => compare.run(),
        Command::Report(report) => report.run(),
        Command::Settings(settings) => settings.run(),
        Command::Generate(generate) => generate.run(),
    };
    match answer {
        Ok(Answer::Success) => ExitCode::SUCCESS,
        Ok(Answer::Failure) => ExitCode::from(1),
        Err(error) => {
            eprintln!("bruckner: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Writes data to standard output; a reader that closes the pipe early is no error.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

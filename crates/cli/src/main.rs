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
#[command(
    name = "bruckner",
    version,
    about = "Run MPI programs with topology-aware collectives; explain, measure, tune and verify them"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// The help of a subcommand without a doc comment here is that of its type, which may have several paragraphs.
#[derive(Subcommand)]
enum Command {
    /// Show which algorithm the library would choose for a call and why, or the steps of any algorithm
    Explain(explain::Explain),
    /// Prove that algorithms, or texts in the schedule language, are correct; or test the verifier itself
    Verify(verify::Verify),
    /// Predict how long algorithms take on a machine, by simulating them on a model of it
    Simulate(simulate::Simulate),
    /// List the built-in machine models of `bruckner simulate`, or show one with the source of every number
    Machines(machines::Machines),
    Probe(probe::Probe),
    Tune(tune::Tune),
    Doctor(doctor::Doctor),
    Bench(bench::Bench),
    Plot(plot::Plot),
    Exec(exec::Exec),
    Compare(compare::Compare),
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

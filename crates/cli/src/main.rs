//! The `bruckner` command: explains and verifies collective algorithms, looks at the MPI that is there, and starts
//! programs with the library.
//!
//! Standard output is data, standard error is talk. Exit status 0: it holds; 1: it does not; 2: the question was
//! wrong.

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

/// The verifier makes very many small lists: this saves a fifth of its time.
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
    /// Show which algorithm the library would choose, or what any algorithm does, rank by rank
    Explain(explain::Explain),
    /// Prove algorithms and programs right, or test the proof itself
    Verify(verify::Verify),
    /// Simulate algorithms on a machine that need not be there
    Simulate(simulate::Simulate),
    /// List the machines that `simulate` knows
    Machines(machines::Machines),
    /// Measure what messages and shared memory cost here, as the profile of a machine
    Probe(probe::Probe),
    Tune(tune::Tune),
    /// See which MPI there is and what is wrong, alone or under mpirun
    Doctor(doctor::Doctor),
    /// Measure collectives side by side: the MPI's own, the library's, and any algorithm
    Bench(bench::Bench),
    /// Draw what `bruckner bench` measured
    Plot(plot::Plot),
    /// Run a program with the library preloaded: mpirun -n 4 bruckner exec ./app
    Exec(exec::Exec),
    /// Is it worth it? Run a program with and without the library: bruckner compare -- mpirun -n 4 ./app
    Compare(compare::Compare),
    /// Read reports of BRUCKNER_REPORT=FILE.json, and add up those of several runs
    Report(report::ReportOf),
    Settings(settings::SettingsHere),
    #[command(hide = true)]
    Generate(generate::Generate),
}

/// What a command found out.
enum Answer {
    Holds,
    DoesNotHold,
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
        Ok(Answer::Holds) => ExitCode::SUCCESS,
        Ok(Answer::DoesNotHold) => ExitCode::from(1),
        Err(error) => {
            eprintln!("bruckner: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Writes data to standard output; a reader that has seen enough is no error.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

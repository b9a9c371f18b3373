//! `cargo testbed suite`: tests beyond the matrix. Constants against each header, types and operations, progress, many communicators,
//! threads, objects left in shared memory, and valgrind.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::launch::{Launch, Outcome};
use crate::mpis::{Mpi, home};
use crate::table::Table;

/// Extent of the tests: communicators alive at once, communicators made in all, and calls of each thread.
struct Extent {
    alive: u32,
    made: u32,
    calls: u32,
}

/// Runs the suite and prints a table; returns an error if anything failed.
pub(crate) fn run(mpis: &[Mpi], quick: bool) -> Result<()> {
    let size = match quick {
        true => Extent { alive: 300, made: 2000, calls: 5000 },
        false => Extent { alive: 2000, made: 100_000, calls: 100_000 },
    };
    let mut table = Table::new(mpis.to_vec());
    let mut tell = |mpi: Mpi, test: &str, ranks: u32, outcome: &Outcome| table.tell(mpi.name(), test, ranks, outcome);
    for &mpi in mpis {
        let constants = mpi.compile("constants")?;
        tell(mpi, "constants", 1, &Launch::new(mpi, 1, &constants).test()?);
        let types = mpi.compile("types")?;
        tell(mpi, "types and operations", 2, &Launch::new(mpi, 2, &types).test()?);
        progress(mpi, |name, outcome| tell(mpi, name, 2, outcome))?;
        let asks = mpi.compile("asks")?;
        tell(mpi, "local queries do not communicate", 2, &Launch::new(mpi, 2, &asks).test()?);
        let plans = mpi.compile("plans")?;
        for topology in ["1x2", "2x1"] {
            let launch = Launch::new(mpi, 2, &plans).set("BRUCKNER_TOPOLOGY", topology);
            tell(mpi, &format!("life cycle of a plan, {topology}"), 2, &launch.test()?);
        }
        let program = mpi.compile("communicators")?;
        let arguments = [size.alive.to_string(), size.made.to_string()];
        let launch = Launch::new(mpi, 2, &program).argument(&arguments[0]).argument(&arguments[1]);
        let name = format!("communicators {} {}", size.alive, size.made);
        tell(mpi, &name, 2, &launch.test()?);
        let program = mpi.compile("threads")?;
        let launch = Launch::new(mpi, 2, &program).argument(size.calls.to_string());
        tell(mpi, &format!("two threads, {} calls", size.calls), 2, &launch.test()?);
        tell(mpi, "a rank is killed", 2, &killed(mpi)?);
        if mpi == Mpi::Mpich4 {
            tell(mpi, "valgrind", 2, &valgrind(mpi)?);
        }
    }
    table.end()
}

/// Tests that the library advances the MPI in its waits, for each way of moving large messages.
pub(crate) fn progress(mpi: Mpi, mut tell: impl FnMut(&str, &Outcome)) -> Result<()> {
    let progress = mpi.compile("progress")?;
    for (name, environment) in cma(mpi) {
        let mut launch = Launch::new(mpi, 2, &progress);
        for (variable, value) in *environment {
            launch = launch.set(variable, *value);
        }
        tell(name, &launch.test()?);
    }
    Ok(())
}

/// Returns test names and environments for the ways in which an MPI moves large messages within a node: with a single copy (CMA), and
/// without.
fn cma(mpi: Mpi) -> &'static [(&'static str, &'static [(&'static str, &'static str)])] {
    match mpi {
        Mpi::Openmpi4 => {
            &[("progress", &[]), ("progress without CMA", &[("OMPI_MCA_btl_vader_single_copy_mechanism", "none")])]
        }
        Mpi::Openmpi5 => &[
            ("progress", &[]),
            ("progress without CMA", &[("OMPI_MCA_smsc", "^cma,xpmem,knem"), ("OMPI_MCA_pml", "ob1")]),
        ],
        Mpi::Mpich4 | Mpi::Mpich5 | Mpi::MpichAbi => &[
            ("progress", &[]),
            ("progress without CMA", &[("MPIR_CVAR_CH4_CMA_ENABLE", "0"), ("UCX_TLS", "tcp,self")]),
        ],
        Mpi::Intel | Mpi::IntelAbi => &[
            ("progress", &[]),
            ("progress without CMA", &[("I_MPI_SHM_CMA", "0"), ("I_MPI_FABRICS", "ofi"), ("FI_PROVIDER", "tcp")]),
        ],
        Mpi::Openmpi4Ucx | Mpi::Openmpi4Ofi => &[("progress", &[])],
    }
}

/// Kills a rank in the middle of collectives and checks that the library leaves nothing in shared memory.
fn killed(mpi: Mpi) -> Result<Outcome> {
    let program = mpi.compile("killed")?;
    let outcome = Launch::new(mpi, 2, &program).run()?;
    let left = left_behind()?;
    let mut failures = u64::from(left > 0);
    let mut talk = format!("{left} objects of the library remain in shared memory\n");
    if !outcome.out.contains("killing") {
        failures += 1;
        talk.push_str(&outcome.err);
    }
    Ok(Outcome { cases: 1, failures, seconds: outcome.seconds, talk })
}

/// Returns the number of objects of the library in shared memory.
fn left_behind() -> Result<usize> {
    // The launcher may need a moment to end the other ranks.
    std::thread::sleep(Duration::from_millis(300));
    let names = std::fs::read_dir("/dev/shm").context("there is no /dev/shm")?;
    Ok(names.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("bruckner-")).count())
}

/// Runs a few calls of each collective under valgrind; errors that occur in the library are failures.
fn valgrind(mpi: Mpi) -> Result<Outcome> {
    let program = mpi.compile("small")?;
    let logs = home().join("valgrind");
    let _ = std::fs::remove_dir_all(&logs);
    std::fs::create_dir_all(&logs)?;
    let start = std::time::Instant::now();
    let log = format!("--log-file={}/%p", logs.display());
    let mut command = mpi.launch(2, true);
    command.args(["valgrind", "--quiet", "--error-exitcode=0", "--num-callers=30", &log]).arg(&program);
    let run = command.stdin(Stdio::null()).output().context("valgrind does not start")?;
    let ours = errors_of_ours(&logs)?;
    let ended = run.status.success() && String::from_utf8_lossy(&run.stdout).contains("failures 0");
    let mut talk = ours.join("\n");
    if !ended {
        talk.push_str(&String::from_utf8_lossy(&run.stderr));
    }
    let failures = ours.len() as u64 + u64::from(!ended);
    Ok(Outcome { cases: 10, failures, seconds: start.elapsed().as_secs_f64(), talk })
}

/// Returns the errors in valgrind's logs whose innermost frame outside valgrind and the C library is in the library.
fn errors_of_ours(logs: &Path) -> Result<Vec<String>> {
    let mut ours = Vec::new();
    for file in std::fs::read_dir(logs)?.flatten() {
        let text = std::fs::read_to_string(file.path())?;
        let lines = text.lines().map(|line| line.split_once("== ").map_or("", |(_, rest)| rest));
        let text: Vec<&str> = lines.collect();
        for report in text.split(|line| line.is_empty()) {
            // The first frame outside valgrind and the C library shows in which code the error occurred.
            let frame = report.iter().find(|line| {
                (line.contains(" at 0x") || line.contains(" by 0x"))
                    && !line.contains("vgpreload")
                    && !line.contains("libc.so")
            });
            if frame.is_some_and(|frame| frame.contains("libbruckner") || frame.contains("crates/")) {
                ours.push(report.join("\n"));
            }
        }
    }
    Ok(ours)
}

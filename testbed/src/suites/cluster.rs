//! Tests on emulated nodes, where other suites only set a topology: programs that hung once, random calls, and a lost node.

use std::path::Path;

use anyhow::Result;

use super::Table;
use crate::cluster::{Cluster, Shape};
use crate::launch::{Launch, Outcome};
use crate::mpis::{Mpi, root};

/// MPIs whose one-sided windows, which the programs use, work over TCP alone; those of Debian's Open MPI and MPICH do not.
const MPIS: &[Mpi] = &[Mpi::Openmpi5, Mpi::Mpich5, Mpi::Intel];

pub(crate) fn run(table: &mut Table, quick: bool, seed: u64) -> Result<()> {
    let shapes: &[&str] = if quick { &["2,2"] } else { &["2,2", "3,1", "2,1,2"] };
    for (number, shape) in shapes.iter().enumerate() {
        let nodes = Cluster::up(&Shape::of(&["--nodes", shape, "--delay", "50us", "--rate", "1gbit"])?)?;
        let mpis = if quick { &[Mpi::Openmpi5, Mpi::Mpich5] } else { MPIS };
        for mpi in table.of(mpis) {
            hangs(table, mpi, &nodes, shape)?;
            stress(table, mpi, &nodes, shape, quick, seed + number as u64 + 100 * mpi as u64)?;
        }
    }
    for mpi in table.of(if quick { &[Mpi::Openmpi5] } else { MPIS }) {
        vanishes(table, mpi, quick)?;
    }
    Ok(())
}

/// Launches a program with the library on all nodes by `bruckner exec`, which works with every launcher.
fn with_library<'a>(mpi: Mpi, nodes: &'a Cluster, bruckner: &'a Path, program: &Path) -> Launch<'a> {
    let launch = Launch::plain(mpi, nodes.ranks(), bruckner).across(nodes).oversubscribed();
    launch.argument("exec").argument(program.display().to_string())
}

fn bruckner() -> std::path::PathBuf {
    root().join("target/release/bruckner")
}

fn hangs(table: &mut Table, mpi: Mpi, nodes: &Cluster, shape: &str) -> Result<()> {
    let (program, bruckner) = (mpi.compile_plain("hangs")?, bruckner());
    let mut launch = with_library(mpi, nodes, &bruckner, &program).set("BRUCKNER", "always");
    // If the MPI has no hook (see `has_hook`), persistent collectives of several rounds are passed through, and the MPI's own do not pass
    // this test.
    if !mpi.has_hook() {
        launch = launch.argument("no requests");
    }
    // HAN splits a communicator in its first collective, which sometimes hangs while MPI_Comm_idup is in progress.
    if mpi == Mpi::Openmpi5 {
        launch = launch.argument("used before");
    }
    let ranks = nodes.ranks();
    table.tell(mpi.name(), &format!("hangs, emulated nodes {shape}"), ranks, &launch.test()?);
    Ok(())
}

fn stress(table: &mut Table, mpi: Mpi, nodes: &Cluster, shape: &str, quick: bool, seed: u64) -> Result<()> {
    let (program, bruckner) = (mpi.compile_plain("stress")?, bruckner());
    let calls = match (quick, mpi.is_open_mpi()) {
        (true, true) => 1_000,
        (true, false) => 200,
        (false, true) => 20_000,
        (false, false) => 4_000,
    };
    let mut launch = with_library(mpi, nodes, &bruckner, &program).set("BRUCKNER", "always");
    if mpi == Mpi::Openmpi5 {
        // Across nodes, HAN gathers types with gaps wrongly and frees in MPI_Reduce what it did not allocate; calls that are passed
        // through must give right results, so HAN is disabled.
        launch = launch.option("--mca").option("coll").option("^han");
    }
    let launch = launch.argument(calls.to_string()).argument(seed.to_string()).limit(1800);
    let what = format!("stress, seed {seed}, emulated nodes {shape}");
    table.tell(mpi.name(), &what, nodes.ranks(), &launch.test()?);
    Ok(())
}

/// Seconds by which a job with the library may end later after the loss of a node than without the library.
const MORE: f64 = 3.0;
/// Time at which the node is lost, in seconds.
const WHEN: f64 = 4.0;
/// Time limit of a job that does not notice the loss, in seconds.
const LIMIT: u64 = 30;

/// Loses a node while all ranks are in collectives: the job must end with the same success or failure as without the library, and about as
/// soon. A quick run only prints the times.
fn vanishes(table: &mut Table, mpi: Mpi, quick: bool) -> Result<()> {
    let (program, bruckner) = (mpi.compile_plain("vanish")?, bruckner());
    let mut outcome = Outcome::default();
    let mut times: [Vec<f64>; 2] = Default::default();
    // Number of jobs that succeed, without and with the library: Open MPI's launcher calls a lost node a success.
    let mut successes = [0; 2];
    for _ in 0..if quick { 1 } else { 3 } {
        for (with, times) in times.iter_mut().enumerate() {
            let lost = format!("1@{WHEN}s");
            let shape = ["--nodes", "2", "--ppn", "2", "--delay", "50us", "--lose-node", &lost];
            let nodes = Cluster::up(&Shape::of(&shape)?)?;
            let launch = match with == 1 {
                true => with_library(mpi, &nodes, &bruckner, &program).set("BRUCKNER", "always"),
                false => Launch::plain(mpi, nodes.ranks(), &program).across(&nodes).oversubscribed(),
            };
            let said = launch.limit(LIMIT).run()?;
            outcome.cases += 1;
            outcome.seconds += said.seconds;
            // The time of the loss counts from the start of the nodes, a little before that of the launcher.
            times.push((said.seconds - WHEN).max(0.0));
            successes[with] += u32::from(said.succeeded);
            // The job must have started before the loss and must not have run to its end.
            if said.out.contains("no node was gone") || said.seconds < WHEN - 0.5 {
                outcome.failures += 1;
                outcome.talk += &format!("{}{}", said.out, said.err);
            }
        }
    }
    let [without, with] = times.map(|times| times.into_iter().fold(0.0, f64::max));
    if !quick && (with > without + MORE || successes[0] != successes[1]) {
        outcome.failures += 1;
    }
    let said = |time: f64| match time + WHEN >= LIMIT as f64 {
        true => "never".to_owned(),
        false => format!("{time:.1} s"),
    };
    let what = format!("loss of a node: job ends after {}, native {}", said(with), said(without));
    outcome.talk += &what;
    table.tell(mpi.name(), &what, 4, &outcome);
    Ok(())
}

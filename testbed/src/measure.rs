//! `cargo testbed measure`: measures the figures of docs/theory/measured.md by `bruckner bench` on emulated nodes.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;

use crate::cluster::{Cluster, Shape, command};
use crate::mpis::{Mpi, home, root};

/// A figure of docs/theory/measured.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Figure {
    /// The library's best algorithm against native and native-best for growing delays: on 4x4, 2x2 and 2x1, and on 4x4 with MPICH 5
    Sweep,
    /// Bruck, locality-aware Bruck, leader, lanes, Sparbit and recursive doubling, on 4x4 and 8x2
    Algorithms,
    /// Two contributions of 90,464 bytes, the others empty, on 16x1 and 4x4
    Ragged,
}

/// One run of `bruckner bench`.
pub(crate) struct Run {
    /// Name of the results file, which several runs may share.
    pub(crate) name: String,
    pub(crate) mpi: Mpi,
    /// Options of the emulated nodes; empty for two ranks on this machine itself.
    pub(crate) shape: Vec<String>,
    /// Arguments of `bruckner bench`.
    pub(crate) ask: Vec<String>,
    /// Settings of the library on all ranks, as NAME=VALUE.
    pub(crate) settings: Vec<String>,
}

impl Run {
    /// Creates a run on emulated nodes, with the delay between nodes in microseconds.
    pub(crate) fn new(name: &str, mpi: Mpi, (nodes, ppn): (u32, u32), delay: u32, ask: Vec<String>) -> Run {
        let shape = format!("--nodes {nodes} --ppn {ppn} --delay {delay}us --rate {RATE}");
        Run {
            name: name.to_owned(),
            mpi,
            shape: words(&shape.split(' ').collect::<Vec<_>>()),
            ask,
            settings: Vec::new(),
        }
    }

    /// Creates a run of two ranks on one node, with a core for each.
    pub(crate) fn on_one_node(name: &str, mpi: Mpi, ask: Vec<String>) -> Run {
        Run { name: name.to_owned(), mpi, shape: Vec::new(), ask, settings: Vec::new() }
    }

    /// Returns the path of the results file.
    pub(crate) fn results(&self) -> PathBuf {
        place().join(format!("{}.json", self.name))
    }

    /// Returns the path of a marker file, named after the options of this run, which is written when the run is complete.
    fn mark(&self) -> PathBuf {
        let all = self.shape.iter().chain(&self.ask).chain(&self.settings).flat_map(|word| word.bytes().chain([b' ']));
        let sum = all.fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        place().join(format!("{}-{sum:x}.done", self.name))
    }

    /// Whether this run was completed before and its results still exist.
    fn is_done(&self) -> bool {
        self.mark().exists() && self.results().exists()
    }
}

/// Delays of the sweep, in microseconds.
const DELAYS: [u32; 6] = [0, 20, 50, 100, 200, 500];
const RATE: &str = "1gbit";

fn words(of: &[&str]) -> Vec<String> {
    of.iter().map(|word| (*word).to_owned()).collect()
}

pub(crate) fn with_algorithms(ask: &[&str], algorithms: &[&str]) -> Vec<String> {
    let each = algorithms.iter().flat_map(|algorithm| ["--algorithm", algorithm]);
    words(ask).into_iter().chain(each.map(ToOwned::to_owned)).collect()
}

/// Returns all runs of a figure.
fn runs(figure: Figure) -> Vec<Run> {
    match figure {
        Figure::Sweep => {
            let ask = with_algorithms(
                &["allreduce", "allgather", "reduce_scatter", "alltoall", "--bytes", "8,4096,32768"],
                &[
                    "locality(node)",
                    "lanes(node, between=spread-out)",
                    "lanes(node, between=ring)",
                    "leader(node, between=bruck(2))",
                    "spread-out",
                    "native-best",
                ],
            );
            let run = |name, mpi, shape, delay| Run::new(name, mpi, shape, delay, ask.clone());
            let mut runs = Vec::new();
            for (name, shape) in [("sweep-4x4", (4, 4)), ("sweep-2x2", (2, 2)), ("sweep-2x1", (2, 1))] {
                runs.extend(DELAYS.map(|delay| run(name, Mpi::Openmpi5, shape, delay)));
            }
            runs.push(run("sweep-4x4-mpich5", Mpi::Mpich5, (4, 4), 500));
            runs
        }
        Figure::Algorithms => {
            let ask = with_algorithms(
                &["allgather", "--bytes", "8,64,512,4096,32768"],
                &[
                    "bruck(2)",
                    "locality(node)",
                    "leader(node, between=bruck(2))",
                    "lanes(node, between=bruck(2))",
                    "sparbit",
                    "recursive-doubling",
                ],
            );
            let run = |name, shape| Run::new(name, Mpi::Openmpi5, shape, 100, ask.clone());
            vec![run("algorithms-4x4", (4, 4)), run("algorithms-8x2", (8, 2))]
        }
        Figure::Ragged => {
            let mut runs = Vec::new();
            for (name, shape) in [("ragged-16x1", (16, 1)), ("ragged-4x4", (4, 4))] {
                // First, two ranks far from each other contribute data; then ranks 0 and 1, so that blocks are sorted by size, which is
                // the worst order.
                for (counts, algorithms) in [
                    ("0*2,11308,0*8,11308,0*4", &["bruck(2)", "reorder(bruck(2))"][..]),
                    ("11308*2,0*14", &["bruck(2)", "reorder(bruck(2))"][..]),
                ] {
                    let ask = with_algorithms(&["allgather", "reduce_scatter", "--counts", counts], algorithms);
                    runs.push(Run::new(name, Mpi::Openmpi5, shape, 100, ask));
                }
            }
            runs
        }
    }
}

/// Returns the directory of the results.
pub(crate) fn place() -> PathBuf {
    home().join("measured")
}

/// Measures figures, and plots a report of each results file.
pub(crate) fn run(figures: &[Figure], launches: u32, seconds: f64, again: bool) -> Result<()> {
    let all = Figure::value_variants();
    let figures = if figures.is_empty() { all } else { figures };
    let runs: Vec<Run> = figures.iter().flat_map(|figure| runs(*figure)).collect();
    measure(&runs, launches, seconds, again)?;
    let mut results: Vec<PathBuf> = runs.iter().map(Run::results).collect();
    results.dedup();
    for results in results {
        let page = results.with_extension("html");
        let mut plot = Command::new(root().join("target/release/bruckner"));
        if !plot.arg("plot").arg(&results).arg("-o").arg(&page).status()?.success() {
            bail!("plotting {} failed", results.display());
        }
        eprintln!("{}", page.display());
    }
    Ok(())
}

/// Measures runs. Runs that an earlier, interrupted measurement completed are skipped, unless `again` is set.
pub(crate) fn measure(runs: &[Run], launches: u32, seconds: f64, again: bool) -> Result<()> {
    std::fs::create_dir_all(place())?;
    for run in runs.iter().filter(|_| again) {
        let _ = std::fs::remove_file(run.results());
    }
    for run in runs {
        let what = format!("{}: {}, {}", run.name, run.shape.join(" "), run.mpi.name());
        if run.is_done() {
            eprintln!("{what}: already measured, skipped");
            continue;
        }
        eprintln!("{what}");
        let mut ask = run.ask.clone();
        ask.extend(["--launches".into(), launches.to_string(), "--seconds".into(), seconds.to_string()]);
        ask.extend(["-o".into(), run.results().display().to_string()]);
        if run.shape.is_empty() {
            let mut bench = command("bench", &run.mpi.launch(2, false), &ask, &run.settings);
            ensure!(bench.status()?.success(), "bruckner bench fails");
        } else {
            let shape = Shape::of(&run.shape.iter().map(String::as_str).collect::<Vec<_>>())?;
            Cluster::up(&shape)?.bench(run.mpi, &ask, &run.settings)?;
        }
        std::fs::write(run.mark(), "")?;
    }
    Ok(())
}

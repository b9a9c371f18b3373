//! `cargo testbed measure`: the figures of docs/measured.md, each by `bruckner bench` on emulated nodes.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::cluster::{Cluster, Shape};
use crate::mpis::{Mpi, home, root};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Figure {
    /// Our best against native and native-best while the delay grows: 4x4, 2x2, 2x1, and 4x4 on MPICH 5
    Sweep,
    /// Bruck, locality-aware Bruck, leader, lanes, Sparbit and recursive doubling, on 4x4 and 8x2
    Algorithms,
    /// Two messages of 90,464 bytes and the rest empty, on 16x1 and 4x4
    Ragged,
}

/// One run of `bruckner bench`.
struct Run {
    /// The name of its results.
    name: &'static str,
    mpi: Mpi,
    nodes: u32,
    ppn: u32,
    delay: u32,
    ask: Vec<String>,
}

impl Run {
    /// A mark in the results by which this run knows itself, put there when it has come to its end.
    fn mark(&self) -> PathBuf {
        let sum =
            self.ask.join(" ").bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        place().join(format!("{}-{}us-{sum:x}.done", self.name, self.delay))
    }

    /// Whether it was measured in full before, and its results are still there.
    fn is_done(&self) -> bool {
        self.mark().exists() && place().join(format!("{}.json", self.name)).exists()
    }
}

/// Delays of the sweep, in microseconds.
const DELAYS: [u32; 6] = [0, 20, 50, 100, 200, 500];
const RATE: &str = "1gbit";

fn words(of: &[&str]) -> Vec<String> {
    of.iter().map(|word| (*word).to_owned()).collect()
}

fn with_algorithms(ask: &[&str], algorithms: &[&str]) -> Vec<String> {
    let each = algorithms.iter().flat_map(|algorithm| ["--algorithm", algorithm]);
    words(ask).into_iter().chain(each.map(ToOwned::to_owned)).collect()
}

/// All runs of a figure.
fn runs(figure: Figure) -> Vec<Run> {
    match figure {
        Figure::Sweep => {
            let ask = with_algorithms(
                &["allreduce", "allgather", "reduce_scatter", "alltoall", "--bytes", "8,4096,32768"],
                &[
                    "locality(node)",
                    "lanes(node, between=ring)",
                    "leader(node, between=bruck(2))",
                    "spread-out",
                    "native-best",
                ],
            );
            let run = |name, mpi, nodes, ppn, delay| Run { name, mpi, nodes, ppn, delay, ask: ask.clone() };
            let mut runs = Vec::new();
            for (name, nodes, ppn) in [("sweep-4x4", 4, 4), ("sweep-2x2", 2, 2), ("sweep-2x1", 2, 1)] {
                runs.extend(DELAYS.map(|delay| run(name, Mpi::Openmpi5, nodes, ppn, delay)));
            }
            runs.push(run("sweep-4x4-mpich5", Mpi::Mpich5, 4, 4, 500));
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
            let run =
                |name, nodes, ppn| Run { name, mpi: Mpi::Openmpi5, nodes, ppn, delay: 100, ask: ask.clone() };
            vec![run("algorithms-4x4", 4, 4), run("algorithms-8x2", 8, 2)]
        }
        Figure::Ragged => {
            let mut runs = Vec::new();
            for (name, nodes, ppn) in [("ragged-16x1", 16, 1), ("ragged-4x4", 4, 4)] {
                // Two ranks somewhere have something; then the first two: sorted by size, the worst order.
                for (counts, algorithms) in [
                    ("0*2,11308,0*8,11308,0*4", &["bruck(2)", "reorder(bruck(2))"][..]),
                    ("11308*2,0*14", &["bruck(2)", "reorder(bruck(2))"][..]),
                ] {
                    let ask =
                        with_algorithms(&["allgather", "reduce_scatter", "--counts", counts], algorithms);
                    runs.push(Run { name, mpi: Mpi::Openmpi5, nodes, ppn, delay: 100, ask });
                }
            }
            runs
        }
    }
}

/// Where results lie.
fn place() -> PathBuf {
    home().join("measured")
}

/// Measures, and draws a report of each name.
///
/// What an earlier run that was interrupted has measured in full is kept, unless everything is to be measured again.
pub(crate) fn run(figures: &[Figure], launches: u32, seconds: f64, again: bool) -> Result<()> {
    std::fs::create_dir_all(place())?;
    let all = Figure::value_variants();
    let figures = if figures.is_empty() { all } else { figures };
    let runs: Vec<Run> = figures.iter().flat_map(|figure| runs(*figure)).collect();
    let mut names: Vec<&str> = runs.iter().map(|run| run.name).collect();
    names.dedup();
    if again {
        for name in &names {
            let _ = std::fs::remove_file(place().join(format!("{name}.json")));
        }
    }
    for run in &runs {
        let Run { name, mpi, nodes, ppn, delay, .. } = run;
        if run.is_done() {
            eprintln!("{name}: {nodes}x{ppn}, {delay} us, {}: measured before", mpi.name());
            continue;
        }
        eprintln!("{name}: {nodes}x{ppn}, {delay} us, {}", mpi.name());
        let (nodes, ppn, delay) = (nodes.to_string(), ppn.to_string(), format!("{delay}us"));
        let shape = Shape::of(&["--nodes", &nodes, "--ppn", &ppn, "--delay", &delay, "--rate", RATE])?;
        let mut ask = run.ask.clone();
        let output = place().join(format!("{name}.json"));
        ask.extend(["--launches".into(), launches.to_string(), "--seconds".into(), seconds.to_string()]);
        ask.extend(["-o".into(), output.display().to_string()]);
        Cluster::up(&shape)?.bench(*mpi, &ask)?;
        std::fs::write(run.mark(), "")?;
    }
    for name in names {
        let (results, page) = (place().join(format!("{name}.json")), place().join(format!("{name}.html")));
        let mut plot = Command::new(root().join("target/release/bruckner"));
        if !plot.arg("plot").arg(&results).arg("-o").arg(&page).status()?.success() {
            bail!("{} cannot be drawn", results.display());
        }
        eprintln!("{}", page.display());
    }
    Ok(())
}

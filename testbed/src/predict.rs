//! `cargo testbed predict`: times of collectives on emulated nodes, measured and as the model predicts them from messages between two
//! ranks and from operations on one node.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bruckner_algorithms::{Expression, Task, plan};
use bruckner_measure::{JoinedCase, Results, TimingMethod, bytes_text, join_cases, median, native, time_text};
use bruckner_model::{Machine, Simulation};
use bruckner_schedule::{Collective, Topology};

use crate::cluster::{Cluster, Shape};
use crate::measure::{Run, measure, with_algorithms};
use crate::mpis::{Mpi, root};

/// Numbers of nodes, and of ranks on each.
const SHAPES: [(u32, u32); 2] = [(4, 4), (8, 2)];

const DELAY: u32 = 500;

const SIZES: &str = "8,512,4096,32768,131072";

/// Five algorithms of each collective, flat and node-aware.
const ALGORITHMS: [(Collective, [&str; 5]); 4] = [
    (
        Collective::Allgather,
        ["bruck(2)", "recursive-doubling", "ring", "locality(node)", "lanes(node, between=bruck(2))"],
    ),
    (
        Collective::Allreduce,
        ["recursive-doubling", "rabenseifner", "ring", "locality(node)", "lanes(node, between=ring)"],
    ),
    (
        Collective::ReduceScatter,
        ["bruck(2)", "recursive-halving", "ring", "locality(node)", "lanes(node, between=ring)"],
    ),
    (Collective::Alltoall, ["spread-out", "pairwise", "bruck(2)", "locality(node)", "leader(node, between=pairwise)"]),
];

/// Largest acceptable ratio of two measured times: of the algorithm that the model predicts to be the fastest, and of the fastest
/// algorithm.
const NEAR: f64 = 1.10;

/// Returns the measurements of one topology.
fn runs(shape: (u32, u32)) -> Vec<Run> {
    let run = |(collective, algorithms): (Collective, [&str; 5])| {
        let ask = with_algorithms(&[&collective.to_string(), "--bytes", SIZES], &algorithms);
        Run::new(&format!("predict-{}x{}", shape.0, shape.1), Mpi::Openmpi5, shape, DELAY, ask)
    };
    ALGORITHMS.map(run).into()
}

/// Measures a machine profile by `bruckner probe`, unless the file exists, and returns it.
fn probe(run: &Run, file: &Path) -> Result<Machine> {
    if !file.exists() {
        let shape = Shape::of(&run.shape.iter().map(String::as_str).collect::<Vec<_>>())?;
        let bruckner = root().join("target/release/bruckner");
        let command = [&bruckner, Path::new("probe"), Path::new("-o"), file];
        let command = command.map(|word| word.display().to_string());
        ensure!(Cluster::up(&shape)?.run(run.mpi, &command)? == 0, "bruckner probe fails");
    }
    Ok(Machine::read(&std::fs::read_to_string(file)?)?)
}

/// Predicted and measured time of an algorithm in a case, in seconds.
struct Row<'a> {
    algorithm: &'a str,
    predicted: f64,
    measured: f64,
}

fn rows<'a>(case: &JoinedCase<'a>, machine: &Machine) -> Result<Vec<Row<'a>>> {
    let topology: Topology = case.topology.parse()?;
    let named = |(collective, _): &&(Collective, _)| collective.to_string() == case.collective;
    let (collective, _) = ALGORITHMS.iter().find(named).context("a collective")?;
    let task = Task::new(*collective, topology).bytes(case.bytes);
    let ours = case.contenders.iter().copied().filter(|name| !native::is_native(name));
    let row = |algorithm: &'a str| {
        let expression: Expression = algorithm.parse().context("an algorithm")?;
        let predicted = Simulation::of(&plan(&task, &expression)?)?.run(machine)?.last();
        let measured = case.times(algorithm, algorithm, TimingMethod::FromBarrier).context("times")?.median;
        Ok(Row { algorithm, predicted, measured })
    };
    ours.map(row).collect()
}

/// Measures all cases that have no results yet, and prints measured times beside predicted times.
pub(crate) fn run(launches: u32, seconds: f64, again: bool) -> Result<()> {
    let (mut errors, mut near, mut cases) = (Vec::new(), 0, 0);
    for shape in SHAPES {
        let runs = runs(shape);
        let profile: PathBuf = runs[0].results().with_extension("toml");
        if again && profile.exists() {
            std::fs::remove_file(&profile)?;
        }
        std::fs::create_dir_all(profile.parent().context("a directory")?)?;
        let machine = probe(&runs[0], &profile)?;
        measure(&runs, launches, seconds, again)?;
        let results = Results::read(&runs[0].results())?;
        println!("{}x{}, {DELAY} us, 1 Gbit/s; by the model / measured; * marks the fastest of each", shape.0, shape.1);
        for case in join_cases(&results) {
            let rows = rows(&case, &machine)?;
            let best =
                |of: fn(&Row<'_>) -> f64| rows.iter().min_by(|a, b| of(a).total_cmp(&of(b))).context("an algorithm");
            let (chosen, fastest) = (best(|row| row.predicted)?, best(|row| row.measured)?);
            let is_near = chosen.measured <= NEAR * fastest.measured;
            near += usize::from(is_near);
            cases += 1;
            let remark = if is_near { "" } else { "  the wrong one" };
            println!(
                "{:<15} {:>8}  {:.2} times the fastest{remark}",
                case.collective,
                bytes_text(case.bytes),
                chosen.measured / fastest.measured
            );
            for row in &rows {
                let star = |is: bool| if is { "*" } else { " " };
                let error = row.predicted / row.measured - 1.0;
                errors.push(error.abs());
                println!(
                    "  {:<32} {:>10}{} {:>10}{} {:>+5.0} %",
                    row.algorithm,
                    time_text(row.predicted),
                    star(std::ptr::eq(row, chosen)),
                    time_text(row.measured),
                    star(std::ptr::eq(row, fastest)),
                    error * 100.0
                );
            }
        }
    }
    println!("{} predictions: median error {:.0} %", errors.len(), median(&errors) * 100.0);
    println!("in {near} of {cases} cases the predicted winner is within 10 % of the fastest");
    Ok(())
}

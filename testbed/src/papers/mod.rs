//! `cargo testbed papers`: prints docs/theory/papers.md, which compares claims of papers about their algorithms with our schedules and model.

mod jocksch;
mod nap;
mod radix;
mod regions;
mod sparbit;

use std::fmt::{self, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use bruckner_algorithms::{Task, TaskPlan, plan};
use bruckner_model::{Machine, Simulation};
use bruckner_schedule::Collective;

use crate::mpis::root;

/// Fraction by which machine parameters are varied.
const BY: f64 = 0.3;

const HEAD: &str = "# Claims of the papers, compared with the model

*For researchers: what five papers claim about their algorithms, and what our schedules and our model give.*

`cargo testbed papers` prints this page in a few minutes. Times are from the simulator ([model](model.md)), unless stated otherwise.
Parentheses after a number contain its smallest and largest value if inter-node and intra-node latencies and rates are each 30 % lower or
higher than in the profile, in all combinations. The model does not decide comparisons that change within this range.
";

/// A number for a machine, and its range over variations of the machine with other parameters.
struct Spread {
    value: f64,
    least: f64,
    most: f64,
}

impl Spread {
    /// Returns the spread of `values`, of which the first one belongs to the machine with unvaried parameters.
    fn of(values: &[f64]) -> Spread {
        Spread {
            value: values[0],
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        write!(f, "{:.digits$} ({:.digits$}–{:.digits$})", self.value, self.least, self.most)
    }
}

fn known(name: &str) -> Result<Machine> {
    Machine::builtin(name).with_context(|| format!("no machine {name}"))
}

fn planned(collective: Collective, topology: &str, algorithm: &str, bytes: u64) -> Result<TaskPlan> {
    let task = Task::new(collective, topology.parse()?).bytes(bytes);
    plan(&task, &algorithm.parse().context("an algorithm")?).with_context(|| algorithm.to_owned())
}

/// Returns the simulated time of a plan on each machine, in seconds.
fn times(plan: &TaskPlan, machines: &[Machine]) -> Result<Vec<f64>> {
    let played = Simulation::of(plan)?;
    on_all_cores(machines, |machine| Ok(played.run(machine)?.last()))
}

/// Applies `work` to each of `things`, in parallel on all cores, and returns the results in the same order.
fn on_all_cores<T: Sync, R: Send + Sync>(things: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let results: Vec<OnceLock<Result<R>>> = things.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let worker = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(thing) = things.get(at) else { break };
            results[at].get_or_init(|| work(thing));
        }
    };
    std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        (0..workers).for_each(|_| drop(scope.spawn(worker)));
    });
    results.into_iter().map(|result| result.into_inner().expect("each was worked on")).collect()
}

/// Returns a table in Markdown.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("\n| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// Prints all sections, or compares them with docs/theory/papers.md if `check` is set.
pub(crate) fn run(check: bool) -> Result<()> {
    let sections = [nap::section, regions::section, radix::section, sparbit::section, jocksch::section];
    let mut text = HEAD.to_owned();
    for section in sections {
        text.push('\n');
        text.push_str(&section()?);
    }
    if !check {
        print!("{text}");
        return Ok(());
    }
    let path = root().join("docs/theory/papers.md");
    ensure!(
        std::fs::read_to_string(path)? == text,
        "docs/theory/papers.md differs from the output of `cargo testbed papers`"
    );
    println!("docs/theory/papers.md is up to date");
    Ok(())
}

//! What an MPI does best if it is told to.

use anyhow::{Context, Result};
use bruckner::Name;
use bruckner_measure::{Comparison, Joined, Look, Results, join, native};

use super::contender::{NATIVE_BEST, REFERENCE};
use super::problem::{Problem, Size};
use super::{Bench, launches};

/// Launches of what is compared.
const LAUNCHES: u32 = 2;
const BLOCKS: u32 = 15;
const CONFIDENCE: f64 = 0.98;
/// A setting must be so much faster, in the median.
const FASTER: f64 = 0.95;

/// The setting with which the MPI is surely faster than by itself.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Best {
    /// What [`super::forced`] calls it.
    pub(crate) setting: String,
    /// Its time as a part of what the MPI takes by itself.
    pub(crate) ratio: f64,
    pub(crate) interval: [f64; 2],
}

/// What was found of an MPI.
pub(crate) struct Found {
    pub(crate) mpi: String,
    pub(crate) topology: String,
    /// For each case; none where the MPI is best left alone.
    pub(crate) best: Vec<(Problem, Option<Best>)>,
}

/// Finds, by launches of their own, what an MPI does best, of settings that may be taken; each case is measured for so many seconds at a
/// time.
pub(crate) fn best_natives(
    launcher: &[String],
    cases: Vec<Problem>,
    seconds: f64,
    may: fn(&str, Name, &str) -> bool,
) -> Result<Found> {
    let bench = Bench {
        collectives: Vec::new(),
        bytes: Vec::new(),
        counts: None,
        algorithms: vec![NATIVE_BEST.to_owned(), REFERENCE.to_owned()],
        blocks: BLOCKS,
        seconds,
        precision: 0.02,
        confidence: CONFIDENCE,
        seed: 1,
        labels: Vec::new(),
        output: None,
        json: false,
        launches: LAUNCHES,
        self_test: None,
        cases,
        trial: false,
        speak: false,
        set: Vec::new(),
        native_names: Vec::new(),
        launcher: launcher.to_vec(),
        may,
    };
    let mut results = Results::default();
    launches::all(&bench, &mut results)?;
    let first = results.launches.first().context("a launch")?;
    let (mpi, topology) = (first.mpi.name.clone(), first.topology.clone());
    let joined = join(&results);
    let of = |problem: &Problem| {
        let is_it = |case: &&Joined<'_>| {
            case.collective == problem.name.to_string() && Size::Bytes(case.bytes) == problem.size
        };
        joined.iter().find(is_it).and_then(best)
    };
    let best = bench.cases.iter().map(|problem| (problem.clone(), of(problem))).collect();
    Ok(Found { mpi, topology, best })
}

/// The setting with which a case is surely faster, measured by what no setting changes.
fn best(case: &Joined<'_>) -> Option<Best> {
    let best = native::best(case)?;
    let of = |name: &str, look| case.compare(name, REFERENCE, look, CONFIDENCE);
    let found = beside(&of(best, Look::FromBarrier)?, &of(native::NATIVE, Look::FromBarrier)?);
    let after = beside(&of(best, Look::BackToBack)?, &of(native::NATIVE, Look::BackToBack)?);
    let wins = found.1[1] < 1.0 && found.0 <= FASTER && after.0 <= 1.0;
    let setting = native::setting(best)?.to_owned();
    wins.then_some(Best { setting, ratio: found.0, interval: found.1 })
}

/// One ratio divided by another, which was measured apart from it, with the widest interval that can come of that.
fn beside(a: &Comparison, b: &Comparison) -> (f64, [f64; 2]) {
    (a.ratio / b.ratio, [a.interval.low / b.interval.high, a.interval.high / b.interval.low])
}

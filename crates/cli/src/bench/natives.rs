//! Search for the settings with which an MPI is fastest.

use anyhow::{Context, Result};
use bruckner::Name;
use bruckner_measure::{Comparison, JoinedCase, Results, TimingMethod, join_cases, native};

use super::contender::{NATIVE_BEST, REFERENCE};
use super::problem::{Problem, Size};
use super::{Bench, launches};

/// Effort of the comparison: launches, blocks in each launch, and confidence level of the intervals.
const LAUNCHES: u32 = 2;
const BLOCKS: u32 = 15;
const CONFIDENCE: f64 = 0.98;
/// Largest ratio of the median time with a setting to that with the MPI's default at which the setting is worth using.
const FASTER: f64 = 0.95;

/// A setting with which the MPI is significantly faster than with its default.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct BestSetting {
    /// Name of the setting in [`super::forced`].
    pub(crate) setting: String,
    /// Time with the setting divided by the time with the MPI's default; `interval` is its confidence interval.
    pub(crate) ratio: f64,
    pub(crate) interval: [f64; 2],
}

/// Best settings found for an MPI on a topology.
pub(crate) struct MpiResult {
    pub(crate) mpi: String,
    pub(crate) topology: String,
    /// Best setting of each case; `None` where no setting beats the default.
    pub(crate) best: Vec<(Problem, Option<BestSetting>)>,
}

/// Measures, in separate launches, the best setting of the MPI for each case. `may` filters the settings to try; `seconds` limits the time
/// for a case in one launch.
pub(crate) fn best_natives(
    launcher: &[String],
    cases: Vec<Problem>,
    seconds: f64,
    may: fn(&str, Name, &str) -> bool,
) -> Result<MpiResult> {
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
        accepts_setting: may,
    };
    let mut results = Results::default();
    launches::all(&bench, &mut results)?;
    let first = results.launches.first().context("a launch")?;
    let (mpi, topology) = (first.mpi.name.clone(), first.topology.clone());
    let joined = join_cases(&results);
    let of = |problem: &Problem| {
        let is_it = |case: &&JoinedCase<'_>| {
            case.collective == problem.name.to_string() && Size::Bytes(case.bytes) == problem.size
        };
        joined.iter().find(is_it).and_then(best)
    };
    let best = bench.cases.iter().map(|problem| (problem.clone(), of(problem))).collect();
    Ok(MpiResult { mpi, topology, best })
}

/// Returns the best setting of a case if it is significantly faster than the default; both are compared with [`REFERENCE`].
fn best(case: &JoinedCase<'_>) -> Option<BestSetting> {
    let best = native::best(case)?;
    let of = |name: &str, look| case.compare(name, REFERENCE, look, CONFIDENCE);
    let found = beside(&of(best, TimingMethod::FromBarrier)?, &of(native::NATIVE, TimingMethod::FromBarrier)?);
    let after = beside(&of(best, TimingMethod::BackToBack)?, &of(native::NATIVE, TimingMethod::BackToBack)?);
    let wins = found.1[1] < 1.0 && found.0 <= FASTER && after.0 <= 1.0;
    let setting = native::setting(best)?.to_owned();
    wins.then_some(BestSetting { setting, ratio: found.0, interval: found.1 })
}

/// Divides two ratios from separate measurements; the interval is the widest that both intervals allow.
fn beside(a: &Comparison, b: &Comparison) -> (f64, [f64; 2]) {
    (a.ratio / b.ratio, [a.interval.low / b.interval.high, a.interval.high / b.interval.low])
}

//! Self-test of the bench: measures one contender against itself.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use bruckner_measure::{Case, Comparison, ComparisonResult, Results, TimingMethod, join_cases, median, quantile};
use serde_json::json;

use super::contender::Contender;
use super::measure::{Effort, Ranks};
use super::problem::Problem;
use super::talk::bar;
use crate::{Answer, print};

/// Artificial delay that the bench must find, as a fraction of the time of a call.
const DELAY: f64 = 0.05;
/// Minimum fraction of runs with a correct verdict.
const RIGHT: f64 = 0.95;

/// Measures one contender against itself, without and with a delay, `runs` times each. The answer says whether enough verdicts were
/// correct.
pub(crate) fn run(
    ranks: &mut Ranks,
    problem: &Problem,
    contender: &Contender,
    runs: u32,
    effort: &Effort,
    first: bool,
    as_json: bool,
) -> Result<Answer> {
    let bar = if first { bar() } else { indicatif::ProgressBar::hidden() };
    // Number of correct verdicts, and the ratios found; by delay, then by kind of timing.
    let mut found: [[(u32, Vec<f64>); 2]; 2] = Default::default();
    for run in 0..runs {
        for (at, delay) in [0.0, DELAY].into_iter().enumerate() {
            let case = ranks.self_test_case(problem, contender, delay, effort)?;
            for (look, (right, ratios)) in TimingMethod::ALL.into_iter().zip(&mut found[at]) {
                let comparison = compare(&case, look, effort)?;
                let verdict = if delay > 0.0 { ComparisonResult::Slower } else { ComparisonResult::NoDifference };
                *right += u32::from(comparison.result() == verdict);
                ratios.push(comparison.ratio);
            }
        }
        bar.set_position(u64::from((run + 1) * 1000 / runs));
    }
    bar.finish_and_clear();
    let mut text =
        format!("{problem} by {contender}, {runs} runs per line, {} % intervals\n", effort.confidence * 100.0);
    let mut rows = Vec::new();
    for (what, found) in ["correct verdict without a delay", "5 % delay detected"].into_iter().zip(&found) {
        for (look, (right, ratios)) in TimingMethod::ALL.into_iter().zip(found) {
            let (low, middle, high) = (quantile(ratios, 0.05), median(ratios), quantile(ratios, 0.95));
            writeln!(text, "{what:<33} {:<30} {right:>4} of {runs}", look.text())?;
            writeln!(text, "{:>33} time ratios {low:.3}, {middle:.3}, {high:.3} (5th, 50th, 95th percentile)", "")?;
            rows.push(json!({
                "what": what, "look": look.text(), "right": right, "runs": runs, "ratio": middle, "from": low, "to": high,
            }));
        }
    }
    if first {
        let (case, confidence) = (problem.to_string(), effort.confidence);
        let all = json!({ "case": case, "algorithm": contender.to_string(), "confidence": confidence, "found": rows });
        print(&if as_json { format!("{all:#}\n") } else { text })?;
    }
    let enough = found.iter().flatten().all(|(right, _)| f64::from(*right) >= RIGHT * f64::from(runs));
    Ok(if enough || !first { Answer::Success } else { Answer::Failure })
}

/// Compares contender B, which may have a delay, with contender A, which is the same algorithm without one.
fn compare(case: &Case, look: TimingMethod, effort: &Effort) -> Result<Comparison> {
    let results = Results::of_case(case.clone());
    let joined = join_cases(&results);
    let comparison = joined.first().and_then(|joined| joined.compare("B", "A", look, effort.confidence));
    comparison.context("both were measured")
}

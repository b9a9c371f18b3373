//! `cargo testbed supercomputers`: the model, and selection by it, against times that others measured on four supercomputers
//! (testbed/data). All algorithms there are flat: none knows which ranks share a node.

mod data;
mod files;
mod fit;
mod implementation;
mod selection;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use bruckner_algorithms::Expression;

use data::{Algorithm, Job, Row, jobs};
use fit::Fitted;

use crate::listing;

/// Page that shows the output of [`COMMAND`].
const PAGE: &str = "docs/theory/supercomputers.md";
const COMMAND: &str = "cargo testbed supercomputers";

/// Goals: shares of the predictions within a factor of 1.3 and of 2, and the cost of following the model, as a geometric mean and where
/// the fastest algorithm is clear.
const GOALS: (f64, f64, f64, f64) = (0.70, 0.90, 1.10, 2.0);

/// Predicted time of an algorithm, and the row with its measured time.
struct Predicted<'a> {
    algorithm: &'a Expression,
    seconds: f64,
    row: &'a Row,
}

/// All that was measured of a collective with one size in one job.
#[derive(Default)]
struct Case<'a> {
    algorithms: Vec<Predicted<'a>>,
    default: Option<&'a Row>,
}

/// How near predictions are to measured times, and what it costs to follow them.
#[derive(Clone, Default)]
struct Score {
    /// Predicted time divided by the measured time of each algorithm that the machine was not fitted to.
    ratios: Vec<f64>,
    /// Measured time of the algorithm with the shortest prediction, divided by that of the fastest.
    costs: Vec<f64>,
    /// Likewise, only where the fastest algorithm is clear: its upper quartile is 1.2 times below the lower quartile of the second.
    clear: Vec<f64>,
    /// Measured time of the MPI's default divided by that of the fastest algorithm.
    defaults: Vec<f64>,
}

fn share(of: &[f64], holds: impl Fn(f64) -> bool) -> f64 {
    of.iter().filter(|value| holds(**value)).count() as f64 / of.len().max(1) as f64
}

fn within(ratios: &[f64], factor: f64) -> f64 {
    share(ratios, |ratio| ratio.ln().abs() <= factor.ln())
}

fn geometric_mean(of: &[f64]) -> f64 {
    (of.iter().map(|value| value.ln()).sum::<f64>() / of.len().max(1) as f64).exp()
}

fn greatest(of: &[f64]) -> f64 {
    of.iter().copied().fold(1.0, f64::max)
}

impl<'a> Case<'a> {
    /// Returns the mapped algorithm with the least value.
    fn best(&self, of: impl Fn(&Predicted<'a>) -> f64) -> Option<&Predicted<'a>> {
        self.algorithms.iter().min_by(|a, b| of(a).total_cmp(&of(b)))
    }

    /// Whether the fastest algorithm is surely faster than the second.
    fn is_clear(&self) -> bool {
        let mut rows: Vec<&Row> = self.algorithms.iter().map(|one| one.row).collect();
        rows.sort_by(|a, b| a.median.total_cmp(&b.median));
        matches!(rows[..], [first, second, ..] if second.quartiles[0] > 1.2 * first.quartiles[1])
    }
}

impl Score {
    fn add(&mut self, other: &Score) {
        self.ratios.extend(&other.ratios);
        self.costs.extend(&other.costs);
        self.clear.extend(&other.clear);
        self.defaults.extend(&other.defaults);
    }

    fn line(&self, name: &str) -> String {
        let number = |value: f64, of: &[f64]| if of.is_empty() { "-".to_owned() } else { format!("{value:.2}") };
        format!(
            "{name:<29} {:>5} {:>5.0} % {:>5.0} % {:>6} {:>5.0} % {:>6} {:>6} {:>8}",
            self.ratios.len(),
            100.0 * within(&self.ratios, 1.3),
            100.0 * within(&self.ratios, 2.0),
            self.costs.len(),
            100.0 * share(&self.costs, |cost| cost <= 1.1),
            number(geometric_mean(&self.costs), &self.costs),
            number(greatest(&self.costs), &self.costs),
            number(geometric_mean(&self.defaults), &self.defaults),
        )
    }
}

const HEADING: &str = "                              pred.  in 1.3  in 2.0  cases  near    cost  worst  default";

/// Returns the cases of a job, with the predictions of a machine, by collective and size. If an algorithm was measured twice, only the MPI's
/// counts.
fn cases<'a>(rows: &'a [Row], machine: &Fitted) -> BTreeMap<(String, u64), Case<'a>> {
    let mut cases: BTreeMap<(String, u64), Case<'_>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.bytes > 0) {
        let case = cases.entry((row.collective.to_string(), row.total)).or_default();
        match &row.algorithm {
            Algorithm::Default => case.default = Some(row),
            Algorithm::Mapped(algorithm) => {
                let Some(seconds) = machine.predict(row.collective, algorithm, row) else { continue };
                match case.algorithms.iter_mut().find(|one| one.algorithm == algorithm) {
                    Some(one) if row.is_mpis && !one.row.is_mpis => one.row = row,
                    Some(_) => {}
                    None => case.algorithms.push(Predicted { algorithm, seconds, row }),
                }
            }
        }
    }
    cases
}

/// Returns the rows of mapped algorithms with data, without those that `machine` was fitted to if it was fitted to this job.
fn predicted_rows<'a>(
    rows: &'a [Row],
    machine: &'a Fitted,
    fitted: bool,
) -> impl Iterator<Item = (&'a Row, &'a Expression)> {
    rows.iter().filter(|row| row.bytes > 0).filter_map(move |row| match &row.algorithm {
        Algorithm::Mapped(algorithm) if !(fitted && machine.is_fitted_to(row.collective, algorithm)) => {
            Some((row, algorithm))
        }
        _ => None,
    })
}

/// Returns the predicted divided by the measured times of a fitted job, by the cost formulas and the skew alone.
fn formula_ratios(rows: &[Row], machine: &Fitted) -> Vec<f64> {
    let ratio =
        |(row, algorithm): (&Row, &Expression)| Some(machine.formula(row.collective, algorithm, row)? / row.median);
    predicted_rows(rows, machine, true).filter_map(ratio).collect()
}

/// Scores the predictions of a machine for a job, by collective. With `fitted`, the machine was fitted to this job, so the two collectives
/// that it was fitted to do not count as predictions.
fn score(rows: &[Row], machine: &Fitted, fitted: bool) -> BTreeMap<String, Score> {
    let mut scores: BTreeMap<String, Score> = BTreeMap::new();
    for (row, algorithm) in predicted_rows(rows, machine, fitted) {
        if let Some(predicted) = machine.predict(row.collective, algorithm, row) {
            scores.entry(row.collective.to_string()).or_default().ratios.push(predicted / row.median);
        }
    }
    for ((collective, _), case) in cases(rows, machine) {
        let (Some(chosen), Some(fastest)) = (case.best(|one| one.seconds), case.best(|one| one.row.median)) else {
            continue;
        };
        if case.algorithms.len() < 2 {
            continue;
        }
        let cost = chosen.row.median / fastest.row.median;
        let score = scores.entry(collective).or_default();
        score.costs.push(cost);
        if case.is_clear() {
            score.clear.push(cost);
        }
        score.defaults.extend(case.default.map(|default| default.median / fastest.row.median));
    }
    scores
}

/// Appends the scores of jobs by system and collective to `out`, and returns the total.
fn table<'a>(out: &mut String, scored: impl Iterator<Item = (&'a Job, BTreeMap<String, Score>)>) -> Score {
    let mut rows: BTreeMap<String, Score> = BTreeMap::new();
    let mut total = Score::default();
    for (job, scores) in scored {
        for (collective, score) in scores {
            rows.entry(format!("{:<13} {collective}", job.system)).or_default().add(&score);
            total.add(&score);
        }
    }
    let _ = writeln!(out, "{HEADING}");
    for (name, score) in &rows {
        let _ = writeln!(out, "{}", score.line(name));
    }
    let _ = writeln!(out, "{}", total.line("all"));
    total
}

/// Returns the fitted job that a job without a ring or a recursive doubling is predicted from: of the same system, the nearest by the
/// number of ranks.
fn nearest(job: &Job, fits: &BTreeMap<&Job, Fitted>) -> Option<Fitted> {
    let apart = |other: &Job| {
        let [a, b] = [job, other].map(|one| f64::from(one.shape().ranks()).ln());
        (a - b).abs()
    };
    let of_system = fits.iter().filter(|(other, _)| other.system == job.system);
    of_system.min_by(|(a, _), (b, _)| apart(a).total_cmp(&apart(b))).map(|(_, fitted)| fitted.for_job(job))
}

/// Appends the errors of predictions by system and algorithm to `out`.
fn by_algorithm(out: &mut String, jobs: &BTreeMap<Job, Vec<Row>>, fits: &BTreeMap<&Job, Fitted>) {
    let mut ratios: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (job, machine) in fits {
        for (row, algorithm) in predicted_rows(&jobs[*job], machine, true) {
            let Some(predicted) = machine.predict(row.collective, algorithm, row) else { continue };
            let name = format!("{:<13} {} {algorithm}", job.system, row.collective);
            ratios.entry(name).or_default().push(predicted / row.median);
        }
    }
    let _ = writeln!(out, "{:<50} pred.  in 1.3  in 2.0  median of predicted / measured", "");
    for (name, ratios) in ratios {
        let _ = writeln!(
            out,
            "{name:<50} {:>5} {:>5.0} % {:>5.0} % {:>7.2}",
            ratios.len(),
            100.0 * within(&ratios, 1.3),
            100.0 * within(&ratios, 2.0),
            bruckner_measure::median(&ratios)
        );
    }
}

/// Fits a machine to each job that has the two collectives, predicts the times of the other algorithms, and prints the errors. With
/// `details`, also prints the fitted machines, and predictions by algorithm. With `write`, writes the figure and the machine files of the four
/// systems; otherwise returns an error if the stored files differ from these. With `check`, compares the output with the listing in [`PAGE`]
/// instead of printing it.
pub(crate) fn run(details: bool, write: bool, check: bool) -> Result<()> {
    let mut out = String::new();
    let jobs = jobs()?;
    let mut fits: BTreeMap<&Job, Fitted> = BTreeMap::new();
    for (job, rows) in jobs.iter().filter(|(_, rows)| fit::can_be_fitted(rows)) {
        fits.insert(job, Fitted::of(job, rows)?);
    }
    let _ = writeln!(
        out,
        "{} of {} jobs have an allgather ring and a recursive doubling; a machine is fitted to these two",
        fits.len(),
        jobs.len()
    );
    if details {
        for (job, fitted) in &fits {
            let _ = writeln!(out, "{job}: {} doubling, skew {:.1} us", fitted.doubling, fitted.skew * 1e6);
        }
        by_algorithm(&mut out, &jobs, &fits);
    }
    let _ = writeln!(out, "\nOther algorithms of these jobs:");
    let total = table(&mut out, fits.iter().map(|(job, machine)| (*job, score(&jobs[*job], machine, true))));
    let _ = writeln!(out, "\nOther jobs, predicted from a fitted job of the same system:");
    let others = jobs.iter().filter(|(job, _)| !fits.contains_key(job));
    table(&mut out, others.filter_map(|(job, rows)| Some((job, score(rows, &nearest(job, &fits)?, false)))));
    let _ =
        writeln!(out, "\nSelection by a rule like the library's, among the mapped algorithms and the MPI's default:");
    let figure = selection::run(&mut out, &jobs, &fits, details).svg()?;
    let (near, rough, cost, worst) = GOALS;
    let _ = writeln!(out);
    let [is_near, is_rough] = [1.3, 2.0].map(|factor| within(&total.ratios, factor));
    let bare: Vec<f64> = fits.iter().flat_map(|(job, machine)| formula_ratios(&jobs[*job], machine)).collect();
    let (mean, most) = (geometric_mean(&total.costs), greatest(&total.clear));
    for (what, is, holds) in [
        ("predictions within a factor of 1.3", is_near, is_near >= near),
        ("predictions within a factor of 2", is_rough, is_rough >= rough),
        ("cost of following the model, geometric mean", mean, mean <= cost),
        ("cost of following the model where the fastest is clear, worst", most, most <= worst),
    ] {
        let _ = writeln!(out, "{what}: {is:.2}{}", if holds { "" } else { ", goal not reached" });
    }
    let [is_near, is_rough] = [1.3, 2.0].map(|factor| within(&bare, factor));
    let _ = writeln!(out, "by the formulas and the skew alone: {is_near:.2} within 1.3, {is_rough:.2} within 2");
    let kept = files::run(&mut out, &jobs, &fits, write)
        .and_then(|()| files::keep("docs/theory/supercomputers.svg", &figure, write));
    match check {
        true => listing::compare(PAGE, COMMAND, &out, |line| Some(line.trim_end().to_owned()))?,
        false => print!("{out}"),
    }
    kept
}

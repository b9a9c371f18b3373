//! Selection among the measured algorithms by a rule like the library's, with the MPI's true algorithm as the baseline, against the MPI's
//! default.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bruckner_choose::{Origin, native_algorithm, native_reduce_scatter};
use bruckner_render::{Chart, Figure, Point, Scale, Series};
use bruckner_schedule::Collective;

use super::data::{Job, Row};
use super::fit::Fitted;
use super::{Case, cases, geometric_mean};

/// Measured speedup over the MPI's default: of what the rules select, and of the fastest.
struct Gain {
    selected: f64,
    fastest: f64,
}

/// Speedup of an algorithm from which the default counts as a bad one.
const RECOVERABLE: f64 = 1.5;

/// Systems whose MPI's sources are public.
const PUBLIC: [&str; 2] = ["leonardo", "mare_nostrum"];

/// Returns the gain of a case. The rules select the algorithm with the shortest predicted time if its speedup over the prediction for what
/// the MPI's own function does exceeds the margin of a profile, over the whole range of what is not known of the machine. Otherwise, and
/// if the MPI's sources are not public, they select the MPI's default.
fn gain(job: &Job, machine: &Fitted, case: &Case<'_>) -> Option<Gain> {
    let default = case.default?;
    let fastest = case.best(|one| one.row.median)?;
    let (vendor, shape) = (job.vendor(), job.shape());
    let public = match default.collective {
        Collective::ReduceScatter => native_reduce_scatter(vendor, shape, default.bytes),
        collective => native_algorithm(vendor, collective, shape, default.bytes),
    };
    let like = public.and_then(|native| native.like);
    let chosen = case.best(|one| one.seconds)?;
    let is_faster = |machine: &Fitted| {
        let time = |algorithm| machine.predict(default.collective, algorithm, default);
        Some(time(like.as_ref()?)? >= Origin::Profile.margin() * time(chosen.algorithm)?)
    };
    let is_selected = machine.range().iter().chain([machine]).all(|machine| is_faster(machine).unwrap_or(false));
    Some(Gain {
        selected: if is_selected { default.median / chosen.row.median } else { 1.0 },
        fastest: (default.median / fastest.row.median).max(1.0),
    })
}

/// Draws the gains of systems whose MPI's sources are public, in descending order of the fastest algorithm's speedup.
fn figure(gains: &BTreeMap<String, Vec<Gain>>) -> Figure {
    let chart = |system: &str| {
        let mut of_system: Vec<&Gain> =
            gains.iter().filter(|(name, _)| name.starts_with(system)).flat_map(|(_, gains)| gains).collect();
        of_system.sort_by(|a, b| b.fastest.total_cmp(&a.fastest));
        let series = |name: &str, value: &dyn Fn(&Gain) -> f64| {
            let point = |(x, gain): (usize, &&Gain)| {
                let y = value(gain);
                Point { x: x as f64, y, low: y, high: y }
            };
            Series { name: name.to_owned(), points: of_system.iter().enumerate().map(point).collect() }
        };
        let label = |number: usize| if number.is_multiple_of(20) { number.to_string() } else { String::new() };
        Chart {
            title: system.replace('_', "-"),
            categories: (0..of_system.len()).map(label).collect(),
            x: "case, by the speedup of the fastest algorithm".to_owned(),
            y: "speedup over the MPI's default".to_owned(),
            scale: Scale::Count,
            series: vec![
                series("fastest measured algorithm", &|gain| gain.fastest),
                series("selected by the model", &|gain| gain.selected),
            ],
            marks: Vec::new(),
            vertical_lines: Vec::new(),
        }
    };
    let title = "Flat algorithms that others measured, and what the model selects among them".to_owned();
    Figure { title, charts: PUBLIC.map(chart).into() }
}

/// Appends the gains by system to `out`: of the jobs that machines were fitted to, and of the others. With `details`, also the cases in which
/// the selected algorithm is slower than the default. Returns a figure of all gains.
pub(super) fn run(
    out: &mut String,
    jobs: &BTreeMap<Job, Vec<Row>>,
    fits: &BTreeMap<&Job, Fitted>,
    details: bool,
) -> Figure {
    let mut gains: BTreeMap<String, Vec<Gain>> = BTreeMap::new();
    for (job, rows) in jobs {
        let (machine, kind) = match fits.get(job) {
            Some(machine) => (machine.clone(), ""),
            None => match super::nearest(job, fits) {
                Some(machine) => (machine, ", other jobs"),
                None => continue,
            },
        };
        let of_kind = gains.entry(format!("{}{kind}", job.system)).or_default();
        for ((collective, total), case) in cases(rows, &machine) {
            let Some(gain) = gain(job, &machine, &case) else { continue };
            if details && gain.selected < 1.0 / 1.05 {
                let _ = writeln!(out, "  {job}: {collective} of {total} B: speedup {:.2}", gain.selected);
            }
            of_kind.push(gain);
        }
    }
    let _ = writeln!(out, "{:<26} cases faster  level slower  > 10 %  worst  speedup  fastest  recovered", "");
    for (name, gains) in &gains {
        line(out, name, &gains.iter().collect::<Vec<_>>());
    }
    let is_public = |name: &&String| PUBLIC.iter().any(|system| name.starts_with(system));
    let public = gains.iter().filter(|(name, _)| is_public(name)).flat_map(|(_, gains)| gains);
    line(out, "with public sources", &public.collect::<Vec<_>>());
    figure(&gains)
}

/// Appends a line of the table.
fn line(out: &mut String, name: &str, gains: &[&Gain]) {
    let selected: Vec<f64> = gains.iter().map(|gain| gain.selected).collect();
    let fastest: Vec<f64> = gains.iter().map(|gain| gain.fastest).collect();
    let count = |holds: &dyn Fn(f64) -> bool| selected.iter().filter(|speed| holds(**speed)).count();
    let bad: Vec<&&Gain> = gains.iter().filter(|gain| gain.fastest > RECOVERABLE).collect();
    let recovered = bad.iter().filter(|gain| gain.selected > RECOVERABLE).count();
    let _ = writeln!(
        out,
        "{name:<26} {:>5} {:>6} {:>6} {:>6} {:>7} {:>6.2} {:>8.2} {:>8.2}  {recovered} of {}",
        gains.len(),
        count(&|speed| speed > 1.05),
        count(&|speed| (1.0 / 1.05..=1.05).contains(&speed)),
        count(&|speed| speed < 1.0 / 1.05),
        count(&|speed| speed < 1.0 / 1.1),
        selected.iter().copied().fold(1.0, f64::min),
        geometric_mean(&selected),
        geometric_mean(&fastest),
        bad.len()
    );
}

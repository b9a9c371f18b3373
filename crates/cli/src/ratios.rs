//! `bruckner simulate … --ratios`: finds the ratios of inter-node to intra-node latency at which node-aware algorithms are faster than
//! others.

use anyhow::{Result, ensure};
use bruckner_algorithms::catalogue::kinds;
use bruckner_algorithms::{Task, plan};
use bruckner_measure::bytes_text;
use bruckner_model::{Machine, Simulation};
use bruckner_render::{Chart, Figure, Point, Scale, Series};
use bruckner_schedule::Topology;
use serde_json::json;

use crate::columns;

/// For one collective and size: the speedup of the best node-aware algorithm over the best other algorithm at each ratio of latencies.
pub(crate) struct Gain {
    pub(crate) collective: String,
    pub(crate) bytes: u64,
    pub(crate) speeds: Vec<f64>,
    /// Ratios at which the speedup crosses 1, in ascending order.
    pub(crate) break_even: Vec<f64>,
}

/// Maximum number of messages of rank 0; algorithms with more messages are left out.
const MOST_MESSAGES: usize = 4096;

impl Gain {
    pub(crate) fn of(collective: &str, task: &Task, bytes: u64, machine: &Machine, ratios: &[f64]) -> Result<Gain> {
        let machines: Vec<Machine> = ratios.iter().filter_map(|ratio| machine.with_ratio(*ratio)).collect();
        ensure!(
            machines.len() == ratios.len(),
            "machine {} has no intra-node latency, so --ratios cannot be used: choose another --machine",
            machine.name
        );
        // Times of the best algorithm for each ratio: `[not node-aware, node-aware]`.
        let mut best = [vec![f64::INFINITY; ratios.len()], vec![f64::INFINITY; ratios.len()]];
        for expression in kinds(task.collective, &task.topology) {
            let Ok(plan) = plan(task, &expression) else { continue };
            let messages =
                plan.rounds(bruckner_schedule::Rank(0)).iter().map(|round| round.messages.len()).sum::<usize>();
            if messages > MOST_MESSAGES {
                continue;
            }
            let played = Simulation::of(&plan)?;
            let best = &mut best[usize::from(expression.groups_regions())];
            for (best, machine) in best.iter_mut().zip(&machines) {
                *best = best.min(played.run(machine)?.last());
            }
        }
        let [flat, local] = best;
        let speeds: Vec<f64> = flat.iter().zip(&local).map(|(flat, local)| flat / local).collect();
        let break_even = break_even(ratios, &speeds);
        Ok(Gain { collective: collective.to_owned(), bytes, speeds, break_even })
    }
}

/// Returns the ratios at which the speedup crosses 1, by linear interpolation of the logarithms.
fn break_even(ratios: &[f64], speeds: &[f64]) -> Vec<f64> {
    let steps = ratios.windows(2).zip(speeds.windows(2));
    let through = steps.filter(|(_, speed)| (speed[0] < 1.0) != (speed[1] < 1.0));
    let at = |(ratio, speed): (&[f64], &[f64])| {
        let part = speed[0].ln() / (speed[0].ln() - speed[1].ln());
        (ratio[0].ln() + part * (ratio[1].ln() - ratio[0].ln())).exp()
    };
    through.map(at).collect()
}

/// Describes the ranges of ratios in which the speedup exceeds 1.
fn ratio_ranges(gain: &Gain) -> String {
    let first = gain.speeds.first().is_some_and(|speed| *speed >= 1.0);
    match (gain.break_even.as_slice(), first) {
        ([], true) => "at all ratios".to_owned(),
        ([], false) => "at no ratio".to_owned(),
        (ends, _) => {
            // The first range, if it starts at the smallest ratio, then the ranges between two break-even points.
            let (until, rest) = if first { ends.split_at(1) } else { ends.split_at(0) };
            let until = until.iter().map(|end| format!("to {end:.1}"));
            let rest = rest.chunks(2).map(|range| match range {
                [from, to] => format!("{from:.1} to {to:.1}"),
                _ => format!("from {:.1}", range[0]),
            });
            until.chain(rest).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Formats the speedups as a table.
pub(crate) fn table(ratios: &[f64], gains: &[Gain]) -> String {
    let head = [columns::words(""), columns::numbers("")].into_iter();
    let head = head.chain(ratios.iter().map(|ratio| columns::numbers(ratio.to_string())));
    let row = |gain: &Gain| {
        let name = [gain.collective.clone(), bytes_text(gain.bytes)].into_iter();
        let speeds = gain.speeds.iter().map(|speed| format!("{speed:.2}"));
        name.chain(speeds).chain([ratio_ranges(gain)]).collect()
    };
    let rows: Vec<Vec<String>> = gains.iter().map(row).collect();
    columns::table(&head.chain([columns::words("node-aware is faster at ratio")]).collect::<Vec<_>>(), &rows)
}

/// Formats the speedups as JSON.
pub(crate) fn json(ratios: &[f64], gains: &[Gain]) -> String {
    let row = |gain: &Gain| {
        json!({
            "collective": gain.collective,
            "bytes": gain.bytes,
            "speeds": gain.speeds,
            "break_even": gain.break_even,
        })
    };
    format!("{:#}\n", json!({ "ratios": ratios, "gains": gains.iter().map(row).collect::<Vec<_>>() }))
}

/// Returns a figure of the speedups, with the ratios of the built-in machines marked.
pub(crate) fn figure(title: String, ratios: &[f64], gains: &[Gain]) -> Figure {
    // Position of a ratio on the x axis, interpolated between the given ratios on a logarithmic scale.
    let place = |ratio: f64| {
        let after = ratios.iter().position(|other| *other >= ratio)?;
        let before = after.checked_sub(1)?;
        Some(before as f64 + (ratio / ratios[before]).ln() / (ratios[after] / ratios[before]).ln())
    };
    let placed = |machine: Machine| Some((place(machine.ratio()?)?, machine.name));
    let mut machines: Vec<(f64, String)> = Machine::all().filter_map(placed).collect();
    machines.sort_by(|a, b| a.0.total_cmp(&b.0));
    let charts = gains.chunk_by(|a, b| a.collective == b.collective).map(|gains| {
        let series = gains.iter().map(|gain| Series {
            name: bytes_text(gain.bytes),
            points: gain
                .speeds
                .iter()
                .enumerate()
                .map(|(x, y)| Point { x: x as f64, y: *y, low: *y, high: *y })
                .collect(),
        });
        Chart {
            title: gains[0].collective.clone(),
            categories: ratios.iter().map(f64::to_string).collect(),
            x: "ratio of inter-node to intra-node latency".to_owned(),
            y: "speedup".to_owned(),
            scale: Scale::Speedup,
            series: series.collect(),
            marks: Vec::new(),
            vertical_lines: machines.clone(),
        }
    });
    Figure { title, charts: charts.collect() }
}

/// Collectives simulated for `bruckner simulate all --ratios`.
pub(crate) const COLLECTIVES: [&str; 4] = ["allgather", "allreduce", "reduce_scatter", "alltoall"];

/// Returns the title of the figure of speedups.
pub(crate) fn title(machine: &Machine, topology: &Topology) -> String {
    format!(
        "Speedup of the best node-aware algorithm over the best other: {topology}, {} with scaled inter-node latency",
        machine.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_may_pay_here_and_there() {
        let text = |speeds: [f64; 4]| {
            let break_even = break_even(&[1.0, 10.0, 100.0, 1000.0], &speeds);
            ratio_ranges(&Gain { collective: String::new(), bytes: 8, speeds: speeds.to_vec(), break_even })
        };
        assert_eq!(text([2.0, 3.0, 4.0, 1.0]), "at all ratios");
        assert_eq!(text([0.5, 0.6, 0.9, 0.5]), "at no ratio");
        assert_eq!(text([0.5, 2.0, 2.0, 2.0]), "from 3.2");
        assert_eq!(text([2.0, 2.0, 2.0, 0.5]), "to 316.2");
        assert_eq!(text([0.5, 2.0, 0.5, 2.0]), "3.2 to 31.6, from 316.2");
        assert_eq!(text([2.0, 0.5, 2.0, 2.0]), "to 3.2, from 31.6");
    }
}

//! Evaluation of launches with and without the library.

use std::fmt::Write as _;

use bruckner_measure::{Interval, median, wilcoxon_interval};
use bruckner_report::CollectiveTime;
use serde::Serialize;

/// Confidence level of the interval for the ratio of wall times with and without the library.
const CONFIDENCE: f64 = 0.98;
/// Smallest relative difference of the wall times that counts as a difference.
const MIN_DIFFERENCE: f64 = 0.01;
/// Message if no rank wrote a report.
const NO_REPORT: &str = "no report was written: the program calls no collectives, or the library was not loaded (check with bruckner doctor PROGRAM)\n";

/// Wall times of launches in seconds, without and with the library, pair by pair.
#[derive(Default)]
pub(super) struct Times([Vec<f64>; 2]);

impl Times {
    pub(super) fn push(&mut self, pair: [f64; 2]) {
        self.0.iter_mut().zip(pair).for_each(|(times, time)| times.push(time));
    }
}

/// Result of the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Faster,
    Slower,
    NoDifference,
}

/// Times of the program with or without the library.
#[derive(Serialize)]
struct Side {
    /// Median of the wall times in seconds; `least` and `most` are their minimum and maximum.
    wall: f64,
    least: f64,
    most: f64,
    /// Time that ranks spend in collectives, if there is a report.
    collectives: Option<CollectiveTime>,
}

/// Outcome of a comparison.
#[derive(Serialize)]
pub(super) struct Outcome {
    launches: usize,
    without: Side,
    with: Side,
    /// Time with the library divided by the time without it; `interval` is its confidence interval.
    ratio: f64,
    interval: [f64; 2],
    verdict: Verdict,
}

impl Outcome {
    /// Evaluates wall times (at least one pair) and the reported times in collectives.
    pub(super) fn of(times: &Times, collectives: [Option<CollectiveTime>; 2]) -> Outcome {
        let [without, with] = &times.0;
        let logs: Vec<f64> = with.iter().zip(without).map(|(with, without)| (with / without).ln()).collect();
        let nothing = (0.0, Interval { low: 0.0, high: 0.0 });
        let (middle, Interval { low, high }) = wilcoxon_interval(&logs, CONFIDENCE).unwrap_or(nothing);
        let (ratio, low, high) = (middle.exp(), low.exp(), high.exp());
        let verdict = if high < 1.0 && ratio <= 1.0 - MIN_DIFFERENCE {
            Verdict::Faster
        } else if low > 1.0 && ratio >= 1.0 + MIN_DIFFERENCE {
            Verdict::Slower
        } else {
            Verdict::NoDifference
        };
        let side = |times: &[f64], collectives| Side {
            wall: median(times),
            least: times.iter().copied().fold(f64::INFINITY, f64::min),
            most: times.iter().copied().fold(0.0, f64::max),
            collectives,
        };
        let [first, second] = collectives;
        let (without, with) = (side(without, first), side(with, second));
        Outcome { launches: logs.len(), without, with, ratio, interval: [low, high], verdict }
    }

    pub(super) fn is_slower(&self) -> bool {
        self.verdict == Verdict::Slower
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        let mut row = |what: &str, of: &dyn Fn(&Side) -> String| {
            let _ = writeln!(text, "{what:<34} {:>16} {:>16}", of(&self.without), of(&self.with));
        };
        let both = |low: f64, high: f64| format!("{low:.3} to {high:.3}");
        let or_unknown = |known: Option<String>| known.unwrap_or_else(|| "not known".to_owned());
        let of = |side: &Side, what: &dyn Fn(CollectiveTime) -> Option<f64>| {
            or_unknown(side.collectives.and_then(what).map(|seconds| format!("{seconds:.3} s")))
        };
        row(&format!("{} launches each", self.launches), &|side| {
            if std::ptr::eq(side, &self.without) { "without" } else { "with" }.to_owned()
        });
        row("wall time, median", &|side| format!("{:.3} s", side.wall));
        row("  minimum and maximum", &|side| both(side.least, side.most));
        row("in collectives, mean over ranks", &|side| of(side, &|spent| Some(spent.mean)));
        row("  minimum and maximum over ranks", &|side| {
            or_unknown(side.collectives.map(|spent| both(spent.least, spent.most)))
        });
        row("  waiting for late ranks (est.)", &|side| of(side, &|spent| spent.waiting));
        row("  remainder: data transfer", &|side| of(side, &|spent| spent.waiting.map(|waiting| spent.mean - waiting)));
        let _ = writeln!(text, "{}", self.sentence());
        if self.with.collectives.is_none() {
            text.push_str(NO_REPORT);
        }
        text
    }

    fn sentence(&self) -> String {
        let [low, high] = self.interval;
        let level = 100.0 * CONFIDENCE;
        let interval = format!("{level:.0} % interval {low:.3} to {high:.3}");
        let part = format!("{:.3} times as long as without it ({interval})", self.ratio);
        match self.verdict {
            Verdict::Faster => {
                format!("faster: with the library the program takes {part}, {:.1} % less", 100.0 * (1.0 - self.ratio))
            }
            Verdict::Slower => {
                format!("slower: with the library the program takes {part}, {:.1} % more", 100.0 * (self.ratio - 1.0))
            }
            Verdict::NoDifference => format!("no significant difference: with the library the program takes {part}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ratio: f64, noise: f64) -> Outcome {
        let mut times = Times::default();
        for at in 0..10 {
            let one = 1.0 + noise * f64::from((at * 7) % 10 - 4);
            let other = 1.0 + noise * f64::from((at * 3) % 10 - 5);
            times.push([one, ratio * other]);
        }
        let spent = CollectiveTime { least: 0.1, mean: 0.2, most: 0.3, waiting: Some(0.05) };
        Outcome::of(&times, [Some(spent), None])
    }

    #[test]
    fn differences_are_told_where_they_are() {
        assert_eq!(outcome(0.8, 0.005).verdict, Verdict::Faster);
        assert_eq!(outcome(1.2, 0.005).verdict, Verdict::Slower);
        assert_eq!(outcome(1.0, 0.005).verdict, Verdict::NoDifference);
        // First the noise is too large for a verdict, then the difference is too small to matter.
        assert_eq!(outcome(0.97, 0.05).verdict, Verdict::NoDifference);
        assert_eq!(outcome(0.995, 0.0).verdict, Verdict::NoDifference);
    }

    #[test]
    fn the_table_says_what_is_known() {
        let table = outcome(0.8, 0.0).table();
        for line in [
            "10 launches each                            without             with",
            "wall time, median                           1.000 s          0.800 s",
            "in collectives, mean over ranks             0.200 s        not known",
            "  remainder: data transfer                  0.150 s        not known",
            "faster: with the library the program takes 0.800 times as long as without it (98 % interval 0.800 to 0.800), 20.0 % less",
            NO_REPORT,
        ] {
            assert!(table.contains(line), "{table}");
        }
    }
}

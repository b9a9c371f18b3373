//! Figures of benchmark results.

use std::collections::BTreeMap;

use bruckner_measure::{ComparisonResult, JoinedCase, Results, TimingMethod, bytes_text, join_cases, native};

use crate::chart::{Chart, DrawError, Figure, Mark, Point, Scale, Series};

/// Name of the contender that stands for the MPI's own function under its fastest setting.
pub(crate) const NATIVE_BEST: &str = "native-best";

/// Returns the contenders of a case, each as the name shown in figures and the name in the results.
pub(crate) fn shown<'a>(case: &JoinedCase<'a>) -> Vec<(&'a str, &'a str)> {
    let best = native::best(case).map(|best| (NATIVE_BEST, best));
    let mut shown: Vec<_> =
        case.contenders.iter().filter(|name| !native::is_forced(name)).map(|name| (*name, *name)).collect();
    let at = shown.len().min(1);
    shown.splice(at..at, best);
    shown
}

/// Returns the heading of a figure: the MPI, topology and labels that its cases share, without the label `without`.
pub(crate) fn heading(case: &JoinedCase<'_>, without: Option<&str>) -> String {
    let labels = case.labels.iter().filter(|(name, _)| Some(name.as_str()) != without);
    let labels: Vec<String> = labels.map(|(name, value)| format!("{name} {value}")).collect();
    let mut parts = vec![case.mpi.to_owned(), format!("on {}", case.topology)];
    parts.extend(labels);
    parts.join(", ")
}

/// Groups items by `key`, in the order in which the keys first occur.
pub(crate) fn group<T>(items: impl IntoIterator<Item = T>, key: impl Fn(&T) -> String) -> Vec<(String, Vec<T>)> {
    let mut groups: Vec<(String, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        match groups.iter_mut().find(|(name, _)| *name == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// Returns the label of a case on the size axis: the bytes and, if counts differ between ranks, the number of ranks with no data.
pub(crate) fn size(case: &JoinedCase<'_>) -> String {
    match case.counts {
        Some(counts) => {
            let empty = counts.iter().filter(|count| **count == 0).count();
            format!("{} ({empty} empty)", bytes_text(case.bytes))
        }
        None => bytes_text(case.bytes),
    }
}

/// Function from a case and a contender to a value with the lower and upper end of its interval.
type Value<'f> = dyn Fn(&JoinedCase<'_>, &str) -> Option<(f64, f64, f64)> + 'f;

/// Makes a chart with one position on the x axis for each case. The points of a contender are the results of `value` for each case.
fn chart(
    title: String,
    x: &str,
    y: String,
    scale: Scale,
    cases: &[(String, &JoinedCase<'_>)],
    value: &Value<'_>,
) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for (x, (_, case)) in cases.iter().enumerate() {
        for (name, contender) in shown(case) {
            let Some((y, low, high)) = value(case, contender) else { continue };
            let point = Point { x: x as f64, y, low, high };
            match series.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => series.push(Series { name: name.to_owned(), points: vec![point] }),
            }
        }
    }
    let places = cases.iter().map(|(place, _)| place.clone()).collect();
    Chart {
        title,
        categories: places,
        x: x.to_owned(),
        y,
        scale,
        series,
        marks: Vec::new(),
        vertical_lines: Vec::new(),
    }
}

/// Makes figures of time against message size: one figure for each MPI, topology and set of labels, with one chart for each collective.
pub fn times(results: &Results, look: TimingMethod) -> Vec<Figure> {
    let value = |case: &JoinedCase<'_>, name: &str| {
        // Times come from launches that also measured `native`, or from all launches if no launch measured the contender together with
        // `native`.
        let times = case.times(name, native::NATIVE, look).or_else(|| case.times(name, name, look))?;
        Some((times.median, times.interval.low, times.interval.high))
    };
    let y = format!("time {}", look.text());
    by_size(results, &y, Scale::Seconds, &value)
}

/// Makes figures of speedup over native against message size.
pub fn speedups(results: &Results, look: TimingMethod, confidence: f64) -> Vec<Figure> {
    let y = "speedup over native";
    by_size(results, y, Scale::Speedup, &|case, name| speed(case, name, look, confidence))
}

/// Returns the speedup of `name` over native with its interval, from blocks in which both were measured; `None` for native itself.
fn speed(case: &JoinedCase<'_>, name: &str, look: TimingMethod, confidence: f64) -> Option<(f64, f64, f64)> {
    if name == native::NATIVE {
        return None;
    }
    let speed = case.compare(name, native::NATIVE, look, confidence)?.swapped();
    Some((speed.ratio, speed.interval.low, speed.interval.high))
}

fn by_size(results: &Results, y: &str, scale: Scale, value: &Value<'_>) -> Vec<Figure> {
    let joined = join_cases(results);
    let figures = group(&joined, |case| heading(case, None));
    let figure = |(title, cases): (String, Vec<&JoinedCase<'_>>)| {
        let charts = group(cases, |case| case.collective.to_owned()).into_iter().map(|(collective, mut cases)| {
            cases.sort_by_key(|case| case.bytes);
            let cases: Vec<_> = cases.into_iter().map(|case| (size(case), case)).collect();
            chart(collective, "size", y.to_owned(), scale, &cases, value)
        });
        Figure { title, charts: charts.collect() }
    };
    figures.into_iter().map(figure).collect()
}

/// Unit of a label's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Plain,
    Seconds,
    BitsPerSecond,
    Bytes,
}

/// Parses the value of a label with its unit: `500us`, `1.5 ms`, `1gbit`, `64 KiB`, `1e3`.
fn number(text: &str) -> Option<(f64, Unit)> {
    const UNITS: [(&str, f64, Unit); 12] = [
        ("", 1.0, Unit::Plain),
        ("ns", 1e-9, Unit::Seconds),
        ("us", 1e-6, Unit::Seconds),
        ("ms", 1e-3, Unit::Seconds),
        ("s", 1.0, Unit::Seconds),
        ("kbit", 1e3, Unit::BitsPerSecond),
        ("mbit", 1e6, Unit::BitsPerSecond),
        ("gbit", 1e9, Unit::BitsPerSecond),
        ("bit", 1.0, Unit::BitsPerSecond),
        ("B", 1.0, Unit::Bytes),
        ("KiB", 1024.0, Unit::Bytes),
        ("MiB", 1048576.0, Unit::Bytes),
    ];
    // The longest unit first, because `s` is also the end of `us`.
    let mut units = UNITS;
    units.sort_by_key(|(name, ..)| std::cmp::Reverse(name.len()));
    units.into_iter().find_map(|(name, times, unit)| {
        let number = text.trim().strip_suffix(name)?.trim().parse::<f64>().ok()?;
        number.is_finite().then_some((number * times, unit))
    })
}

/// Formats a number with its unit.
fn format_number(number: f64, unit: Unit) -> String {
    match unit {
        Unit::Plain => format!("{number:.3}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        Unit::Seconds => bruckner_measure::time_text(number),
        Unit::BitsPerSecond => format!("{:.2} gbit", number / 1e9),
        Unit::Bytes => bytes_text(number as u64),
    }
}

/// Returns the contender with the largest speedup over native, other than the MPI's own function under any setting.
fn fastest_algorithm<'a>(case: &JoinedCase<'a>, look: TimingMethod) -> Option<&'a str> {
    let ours = case.contenders.iter().copied().filter(|name| !native::is_native(name));
    let rated = ours.filter_map(|name| Some((case.ratio(name, native::NATIVE, look)?, name)));
    rated.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// Makes figures of speedup against the numeric value of `label`: the speedup of the fastest contender that is not the MPI's own function,
/// over native and over the MPI's own function under its best setting. Each collective and size has a chart, with a mark at each
/// break-even point.
pub fn by_label(results: &Results, label: &str, look: TimingMethod, confidence: f64) -> Result<Vec<Figure>, DrawError> {
    let joined = join_cases(results);
    let mut labelled: Vec<(f64, &JoinedCase<'_>)> = Vec::new();
    let mut unit = None;
    for case in &joined {
        let Some(text) = case.labels.get(label) else { continue };
        let (value, own) = number(text).ok_or_else(|| {
            DrawError::Empty(format!("the value `{text}` of label `{label}` is not a number with a unit (ns, us, ms, s, bit, kbit, mbit, gbit, B, KiB, MiB)"))
        })?;
        if *unit.get_or_insert(own) != own {
            return Err(DrawError::Empty(format!(
                "values of label `{label}` mix different units, such as times and sizes"
            )));
        }
        labelled.push((value, case));
    }
    let unit = unit.ok_or_else(|| {
        let names: Vec<&str> = labels(results).into_keys().collect();
        DrawError::Empty(format!("no result has the label `{label}`; labels in these results: {}", names.join(", ")))
    })?;
    let figures = group(labelled, |(_, case)| heading(case, Some(label)));
    let figure = |(title, cases): (String, Vec<(f64, &JoinedCase<'_>)>)| {
        let mut kinds = group(cases, |(_, case)| format!("{}, {}", case.function_name(), size(case)));
        // A single value of the label makes no line.
        kinds.retain(|(_, cases)| cases.iter().any(|(at, _)| *at != cases[0].0));
        let charts = kinds.into_iter().map(|(kind, mut cases)| {
            cases.sort_by(|a, b| a.0.total_cmp(&b.0));
            let line = |name: &str, base: &dyn Fn(&JoinedCase<'_>) -> Option<String>| {
                let point = |(x, (_, case)): (usize, &(f64, &JoinedCase<'_>))| {
                    let ours = fastest_algorithm(case, look)?;
                    let speed = case.compare(ours, &base(case)?, look, confidence)?.swapped();
                    let (y, low, high) = (speed.ratio, speed.interval.low, speed.interval.high);
                    Some(Point { x: x as f64, y, low, high })
                };
                let points: Vec<Point> = cases.iter().enumerate().filter_map(point).collect();
                Series { name: name.to_owned(), points }
            };
            let series: Vec<Series> = vec![
                line("best algorithm over native", &|_| Some(native::NATIVE.to_owned())),
                line("best algorithm over native-best", &|case| native::best(case).map(str::to_owned)),
            ];
            let series: Vec<Series> = series.into_iter().filter(|series| !series.points.is_empty()).collect();
            let at: Vec<f64> = cases.iter().map(|(at, _)| *at).collect();
            Chart {
                title: kind,
                categories: cases.iter().map(|(_, case)| case.labels[label].clone()).collect(),
                x: label.to_owned(),
                y: "speedup".to_owned(),
                scale: Scale::Speedup,
                marks: series.iter().flat_map(|series| break_even(series, &at, unit)).collect(),
                vertical_lines: Vec::new(),
                series,
            }
        });
        Figure { title: format!("{title}: {}", look.text()), charts: charts.collect() }
    };
    Ok(figures.into_iter().map(figure).filter(|figure| !figure.charts.is_empty()).collect())
}

/// Returns the break-even points of a series: the points where its speedup crosses 1, interpolated between values of the label. Only
/// significant crossings count, which lie between two points whose intervals are on different sides of 1. Points in between whose interval
/// contains 1 are skipped.
fn break_even(series: &Series, at: &[f64], unit: Unit) -> Vec<Mark> {
    let points = &series.points;
    let told: Vec<usize> = (0..points.len()).filter(|&n| points[n].low > 1.0 || points[n].high < 1.0).collect();
    let crossing = |pair: &[Point]| {
        let [a, b] = pair else { return None };
        if (a.y - 1.0) * (b.y - 1.0) > 0.0 {
            return None;
        }
        let part = (1.0 - a.y) / (b.y - a.y);
        let value = at[a.x as usize] + part * (at[b.x as usize] - at[a.x as usize]);
        let text = format_number(value, unit);
        Some(Mark { x: a.x + part * (b.x - a.x), text, series: series.name.clone() })
    };
    let between = |ends: &[usize]| {
        let [from, to] = *ends else { return None };
        if (points[from].low > 1.0) == (points[to].low > 1.0) {
            return None;
        }
        points[from..=to].windows(2).find_map(crossing)
    };
    told.windows(2).filter_map(between).collect()
}

/// Returns the winner of each case, grouped by MPI, topology and labels: the fastest contender that is significantly faster than the MPI's
/// own function under its best setting (or the default setting, where no other was measured); otherwise the MPI's own function.
pub(crate) fn winners(results: &Results, look: TimingMethod, confidence: f64) -> Vec<Group> {
    let joined = join_cases(results);
    let of = |case: &JoinedCase<'_>| {
        let base = native::best(case).unwrap_or(native::NATIVE);
        let mut best = (base.to_owned(), 1.0);
        for &name in case.contenders.iter().filter(|name| !native::is_native(name)) {
            let Some(comparison) = case.compare(name, base, look, confidence) else { continue };
            let speed = comparison.swapped().ratio;
            if comparison.result() == ComparisonResult::Faster && speed > best.1 {
                best = (name.to_owned(), speed);
            }
        }
        let counts = case.counts.map(<[u64]>::to_vec);
        Winner { row: case.function_name(), column: (case.bytes, size(case), counts), name: best.0, speed: best.1 }
    };
    let group_of = |(title, cases): (String, Vec<&JoinedCase<'_>>)| {
        let mut names: Vec<String> = Vec::new();
        for name in cases.iter().flat_map(|case| &case.contenders) {
            if !names.iter().any(|known| known == name) {
                names.push((*name).to_owned());
            }
        }
        Group { title, names, winners: cases.into_iter().map(of).collect() }
    };
    group(&joined, |case| heading(case, None)).into_iter().map(group_of).collect()
}

/// Winners of the cases with the same MPI, topology and labels.
pub(crate) struct Group {
    pub(crate) title: String,
    /// Names of all contenders, which determine their colours.
    pub(crate) names: Vec<String>,
    pub(crate) winners: Vec<Winner>,
}

/// The winner of one case.
pub(crate) struct Winner {
    pub(crate) row: String,
    pub(crate) column: (u64, String, Option<Vec<u64>>),
    pub(crate) name: String,
    pub(crate) speed: f64,
}

/// Returns all labels of the results with their distinct values.
pub(crate) fn labels(results: &Results) -> BTreeMap<&str, Vec<&str>> {
    let mut labels: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in results.launches.iter().flat_map(|launch| &launch.labels) {
        let values = labels.entry(name).or_default();
        if !values.contains(&value.as_str()) {
            values.push(value);
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_breaks_even_where_it_crosses_one() {
        let point = |x: f64, y: f64| Point { x, y, low: y, high: y };
        let series = Series { name: "ring".into(), points: vec![point(0.0, 0.8), point(1.0, 1.2), point(2.0, 1.5)] };
        let marks = break_even(&series, &[0.0, 50e-6, 200e-6], Unit::Seconds);
        assert_eq!(marks.len(), 1);
        assert!((marks[0].x - 0.5).abs() < 1e-9);
        assert_eq!(marks[0].text, "25.0 µs");
    }

    #[test]
    fn a_line_that_only_trembles_breaks_even_nowhere() {
        let point = |x: f64, y: f64, by: f64| Point { x, y, low: y - by, high: y + by };
        let marks = |points: Vec<Point>| {
            break_even(&Series { name: "ring".into(), points }, &[0.0, 50e-6, 200e-6], Unit::Seconds)
        };
        assert_eq!(marks(vec![point(0.0, 0.98, 0.03), point(1.0, 1.02, 0.03), point(2.0, 1.5, 0.1)]), []);
        // A point whose interval contains 1 may lie between two significant points.
        let marks = marks(vec![point(0.0, 0.5, 0.1), point(1.0, 0.9, 0.2), point(2.0, 1.1, 0.05)]);
        assert_eq!(marks.len(), 1);
        assert!((marks[0].x - 1.5).abs() < 1e-9);
    }

    #[test]
    fn labels_have_numbers() {
        let near = |text: &str, value: f64, unit: Unit| {
            number(text).is_some_and(|(read, own)| (read - value).abs() <= value.abs() * 1e-12 && own == unit)
        };
        assert!(near("500us", 500e-6, Unit::Seconds) && near("1ms", 1e-3, Unit::Seconds));
        assert!(near("1e3", 1000.0, Unit::Plain) && near("-5", -5.0, Unit::Plain));
        assert!(near("1gbit", 1e9, Unit::BitsPerSecond) && near("64 KiB", 65536.0, Unit::Bytes));
        assert!(number("us").is_none() && number("1,000").is_none() && number("5 apples").is_none());
    }
}

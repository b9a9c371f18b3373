//! Figures of results.

use std::collections::BTreeMap;

use bruckner_measure::{Joined, Look, Results, bytes_text, join, native};

use crate::chart::{Chart, Figure, Mark, Point, Scale, Series};

/// The contender that stands for the best of all that the MPI can be forced to.
pub(crate) const NATIVE_BEST: &str = "native-best";

/// The names of a case's contenders as figures show them, and what each is in the results.
pub(crate) fn shown<'a>(case: &Joined<'a>) -> Vec<(&'a str, &'a str)> {
    let best = native::best(case).map(|best| (NATIVE_BEST, best));
    let mut shown: Vec<_> =
        case.contenders.iter().filter(|name| !native::is_forced(name)).map(|name| (*name, *name)).collect();
    let at = shown.len().min(1);
    shown.splice(at..at, best);
    shown
}

/// What cases of one figure have in common.
pub(crate) fn heading(case: &Joined<'_>, without: Option<&str>) -> String {
    let labels = case.labels.iter().filter(|(name, _)| Some(name.as_str()) != without);
    let labels: Vec<String> = labels.map(|(name, value)| format!("{name} {value}")).collect();
    let mut parts = vec![case.mpi.to_owned(), format!("on {}", case.topology)];
    parts.extend(labels);
    parts.join(", ")
}

/// Groups by some text, in the order in which each first comes.
fn group<T>(items: impl IntoIterator<Item = T>, key: impl Fn(&T) -> String) -> Vec<(String, Vec<T>)> {
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

/// What a place along an axis of sizes is called.
pub(crate) fn size(case: &Joined<'_>) -> String {
    match case.counts {
        Some(counts) => {
            let empty = counts.iter().filter(|count| **count == 0).count();
            format!("{} ({empty} empty)", bytes_text(case.bytes))
        }
        None => bytes_text(case.bytes),
    }
}

/// What can be said of a contender in a case: a value and its interval.
type Value<'f> = dyn Fn(&Joined<'_>, &str) -> Option<(f64, f64, f64)> + 'f;

/// A chart of some cases, each at a place of its own, by what can be said of a contender in one of them.
fn chart(
    title: String,
    x: &str,
    y: String,
    scale: Scale,
    cases: &[(String, &Joined<'_>)],
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
    Chart { title, places, x: x.to_owned(), y, scale, series, marks: Vec::new() }
}

/// Time against size: a figure for each MPI, topology and label, a chart for each collective.
pub fn times(results: &Results, look: Look) -> Vec<Figure> {
    let value = |case: &Joined<'_>, name: &str| {
        let times = case.times(name, look)?;
        Some((times.median, times.interval.low, times.interval.high))
    };
    let y = format!("time {}", look.text());
    by_size(results, &y, Scale::Seconds, &value)
}

/// How many times as fast as native, against size.
pub fn speeds(results: &Results, look: Look, confidence: f64) -> Vec<Figure> {
    let y = "times as fast as native";
    by_size(results, y, Scale::Times, &|case, name| speed(case, name, look, confidence))
}

/// Of what was measured beside native.
fn speed(case: &Joined<'_>, name: &str, look: Look, confidence: f64) -> Option<(f64, f64, f64)> {
    if name == native::NATIVE {
        return None;
    }
    let speed = case.compare(name, native::NATIVE, look, confidence)?.inverted();
    Some((speed.ratio, speed.interval.low, speed.interval.high))
}

fn by_size(results: &Results, y: &str, scale: Scale, value: &Value<'_>) -> Vec<Figure> {
    let joined = join(results);
    let figures = group(&joined, |case| heading(case, None));
    let figure = |(title, cases): (String, Vec<&Joined<'_>>)| {
        let charts =
            group(cases, |case| case.collective.to_owned()).into_iter().map(|(collective, mut cases)| {
                cases.sort_by_key(|case| case.bytes);
                let cases: Vec<_> = cases.into_iter().map(|case| (size(case), case)).collect();
                chart(collective, "bytes", y.to_owned(), scale, &cases, value)
            });
        Figure { title, charts: charts.collect() }
    };
    figures.into_iter().map(figure).collect()
}

/// A label's number: `500us` and `500` are both 500.
fn number(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text[..end].parse().ok()
}

/// The fastest contender that is not the MPI's own.
fn best_of_ours<'a>(case: &Joined<'a>, look: Look) -> Option<&'a str> {
    let ours = case.contenders.iter().copied().filter(|name| !native::is_native(name));
    let rated = ours.filter_map(|name| Some((case.ratio(name, native::NATIVE, look)?, name)));
    rated.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// How many times as fast as native, and as the best native, the best of ours is, against a label's number: a chart for
/// each collective and size, with a mark where it breaks even.
pub fn against(results: &Results, label: &str, look: Look, confidence: f64) -> Vec<Figure> {
    let joined = join(results);
    let labelled: Vec<(f64, &Joined<'_>)> =
        joined.iter().filter_map(|case| Some((number(case.labels.get(label)?)?, case))).collect();
    let figures = group(labelled, |(_, case)| heading(case, Some(label)));
    let figure = |(title, cases): (String, Vec<(f64, &Joined<'_>)>)| {
        let mut kinds = group(cases, |(_, case)| format!("{}, {}", case.collective, size(case)));
        // One value makes no line.
        kinds.retain(|(_, cases)| cases.iter().any(|(at, _)| *at != cases[0].0));
        let charts = kinds.into_iter().map(|(kind, mut cases)| {
            cases.sort_by(|a, b| a.0.total_cmp(&b.0));
            let line = |name: &str, base: &dyn Fn(&Joined<'_>) -> Option<String>| {
                let point = |(x, (_, case)): (usize, &(f64, &Joined<'_>))| {
                    let ours = best_of_ours(case, look)?;
                    let speed = case.compare(ours, &base(case)?, look, confidence)?.inverted();
                    let (y, low, high) = (speed.ratio, speed.interval.low, speed.interval.high);
                    Some(Point { x: x as f64, y, low, high })
                };
                let points: Vec<Point> = cases.iter().enumerate().filter_map(point).collect();
                Series { name: name.to_owned(), points }
            };
            let series: Vec<Series> = vec![
                line("our best against native", &|_| Some(native::NATIVE.to_owned())),
                line("our best against native-best", &|case| native::best(case).map(str::to_owned)),
            ];
            let series: Vec<Series> = series.into_iter().filter(|series| !series.points.is_empty()).collect();
            let at: Vec<f64> = cases.iter().map(|(at, _)| *at).collect();
            Chart {
                title: kind,
                places: cases.iter().map(|(_, case)| case.labels[label].clone()).collect(),
                x: label.to_owned(),
                y: "times as fast".to_owned(),
                scale: Scale::Times,
                marks: series.iter().flat_map(|series| break_even(series, &at)).collect(),
                series,
            }
        });
        Figure { title: format!("{title}: {}", look.text()), charts: charts.collect() }
    };
    figures.into_iter().map(figure).filter(|figure| !figure.charts.is_empty()).collect()
}

/// Where a series crosses 1, between the values of two places.
fn break_even(series: &Series, at: &[f64]) -> Vec<Mark> {
    let crossing = |pair: &[Point]| {
        let [a, b] = pair else { return None };
        if (a.y - 1.0) * (b.y - 1.0) >= 0.0 {
            return None;
        }
        let part = (1.0 - a.y) / (b.y - a.y);
        let value = at[a.x as usize] + part * (at[b.x as usize] - at[a.x as usize]);
        let text = format!("{value:.0}");
        Some(Mark { x: a.x + part * (b.x - a.x), text, series: series.name.clone() })
    };
    series.points.windows(2).filter_map(crossing).collect()
}

/// The winner of each case with its speed against native: the fastest whose interval lies above 1, or native.
pub(crate) fn winners(results: &Results, look: Look, confidence: f64) -> Vec<(String, Vec<Winner>)> {
    let joined = join(results);
    let of = |case: &Joined<'_>| {
        let mut best = (native::NATIVE.to_owned(), 1.0);
        for &name in case.contenders.iter().filter(|name| !native::is_native(name)) {
            let Some((speed, low, _)) = speed(case, name, look, confidence) else { continue };
            if low > 1.0 && speed > best.1 {
                best = (name.to_owned(), speed);
            }
        }
        Winner {
            row: case.collective.to_owned(),
            column: (case.bytes, size(case)),
            name: best.0,
            speed: best.1,
        }
    };
    let groups = group(&joined, |case| heading(case, None));
    groups.into_iter().map(|(title, cases)| (title, cases.into_iter().map(of).collect())).collect()
}

/// Who wins a case.
pub(crate) struct Winner {
    pub(crate) row: String,
    pub(crate) column: (u64, String),
    pub(crate) name: String,
    pub(crate) speed: f64,
}

/// All labels of results and their values.
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
        let series =
            Series { name: "ring".into(), points: vec![point(0.0, 0.8), point(1.0, 1.2), point(2.0, 1.5)] };
        let marks = break_even(&series, &[0.0, 50.0, 200.0]);
        assert_eq!(marks.len(), 1);
        assert!((marks[0].x - 0.5).abs() < 1e-9);
        assert_eq!(marks[0].text, "25");
    }

    #[test]
    fn labels_have_numbers() {
        assert_eq!((number("500us"), number("1.5"), number("us")), (Some(500.0), Some(1.5), None));
    }
}

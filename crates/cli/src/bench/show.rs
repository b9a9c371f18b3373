//! Table of results: for each case, each contender's time and its speedup over native, for both kinds of timing.

use std::fmt::Write;

use bruckner_measure::{
    Comparison, ComparisonResult, JoinedCase, Results, TimingMethod, bytes_text, join_cases, native, shortened,
    time_text,
};
use serde_json::{Value, json};

/// Formats a speedup with its interval, or "no difference".
fn speed_text(comparison: &Comparison) -> String {
    let speed = comparison.swapped();
    match comparison.result() {
        ComparisonResult::NoDifference => "no difference".to_owned(),
        ComparisonResult::TooFew => format!("{:.2}: too few blocks", speed.ratio),
        _ => format!("{:.2} ({:.2} to {:.2})", speed.ratio, speed.interval.low, speed.interval.high),
    }
}

/// Widths of the two columns of one kind of timing, in characters.
const TIME: usize = 9;
const SPEED: usize = 21;

/// Formats all results for a terminal of `width` characters.
pub(crate) fn table(results: &Results, confidence: f64, width: usize) -> String {
    let mut text = String::new();
    for case in join_cases(results) {
        one(&mut text, &case, confidence, width);
        text.push('\n');
    }
    text
}

/// Formats all results as JSON.
pub(crate) fn json(results: &Results, confidence: f64) -> String {
    let look = |case: &JoinedCase<'_>, name: &str, look: TimingMethod| {
        let times = case.times(name, native::NATIVE, look)?;
        let compared = (name != native::NATIVE)
            .then(|| case.compare(name, native::NATIVE, look, confidence))
            .flatten()
            .map(|compared| compared.swapped());
        let speed = compared.map(|speed| {
            let interval = [speed.interval.low, speed.interval.high];
            json!({ "ratio": speed.ratio, "interval": interval, "too_few_blocks": speed.too_few })
        });
        Some(json!({ "median_seconds": times.median, "speedup_over_native": speed }))
    };
    let contender = |case: &JoinedCase<'_>, name: &str| {
        json!({
            "name": name,
            "from_barrier": look(case, name, TimingMethod::FromBarrier),
            "back_to_back": look(case, name, TimingMethod::BackToBack),
            "refused": case.refused.get(name),
        })
    };
    let case = |case: &JoinedCase<'_>| {
        json!({
            "collective": case.collective,
            "function": case.function_name(),
            "bytes": case.bytes,
            "counts": case.counts,
            "topology": case.topology,
            "labels": case.labels,
            "mpi": case.mpi,
            "confidence": confidence,
            "contenders": case.contenders.iter().map(|name| contender(case, name)).collect::<Vec<_>>(),
        })
    };
    format!("{:#}\n", join_cases(results).iter().map(case).collect::<Value>())
}

/// Appends the description of a case, in several lines if it exceeds `width`.
fn title(text: &mut String, case: &JoinedCase<'_>, width: usize) {
    let mut parts = vec![format!("{}, {}", case.function_name(), bytes_text(case.bytes))];
    if let Some(counts) = case.counts {
        let empty = counts.iter().filter(|count| **count == 0).count();
        parts[0] += &format!(" in total, {empty} of {} blocks empty", counts.len());
    }
    parts.push(format!("on {}", case.topology));
    parts.extend(case.labels.iter().map(|(name, value)| format!("{name} {value}")));
    parts.push(case.mpi.to_owned());
    let launches = case.launches(native::NATIVE, native::NATIVE);
    parts.push(format!("{launches} launch{}", if launches == 1 { "" } else { "es" }));
    parts.push(format!("barrier skew {}", time_text(case.skew())));
    if case.latency().is_finite() {
        parts.push(format!("latency {}", time_text(case.latency())));
    }
    if case.is_oversubscribed() {
        parts.push("oversubscribed (more ranks than cores)".to_owned());
    }
    let mut line = String::new();
    for part in parts {
        if !line.is_empty() && line.len() + 2 + part.len() > width {
            let _ = writeln!(text, "{line},");
            line = format!("  {part}");
        } else {
            line = if line.is_empty() { part } else { format!("{line}, {part}") };
        }
    }
    let _ = writeln!(text, "{line}");
}

fn one(text: &mut String, case: &JoinedCase<'_>, confidence: f64, width: usize) {
    title(text, case, width);
    let columns = 2 * (TIME + SPEED + 3);
    let longest = case.contenders.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    // Both kinds of timing stand side by side if names of contenders keep enough space to be distinguishable.
    let looks: Vec<&[TimingMethod]> = match width >= columns + longest.min(24) {
        true => vec![&TimingMethod::ALL],
        false => TimingMethod::ALL.chunks(1).collect(),
    };
    for looks in looks {
        let names = width.saturating_sub(looks.len() * (TIME + SPEED + 3)).clamp(12, longest.max(12));
        let heading = |look: &TimingMethod| format!("{:>1$}", look.text(), TIME + SPEED + 2);
        let headings: Vec<String> = looks.iter().map(heading).collect();
        let _ = writeln!(text, "{:names$} {}", "", headings.join(" "));
        for &name in &case.contenders {
            // A forced setting of the MPI has separate lines below.
            if native::is_forced(name) {
                continue;
            }
            line(text, case, name, native::NATIVE, looks, names, confidence);
        }
        let Some(best) = native::best(case) else { continue };
        let launches = case.launches(best, best);
        let heading = format!("compared with native-best, {launches} launch{}:", if launches == 1 { "" } else { "es" });
        let _ = writeln!(text, "{}", shortened(&heading, width));
        line(text, case, best, best, looks, names, confidence);
        for &name in case.contenders.iter().filter(|name| !native::is_native(name)) {
            line(text, case, name, best, looks, names, confidence);
        }
    }
    if case.has_trials() && native::best(case).is_none() {
        let _ = writeln!(
            text,
            "{}",
            shortened("native-best: no setting of the MPI was faster than its default in the trials", width)
        );
    }
}

/// Appends the line of one contender compared with `base`, unless the two were never measured together.
fn line(
    text: &mut String,
    case: &JoinedCase<'_>,
    name: &str,
    base: &str,
    looks: &[TimingMethod],
    names: usize,
    confidence: f64,
) {
    let mut line = format!("{:names$}", shortened(name, names));
    for &look in looks {
        let Some(times) = case.times(name, base, look) else {
            if let Some(why) = case.refused.get(name) {
                let _ = writeln!(text, "{line} not measured: {why}");
            }
            return;
        };
        let speed = if name == base { None } else { case.compare(name, base, look, confidence) };
        let speed = speed.as_ref().map(speed_text).unwrap_or_default();
        let _ = write!(line, " {:>TIME$}  {speed:<SPEED$}", time_text(times.median));
    }
    let _ = writeln!(text, "{}", line.trim_end());
    if case.refused.get(name).is_some_and(|why| *why == super::measure::WRONG) {
        let _ = writeln!(text, "{:names$} {}", "", super::measure::WRONG);
    }
}

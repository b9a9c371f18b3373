//! Benchmark tables in Markdown: a row for each case, a column for each contender.

use std::fmt::Write;

use bruckner_measure::{
    Comparison, ComparisonResult, JoinedCase, Results, TimingMethod, join_cases, native, time_text,
};

use crate::figures::{group, heading, shown, size};

/// Returns a table for each MPI, topology and set of labels. Cells are speedups over native; the fastest contender of a row is bold.
pub fn markdown(results: &Results, look: TimingMethod, confidence: f64) -> String {
    let joined = join_cases(results);
    let mut text = String::new();
    for (title, cases) in group(&joined, |case| heading(case, None)) {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in cases.iter().flat_map(|case| shown(case)) {
            if !names.contains(&name) && name != native::NATIVE {
                names.push(name);
            }
        }
        let _ = writeln!(text, "**{title}**, {}\n", look.text());
        let _ = writeln!(text, "| | | native | {} |", names.join(" | "));
        let _ = writeln!(text, "|---|---|---|{}", "---|".repeat(names.len()));
        for case in cases {
            row(&mut text, case, &names, look, confidence);
        }
        text.push('\n');
    }
    text
}

fn row(text: &mut String, case: &JoinedCase<'_>, names: &[&str], look: TimingMethod, confidence: f64) {
    let time = |name: &str| case.times(name, name, look).map(|times| time_text(times.median)).unwrap_or_default();
    let _ = write!(text, "| {} | {} | {} |", case.function_name(), size(case), time(native::NATIVE));
    let shown = shown(case);
    let found: Vec<Option<Comparison>> = names
        .iter()
        .map(|name| {
            let (_, contender) = shown.iter().find(|(shown, _)| shown == name)?;
            case.compare(contender, native::NATIVE, look, confidence)
        })
        .collect();
    let fastest = found.iter().flatten().map(|one| one.ratio).fold(1.0, f64::min);
    for (name, found) in names.iter().zip(&found) {
        let cell = match (found, shown.iter().find(|(shown, _)| shown == name)) {
            // A forced setting of the MPI runs in launches of its own, so only its time is shown.
            (None, Some((_, best))) if native::is_forced(best) => {
                format!("{} ({})", time(best), best.trim_start_matches("native: "))
            }
            (None, _) => String::new(),
            (Some(found), _) => ratio(found, found.ratio <= fastest),
        };
        let _ = write!(text, " {cell} |");
    }
    text.push('\n');
}

fn ratio(found: &Comparison, fastest: bool) -> String {
    let speed = found.swapped();
    let numbers = format!("{:.2} ({:.2} to {:.2})", speed.ratio, speed.interval.low, speed.interval.high);
    match found.result() {
        ComparisonResult::NoDifference => "no difference".to_owned(),
        ComparisonResult::TooFew => format!("{:.2}, too few blocks", speed.ratio),
        _ if fastest => format!("**{numbers}**"),
        _ => numbers,
    }
}

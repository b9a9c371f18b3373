//! The HTML report of a benchmark: figures, the table of numbers, and a description of the machine and the MPI.

use std::fmt::Write;

use bruckner_measure::{
    Comparison, ComparisonResult, JoinedCase, Results, TimingMethod, join_cases, native, time_text,
};

use crate::chart::{DrawError, Figure};
use crate::figures::{by_label, heading, labels, shown, size, speedups, times};
use crate::heat::HeatMap;

const STYLE: &str = "body{font:15px/1.5 Helvetica,Arial,sans-serif;color:#282828;max-width:980px;margin:2em auto;padding:0 1em}\
h1{font-size:1.5em}h2{font-size:1.2em;margin-top:2em}table{border-collapse:collapse;font-size:13px}\
th,td{padding:.2em .7em;text-align:right;border-bottom:1px solid #e4e4e4;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}tr.case th{padding-top:1em;text-align:left}\
.faster{color:#006b4f}.slower{color:#a53f00}.same{color:#777}svg{display:block;max-width:100%;height:auto;margin-bottom:1em}\
.scroll{overflow-x:auto}dt{font-weight:bold;float:left;clear:left;width:9em}dd{margin-left:9.5em}";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns the report as an HTML page.
pub fn report(results: &Results, confidence: f64) -> Result<String, DrawError> {
    if results.launches.iter().all(|launch| launch.cases.is_empty()) {
        return Err(DrawError::Empty("there are no measurements in these results".into()));
    }
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>bruckner bench</title>\
         <style>{STYLE}</style></head><body>\n<h1>MPI collectives, measured side by side</h1>\n"
    );
    about(&mut page, results, confidence);
    let look = TimingMethod::FromBarrier;
    section(
        &mut page,
        "Fastest contender",
        "Each cell names the fastest contender that is significantly faster than native-best (or native, where no setting \
         was forced), with its speedup; if there is none, the MPI's own function.",
    );
    for heat in HeatMap::of(results, look, confidence) {
        page.push_str(&heat.svg()?);
    }
    for (label, values) in labels(results) {
        if values.len() < 2 {
            continue;
        }
        let text = format!("Circles mark break-even points, with the value of {label}.");
        section(&mut page, &format!("Against {label}"), &text);
        if let Ok(found) = by_label(results, label, look, confidence) {
            figures(&mut page, &found);
        }
    }
    section(&mut page, "Speedup over native", &format!("Bars are {} % confidence intervals.", confidence * 100.0));
    figures(&mut page, &speedups(results, look, confidence));
    section(&mut page, "Time", "Medians over all repetitions and launches; bars are 95 % confidence intervals.");
    figures(&mut page, &times(results, look));
    section(
        &mut page,
        "All numbers",
        "Times are medians. Speedups are native's time divided by the contender's in the same block.",
    );
    table(&mut page, results, confidence);
    page.push_str("</body></html>\n");
    Ok(page)
}

fn section(page: &mut String, title: &str, text: &str) {
    let _ = writeln!(page, "<h2>{}</h2>\n<p>{}</p>", escaped(title), escaped(text));
}

/// Appends the figures to the page; a figure without any point is left out.
fn figures(page: &mut String, figures: &[Figure]) {
    for figure in figures {
        if let Ok(svg) = figure.svg() {
            page.push_str(&svg);
        }
    }
}

/// Appends a description of the MPIs, the machine and the measurement.
fn about(page: &mut String, results: &Results, confidence: f64) {
    let first = &results.launches[0];
    let mut mpis: Vec<&str> = results.launches.iter().map(|launch| launch.mpi.name.as_str()).collect();
    mpis.sort_unstable();
    mpis.dedup();
    let full = results.launches.iter().filter(|launch| !launch.trial).count();
    let oversubscribed = results.launches.iter().any(|launch| launch.oversubscribed);
    let mut items = vec![
        ("MPI", mpis.join(", ")),
        ("processor", format!("{}, {} usable cores", first.machine.processor, first.machine.cores)),
        ("kernel", first.machine.kernel.clone()),
        ("launches", format!("{full}, plus {} short trials of the MPI's settings", results.launches.len() - full)),
        ("intervals", format!("{} % for ratios, 95 % for times", confidence * 100.0)),
        ("synchronised", format!("by one barrier for all contenders ({})", first.barrier)),
        ("Bruckner", first.version.clone()),
    ];
    if oversubscribed {
        items.push(("oversubscribed", "more ranks than cores: times include waiting for the scheduler".to_owned()));
    }
    page.push_str("<dl>");
    for (name, value) in items {
        let _ = write!(page, "<dt>{name}</dt><dd>{}</dd>", escaped(&value));
    }
    page.push_str("</dl>\n");
}

/// Formats a comparison as a table cell with its speedup; the result of the comparison is the CSS class of the cell.
fn cell(comparison: Option<Comparison>) -> String {
    let Some(comparison) = comparison else { return "<td></td>".to_owned() };
    let speed = comparison.swapped();
    let numbers = format!("{:.2} ({:.2} to {:.2})", speed.ratio, speed.interval.low, speed.interval.high);
    match comparison.result() {
        ComparisonResult::Faster => format!("<td class=\"faster\">{numbers}</td>"),
        ComparisonResult::Slower => format!("<td class=\"slower\">{numbers}</td>"),
        ComparisonResult::NoDifference => "<td class=\"same\">no difference</td>".to_owned(),
        ComparisonResult::TooFew => format!("<td class=\"same\">{:.2}, too few blocks</td>", speed.ratio),
    }
}

fn table(page: &mut String, results: &Results, confidence: f64) {
    let cases = join_cases(results);
    let with_best = cases.iter().any(|case| native::best(case).is_some());
    page.push_str("<div class=\"scroll\"><table><tr><th></th>");
    for look in TimingMethod::ALL {
        let best = if with_best { "<th>against native-best</th>" } else { "" };
        let _ = write!(page, "<th>{}</th><th>against native</th>{best}", look.text());
    }
    page.push_str("</tr>\n");
    for case in cases {
        let _ = writeln!(
            page,
            "<tr class=\"case\"><th colspan=\"7\">{}, {}, {}</th></tr>",
            case.function_name(),
            size(&case),
            escaped(&heading(&case, None))
        );
        rows(page, &case, with_best, confidence);
    }
    page.push_str("</table></div>\n");
}

fn rows(page: &mut String, case: &JoinedCase<'_>, with_best: bool, confidence: f64) {
    let best = native::best(case);
    for (name, contender) in shown(case) {
        let name = if name == contender { name.to_owned() } else { format!("{name} ({contender})") };
        let _ = write!(page, "<tr><td>{}</td>", escaped(&name));
        let measured = case.times(contender, contender, TimingMethod::FromBarrier).is_some();
        if let (Some(why), false) = (case.refused.get(contender), measured) {
            let _ = writeln!(page, "<td colspan=\"6\" class=\"same\">not measured: {}</td></tr>", escaped(why));
            continue;
        }
        for look in TimingMethod::ALL {
            let times = case.times(contender, native::NATIVE, look).or_else(|| case.times(contender, contender, look));
            let time = times.map(|times| time_text(times.median)).unwrap_or_default();
            let beside = |base: &str| match contender == base {
                true => None,
                false => case.compare(contender, base, look, confidence),
            };
            let against_best = if with_best { cell(best.and_then(beside)) } else { String::new() };
            let _ = write!(page, "<td>{time}</td>{}{against_best}", cell(beside(native::NATIVE)));
        }
        page.push_str("</tr>\n");
    }
}

//! `bruckner tune --learn`: adds findings of online tuning to a profile. They take effect only after a tuning run confirms them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use bruckner::Name;
use bruckner_choose::{Profile, TuningResult};
use bruckner_model::Shape;
use bruckner_report::{Report, Timings};
use bruckner_schedule::Topology;

use super::{rounded, row, write_profile};
use crate::explain::read_profile;

/// An algorithm is faster than another only if its time is at most this fraction of the other's.
const MAX_RATIO: f64 = 0.95;
/// Resolution of the times in a report, in seconds.
const RESOLUTION: f64 = 300e-9;
/// Minimum size of a finding in bytes; shorter calls get the same choice as this size.
const MIN_BYTES: u64 = 8;

/// Adds the findings of reports to the profile `output`. Returns the text to print.
pub(super) fn learn(reports: &[PathBuf], output: &Path) -> Result<String> {
    let mut profile = read_profile(output)?;
    let mut text = String::new();
    for path in reports {
        let shown = path.display();
        let report = crate::report::read(path)?;
        let known = &profile.provenance.mpi;
        ensure!(report.mpi == *known, "{shown} was written with {}, but the profile is for {known}", report.mpi);
        text.push_str(&note(&report, &mut profile)?);
    }
    if text.is_empty() {
        return Ok("the reports contain no new findings: the profile is unchanged\n".to_owned());
    }
    write_profile(&profile, output)?;
    Ok(text)
}

fn note(report: &Report, profile: &mut Profile) -> Result<String> {
    let mut text = String::new();
    // Findings on several nodes are used only if the profile has tuning results on several nodes, and so the costs between nodes.
    let between = profile.results.iter().any(|tuned| tuned.shape.nodes > 1);
    for communicator in &report.communicators {
        let Ok(topology) = communicator.topology.parse::<Topology>() else { continue };
        let shape = Shape::of(&topology);
        // A profile can describe only topologies with equally many ranks on each node.
        if shape.ranks() != topology.ranks() || (shape.nodes > 1 && !between) {
            continue;
        }
        for seen in &communicator.trials {
            let Some(new) = result(seen)? else { continue };
            let at = profile.of_shape(shape);
            let results = &mut profile.results[at].results;
            let before = results.iter().position(|old| (old.name, old.bytes) == (new.name, new.bytes));
            let Some(new) = advice(seen, new, before.map(|before| &results[before])) else { continue };
            text.push_str(&format!("{shape} {}", row(&new)));
            match before {
                Some(before) => results[before] = new,
                None => results.push(new),
            }
        }
    }
    Ok(text)
}

/// Whether an algorithm with time `time` is significantly faster than one with time `than`, both in seconds.
fn is_faster(than: f64, time: f64) -> bool {
    time <= MAX_RATIO * than && than - time >= RESOLUTION
}

/// Returns the unconfirmed result to store for the times in `seen`, or `None` if the profile does not change. An earlier result is
/// replaced, or loses its confirmation, only if `seen` shows that another algorithm is faster.
fn advice(seen: &Timings, new: TuningResult, before: Option<&TuningResult>) -> Option<TuningResult> {
    let of = |name: &str| seen.of(name);
    match before {
        Some(before) if before.expression == new.expression => None,
        Some(before) => {
            let (known, best) = (of(&before.expression.to_string())?, of(&new.expression.to_string())?);
            if !is_faster(known, best) {
                return None;
            }
            // Native takes effect without confirmation, so it is not stored: the earlier winner becomes unconfirmed instead.
            let again = TuningResult { launches: 1, ..before.clone() };
            Some(if new.is_native() { again } else { new })
        }
        None => (!new.is_native()).then_some(new),
    }
}

/// Converts the times of a report to a tuning result, if native was among the algorithms.
fn result(seen: &Timings) -> Result<Option<TuningResult>> {
    let time = |time: f64| time.is_finite() && time > 0.0;
    let native = seen.times.iter().find(|(name, at)| name == "native" && time(*at));
    let (Some((_, native)), Some(name)) = (native, Name::read(&seen.collective)) else { return Ok(None) };
    if seen.exact == 0 {
        return Ok(None);
    }
    let all = seen.times.iter().filter(|(_, at)| time(*at));
    let (best, took) = all.min_by(|a, b| a.1.total_cmp(&b.1)).context("native is one of them")?;
    let wins = is_faster(*native, *took);
    let (best, ratio) = if wins { (best.as_str(), rounded(took / native)) } else { ("native", 1.0) };
    Ok(Some(TuningResult {
        name,
        bytes: seen.exact.max(MIN_BYTES),
        expression: best.parse().map_err(|why| anyhow!("{why}"))?,
        native_seconds: format!("{native:.3e}").parse().unwrap_or(*native),
        ratio,
        interval: [ratio; 2],
        launches: 1,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(times: &str) -> Timings {
        let text = format!(r#"{{"collective":"allgather","bytes":128,"exact":100,"times":{times}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn what_was_seen_is_an_outcome() {
        let of = |times: &str| {
            let result = result(&seen(times)).unwrap()?;
            assert_eq!((result.bytes, result.launches), (100, 1));
            Some((result.expression.to_string(), result.ratio))
        };
        assert_eq!(of(r#"[["shm", 5e-6], ["native", 1e-5]]"#), Some(("shm".into(), 0.5)));
        assert_eq!(of(r#"[["shm", 9.9e-6], ["native", 1e-5]]"#), Some(("native".into(), 1.0)));
        assert_eq!(of(r#"[["shm", 2e-5], ["native", 1e-5]]"#), Some(("native".into(), 1.0)));
        assert_eq!(of(r#"[["shm", 2e-6]]"#), None);
        assert_eq!(of(r#"[["shm", 0.0], ["native", 1e-6]]"#), Some(("native".into(), 1.0)));
        // The difference is below the resolution of the times.
        assert_eq!(of(r#"[["shm", 4e-7], ["native", 6e-7]]"#), Some(("native".into(), 1.0)));
    }

    #[test]
    fn what_was_seen_counts_only_when_it_is_raced() {
        let noted = |times: &str, before: Option<(&str, u32)>| {
            let seen = seen(times);
            let new = result(&seen).unwrap().unwrap();
            let before = before.map(|(expression, launches)| TuningResult {
                expression: expression.parse().unwrap(),
                launches,
                ..new.clone()
            });
            advice(&seen, new, before.as_ref()).map(|noted| (noted.expression.to_string(), noted.launches))
        };
        let fast = r#"[["shm", 5e-6], ["native", 1e-5]]"#;
        assert_eq!(noted(fast, None), Some(("shm".into(), 1)));
        // A finding does not confirm itself, and does not replace a result that it was not compared with.
        assert_eq!(noted(fast, Some(("shm", 1))), None);
        assert_eq!(noted(fast, Some(("ring", 2))), None);
        assert_eq!(noted(fast, Some(("native", 2))), Some(("shm".into(), 1)));
        // A win of native adds no result, but an earlier winner that lost against native becomes unconfirmed.
        let slow = r#"[["shm", 2e-5], ["native", 1e-5]]"#;
        assert_eq!(noted(slow, None), None);
        assert_eq!(noted(slow, Some(("shm", 2))), Some(("shm".into(), 1)));
    }
}

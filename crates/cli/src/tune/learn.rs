//! What the library has seen while programs ran, noted in a profile: one launch, which another must confirm.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use bruckner::Name;
use bruckner_choose::{Profile, Verdict};
use bruckner_model::Shape;
use bruckner_schedule::Topology;
use serde::Deserialize;

use super::{keep, row, thousandth};
use crate::explain::read_profile;

/// What is read of a report.
#[derive(Deserialize)]
struct Report {
    mpi: String,
    communicators: Vec<Communicator>,
}

#[derive(Deserialize)]
struct Communicator {
    topology: String,
    #[serde(default)]
    seen: Vec<Seen>,
}

#[derive(Deserialize)]
struct Seen {
    collective: String,
    #[serde(default)]
    exact: u64,
    times: Vec<(String, f64)>,
}

/// What wins by less is no difference.
const WINS: f64 = 0.95;
/// Shorter calls are served alike.
const WORD: u64 = 8;

/// Notes what reports have seen; what there is to say.
pub(super) fn learn(reports: &[PathBuf], output: &Path) -> Result<String> {
    let mut profile = read_profile(output)?;
    let mut text = String::new();
    for path in reports {
        let shown = path.display();
        let report = std::fs::read_to_string(path).with_context(|| shown.to_string())?;
        let report: Report = serde_json::from_str(&report)
            .with_context(|| format!("{shown} is no report of BRUCKNER_REPORT"))?;
        let known = &profile.made.mpi;
        ensure!(report.mpi == *known, "{shown} is of {}, and the profile is for {known}", report.mpi);
        text.push_str(&note(&report, &mut profile)?);
    }
    ensure!(!text.is_empty(), "nothing was compared while these programs ran");
    keep(&profile, output)?;
    Ok(text)
}

fn note(report: &Report, profile: &mut Profile) -> Result<String> {
    let mut text = String::new();
    for communicator in &report.communicators {
        let Ok(topology) = communicator.topology.parse::<Topology>() else { continue };
        let shape = Shape::of(&topology);
        // A profile speaks of nodes that have all as many ranks.
        if shape.ranks() != topology.ranks() {
            continue;
        }
        for seen in &communicator.seen {
            let Some(new) = verdict(seen)? else { continue };
            let at = profile.of_shape(shape);
            let verdicts = &mut profile.raced[at].verdicts;
            let before = verdicts.iter().position(|old| (old.name, old.bytes) == (new.name, new.bytes));
            let new = new.after(before.map(|before| &verdicts[before]));
            text.push_str(&format!("{shape} {}", row(&new)));
            match before {
                Some(before) => verdicts[before] = new,
                None => verdicts.push(new),
            }
        }
    }
    Ok(text)
}

/// What was seen as the outcome of a race, if the MPI's own function took part in it.
fn verdict(seen: &Seen) -> Result<Option<Verdict>> {
    let time = |time: f64| time.is_finite() && time > 0.0;
    let native = seen.times.iter().find(|(name, at)| name == "native" && time(*at));
    let (Some((_, native)), Some(name)) = (native, Name::read(&seen.collective)) else { return Ok(None) };
    if seen.exact == 0 {
        return Ok(None);
    }
    let all = seen.times.iter().filter(|(_, at)| time(*at));
    let (best, took) = all.min_by(|a, b| a.1.total_cmp(&b.1)).context("native is one of them")?;
    let ratio = thousandth(took / native);
    let (best, ratio) = if ratio <= WINS { (best.as_str(), ratio) } else { ("native", 1.0) };
    Ok(Some(Verdict {
        name,
        bytes: seen.exact.max(WORD),
        expression: best.parse().map_err(|why| anyhow!("{why}"))?,
        native: format!("{native:.3e}").parse().unwrap_or(*native),
        ratio,
        interval: [ratio; 2],
        launches: 1,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(times: &str) -> Option<(String, f64)> {
        let text = format!(r#"{{"collective":"allgather","bytes":128,"exact":100,"times":{times}}}"#);
        let verdict = verdict(&serde_json::from_str(&text).unwrap()).unwrap()?;
        assert_eq!((verdict.bytes, verdict.launches), (100, 1));
        Some((verdict.expression.to_string(), verdict.ratio))
    }

    #[test]
    fn what_was_seen_is_an_outcome() {
        assert_eq!(seen(r#"[["shm", 5e-7], ["native", 1e-6]]"#), Some(("shm".into(), 0.5)));
        assert_eq!(seen(r#"[["shm", 9.9e-7], ["native", 1e-6]]"#), Some(("native".into(), 1.0)));
        assert_eq!(seen(r#"[["shm", 2e-6], ["native", 1e-6]]"#), Some(("native".into(), 1.0)));
        assert_eq!(seen(r#"[["shm", 2e-6]]"#), None);
        assert_eq!(seen(r#"[["shm", 0.0], ["native", 1e-6]]"#), Some(("native".into(), 1.0)));
    }
}

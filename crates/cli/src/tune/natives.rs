//! `bruckner tune --natives`: finds the fastest of the MPI's own algorithms and stores them in the profile.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bruckner::Name;
use bruckner_choose::{NativeSetting, NativeSettings, Shape};
use bruckner_measure::bytes_text;
use bruckner_schedule::{Collective, Topology};

use super::export::Format;
use super::{rounded, write_profile};
use crate::bench::{Problem, Size, best_natives};
use crate::explain::read_profile;

/// Assumed cost of measuring a case, in full launches; a short trial launch counts as a fraction of one.
const LAUNCHES: f64 = 6.0;
/// Minimum seconds for a case in one launch, even if the total time then exceeds the budget.
const LEAST: f64 = 0.05;

/// Finds the fastest settings within about `time` and stores them in the profile `output`. Returns the text to print.
pub(super) fn find(
    launcher: &[String],
    collectives: &[Collective],
    bytes: &[u64],
    time: Duration,
    output: &Path,
) -> Result<String> {
    let name = |collective: &Collective| Name::read(&collective.to_string()).context("a collective");
    let mut cases = Vec::new();
    for name in collectives.iter().map(name) {
        let name = name?;
        cases.extend(bytes.iter().map(|bytes| Problem { name, size: Size::Bytes(*bytes) }));
    }
    let seconds = (time.as_secs_f64() / cases.len() as f64 / LAUNCHES).max(LEAST);
    // A setting that the MPI's tuning files cannot express is not tried.
    let may = |mpi: &str, name: Name, setting: &str| Format::of(mpi).is_some_and(|format| format.takes(name, setting));
    let found = best_natives(launcher, cases, seconds, may)?;
    let mut profile = read_profile(output)?;
    ensure!(
        profile.provenance.mpi == found.mpi,
        "{} is a profile for {}, but this MPI is {}: name another file with -o",
        output.display(),
        profile.provenance.mpi,
        found.mpi
    );
    let topology: Topology = found.topology.parse().map_err(|why| anyhow!("the topology: {why}"))?;
    let shape = Shape::of(&topology);
    let (mut settings, mut text) = (Vec::new(), String::new());
    for (problem, best) in found.best {
        // A case listed twice is stored once.
        if settings
            .iter()
            .any(|known: &NativeSetting| Size::Bytes(known.bytes) == problem.size && known.name == problem.name)
        {
            continue;
        }
        let Size::Bytes(bytes) = problem.size else { continue };
        let (setting, ratio, interval) = match best {
            Some(best) => (best.setting, rounded(best.ratio), best.interval.map(rounded)),
            None => (String::new(), 1.0, [1.0, 1.0]),
        };
        let said = match setting.as_str() {
            "" => "no setting is faster than the default".to_owned(),
            setting => format!("{setting}: {ratio:.2} ({:.2} to {:.2})", interval[0], interval[1]),
        };
        text.push_str(&format!("{:<15} {:>8}  {said}\n", problem.name.to_string(), bytes_text(bytes)));
        settings.push(NativeSetting { name: problem.name, bytes, setting, ratio, interval });
    }
    // Earlier results for other collectives and sizes are kept.
    let same = |a: &NativeSetting, b: &NativeSetting| (a.name, a.bytes) == (b.name, b.bytes);
    match profile.natives.iter_mut().find(|other| other.shape == shape) {
        Some(known) => {
            known.settings.retain(|old| !settings.iter().any(|new| same(old, new)));
            known.settings.append(&mut settings);
        }
        None => profile.natives.push(NativeSettings { shape, settings }),
    }
    write_profile(&profile, output)?;
    Ok(text)
}

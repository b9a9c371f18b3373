//! The machine files of the four systems.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use bruckner_model::Machine;
use bruckner_model::machine::Predictions;

use super::data::{Job, Row};
use super::fit::Fitted;
use super::{formula_ratios, within};
use crate::mpis::root;

/// Returns the machine of a job as a machine file has it.
fn machine(job: &Job, rows: &[Row], fitted: &Fitted) -> Machine {
    let brief = fitted.in_brief();
    let ratios = formula_ratios(rows, &brief);
    let share = |factor: f64| (within(&ratios, factor) * 100.0).round() / 100.0;
    Machine {
        about: job.about(),
        predictions: Some(Predictions {
            number: ratios.len() as u32,
            within_1_3: share(1.3),
            within_2: share(2.0),
            source: format!(
                "cargo testbed supercomputers; flat algorithms, one rank on each node, from a barrier with a skew of {:.1} us",
                brief.skew * 1e6
            ),
        }),
        ..brief.machine
    }
}

/// Writes a file of the project, or returns an error if it differs from `text`.
pub(super) fn keep(file: &str, text: &str, write: bool) -> Result<()> {
    let path = root().join(file);
    if write {
        std::fs::write(&path, text)?;
    }
    let is = std::fs::read_to_string(&path).unwrap_or_default();
    ensure!(is == text, "{file} differs: cargo testbed supercomputers --write");
    Ok(())
}

/// Writes the machine files, or compares them: for each system the job with one rank on each node that has the most rows.
pub(super) fn run(
    out: &mut String,
    jobs: &BTreeMap<Job, Vec<Row>>,
    fits: &BTreeMap<&Job, Fitted>,
    write: bool,
) -> Result<()> {
    let mut best: BTreeMap<&str, &Job> = BTreeMap::new();
    for job in fits.keys().filter(|job| job.shape().on_node == 1) {
        let chosen = best.entry(&job.system).or_insert(job);
        if jobs[*job].len() > jobs[*chosen].len() {
            *chosen = job;
        }
    }
    let _ = writeln!(out);
    for job in best.into_values() {
        let machine = machine(job, &jobs[job], &fits[job]);
        let _ = writeln!(out, "{}: {}", machine.name, machine.predictions.as_ref().context("compared")?);
        keep(&format!("crates/model/machines/{}.toml", machine.name), &machine.write(), write)?;
    }
    Ok(())
}

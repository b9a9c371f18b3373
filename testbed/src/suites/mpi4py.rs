//! mpi4py's own tests: each test must have the same verdict on each rank with and without the library, which must handle every collective.
//! A quick run repeats the tests without the library only if not all of them pass with it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Table;
use crate::launch::{Launch, Outcome};
use crate::mpis::{Mpi, home, root};
use crate::setup::mpi4py_tests;

pub(crate) fn run(table: &mut Table, quick: bool) -> Result<()> {
    let ranks: &[u32] = if quick { &[2] } else { &[1, 2, 3, 5] };
    for mpi in table.of(Mpi::CURRENT) {
        for &p in ranks {
            let outcome = both(mpi, p, quick)?;
            table.tell(mpi.name(), "mpi4py, verdicts with and without", p, &outcome);
        }
    }
    Ok(())
}

/// Verdicts by test, for each rank.
type Verdicts = Vec<BTreeMap<String, String>>;

fn verdicts(launch: &Launch<'_>, file: &Path) -> Result<(Verdicts, f64, String)> {
    let said = launch.run()?;
    let mut all = Vec::new();
    for rank in 0..launch.ranks {
        let file = file.with_extension(rank.to_string());
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("{} was not written: {}{}", file.display(), said.out, said.err))?;
        std::fs::remove_file(&file)?;
        all.push(serde_json::from_str(&text)?);
    }
    Ok((all, said.seconds, said.err))
}

fn both(mpi: Mpi, ranks: u32, quick: bool) -> Result<Outcome> {
    let python = mpi.python();
    let file = home().join(format!("mpi4py-{}-{ranks}", mpi.name()));
    let report = file.with_extension("json");
    let prepare = |launch: Launch<'static>| {
        let script = root().join("testbed/programs/verdicts.py");
        let mut launch = launch.limit(900).oversubscribed().argument(script.display().to_string());
        launch = launch.argument(file.display().to_string()).argument(mpi4py_tests().display().to_string());
        launch.argument("-i").argument("cco_")
    };
    let python: &'static Path = Box::leak(python.into_boxed_path());
    let with = prepare(Launch::preloaded(mpi, ranks, python))
        .set("BRUCKNER", "always")
        .set("BRUCKNER_REPORT", report.display().to_string());
    let (with, first, talk) = verdicts(&with, &file)?;
    let is_ok = |verdicts: &BTreeMap<String, String>| verdicts.values().all(|verdict| verdict == "ok");
    let is_clear = quick && with.iter().all(|verdicts| !verdicts.is_empty() && is_ok(verdicts));
    let (without, second, _) = match is_clear {
        true => (with.clone(), 0.0, String::new()),
        false => verdicts(&prepare(Launch::plain(mpi, ranks, python)), &file)?,
    };
    let mut outcome = Outcome { seconds: first + second, talk, ..Outcome::default() };
    for (rank, (without, with)) in without.iter().zip(&with).enumerate() {
        outcome.cases += without.len() as u64;
        for (test, verdict) in without {
            if with.get(test) != Some(verdict) {
                outcome.failures += 1;
                outcome.talk +=
                    &format!("rank {rank}: {test}: {verdict} without the library, {:?} with it\n", with.get(test));
            }
        }
    }
    if ranks > 1 {
        let text = std::fs::read_to_string(&report).context("there is no report")?;
        for missing in not_served(&serde_json::from_str(&text)?, mpi.has_hook()) {
            outcome.failures += 1;
            outcome.talk += &format!("no call of {missing} was handled\n");
        }
    }
    Ok(outcome)
}

/// Returns the collectives of which no call was handled according to a report. Persistent collectives are included only if `persistent` is
/// set.
pub(super) fn not_served(report: &Value, persistent: bool) -> Vec<String> {
    let rows = || {
        let communicators = report["communicators"].as_array().into_iter().flatten();
        communicators.flat_map(|record| record["rows"].as_array().into_iter().flatten())
    };
    let names = ["allgather", "allreduce", "reduce_scatter", "alltoall", "bcast", "reduce", "barrier"];
    let mut missing = Vec::new();
    for name in names {
        for kept in [false, true] {
            let handled = rows()
                .any(|row| row["collective"] == name && row["persistent"] == kept && row["algorithm"] != "native");
            if !handled && (!kept || persistent) {
                missing.push(format!("{name}{}", if kept { "_init" } else { "" }));
            }
        }
    }
    missing
}

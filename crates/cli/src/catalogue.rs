//! `bruckner verify all`: verifies the whole catalogue, the fixed list of tasks with algorithms, on all cores.

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bruckner_algorithms::catalogue::{Entry, entries, list};
use bruckner_algorithms::lower::{OnNode, lower};
use bruckner_algorithms::plan;
use bruckner_schedule::Counts;
use bruckner_schedule::verify::verify as prove;
use serde_json::json;

use crate::bar::bar;
use crate::compiled;
use crate::found::VerifyResult;

/// Returns the catalogue's entries for 1 to `max_ranks` ranks, those with most ranks first because they take longest: every entry if
/// `whole` is set, otherwise a sample.
fn all(max_ranks: u32, whole: bool) -> Vec<Entry> {
    (1..=max_ranks).rev().flat_map(if whole { list } else { entries }).collect()
}

fn describe(entry: &Entry) -> String {
    let task = &entry.task;
    format!("{} {} on {}, counts {}", task.collective, entry.expression, task.topology, task.counts)
}

/// Lists the entries of the catalogue, one per line, without verifying them.
pub(crate) fn listing(max_ranks: u32, whole: bool) -> VerifyResult {
    let (mut text, mut all) = (String::new(), Vec::new());
    for entry in (1..=max_ranks).flat_map(if whole { list } else { entries }) {
        let _ = writeln!(text, "{}", describe(&entry));
        let Entry { task, expression } = &entry;
        all.push(json!({
            "collective": task.collective.to_string(),
            "counts": task.counts.to_string(),
            "topology": task.topology.to_string(),
            "algorithm": expression.to_string(),
        }));
    }
    VerifyResult { text, json: all.into(), holds: true }
}

/// Verifies the schedule of an entry, the program lowered from it, and, if the algorithm shares memory, the program lowered to messages
/// only. Returns the number of programs verified, or the first violation.
fn verify_entry(entry: &Entry) -> Result<u64, String> {
    let schedule = plan(&entry.task, &entry.expression).map_err(|refusal| refusal.to_string())?.schedule();
    let mut programs = vec![("schedule", schedule.flatten()), ("program", lower(&schedule, OnNode::Segment))];
    if entry.expression.groups_regions() {
        programs.push(("program on messages", lower(&schedule, OnNode::Messages)));
    }
    for (form, program) in &programs {
        if let Some(violation) = prove(program).violations.first() {
            return Err(format!("{form}: {violation}"));
        }
    }
    Ok(programs.len() as u64)
}

/// Verifies the compiled programs of an entry for every data layout. Returns the number of programs verified, or the first violation.
fn verify_compiled(entry: &Entry) -> Result<u64, String> {
    if entry.task.counts == Counts::Local {
        let program = compiled::sized(entry).map_err(|error| error.to_string())?;
        return match prove(&program).violations.first() {
            Some(violation) => Err(violation.to_string()),
            None => Ok(1),
        };
    }
    let all = compiled::all(entry).map_err(|error| error.to_string())?;
    for (form, running) in &all {
        let program = running.read().map_err(|misread| format!("{form}: {misread}"))?;
        if let Some(violation) = prove(&program).violations.first() {
            return Err(format!("{form}: {violation}"));
        }
    }
    Ok(all.len() as u64)
}

/// Verifies the schedules of the catalogue and the programs lowered from them, or its compiled programs if `compiled` is set.
pub(crate) fn verify(max_ranks: u32, whole: bool, compiled: bool) -> VerifyResult {
    let judge = if compiled { verify_compiled } else { verify_entry };
    let entries = all(max_ranks, whole);
    let bar = bar(entries.len() as u64);
    let (next, verified, refused) = (AtomicUsize::new(0), AtomicU64::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match judge(entry) {
                        Ok(programs) => {
                            verified.fetch_add(programs, Ordering::Relaxed);
                        }
                        Err(reason) => {
                            let mut refused = refused.lock().expect("no thread panics with it");
                            refused.push(format!("{}: {reason}", describe(entry)));
                        }
                    }
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let refused = refused.into_inner().expect("all threads are done");
    let mut text = String::new();
    for line in refused.iter().take(20) {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "{} pairs of task and algorithm, for up to {max_ranks} ranks", entries.len());
    let what = if compiled { "compiled programs" } else { "schedules" };
    let verified = verified.into_inner();
    let _ = writeln!(text, "verified {verified} {what}, {} refused", refused.len());
    let json = json!({
        "tasks": entries.len(),
        "max_ranks": max_ranks,
        "what": what,
        "verified": verified,
        "refused": refused.len(),
        "violations": refused,
    });
    VerifyResult { text, json, holds: refused.is_empty() }
}

//! `cargo testbed matrix`: tests of every algorithm on each MPI, in one table.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, bail};
use bruckner_algorithms::Expression;
use bruckner_algorithms::catalogue::list;
use bruckner_algorithms::properties::{RankPlacement, properties};
use bruckner_schedule::{Collective, Counts, Topology};

use crate::launch::{Launch, Outcome};
use crate::mpis::{Mpi, home};

/// Runs the tests and prints the table; returns an error if any test failed.
pub(crate) fn run(mpis: &[Mpi], quick: bool) -> Result<()> {
    println!(
        "{:<10} {:<20} {:<10} {:>5} {:>8} {:>8} {:>8}",
        "MPI", "version", "family", "ranks", "cases", "failures", "seconds"
    );
    let mut failed = false;
    for &mpi in mpis {
        let (version, family) = about(mpi)?;
        each(mpi, quick, |ranks, remark, outcome| {
            let Outcome { cases, failures, seconds, talk } = outcome;
            println!(
                "{:<10} {version:<20} {family:<10} {ranks:>5} {cases:>8} {failures:>8} {seconds:>8.1}{remark}",
                mpi.name()
            );
            if *failures > 0 {
                failed = true;
                eprint!("{talk}");
            }
        })?;
    }
    if failed {
        bail!("some cases failed");
    }
    Ok(())
}

/// Runs the tests on one MPI, and calls `tell` with a remark and the outcome for each number of ranks.
pub(crate) fn each(mpi: Mpi, quick: bool, mut tell: impl FnMut(u32, &str, &Outcome)) -> Result<()> {
    let program = mpi.compile("collectives")?;
    let ranks: &[u32] = if quick { &[1, 2, 5] } else { &[1, 2, 3, 4, 5, 6, 7, 8, 9] };
    // The last run is without shared memory, so all ranks exchange messages.
    let runs = ranks.iter().map(|p| (*p, "")).chain([(5, "off")]);
    for (p, shm) in runs {
        let file = cases(p, quick.then_some(mpi))?;
        let launch = Launch::new(mpi, p, &program).argument(file.display().to_string()).limit(900);
        // Every algorithm is tested, also those whose floating-point results may differ between ranks.
        let outcome = launch.set("BRUCKNER_SHM", shm).set("BRUCKNER_FAST_MATH", "on").test()?;
        tell(p, if shm == "off" { "  without shared memory" } else { "" }, &outcome);
    }
    Ok(())
}

/// Returns the version and family of an MPI, as the library detects them.
fn about(mpi: Mpi) -> Result<(String, String)> {
    let program = mpi.compile("about")?;
    let said = Launch::new(mpi, 1, &program).run()?;
    let mut lines = said.out.lines();
    match (lines.next(), lines.next()) {
        (Some(version), Some(family)) => Ok((version.to_owned(), family.to_owned())),
        _ => bail!("{}: {}{}", mpi.name(), said.out, said.err),
    }
}

/// Writes all cases in the catalogue for `p` ranks to a file, sorted by topology. A quick run takes every seventh case, different ones for
/// each MPI.
fn cases(p: u32, quick: Option<Mpi>) -> Result<PathBuf> {
    let mut lines: BTreeSet<(String, &str, String, bool)> = BTreeSet::new();
    for entry in list(p) {
        let names: &[&str] = match (entry.task.collective, &entry.task.counts) {
            (Collective::Allgather, Counts::Root { .. }) => &["bcast"],
            (Collective::ReduceScatter, Counts::Root { .. }) => &["reduce"],
            (Collective::Allgather, Counts::Equal(1)) => &["allgather", "barrier"],
            (Collective::Allgather, _) => &["allgather"],
            (Collective::ReduceScatter, _) => &["reduce_scatter"],
            (Collective::Allreduce, _) => &["allreduce"],
            (Collective::Alltoall, _) => &["alltoall"],
        };
        for name in names {
            let consistent = consistent(entry.task.collective, &entry.expression, &entry.task.topology);
            lines.insert((entry.task.topology.to_string(), name, entry.expression.to_string(), consistent));
        }
    }
    let offset = quick.map_or(0, |mpi| mpi as usize);
    let taken =
        lines.into_iter().enumerate().filter(|(number, _)| quick.is_none() || (number + offset).is_multiple_of(7));
    let text: String = taken
        .map(|(_, (topology, name, algorithm, consistent))| {
            format!("{topology}|{name}|{algorithm}|{}\n", u8::from(consistent))
        })
        .collect();
    let file = home().join(match quick {
        Some(mpi) => format!("cases-{p}-{}.txt", mpi.name()),
        None => format!("cases-{p}.txt"),
    });
    std::fs::write(&file, text)?;
    Ok(file)
}

fn consistent(collective: Collective, expression: &Expression, topology: &Topology) -> bool {
    properties(collective, expression, RankPlacement::of(topology), topology.ranks()).consistent
}

//! `cargo testbed overhead`, `cargo testbed onnode` and `cargo testbed roots`: measure the library and its baseline in the same run.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};

use crate::launch::Launch;
use crate::mpis::Mpi;

/// One line printed by a program that uses `compare.h`; times are in nanoseconds.
pub(crate) struct Line {
    pub(crate) name: String,
    bytes: u64,
    pub(crate) ours: f64,
    pub(crate) other: f64,
    pub(crate) ratio: f64,
    low: f64,
    high: f64,
}

impl Line {
    fn read(line: &str) -> Option<Line> {
        let mut words = line.strip_prefix("compare ")?.split(' ');
        let name = words.next()?.to_owned();
        let bytes = words.next()?.parse().ok()?;
        let mut number = || words.next()?.trim().parse().ok();
        Some(Line { name, bytes, ours: number()?, other: number()?, ratio: number()?, low: number()?, high: number()? })
    }
}

/// Runs a program `launches` times. Every launch prints a line for each comparison; returns, for each comparison, the line of the launch
/// with the median ratio.
fn measure(mpi: Mpi, ranks: u32, program: &str, argument: Option<&str>, launches: usize) -> Result<Vec<Line>> {
    let binary = mpi.compile(program)?;
    medians(launches, || {
        let launch = Launch::new(mpi, ranks, &binary);
        argument.into_iter().fold(launch, Launch::argument)
    })
}

/// Runs `launch` `launches` times. Returns, for each comparison that the program prints, the line of the launch with the median ratio.
pub(crate) fn medians<'a>(launches: usize, launch: impl Fn() -> Launch<'a>) -> Result<Vec<Line>> {
    let mut runs: Vec<Vec<Line>> = Vec::new();
    for _ in 0..launches {
        let said = launch().run()?;
        let lines: Vec<Line> = said.out.lines().filter_map(Line::read).collect();
        if !said.succeeded || lines.is_empty() {
            bail!("{}{}", said.out, said.err);
        }
        runs.push(lines);
    }
    let count = runs[0].len();
    let mut median = Vec::new();
    for _ in 0..count {
        let mut column: Vec<Line> = runs.iter_mut().filter_map(Vec::pop).collect();
        column.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let middle = column.len() / 2;
        median.push(column.swap_remove(middle));
    }
    median.reverse();
    Ok(median)
}

fn head(what: &str, ours: &str, other: &str) {
    println!("{:<10} {what:<34} {:>8} {ours:>12} {other:>12} {:>7}  interval", "MPI", "bytes", "ratio");
}

fn tell(mpi: Mpi, line: &Line, remark: &str) {
    println!(
        "{:<10} {:<34} {:>8} {:>9.0} ns {:>9.0} ns {:>7.3}  {:.3} to {:.3}{remark}",
        mpi.name(),
        line.name,
        line.bytes,
        line.ours,
        line.other,
        line.ratio,
        line.low,
        line.high
    );
}

/// Time in nanoseconds by which a call may take longer than its hand-written baseline before `overhead` fails. A ratio of two short times
/// would be a poor limit, because it depends on the cores as much as on the library: between two threads of one core a cache line travels
/// in 20 ns, so almost only the instructions of both count.
const LOST: f64 = 200.0;

/// Compares plans with hand-written loops (limit: a ratio of 1.05, or 30 ns more), and an 8-byte allreduce on one node with a bare
/// exchange of flags (limit: a ratio of 1.3). All other cases have no limit. A case above its limit is marked. Unless `only_print` is set,
/// the test fails if a marked case also takes more than [`LOST`] ns longer than its baseline.
pub(crate) fn overhead(mpis: &[Mpi], launches: usize, only_print: bool) -> Result<()> {
    let mut lost = 0;
    let mut judge = |mpi: Mpi, line: &Line, within: bool, remark: &str| {
        lost += usize::from(!within && line.ours - line.other > LOST);
        tell(mpi, line, if within { "" } else { remark });
    };
    head("algorithm", "plan", "loop in C");
    for &mpi in mpis {
        for line in measure(mpi, 2, "overhead", None, launches)? {
            let within = line.ratio <= 1.05 || line.ours - line.other <= 30.0;
            judge(mpi, &line, within, "  slower by more than 5 % and 30 ns");
        }
    }
    println!();
    head("one node", "allreduce", "bare flags");
    for &mpi in mpis {
        for line in measure(mpi, 2, "flags", None, launches)? {
            let within = line.ratio <= 1.3 || !line.name.starts_with("allreduce");
            judge(mpi, &line, within, "  above 1.30");
        }
    }
    if lost > 0 && !only_print {
        bail!("{lost} calls are slower by more than {LOST} ns");
    }
    Ok(())
}

/// Compares the library with the MPI's own collectives on one node: two ranks on two cores, then eight ranks on two cores. With two ranks,
/// an 8-byte allreduce may take at most 0.60 of the native time, and every other case at most 1.05. With eight ranks, every case may take
/// at most 0.10 of the native time of MPICH and Intel MPI, and at most 1.0 of that of Open MPI.
pub(crate) fn onnode(mpis: &[Mpi], launches: usize) -> Result<()> {
    head("collective, 2 ranks", "ours", "native");
    let mut broken = 0;
    let mut judge = |mpi: Mpi, line: &Line, most: f64| {
        let remark = if line.ratio <= most { "" } else { "  too slow" };
        broken += usize::from(line.ratio > most);
        tell(mpi, line, remark);
    };
    for &mpi in mpis {
        for line in measure(mpi, 2, "onnode", None, launches)? {
            let short = line.name == "allreduce" && line.bytes == 8;
            judge(mpi, &line, if short { 0.60 } else { 1.05 });
        }
    }
    println!();
    head("least possible data movement, 2 ranks", "by hand", "native");
    for &mpi in mpis {
        for line in measure(mpi, 2, "least", None, launches)? {
            tell(mpi, &line, "");
        }
    }
    println!();
    head("collective, 8 ranks on 2 cores", "ours", "native");
    for &mpi in mpis {
        for line in measure(mpi, 8, "onnode", Some("crowded"), launches.min(3))? {
            judge(mpi, &line, if mpi.is_open_mpi() { 1.0 } else { 0.10 });
        }
    }
    if broken > 0 {
        bail!("{broken} cases are above their limits");
    }
    Ok(())
}

/// Measures the time of a root in a broadcast, and of a contributing rank in a reduction, while the other ranks come 5 ms late to each
/// call. This time may be at most 2 µs longer than without the library. Launches with and without the library alternate.
pub(crate) fn roots(mpis: &[Mpi]) -> Result<()> {
    println!("{:<10} {:>5} {:<10} {:>12} {:>12}", "MPI", "ranks", "collective", "ours", "native");
    let mut above = 0;
    for (&mpi, ranks) in mpis.iter().flat_map(|mpi| [(mpi, 2), (mpi, 4)]) {
        let program = mpi.compile_plain("rooted")?;
        // Times by collective, with and without the library.
        let mut times: BTreeMap<String, [Vec<f64>; 2]> = BTreeMap::new();
        for _ in 0..3 {
            for (at, mode) in ["on", "off"].into_iter().enumerate() {
                let launch = Launch::preloaded(mpi, ranks, &program).oversubscribed().argument("time");
                let rules = launch.set("BRUCKNER_ALGORITHM", "bcast=shm; reduce=shm");
                let said = rules.set("BRUCKNER", mode).run()?;
                if !said.succeeded {
                    bail!("{}{}", said.out, said.err);
                }
                for line in said.out.lines().filter_map(|line| line.strip_prefix("roots ")) {
                    let (name, time) = line.split_once(' ').context("a name and a time")?;
                    times.entry(name.to_owned()).or_default()[at].push(time.trim().parse()?);
                }
            }
        }
        for (name, [ours, native]) in times {
            let (ours, native) = (median(ours), median(native));
            let within = ours - native <= 2000.0;
            above += usize::from(!within);
            let remark = if within { "" } else { "  more than 2 us above" };
            println!("{:<10} {ranks:>5} {name:<10} {ours:>9.0} ns {native:>9.0} ns{remark}", mpi.name());
        }
    }
    if above > 0 {
        bail!("{above} times are more than 2 us above native");
    }
    Ok(())
}

pub(crate) fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}

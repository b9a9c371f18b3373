//! `cargo testbed watching`: how soon online tuning replaces a wrong choice, and what it costs where the choice was right.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use bruckner_choose::Profile;
use bruckner_measure::bytes_text;
use clap::Args;

use crate::chooser::{Configuration, PROFILE};
use crate::launch::Launch;
use crate::mpis::root;
use crate::speed::median;

/// Options of `cargo testbed watching`.
#[derive(Args)]
pub(crate) struct Options {
    /// Measures only configurations whose names contain this text, such as 4x4-500us or node2-mpich5
    #[arg(long)]
    only: Option<String>,
    /// Measures only this collective
    #[arg(long)]
    collective: Option<String>,
    /// Number of launches of each case
    #[arg(long, default_value_t = 5)]
    launches: usize,
    /// Maximum time of `bruckner tune` for a configuration that has no profile
    #[arg(long, default_value = "10m")]
    budget: String,
}

const CASES: [(&str, &[u64]); 4] = [
    ("allgather", &[8, 4096, 32768]),
    ("allreduce", &[8, 4096, 32768]),
    ("reduce_scatter", &[8, 4096]),
    ("alltoall", &[8, 512]),
];
/// Factors by which the latencies of wrong profiles are multiplied.
const WRONG: [f64; 2] = [10.0, 0.1];
/// Number of calls in which online tuning must find the best algorithm.
const CALLS: u32 = 2000;
/// Largest acceptable ratio of a call's time, with a wrong profile and online tuning, to its time with the right profile; [`COST`] is the
/// largest acceptable fraction of time that trials take.
const NEAR: f64 = 1.10;
const COST: f64 = 0.01;
/// Length of a run in which the cost of trials is measured, in microseconds.
const RUN: f64 = 1e6;

/// A profile, and whether online tuning is on.
struct Way<'a> {
    profile: &'a Path,
    watch: bool,
}

/// Runs `calls[0]` calls, then measures `calls[1]` more. Returns the time of a measured call in microseconds (median over groups of 64
/// calls), and the fraction of the total time that trials take.
fn took(place: &Configuration, way: &Way<'_>, case: (&str, u64), calls: [u32; 2]) -> Result<[f64; 2]> {
    let program = place.mpi.compile_plain("watching")?;
    let bruckner = root().join("target/release/bruckner");
    let nodes = place.nodes()?;
    let launch = Launch::plain(place.mpi, place.ranks(), &bruckner).limit(300);
    let launch = match &nodes {
        Some(nodes) => launch.across(nodes).oversubscribed(),
        None if place.ranks() > 2 => launch.oversubscribed(),
        None => launch,
    };
    let words = ["exec", &program.display().to_string(), case.0, &case.1.to_string()].map(str::to_owned);
    let calls = calls.map(|number| number.to_string());
    let launch = words.into_iter().chain(calls).fold(launch, Launch::argument);
    let launch = launch.set("BRUCKNER_PROFILE", way.profile.display().to_string());
    let said = launch.set("BRUCKNER_ONLINE_TUNING", if way.watch { "on" } else { "off" }).run()?;
    let words = said.out.lines().find_map(|line| Some(line.strip_prefix("took ")?.split(' ').collect::<Vec<_>>()));
    match words.as_deref() {
        Some([after, "cost", part]) => Ok([after.parse()?, part.trim().parse()?]),
        _ => bail!("{}{}", said.out, said.err),
    }
}

/// Returns a wrong profile: latencies multiplied by `times`, and no tuning results.
fn wrong(profile: &Profile, times: f64) -> String {
    let mut wrong = profile.clone();
    // The tuned topologies stay, so that it remains a profile of several nodes.
    wrong.results.iter_mut().for_each(|tuned| tuned.results.clear());
    wrong.machine = profile.machine.scale_latencies(times, times);
    wrong.write()
}

/// Measures all cases and prints the results; returns an error if online tuning is too slow or costs too much.
pub(crate) fn run(ask: &Options) -> Result<()> {
    let mut broken = 0;
    for place in Configuration::some(ask.only.as_deref())? {
        let right = place.tuned(PROFILE, &ask.budget, &[])?;
        let (profile, _) =
            Profile::read(&std::fs::read_to_string(&right)?).map_err(|why| anyhow!("{}: {why}", right.display()))?;
        let wrong_files = WRONG.map(|times| (times, place.file(&format!("-wrong-{times}.toml"))));
        for (times, file) in &wrong_files {
            std::fs::write(file, wrong(&profile, *times))?;
        }
        println!(
            "{}: calls {} to {} in µs: right profile without online tuning; ratios: wrong profiles with online tuning",
            place.name,
            CALLS,
            2 * CALLS
        );
        let mut lengths = Vec::new();
        let asked = |name: &str| ask.collective.as_ref().is_none_or(|asked| asked == name);
        for (collective, sizes) in CASES.into_iter().filter(|(name, _)| asked(name)) {
            for &bytes in sizes {
                let case = (collective, bytes);
                let (mut best, mut ratios) = (Vec::new(), vec![Vec::new(); WRONG.len()]);
                for _ in 0..ask.launches {
                    let right = Way { profile: &right, watch: false };
                    let took_right = took(&place, &right, case, [CALLS, CALLS])?[0];
                    best.push(took_right);
                    for (ratios, (_, file)) in ratios.iter_mut().zip(&wrong_files) {
                        let way = Way { profile: file, watch: true };
                        ratios.push(took(&place, &way, case, [CALLS, CALLS])?[0] / took_right);
                    }
                }
                let best = median(best);
                lengths.push((case, best));
                let mut row = format!("{collective:<15} {:>8} {best:>10.3}", bytes_text(bytes));
                for (ratios, (factor, _)) in ratios.into_iter().zip(&wrong_files) {
                    let ratio = median(ratios);
                    let slow = ratio > NEAR;
                    broken += usize::from(slow);
                    row += &format!("  x{factor} {ratio:.2}{}", if slow { " SLOW" } else { "" });
                }
                println!("{row}");
            }
        }
        println!("{}: right profile, online tuning: share of the time spent in trials", place.name);
        for (case, time) in lengths.into_iter().filter(|((_, bytes), _)| *bytes == 8) {
            // Number of calls that take about `RUN` microseconds.
            let calls = (RUN / time).clamp(5000.0, 2e6) as u32;
            let mut parts = Vec::new();
            for _ in 0..ask.launches {
                parts.push(took(&place, &Way { profile: &right, watch: true }, case, [1, calls - 1])?[1]);
            }
            let part = median(parts);
            let is_expensive = part > COST;
            broken += usize::from(is_expensive);
            let remark = if is_expensive { " TOO EXPENSIVE" } else { "" };
            println!("{:<15} {:>8} {calls:>8} {:>7.2} %{remark}", case.0, bytes_text(case.1), part * 100.0);
        }
    }
    match broken {
        0 => Ok(()),
        broken => bail!("{broken} cases are above their limits"),
    }
}

//! `cargo testbed claims`: measures the claims about speed on several nodes, and prints each result beside its lower limit.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use bruckner_measure::{JoinedCase, Results, TimingMethod, bytes_text, join_cases, native, time_text};

use crate::measure::{Run, measure, with_algorithms};
use crate::mpis::Mpi;

/// Baseline of a claim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// The MPI with its default algorithms.
    Native,
    /// The MPI with the fastest of its own algorithms, forced by settings.
    NativeBest,
}

/// A claim about some sizes of a collective: the speedup of the library's best algorithm, as a geometric mean over the sizes. The claim is
/// kept if the speedup is at least `floor`; `goal` is the speedup aimed at.
#[derive(Clone, Copy)]
struct Claim {
    /// Name of the run that measures the claim.
    of: &'static str,
    collective: &'static str,
    bytes: &'static [u64],
    over: Over,
    goal: f64,
    floor: f64,
    /// Smallest speedup that every single size must have.
    each: f64,
}

const SHORT: &[u64] = &[8, 512, 4096];
const LONG: &[u64] = &[32 << 10, 256 << 10, 1 << 20];

/// Algorithms for nodes in racks: one that knows only nodes, and one that knows racks and the nodes in them. In the topology that the
/// library is given, racks are called `node`, and nodes are called `socket`.
const TWO_LEVELS: &str = "locality(socket)";
const THREE_LEVELS: &str = "locality(node, inside=locality(socket))";

/// Time of a 1 MiB allreduce on the wire between four nodes, in seconds: every node sends and receives 3/2 of the data at 1 Gbit/s.
const WIRE: f64 = 1.5 * 1048576.0 * 8.0 / 1e9;

fn claim(of: &'static str, collective: &'static str, bytes: &'static [u64], goal: f64, floor: f64) -> Claim {
    Claim { of, collective, bytes, over: Over::Native, goal, floor, each: 0.0 }
}

fn over_best(claim: Claim, goal: f64, floor: f64) -> Claim {
    Claim { over: Over::NativeBest, goal, floor, ..claim }
}

fn claims() -> Vec<Claim> {
    let short = [
        ("allreduce", SHORT, 1.9, 1.6),
        ("allgather", SHORT, 1.6, 1.3),
        ("reduce_scatter", SHORT, 2.0, 1.6),
        ("alltoall", &SHORT[..2], 2.2, 1.8),
    ];
    let mut claims = Vec::new();
    for (collective, bytes, goal, floor) in short {
        claims.push(claim("claims-4x4-500us", collective, bytes, goal, floor));
        let near = claim("claims-4x4-50us", collective, bytes, goal - 0.2, floor - 0.2);
        claims.push(Claim { each: 1.0, ..near });
    }
    for (collective, bytes, ..) in short {
        claims.push(over_best(claim("claims-4x4-500us", collective, bytes, 0.0, 0.0), 1.25, 1.25));
    }
    claims.push(claim("claims-4x4-500us-long", "allgather", LONG, 1.7, 1.4));
    claims.push(claim("claims-4x4-500us-long", "reduce_scatter", LONG, 3.0, 2.5));
    claims.push(claim("claims-4x4-500us-sums", "allreduce", LONG, 2.0, 1.5));
    claims.push(over_best(claim("claims-4x4-500us-sums", "allreduce", LONG, 0.0, 0.0), 1.2, 1.0));
    claims
}

/// All measurements, with the algorithms that were found to be the best.
fn runs() -> Vec<Run> {
    let best = ["native-best"].as_slice();
    let short = [
        "locality(node)",
        "lanes(node, between=spread-out)",
        "lanes(node, between=recursive-doubling)",
        "leader(node, between=spread-out)",
    ];
    let four = &["allreduce", "allgather", "reduce_scatter", "alltoall", "--bytes", "8,512,4096"][..];
    // The MPI's own function takes a second for the longest messages, so few algorithms are measured beside it.
    let long = ["lanes(node, between=ring)", "pipeline(2, lanes(node, between=ring))"];
    let two = &["allgather", "reduce_scatter", "--bytes", "32768,262144,1048576"][..];
    let sums = [
        "lanes(node, between=spread-out)",
        "lanes(node, between=4(-3 3))",
        "pipeline(2, lanes(node, between=4(-3 3)))",
        "pipeline(4, lanes(node, between=4(-3 3)))",
    ];
    let allreduce = &["allreduce", "--bytes", "32768,262144,1048576"][..];
    let run = |name: &str, shape, delay, ask| Run::new(name, Mpi::Openmpi5, shape, delay, ask);
    // Two racks of two nodes: in the topology that the library is given, racks are called nodes, and nodes are called sockets. Each node
    // has two ranks, because four ranks could send to the three other nodes at once, and messages would cross racks only once in any case.
    let three_of_four = &["allreduce", "allgather", "reduce_scatter", "--bytes", "8,512,4096"];
    let racks = with_algorithms(three_of_four, &[TWO_LEVELS, THREE_LEVELS]);
    let mut racks = run("claims-racks", (4, 2), 100, racks);
    racks.shape.extend(["--rack", "2", "--rack-delay", "2ms"].map(str::to_owned));
    racks.settings.push("BRUCKNER_TOPOLOGY=2x2x2".to_owned());
    let mut runs = vec![
        run("claims-4x4-500us", (4, 4), 500, with_algorithms(four, &[&short, best].concat())),
        run("claims-4x4-50us", (4, 4), 50, with_algorithms(four, &short)),
    ];
    for mpi in Mpi::CURRENT {
        let name = format!("claims-node-{}", mpi.name());
        for (ask, algorithms) in [
            (
                &["allreduce", "--bytes", "8,65536,262144,1048576"][..],
                &["shm", "shm-split", "shm-rotate", "direct"][..],
            ),
            (&["reduce_scatter", "--bytes", "65536,262144,1048576"][..], &["shm", "direct"][..]),
            (&["allgather", "alltoall", "--bytes", "65536,262144,1048576"][..], &["direct"][..]),
            (&["bcast", "--bytes", "65536,262144,1048576"][..], &["shm", "chosen"][..]),
        ] {
            runs.push(Run::on_one_node(&name, *mpi, with_algorithms(ask, algorithms)));
        }
    }
    runs.extend([
        run("claims-4x4-500us-sums", (4, 4), 500, with_algorithms(allreduce, &[&sums, best].concat())),
        run("claims-8x2-500us", (8, 2), 500, with_algorithms(four, &short)),
        run("claims-2x8-500us", (2, 8), 500, with_algorithms(four, &short)),
        racks,
        run("claims-4x4-500us-long", (4, 4), 500, with_algorithms(two, &long)),
    ]);
    runs
}

/// Checks the claims for two ranks on one node: the library's time as a fraction of the native time of each MPI.
fn one_node(results: &BTreeMap<&str, Results>, judge: &mut dyn FnMut(String, f64, f64, bool)) -> Result<()> {
    let mut shortest = Vec::new();
    for mpi in Mpi::CURRENT {
        let name = format!("claims-node-{}", mpi.name());
        for case in join_cases(results.get(name.as_str()).context("a run")?) {
            let ours = case.contenders.iter().filter(|name| **name != native::NATIVE);
            let parts =
                ours.filter_map(|ours| Some((case.ratio(ours, native::NATIVE, TimingMethod::BackToBack)?, *ours)));
            let (part, by) = parts.min_by(|a, b| a.0.total_cmp(&b.0)).context("one of ours")?;
            let most = match (case.collective, case.bytes) {
                ("allreduce", 8) => {
                    shortest.push(part);
                    f64::INFINITY
                }
                ("allreduce" | "reduce_scatter", _) => 0.75,
                _ => 1.05,
            };
            let what = format!("{} of {}", case.collective, bytes_text(case.bytes));
            let most_text = if most.is_finite() { format!(" (at most {most:.2})") } else { String::new() };
            judge(format!("{name}: {what}: {part:.2} of native by {by}{most_text}"), 0.0, 0.0, part <= most);
        }
    }
    shortest.sort_by(f64::total_cmp);
    let middle = shortest.get(shortest.len() / 2).copied().unwrap_or(f64::NAN);
    judge(
        format!("8 B allreduce on one node, median of three MPIs: {middle:.2} (at most 0.50)"),
        0.0,
        0.0,
        middle <= 0.5,
    );
    Ok(())
}

/// Returns the speedup of the library's best algorithm in a case, and its name.
fn best<'a>(case: &JoinedCase<'a>, over: Over) -> Option<(f64, &'a str)> {
    let base = match over {
        Over::Native => native::NATIVE,
        // If no setting beats the default in the trial, the default is the best.
        Over::NativeBest => native::best(case).unwrap_or(native::NATIVE),
    };
    let ours = case.contenders.iter().filter(|name| !native::is_native(name) && **name != native::LIBRARY_SELECTION);
    let speeds = ours.filter_map(|name| Some((case.ratio(base, name, TimingMethod::FromBarrier)?, *name)));
    speeds.max_by(|a, b| a.0.total_cmp(&b.0))
}

pub(crate) fn geometric_mean(of: &[f64]) -> f64 {
    (of.iter().map(|value| value.ln()).sum::<f64>() / of.len() as f64).exp()
}

/// Measures the speedups that the documentation states, and prints them. Returns an error if one is lower than stated.
pub(crate) fn run(launches: u32, seconds: f64, again: bool) -> Result<()> {
    let runs = runs();
    measure(&runs, launches, seconds, again)?;
    let mut results: BTreeMap<&str, Results> = BTreeMap::new();
    for run in &runs {
        results.insert(&run.name, Results::read(&run.results())?);
    }
    let mut broken = 0;
    let mut judge = |text: String, value: f64, goal: f64, kept: bool| {
        broken += usize::from(!kept);
        let word = match (kept, value >= goal) {
            (true, true) => "",
            (true, false) => "  below the goal",
            (false, _) => "  BELOW THE FLOOR",
        };
        println!("{text}{word}");
    };
    for claim in claims() {
        let cases = join_cases(results.get(claim.of).context("a run")?);
        let mut speeds = Vec::new();
        let mut texts = Vec::new();
        for &bytes in claim.bytes {
            let case = cases.iter().find(|case| case.collective == claim.collective && case.bytes == bytes);
            let found = case.and_then(|case| best(case, claim.over));
            let (speed, name) = found.with_context(|| format!("{} of {bytes} bytes", claim.collective))?;
            speeds.push(speed);
            texts.push(format!("{} {speed:.2} by {name}", bytes_text(bytes)));
        }
        let mean = geometric_mean(&speeds);
        let kept = mean >= claim.floor && speeds.iter().all(|speed| *speed >= claim.each);
        let over = if claim.over == Over::Native { "native" } else { "the best native" };
        let head = format!("{}: {} over {over}", claim.of, claim.collective);
        let figures = format!("{mean:.2} (goal {:.2}, floor {:.2})", claim.goal, claim.floor);
        judge(format!("{head} {figures}: {}", texts.join(", ")), mean, claim.goal, kept);
    }
    for name in ["claims-8x2-500us", "claims-2x8-500us"] {
        let cases = join_cases(results.get(name).context("a run")?);
        let speeds: Vec<f64> = cases.iter().filter_map(|case| Some(best(case, Over::Native)?.0)).collect();
        let mean = geometric_mean(&speeds);
        judge(format!("{name}: all over native {mean:.2} (floor 1.30)"), mean, 1.3, mean >= 1.3);
    }
    one_node(&results, &mut judge)?;
    for case in join_cases(results.get("claims-racks").context("a run")?) {
        let Some(speed) = case.ratio(TWO_LEVELS, THREE_LEVELS, TimingMethod::FromBarrier) else { continue };
        let what = format!("{} of {}", case.collective, bytes_text(case.bytes));
        let text = format!("claims-racks: {what}: three levels over two {speed:.2} (floor 1.00)");
        judge(text, speed, 1.0, speed >= 1.0);
    }
    for collective in ["allreduce", "allgather", "reduce_scatter", "alltoall"] {
        let cases = join_cases(results.get("claims-4x4-500us").context("a run")?);
        let case = cases.iter().find(|case| case.collective == collective && case.bytes == 8);
        let case = case.context("8 bytes")?;
        let (_, name) = best(case, Over::Native).context("one of ours")?;
        let time = case.times(name, name, TimingMethod::FromBarrier).context("a time")?.median;
        let hops = time / case.latency();
        let text = format!("claims-4x4-500us: {collective} of 8 B by {name} takes {hops:.2} hops (at most 2.00)");
        judge(format!("{text} of {}", time_text(case.latency())), 0.0, 0.0, hops <= 2.0);
    }
    let cases = join_cases(results.get("claims-4x4-500us-sums").context("a run")?);
    let case = cases.iter().find(|case| case.collective == "allreduce" && case.bytes == 1 << 20);
    let case = case.context("1 MiB")?;
    let (_, name) = best(case, Over::Native).context("one of ours")?;
    let time = case.times(name, name, TimingMethod::FromBarrier).context("a time")?.median;
    let text = format!("claims-4x4-500us-sums: allreduce of 1 MiB by {name} takes {}", time_text(time));
    let limit = format!("{:.2} times the transfer time of the wire (at most 1.50)", time / WIRE);
    judge(format!("{text}, {limit}"), 0.0, 0.0, time / WIRE <= 1.5);
    if broken > 0 {
        bail!("{broken} claims are not kept");
    }
    Ok(())
}

//! `cargo testbed peers`: measures collectives of other libraries beside the MPI's own and those of this library, in one run. The other
//! libraries are in no package registry, so the user must give clones of their repositories.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use bruckner_measure::{Results, TimingMethod, bytes_text, join_cases, native};

use crate::cluster::{Cluster, Shape};
use crate::mpis::{Mpi, home, root};

/// Commit of ext_mpi_collectives, from December 2023; later commits give wrong results or crash in most cases here.
const EXT_MPI: &str = "5be20d8";
/// Commits of MPI Advance, from the branches allreduce_impl, locality_allgather and collectives.
const MPI_ADVANCE: [&str; 3] = ["f81f9cb", "0927643", "72b1e06"];

/// Compiler options for a second set of default algorithms of MPI Advance, which leaves the choice to its user.
const OTHER_DEFAULTS: &str = "-DALLREDUCE_DEFAULT=\"dissemination_loc\" -DALLGATHER_DEFAULT=\"hier_bruck\" \
     -DALLTOALL_DEFAULT=\"hierarchical_nonblocking\"";

fn place() -> PathBuf {
    home().join("peers")
}

/// Unpacks a commit of a clone into a directory of its own, and returns the path.
fn files(clone: &Path, commit: &str) -> Result<PathBuf> {
    let into = place().join(commit);
    let _ = std::fs::remove_dir_all(&into);
    std::fs::create_dir_all(&into)?;
    let mut archive = Command::new("git");
    archive.arg("-C").arg(clone).args(["archive", commit]).stdout(Stdio::piped());
    let mut archive = archive.spawn().context("git does not start")?;
    let files = archive.stdout.take().context("piped")?;
    let unpacked = Command::new("tar").arg("x").arg("-C").arg(&into).stdin(files).status()?;
    ensure!(archive.wait()?.success() && unpacked.success(), "{} has no commit {commit}", clone.display());
    Ok(into)
}

/// Runs a script of `testbed/peers` that builds a shared object, and returns its path.
fn build(mpi: Mpi, script: &str, sources: &[PathBuf], output: &str, defaults: &str) -> Result<PathBuf> {
    let output = place().join(output);
    let mut command = mpi.command("bash");
    command.arg(root().join("testbed/peers").join(script)).arg(&sources[0]).arg(&output);
    command.arg(mpi.compiler()).args(&sources[1..]).env("DEFAULTS", defaults);
    ensure!(command.status()?.success(), "{script} fails");
    Ok(output)
}

/// Builds the libraries whose clones are given, and measures them.
pub(crate) fn run(
    ext_mpi: Option<&Path>,
    mpi_advance: Option<&Path>,
    shape: &Shape,
    launches: u32,
    seconds: f64,
) -> Result<()> {
    ensure!(ext_mpi.or(mpi_advance).is_some(), "name a clone by --ext-mpi or --mpi-advance");
    let mpi = Mpi::Openmpi5;
    let mut libraries = Vec::new();
    if let Some(clone) = ext_mpi {
        libraries.push(build(mpi, "ext_mpi.sh", &[files(clone, EXT_MPI)?], "libext_mpi.so", "")?);
    }
    if let Some(clone) = mpi_advance {
        let sources: Vec<PathBuf> = MPI_ADVANCE.iter().map(|commit| files(clone, commit)).collect::<Result<_>>()?;
        for (output, defaults) in [("libmpi_advance.so", ""), ("libmpi_advance-2.so", OTHER_DEFAULTS)] {
            libraries.push(build(mpi, "mpi_advance.sh", &sources, output, defaults)?);
        }
    }
    let ranks = shape.ranks();
    let nodes = ranks.len();
    let delay = shape.wire.delay.as_micros();
    let results = place().join(format!("{nodes}x{}-{delay}us.json", ranks[0]));
    let _ = std::fs::remove_file(&results);
    let cluster = Cluster::up(shape)?;
    // Two steps between all nodes: reduce_scatter, then allgather.
    let factors = format!("lanes(node, between={0}(-{1} {1}))", nodes, nodes - 1);
    // Each node sends to all others at once, by all of its ranks.
    let dealt = match (nodes as u32 - 1).div_ceil(ranks[0]) {
        0 | 1 => "locality(node)".to_owned(),
        ports => format!("locality(node, ports={ports})"),
    };
    let halves = format!("rsag({dealt})");
    let mut several = vec![
        "chosen",
        "locality(node)",
        &dealt,
        &halves,
        "leader(node, between=spread-out)",
        "lanes(node, between=spread-out)",
        "lanes(node, between=ring)",
        &factors,
        "spread-out",
    ];
    several.dedup();
    let one = ["chosen", "shm", "shm-split", "shm-rotate"];
    let ours = if nodes == 1 { &one[..] } else { &several };
    // An alltoall of longer messages would take minutes.
    for (collectives, bytes) in
        [(&["allreduce", "allgather", "alltoall"][..], "8,512,4096,32768"), (&["allreduce", "allgather"][..], "262144")]
    {
        let mut ask: Vec<String> = collectives.iter().map(|name| (*name).to_owned()).collect();
        ask.extend(["--bytes".into(), bytes.into(), "-o".into(), results.display().to_string()]);
        ask.extend(["--launches".into(), launches.to_string(), "--seconds".into(), seconds.to_string()]);
        for ours in ours {
            ask.extend(["--algorithm".into(), (*ours).to_owned()]);
        }
        for library in &libraries {
            ask.extend(["--algorithm".into(), format!("library:{}", library.display())]);
        }
        cluster.bench(mpi, &ask, &[])?;
    }
    let stem = |library: &PathBuf| library.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let peers: Vec<String> = libraries.iter().filter_map(stem).collect();
    side_by_side(&Results::read(&results)?, &peers);
    eprintln!("{}", results.display());
    Ok(())
}

/// Prints, for each case, the speedup of this library's best algorithm over the best algorithm of the other libraries.
fn side_by_side(results: &Results, peers: &[String]) {
    let is_peer = |name: &str| peers.iter().any(|peer| peer.strip_prefix("lib") == Some(name));
    println!("our best against the best of the others, from a barrier, slowest rank (99 % intervals):");
    for case in join_cases(results) {
        let best = |peers: bool| {
            let all = case.contenders.iter().copied();
            let of = all.filter(|name| !native::is_native(name) && is_peer(name) == peers);
            let rated =
                of.filter_map(|name| Some((case.ratio(name, native::NATIVE, TimingMethod::FromBarrier)?, name)));
            rated.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
        };
        let (Some(ours), Some(peer)) = (best(false), best(true)) else { continue };
        let Some(comparison) = case.compare(ours, peer, TimingMethod::FromBarrier, 0.99) else { continue };
        let speed = comparison.swapped();
        let word = match speed.ratio {
            ratio if ratio >= 1.05 => "ahead",
            ratio if ratio >= 0.95 => "level",
            _ => "BEHIND",
        };
        let what = format!("{} of {}", case.function_name(), bytes_text(case.bytes));
        let figures = format!("{:.2} ({:.2} to {:.2})", speed.ratio, speed.interval.low, speed.interval.high);
        println!("{what:24} {figures:24} {word:7} {ours} against {peer}");
    }
}

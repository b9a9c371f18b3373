//! `cargo testbed peers`: other libraries' collectives beside native and ours, in one run, from clones that are given: they are in
//! no registry.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use bruckner_measure::{Look, Results, bytes_text, join, native};

use crate::cluster::{Cluster, Shape};
use crate::mpis::{Mpi, home, root};

/// ext_mpi_collectives of December 2023; later ones are wrong or crash in most settings here.
const EXT_MPI: &str = "5be20d8";
/// MPI Advance's branches allreduce_impl, locality_allgather and collectives.
const MPI_ADVANCE: [&str; 3] = ["f81f9cb", "0927643", "72b1e06"];

/// Second choices of MPI Advance, which leaves the choice to its user.
const OTHER_DEFAULTS: &str = "-DALLREDUCE_DEFAULT=\"dissemination_loc\" -DALLGATHER_DEFAULT=\"hier_bruck\" \
     -DALLTOALL_DEFAULT=\"hierarchical_nonblocking\"";

fn place() -> PathBuf {
    home().join("peers")
}

/// The files of a commit of a clone, in a directory of their own.
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

/// Runs a script of `testbed/peers`, which makes a shared object.
fn build(mpi: Mpi, script: &str, sources: &[PathBuf], output: &str, defaults: &str) -> Result<PathBuf> {
    let output = place().join(output);
    let mut command = mpi.command("bash");
    command.arg(root().join("testbed/peers").join(script)).arg(&sources[0]).arg(&output);
    command.arg(mpi.compiler()).args(&sources[1..]).env("DEFAULTS", defaults);
    ensure!(command.status()?.success(), "{script} fails");
    Ok(output)
}

/// Builds those that are given, and measures them.
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
        let sources: Vec<PathBuf> =
            MPI_ADVANCE.iter().map(|commit| files(clone, commit)).collect::<Result<_>>()?;
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
    // Among all nodes in two steps, scattered and gathered.
    let factors = format!("lanes(node, between={0}(-{1} {1}))", nodes, nodes - 1);
    // From each node to all others at once, by all of its ranks.
    let dealt = match (nodes as u32 - 1).div_ceil(ranks[0]) {
        0 | 1 => "locality(node)".to_owned(),
        ports => format!("locality(node, ports={ports})"),
    };
    let halves = format!("halves({dealt})");
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
    // Longer ones take minutes where they are exchanged all to all.
    for (collectives, bytes) in [
        (&["allreduce", "allgather", "alltoall"][..], "8,512,4096,32768"),
        (&["allreduce", "allgather"][..], "262144"),
    ] {
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

/// Our best beside the best of the others, case by case.
fn side_by_side(results: &Results, peers: &[String]) {
    let is_peer = |name: &str| peers.iter().any(|peer| peer.strip_prefix("lib") == Some(name));
    println!("our best against the best of the others, from a barrier to the last end (99 % intervals):");
    for case in join(results) {
        let best = |peers: bool| {
            let all = case.contenders.iter().copied();
            let of = all.filter(|name| !native::is_native(name) && is_peer(name) == peers);
            let rated =
                of.filter_map(|name| Some((case.ratio(name, native::NATIVE, Look::FromBarrier)?, name)));
            rated.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
        };
        let (Some(ours), Some(peer)) = (best(false), best(true)) else { continue };
        let Some(comparison) = case.compare(ours, peer, Look::FromBarrier, 0.99) else { continue };
        let speed = comparison.inverted();
        let word = match speed.ratio {
            ratio if ratio >= 1.05 => "ahead",
            ratio if ratio >= 0.95 => "level",
            _ => "BEHIND",
        };
        let what = format!("{} of {}", case.function(), bytes_text(case.bytes));
        let figures = format!("{:.2} ({:.2} to {:.2})", speed.ratio, speed.interval.low, speed.interval.high);
        println!("{what:24} {figures:24} {word:7} {ours} against {peer}");
    }
}

//! `cargo testbed peers`: other libraries' collectives beside native and ours, in one run, from clones that are given: they are in
//! no registry.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

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
    let results = place().join("peers.json");
    let _ = std::fs::remove_file(&results);
    let nodes = Cluster::up(shape)?;
    // Longer ones take minutes where they are exchanged all to all.
    for (collectives, bytes) in [
        (&["allreduce", "allgather", "alltoall"][..], "8,512,4096,32768"),
        (&["allreduce", "allgather"][..], "262144"),
    ] {
        let mut ask: Vec<String> = collectives.iter().map(|name| (*name).to_owned()).collect();
        ask.extend(["--bytes".into(), bytes.into(), "-o".into(), results.display().to_string()]);
        ask.extend(["--launches".into(), launches.to_string(), "--seconds".into(), seconds.to_string()]);
        for ours in [
            "chosen",
            "locality(node)",
            "leader(node, between=spread-out)",
            "lanes(node, between=spread-out)",
            "lanes(node, between=rabenseifner)",
            "lanes(node, between=ring)",
        ] {
            ask.extend(["--algorithm".into(), ours.into()]);
        }
        for library in &libraries {
            ask.extend(["--algorithm".into(), format!("library:{}", library.display())]);
        }
        nodes.bench(mpi, &ask, &[])?;
    }
    eprintln!("{}", results.display());
    Ok(())
}

//! `cargo testbed suites`: unmodified programs with the library preloaded, against the same programs without it.

mod bench;
mod catalogue;
mod cluster;
mod doctor;
mod faults;
mod mpi4py;
mod mpich;
mod nodes;
mod programs;
mod transports;

use anyhow::Result;
use clap::ValueEnum;

use crate::mpis::Mpi;
pub(crate) use crate::table::Table;

/// A suite of tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Suite {
    /// mpi4py's own tests of collectives.
    Mpi4py,
    /// MPICH's tests of collectives.
    Mpich,
    /// Programs of the testbed: cases that break intercepting libraries, programs that hung once, requests, Fortran, profiling tools
    /// (PMPI) before and after the library; and benchmarks by others.
    Programs,
    /// Random collectives on random communicators.
    Stress,
    /// Faults: kills, bad configurations, missing memory, programs without MPI.
    Faults,
    /// Problems that `bruckner doctor` must find, produced on purpose.
    Doctor,
    /// Two emulated nodes: online tuning, `bruckner probe`, exported files, and ways to load the library, of which some reach only one
    /// node.
    Nodes,
    /// Programs that hung once, random calls and a lost node, on emulated nodes.
    Cluster,
    /// Open MPI over UCX and over libfabric: programs that hung once, faults, every algorithm, random calls.
    Transports,
    /// `bruckner bench` on an algorithm against itself, and plots of its results.
    Bench,
    /// Overhead of intercepted calls, by comparison with the MPI alone.
    Interception,
}

/// Runs suites and prints a table; returns an error if anything failed.
pub(crate) fn run(only: &[Suite], mpis: Vec<Mpi>, quick: bool, seed: u64) -> Result<()> {
    let all = Suite::value_variants();
    let mut table = Table::new(mpis);
    for suite in if only.is_empty() { all } else { only } {
        match suite {
            Suite::Mpi4py => mpi4py::run(&mut table, quick)?,
            Suite::Mpich => mpich::run(&mut table, quick)?,
            Suite::Programs => programs::run(&mut table, quick)?,
            Suite::Stress => programs::stress(&mut table, quick, seed)?,
            Suite::Faults => faults::run(&mut table)?,
            Suite::Doctor => doctor::run(&mut table)?,
            Suite::Nodes => nodes::run(&mut table)?,
            Suite::Bench => bench::run(&mut table, quick)?,
            Suite::Cluster => cluster::run(&mut table, quick, seed)?,
            Suite::Transports => transports::run(&mut table, quick, seed)?,
            Suite::Interception => programs::interception(&mut table, quick)?,
        }
    }
    table.end()
}

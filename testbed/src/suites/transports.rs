//! Tests of Open MPI on the transports of clusters: UCX, as on InfiniBand, and libfabric.

use anyhow::Result;

use super::{Table, faults, programs};
use crate::launch::{Launch, Outcome};
use crate::matrix;
use crate::mpis::Mpi;
use crate::suite;

pub(crate) fn run(table: &mut Table, quick: bool, seed: u64) -> Result<()> {
    for mpi in table.of(Mpi::TRANSPORTS) {
        table.tell(mpi.name(), "transport in use", 2, &in_use(mpi)?);
        suite::progress(mpi, |name, outcome| table.tell(mpi.name(), name, 2, outcome))?;
        programs::hangs(table, mpi, quick)?;
        faults::of(table, mpi)?;
        matrix::each(mpi, quick, |ranks, remark, outcome| {
            table.tell(mpi.name(), &format!("every algorithm{remark}"), ranks, outcome);
        })?;
        programs::random(table, mpi, quick, seed)?;
    }
    Ok(())
}

/// Checks Open MPI's verbose output for the transport that is tested.
fn in_use(mpi: Mpi) -> Result<Outcome> {
    let program = mpi.compile_plain("tooled")?;
    let verbose = Launch::preloaded(mpi, 2, &program).set("OMPI_MCA_pml_base_verbose", "10");
    let said = verbose.set("OMPI_MCA_mtl_base_verbose", "10").run()?;
    let selected: &[&str] = match mpi {
        Mpi::Openmpi4Ucx => &["selected ucx best priority"],
        _ => &["selected cm best priority", "select: init returned success"],
    };
    let right = said.succeeded && selected.iter().all(|words| said.err.contains(words));
    Ok(Outcome { cases: 1, failures: u64::from(!right), seconds: said.seconds, talk: said.err })
}

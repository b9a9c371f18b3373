//! Faults on purpose, for tests: `BRUCKNER_FAULT=plan@1` makes rank 1 of `MPI_COMM_WORLD` panic while it plans. (`device`, which
//! makes any machine one with a GPU, is looked at where GPUs are.)

use bruckner_mpi::variable;

/// Panics if this rank is to fail here.
pub(crate) fn strike(place: &str, rank: u32) {
    let wanted = variable("BRUCKNER_FAULT").and_then(|value| value.into_string().ok());
    if wanted.is_some_and(|wanted| wanted == format!("{place}@{rank}")) {
        panic!("a fault on purpose: BRUCKNER_FAULT={place}@{rank}");
    }
}

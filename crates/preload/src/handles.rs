//! Handles of MPI objects, passed by value.

use bruckner_engine::Engine;

/// Handle of an MPI communicator, by value: an int or a pointer, depending on the MPI.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct MPI_Comm(pub(crate) u64);

/// Handle of an MPI datatype, by value.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct MPI_Datatype(pub(crate) u64);

/// Handle of an MPI operation, by value.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct MPI_Op(pub(crate) u64);

/// Returns the handle of a datatype or operation without excess bits that a wider register may carry.
#[inline]
pub(crate) fn handle_value(handle: u64) -> u64 {
    match Engine::current().or_else(|| Engine::get().ok()) {
        Some(engine) => engine.handle(handle),
        None => handle,
    }
}

//! MPI's handles by value.

use bruckner_engine::Engine;

/// A communicator of the MPI's, by value: an int or an address.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct MPI_Comm(pub(crate) u64);

/// A datatype of the MPI's.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct MPI_Datatype(pub(crate) u64);

/// An operation of the MPI's.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct MPI_Op(pub(crate) u64);

/// A datatype or operation as the family has it.
#[inline]
pub(crate) fn word(handle: u64) -> u64 {
    match Engine::current().or_else(|| Engine::get().ok()) {
        Some(engine) => engine.handle(handle),
        None => handle,
    }
}

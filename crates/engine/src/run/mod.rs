//! Execution of plans: staging of buffers, comparison of results with the MPI's own, and persistent operations.

mod check;
mod execution;
mod persistent;
mod staging;

pub(crate) use check::NativeCheck;
pub(crate) use persistent::Made;
pub use persistent::Persistent;
pub(crate) use staging::Staging;

//! MPI collectives by proven schedules, on the MPI that is there.
//!
//! [`Engine`] serves a process: a [`Call`] comes in, an algorithm is chosen, planned, agreed on by all ranks, cached and
//! run; what is not understood goes to the MPI's own function. [`Persistent`] is a plan bound to its buffers.

pub mod call;
mod choose;
mod communicator;
mod engine;
mod error;
mod hidden;
mod normal;
mod persistent;

pub use call::Call;
pub use engine::{Engine, Findings};
pub use error::Error;
pub use persistent::Persistent;

pub use bruckner_mpi as mpi;

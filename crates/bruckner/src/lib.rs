//! MPI collectives by proven schedules, on the MPI that is there.
//!
//! [`Engine`] serves a process: a [`Call`] comes in, an algorithm is chosen, planned, agreed on by all ranks, cached and
//! run; what is not understood goes to the MPI's own function. [`Communicator`] is the safe way in: collectives on
//! slices, and [`Plan`]s that borrow their buffers. Underneath, [`Persistent`] is a plan bound to addresses.
//!
//! Nothing here links an MPI; the one that the process uses is found at run time. The feature `rsmpi` adds
//! `bruckner::rsmpi::Collectives`, by which any rsmpi communicator becomes a [`Communicator`].

pub mod call;
mod choose;
mod communicator;
mod engine;
mod error;
mod hidden;
mod normal;
mod persistent;
#[cfg(feature = "rsmpi")]
pub mod rsmpi;
mod safe;

pub use call::Call;
pub use engine::{Engine, Findings};
pub use error::Error;
pub use persistent::Persistent;
pub use safe::{Communicator, Element, Plan};

pub use bruckner_runtime::reduce::Operation;

pub use bruckner_mpi as mpi;

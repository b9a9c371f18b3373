//! MPI collectives by proven schedules, on the MPI that is there.
//!
//! [`Engine`] serves a process: a [`Call`] comes in, an algorithm is chosen, planned, agreed on by all ranks, cached and
//! run; what is not understood goes to the MPI's own function. [`Communicator`] is the safe way in: each collective on
//! slices is run at once or becomes a [`Plan`] that borrows them. Underneath, [`Persistent`] is a plan bound to addresses.
//!
//! Nothing here links an MPI; the one that the process uses is found at run time. The feature `rsmpi` adds
//! `bruckner::rsmpi::Collectives`, by which any rsmpi communicator becomes a [`Communicator`].

mod active;
mod agreed;
pub mod call;
mod check;
mod choose;
mod communicator;
mod engine;
mod error;
mod fault;
mod hidden;
mod keeper;
mod memo;
mod normal;
mod pack;
mod persistent;
mod plans;
mod report;
mod requests;
#[cfg(feature = "rsmpi")]
pub mod rsmpi;
mod safe;
mod settings;
mod stage;
mod turn;

pub use call::Call;
pub use engine::{Door, Engine, Findings};
pub use error::Error;
pub use persistent::Persistent;
pub use safe::{Collective, Communicator, Element, InPlace, Input, Plan, Progress};

pub use bruckner_runtime::reduce::Operation;

pub use bruckner_mpi as mpi;

//! MPI collectives by proven schedules, on the MPI that is there: the Rust API.
//!
//! [`Communicator`] is any MPI communicator, by its handle. Each collective on slices is run at once or becomes a [`Plan`]
//! that borrows them. Nothing here links an MPI; the one that the process uses is found at run time. The feature `rsmpi`
//! adds `bruckner::rsmpi::Collectives`, by which any rsmpi communicator becomes a [`Communicator`].

mod collective;
#[cfg(feature = "rsmpi")]
pub mod rsmpi;
mod safe;

pub use bruckner_engine::mpi::Rival;
pub use bruckner_engine::{Error, Name};
pub use bruckner_runtime::reduce::Operation;
pub use collective::{Collective, Plan, Progress};
pub use safe::{Communicator, Element, InPlace, Input};

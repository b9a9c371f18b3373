//! The engine of a process: a call comes in; choose, plan, agree, keep, run.
//!
//! [`Engine`] serves a process: a [`Call`] comes in, an algorithm is chosen, planned, agreed on by all ranks, kept and run;
//! what is not understood goes to the MPI's own function. It runs on a [`World`]: a real MPI, found at run time and never
//! linked, or ranks that are [`threads`] of one process.

mod buffers;
pub mod call;
mod communicator;
mod engine;
mod error;
mod execute;
mod observe;
mod progress;
mod reason;
mod refusal;
mod requests;
mod settings;
pub mod threads;
pub mod world;

pub use bruckner_choose::Name;
pub use bruckner_mpi as mpi;
pub use bruckner_mpi::Mpi;
pub use call::Call;
pub use engine::{Door, Engine, Findings};
pub use error::Error;
pub use execute::Persistent;
pub use requests::Requests;
pub use settings::settings_here;
pub use world::World;

//! The engine of a process: a call comes in; choose, plan, agree, keep, run.
//!
//! [`Engine`] serves a process: a [`Call`] comes in, an algorithm is chosen, planned, agreed on by all ranks, kept and run;
//! what is not understood goes to the MPI's own function. It runs on a [`Backend`]: a real MPI, found at run time and never
//! linked, or, in tests, ranks that are threads of one process (crate `bruckner-threads`).
//!
//! # What unsafe code rests on
//!
//! Few things, each stated here and cited by name:
//!
//! - **ARGUMENTS**: the arguments are right for the MPI function of the same name: handles are valid, and buffers and lists are
//!   as long as counts and datatypes say. Whoever calls an unsafe function of the engine vouches for that.
//! - **UNTIL DONE**: from its start until it is done, the buffers of an operation are its own; nobody else reads what it writes or
//!   writes what it reads. Whoever starts it vouches for that.
//! - **TURN**: whoever has taken a turn (`progress/turn.rs`) is alone with its value until it is given back.
//! - **GENERATION**: what is kept with a communicator lives until that is freed, and freeing one changes
//!   [`Communicators::generation`](world::Communicators::generation). So an address that was remembered with a generation is good
//!   as long as the generation is the same.

mod account;
pub mod backend;
mod cache;
pub mod call;
mod communicator;
mod decide;
mod engine;
mod error;
mod group;
mod normalize;
mod plan;
mod progress;
mod reason;
mod refusal;
mod requests;
mod reuse;
mod run;

pub use backend::Backend;
pub use bruckner_choose::Name;
pub use bruckner_mpi as mpi;
pub use bruckner_mpi::Mpi;
pub use call::Call;
pub use engine::{Engine, EntryPoint, Findings};
pub use error::Error;
pub use requests::Requests;
pub use run::Persistent;

//! The engine: chooses an algorithm for each collective call of a process, plans it, agrees on the plan with all ranks, and runs it.
//!
//! [`Engine`] handles the collectives of a process: for each [`Call`] it chooses an algorithm, makes a plan on which all ranks agree,
//! caches the plan and runs it. Calls that the engine does not support are passed through to the MPI's own function. The engine runs on a
//! [`Backend`]: a real MPI, found at run time and never linked, or, in tests, ranks that are threads of one process (crate
//! `bruckner-threads`).
//!
//! # Invariants of the unsafe code
//!
//! The SAFETY comments of this crate cite these invariants by name:
//!
//! - **ARGUMENTS**: the arguments are valid for the MPI function of the same name: handles are valid, and buffers and lists are as
//!   long as counts and datatypes say. The caller of an unsafe function of the engine guarantees this.
//! - **UNTIL DONE**: an operation owns its buffers from its start until it is done: no other code accesses a buffer that the operation
//!   writes, or writes a buffer that it reads. The caller that starts the operation guarantees this.
//! - **TURN**: the thread that holds a `Turn`, the lock of a value (`progress/turn.rs`), has exclusive access to the value until it
//!   releases the lock.
//! - **GENERATION**: the value attached to a communicator lives until the communicator is freed, and freeing one changes
//!   [`Communicators::generation`](backend::Communicators::generation). So an address that was remembered with a generation is
//!   valid as long as the generation is the same.

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
pub use requests::PersistentRequests;
pub use run::Persistent;

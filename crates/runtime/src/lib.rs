//! Runs programs: plan and executor over a small [`Transport`], reductions, and shared memory within a node.
//!
//! A program comes in as one rank's [`Code`](bruckner_schedule::Code); [`compile`](fn@compile) makes steps of it that hold for
//! blocks of any size. A [`Plan`] is bound to sizes and runs them: all at once ([`Plan::run`]), or started, tested and awaited. Where sizes are known only locally
//! (alltoallv), [`sized::Plan`] does the same. What carries messages is a [`Transport`]: MPI elsewhere, and
//! [`threads`] here, so that every algorithm runs with real data in ordinary tests.

mod bind;
pub mod class;
pub mod compile;
mod execute;
mod memory;
pub mod readback;
pub mod reduce;
pub mod segment;
pub mod sized;
pub mod threads;
mod transport;

pub use bind::Address;
pub use class::{Limits, Lines};
pub use compile::{Compiled, Extent, Names, SameNames, Shared, Target, Unfit, compile};
pub use execute::{Buffers, Plan, Segments};
pub use memory::{Needs, Scratch};
pub use reduce::Reduction;
pub use segment::{Patience, Segment};
pub use transport::{Failure, Peer, Transport};

//! Runs programs: plan and executor over a small [`Transport`], reductions, and shared memory within a node.
//!
//! A program comes in as one rank's [`Code`](bruckner_schedule::Code); [`compile`](fn@compile) makes steps of it that hold for
//! blocks of any size. A [`Plan`] is bound to sizes and runs them: all at once ([`Plan::run`]), or started, tested and awaited. Where sizes are known only locally
//! (alltoallv), [`sized::Plan`] does the same. What carries messages is a [`Transport`]: MPI elsewhere, and
//! [`threads`] here, so that every algorithm runs with real data in ordinary tests.
//!
//! # What unsafe code rests on
//!
//! - **BUFFERS**: input and output have the sizes of the problem that a plan is bound to, temporary memory and segments those that
//!   [`Extent::needs`] says, and nobody else uses them during an execution. Whoever runs a plan vouches for that; that no step leaves
//!   them, and that no two ranks meet in one place of a segment, is proven.
//! - **ELEMENTS**: both places of a reduction have so many elements of its type, and do not overlap.

mod bind;
pub mod class;
pub mod compile;
mod execute;
mod memory;
pub mod readback;
mod reader;
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
pub use segment::{Backoff, Segment, Size, Turns};
pub use transport::{Failure, Peer, Transport};

//! Executes compiled collective programs (plans) over a [`Transport`], with reduction kernels and with shared memory within a node.
//!
//! A program is one rank's [`Code`](bruckner_schedule::Code). [`compile`](fn@compile) turns it into steps that are valid for blocks of any
//! size. An [`Executable`] is bound to the sizes of a call and executes the steps, either in one blocking call ([`Executable::run`]) or by
//! start, test and wait. For alltoallv, where each rank knows only the sizes of its own blocks, use [`sized::SizedExecutable`]. Messages
//! go through a [`Transport`]: MPI in production, and [`threads`] in tests, so that every algorithm runs with real data in ordinary tests.
//!
//! # Invariants that unsafe code relies on
//!
//! - **BUFFERS**: input and output have the sizes of the problem that a plan is bound to, temporary memory and segments have
//!   the sizes that [`Extent::needs`] returns, and nobody else uses them during an execution. The caller that runs a plan
//!   guarantees this. The verifier has proven that no step accesses memory outside the buffers, and that all conflicting
//!   accesses of ranks to the same address of a segment are ordered.
//! - **ELEMENTS**: both operands of a reduction have the given number of elements of its type, and do not overlap.

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
pub use class::{Limits, LineLayout};
pub use compile::{CompileError, Compiled, Extent, IdentityTranslation, Shared, Target, TranslateRanks, compile};
pub use execute::{Buffers, Executable, Segments};
pub use memory::{Needs, Scratch};
pub use reduce::Reduction;
pub use segment::{Backoff, Segment, SegmentSize, Turns};
pub use transport::{Peer, Transport, TransportError};

//! The language in which collectives are written, with a verifier and an interpreter for it.
//!
//! A collective is a program. This crate defines its parts: the placement of ranks ([`Topology`]), the collective and its counts
//! ([`Problem`]), sets of chunks ([`Set`]), rounds of messages on slots ([`Schedule`]), instructions on buffers ([`Program`]), and the
//! text form of schedules and programs ([`read`]). The [`verify`](mod@verify) module proves that a program is correct for every execution
//! order. The [`interpret`](mod@interpret) module runs a program on data, in adversarial orders, and checks the results. The two modules
//! share no code except these types, so that each can reveal errors in the other.
//!
//! The crate uses no MPI, no clock and no operating system. Its only pseudo-random numbers are those of the seeded generator in
//! [`random`].

pub mod addresses;
pub mod bound;
mod ids;
pub mod interpret;
pub mod mutate;
mod problem;
pub mod program;
pub mod random;
pub mod schedule;
pub mod set;
mod text;
mod topology;
pub mod verify;

pub use ids::{Flag, Level, Rank, Request, Tag};
pub use problem::{Collective, Counts, Order, Problem};
pub use program::{Code, Instr, Layout, Placement, Program};
pub use schedule::{Area, Claims, End, LocalOp, Message, Payload, Place, Places, RankCode, Round, Schedule};
pub use set::{Run, Set};
pub use text::{Document, Read, TextError, read};
pub use topology::{Topology, TopologyError};

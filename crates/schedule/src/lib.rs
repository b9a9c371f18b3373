//! The language in which collectives are written, and its two judges.
//!
//! A collective is a program. This crate holds what such a program is: where ranks live ([`Topology`]), what
//! is to be done ([`Problem`]), sets of chunks ([`Set`]), rounds on slots ([`Schedule`]), instructions on
//! buffers ([`Program`]), and the text of both ([`read`]). The [`verify`](mod@verify) module proves a
//! program right for every execution; the [`interpret`](mod@interpret) module runs one on data, in hostile
//! orders, and says what comes out. The two share no code but the language itself.
//!
//! There is no MPI here, no clock, no randomness and no operating system.

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
pub use program::{Code, Instr, Layout, Placed, Program};
pub use schedule::{Area, Claims, End, Local, Message, Payload, Place, Places, Round, Schedule, Whole};
pub use set::{Run, Set};
pub use text::{Document, Read, TextError, read};
pub use topology::{Topology, TopologyError};

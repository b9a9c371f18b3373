//! Started operations, and the lock that a thread takes to advance one.

mod active;
mod turn;

pub(crate) use active::{Active, Started};
pub(crate) use turn::{Taken, Turn};

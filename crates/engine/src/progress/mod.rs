//! Operations that are started, and the lock of whoever advances one.

mod active;
mod turn;

pub(crate) use active::{Active, Started};
pub(crate) use turn::{Taken, Turn};

//! What is under way in a process, and whose turn it is to advance it.

mod active;
mod turn;

pub(crate) use active::{Active, Started};
pub(crate) use turn::{Taken, Turn};

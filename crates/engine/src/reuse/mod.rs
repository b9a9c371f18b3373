//! Data of freed communicators that later communicators reuse: topologies, compiled programs, and idle shared segments. A program that
//! creates a communicator for every few calls makes these only once.

mod cache;
mod key;

pub(crate) use cache::{ReuseCache, SharedSegment};
pub(crate) use key::{PlanForm, ProgramKey, task};

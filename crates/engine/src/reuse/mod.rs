//! Data that communicators leave to later ones: topologies, compiled programs, and idle shared segments. A program that creates a
//! communicator for every few calls pays for them only once.

mod cache;
mod key;

pub(crate) use cache::{ReuseCache, SharedSegment};
pub(crate) use key::{PlanForm, ProgramKey, task};

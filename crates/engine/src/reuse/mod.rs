//! Things that communicators leave to later ones: topologies, compiled programs, and shared segments that no rank uses. A program that
//! makes a communicator for every few calls pays for none of these again.

mod cache;
mod key;

pub(crate) use cache::{ReuseCache, SharedSegment};
pub(crate) use key::{PlanForm, ProgramKey, task};

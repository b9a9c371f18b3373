//! Plans: made, agreed on by all ranks, and kept with their memory; and what a persistent operation leaves to the next one.

mod agreement;
mod make;
mod parts;
mod plans;
mod slots;
mod store;
mod workspace;

pub(crate) use make::{Site, Stopped};
pub(crate) use plans::{Candidate, Prepared};
pub(crate) use slots::{Purpose, Resources, Slots};
pub(crate) use store::{Store, may_have};
pub(crate) use workspace::Workspace;

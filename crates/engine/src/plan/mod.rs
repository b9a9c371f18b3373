//! Plans: how they are made, agreed on by all ranks, and kept with their memory, also from one persistent operation to the next.

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

//! Plans: how they are made, how all ranks agree on them, and where they are stored with their memory, which later persistent operations
//! reuse.

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

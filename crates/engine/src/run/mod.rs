//! Running what serves a call: buffers staged, plans executed, results checked; plans bound to buffers for good.

mod check;
mod execution;
mod persistent;
mod staging;

pub(crate) use check::NativeCheck;
pub(crate) use persistent::Made;
pub use persistent::Persistent;
pub(crate) use staging::Staging;

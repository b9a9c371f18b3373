//! Plans bound to buffers for good.

mod body;
mod persistent;

pub(crate) use persistent::Made;
pub use persistent::Persistent;

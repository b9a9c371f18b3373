//! Plans bound to buffers for good.

mod account;
mod body;
mod persistent;

pub(crate) use account::Account;
pub(crate) use persistent::Made;
pub use persistent::Persistent;

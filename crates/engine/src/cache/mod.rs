//! Calls that came before, recognised by their arguments, which alone decide about them.
//!
//! There are two caches. A communicator has a [`CallCache`] of calls that plans run; it is looked up while the communicator's state is taken.
//! Calls that are passed through are in the process's [`PassThroughCache`], which any thread may read without taking anything: no call may be
//! slower than the MPI's own by more than that lookup.

mod calls;
mod key;
mod pass_through;

pub(crate) use calls::{Binding, Blocks, Bytes, CachedCall, CallCache, Cut};
pub(crate) use key::{CallKey, PlanId, is_built_in, key_of};
pub(crate) use pass_through::PassThroughCache;

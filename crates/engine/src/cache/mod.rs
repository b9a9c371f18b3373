//! Caches of earlier calls, recognised by their arguments, if these alone decide how a call is handled.
//!
//! There are two caches. Each communicator has a [`CallCache`] of calls that plans run; it is read while the communicator's state is
//! locked. Calls that are passed through are in the process's [`PassThroughCache`], which any thread reads without a lock: interception
//! must slow down no call by more than that lookup.

mod calls;
mod key;
mod pass_through;

pub(crate) use calls::{Binding, Blocks, Bytes, CachedCall, CallCache, Cut};
pub(crate) use key::{CallKey, PlanId, is_built_in, key_of};
pub(crate) use pass_through::PassThroughCache;

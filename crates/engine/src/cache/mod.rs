//! Caches of earlier calls, recognised by their arguments, if these alone decide how a call is handled.
//!
//! There are two caches. Each communicator has a [`CallCache`] of calls that have a plan; a thread reads it while it has locked the
//! communicator's state. Calls that are passed through are in the process's [`PassThroughCache`], which any thread reads without a lock,
//! so that interception costs such a call no more than one lookup.

mod calls;
mod key;
mod pass_through;

pub(crate) use calls::{Binding, Blocks, Bytes, CachedCall, CallCache, Cut};
pub(crate) use key::{CallKey, PlanId, is_built_in, key_of};
pub(crate) use pass_through::PassThroughCache;

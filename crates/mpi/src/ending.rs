//! Communicators that are being freed. While the MPI frees a communicator, it deletes its attributes in any order, and callbacks of the
//! user's attributes may call collectives on it. MPICH does this only when no operation on the communicator is under way any more, which
//! may be long after `MPI_Comm_free` has returned. Afterwards the handle may be used for another communicator.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::functions::Handle;

/// Handles of the communicators that are being freed.
#[derive(Debug, Default)]
pub struct FreeingCommunicators(Mutex<List>);

/// Identifies a call that frees a communicator. Two threads may be in calls with the same handle, if it was reused in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeId(u64);

#[derive(Debug, Default)]
struct List {
    /// Number of freeing calls so far.
    begun: u64,
    all: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: FreeId,
    comm: Handle,
    /// Whether our attribute was already deleted, as happens while a communicator is freed.
    deleted: bool,
}

impl FreeingCommunicators {
    /// Creates an empty list.
    pub const fn new() -> FreeingCommunicators {
        FreeingCommunicators(Mutex::new(List { begun: 0, all: Vec::new() }))
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the user starts to free a communicator that has our attribute. Returns an identifier of the call.
    pub fn free_begins(&self, comm: Handle) -> FreeId {
        let mut list = self.list();
        list.begun += 1;
        let id = FreeId(list.begun);
        list.all.push(Entry { id, comm, deleted: false });
        id
    }

    /// Records that our attribute of a communicator was deleted.
    pub fn attribute_deleted(&self, comm: Handle) {
        self.list().all.iter_mut().filter(|one| one.comm == comm).for_each(|one| one.deleted = true);
    }

    /// Records that a freeing call returns. If our attribute still exists, callbacks are yet to run, and the entry stays.
    pub fn free_returned(&self, id: FreeId) {
        self.list().all.retain(|one| one.id != id || !one.deleted);
    }

    /// Records that a handle refers to a live communicator: a new one, or one that the MPI has refused to free.
    pub fn mark_live(&self, comm: Handle) {
        self.list().all.retain(|one| one.comm != comm);
    }

    /// Returns whether a communicator is being freed.
    pub fn contains(&self, comm: Handle) -> bool {
        self.list().all.iter().any(|one| one.comm == comm)
    }
}

#[cfg(test)]
mod tests {
    use super::FreeingCommunicators;

    #[test]
    fn callbacks_may_come_later() {
        let ending = FreeingCommunicators::new();
        // The attribute is deleted before the call returns.
        let id = ending.free_begins(7);
        ending.attribute_deleted(7);
        assert!(ending.contains(7));
        ending.free_returned(id);
        assert!(!ending.contains(7));
        // The attribute is deleted later: the entry stays until the handle refers to another communicator.
        let id = ending.free_begins(7);
        ending.free_returned(id);
        ending.attribute_deleted(7);
        assert!(ending.contains(7));
        ending.mark_live(7);
        assert!(!ending.contains(7));
    }

    /// The call of one thread that has freed a communicator has not returned yet, while another thread frees a new communicator with the
    /// same handle.
    #[test]
    fn a_handle_may_come_again_before_a_call_returns() {
        let ending = FreeingCommunicators::new();
        let first = ending.free_begins(7);
        ending.attribute_deleted(7);
        ending.mark_live(7);
        let second = ending.free_begins(7);
        ending.attribute_deleted(7);
        ending.free_returned(first);
        assert!(ending.contains(7));
        ending.free_returned(second);
        assert!(!ending.contains(7));
    }
}

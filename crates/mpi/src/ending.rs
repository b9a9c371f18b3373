//! Communicators that are being freed. While the MPI frees a communicator, it deletes its attributes in any order, and callbacks of the
//! user's attributes may call collectives on the communicator. MPICH deletes the attributes only when all operations on the communicator
//! are complete, which may be long after `MPI_Comm_free` has returned. Afterwards the handle may be used for another communicator.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::functions::Handle;

/// Handles of the communicators that are being freed.
#[derive(Debug, Default)]
pub struct FreeingCommunicators(Mutex<List>);

/// Identifies a call that frees a communicator. Two threads may be in such calls with the same handle, if MPI has reused the handle in
/// between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeId(u64);

#[derive(Debug, Default)]
struct List {
    /// Number of calls so far that have begun to free a communicator.
    begun: u64,
    all: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: FreeId,
    comm: Handle,
    /// Whether MPI has already deleted our attribute of the communicator, which it does while it frees the communicator.
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

    /// Records that the user begins to free a communicator that has our attribute. Returns an identifier of the call.
    pub fn free_begins(&self, comm: Handle) -> FreeId {
        let mut list = self.list();
        list.begun += 1;
        let id = FreeId(list.begun);
        list.all.push(Entry { id, comm, deleted: false });
        id
    }

    /// Records that MPI has deleted our attribute of a communicator.
    pub fn attribute_deleted(&self, comm: Handle) {
        self.list().all.iter_mut().filter(|one| one.comm == comm).for_each(|one| one.deleted = true);
    }

    /// Removes the entry of a communicator that a call has freed. If MPI has not yet deleted our attribute, it will do so later, and the
    /// entry stays until the handle refers to a live communicator.
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
        // The attribute is deleted after the call returns, so the entry stays until the handle refers to another communicator.
        let id = ending.free_begins(7);
        ending.free_returned(id);
        ending.attribute_deleted(7);
        assert!(ending.contains(7));
        ending.mark_live(7);
        assert!(!ending.contains(7));
    }

    /// One thread's call has freed a communicator but has not returned yet, while another thread frees a new communicator with the same
    /// handle.
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

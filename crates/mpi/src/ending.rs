//! Communicators that end. The MPI deletes the attributes of a communicator while it is freed, in an order of its own, and callbacks of the
//! user's attributes may call collectives on it. MPICH does so only when nothing is under way on the communicator any more, which may be
//! long after `MPI_Comm_free` has returned. A handle may mean another communicator as soon as that is done.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::functions::Handle;

/// The handles of communicators that end.
#[derive(Debug, Default)]
pub struct Ending(Mutex<List>);

/// A call that frees a communicator. Two threads may free the same handle at once, for two communicators one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndingId(u64);

#[derive(Debug, Default)]
struct List {
    /// Calls so far.
    begun: u64,
    all: Vec<One>,
}

#[derive(Debug)]
struct One {
    id: EndingId,
    comm: Handle,
    /// Whether the attribute of ours is deleted, as it is while a communicator is freed.
    deleted: bool,
}

impl Ending {
    /// None.
    pub const fn new() -> Ending {
        Ending(Mutex::new(List { begun: 0, all: Vec::new() }))
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The user frees a communicator. It has an attribute of ours.
    pub fn begin(&self, comm: Handle) -> EndingId {
        let mut list = self.list();
        list.begun += 1;
        let id = EndingId(list.begun);
        list.all.push(One { id, comm, deleted: false });
        id
    }

    /// The attribute of ours is deleted.
    pub fn attribute_deleted(&self, comm: Handle) {
        self.list().all.iter_mut().filter(|one| one.comm == comm).for_each(|one| one.deleted = true);
    }

    /// The function that frees a communicator returns. If the attribute of ours is still there, callbacks are yet to run.
    pub fn returned(&self, id: EndingId) {
        self.list().all.retain(|one| one.id != id || !one.deleted);
    }

    /// A handle means a communicator that lives: another than before, or one that the MPI has refused to free.
    pub fn lives(&self, comm: Handle) {
        self.list().all.retain(|one| one.comm != comm);
    }

    /// Whether a communicator ends.
    pub fn contains(&self, comm: Handle) -> bool {
        self.list().all.iter().any(|one| one.comm == comm)
    }
}

#[cfg(test)]
mod tests {
    use super::Ending;

    #[test]
    fn callbacks_may_come_later() {
        let ending = Ending::new();
        // At once.
        let id = ending.begin(7);
        ending.attribute_deleted(7);
        assert!(ending.contains(7));
        ending.returned(id);
        assert!(!ending.contains(7));
        // Later: until the handle means another.
        let id = ending.begin(7);
        ending.returned(id);
        ending.attribute_deleted(7);
        assert!(ending.contains(7));
        ending.lives(7);
        assert!(!ending.contains(7));
    }

    /// One thread has freed a communicator and not returned yet; another has the same handle again and is freeing it.
    #[test]
    fn a_handle_may_come_again_before_a_call_returns() {
        let ending = Ending::new();
        let first = ending.begin(7);
        ending.attribute_deleted(7);
        ending.lives(7);
        let second = ending.begin(7);
        ending.attribute_deleted(7);
        ending.returned(first);
        assert!(ending.contains(7));
        ending.returned(second);
        assert!(!ending.contains(7));
    }
}

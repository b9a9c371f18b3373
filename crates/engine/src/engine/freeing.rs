//! Freeing of communicators. As soon as the program starts to free a communicator, all ranks pass its collectives through and cache
//! nothing for it, because its handle may soon mean another communicator.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use bruckner_mpi::Handle;

use super::Engine;
use crate::backend::Backend;
use crate::communicator::CommEntry;

impl<B: Backend> Engine<B> {
    /// Frees a communicator by `free`, which calls the MPI's own function and may run the user's callbacks; returns the result of `free`.
    pub fn free(&self, comm: Handle, free: impl FnOnce() -> c_int) -> c_int {
        let is_idle = self.internal_comm().is_none() && !self.keeps.load(Ordering::Relaxed);
        if is_idle || self.backend.is_null_comm(comm) {
            return free();
        }
        let known = self.attached_entry(comm).ok().flatten();
        // A communicator without the library's attribute gets one now: its deletion shows when the MPI runs delete callbacks.
        let placeholder = known.is_none() && self.attach_entry(comm, CommEntry::pending(0, None)).is_ok();
        if known.is_none() && !placeholder {
            return free();
        }
        let ending = self.backend.being_freed().free_begins(comm);
        self.backend.advance_generation();
        let code = free();
        if code == 0 {
            self.backend.being_freed().free_returned(ending);
        } else {
            // The MPI has refused, so the communicator remains valid. The MPI deletes attributes up to the callback that refuses, in an
            // order that may differ between ranks. The library's attribute may now exist on some ranks only, and must be the same on all.
            self.backend.being_freed().mark_live(comm);
            match (known, self.backend.attached(comm).is_some()) {
                (Some(entry), false) => {
                    // If this fails, the next call creates a new entry, which is allowed after an error.
                    let _ = self.backend.attach(comm, entry);
                }
                (None, true) => self.backend.detach(comm),
                _ => {}
            }
        }
        self.backend.advance_generation();
        code
    }
}

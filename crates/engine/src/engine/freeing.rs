//! Communicators that end. From the moment at which its freeing begins, on all of its ranks, the collectives of a communicator are the MPI's
//! own, and nothing is kept for it: its handle may mean another communicator soon.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use bruckner_mpi::Handle;

use super::Engine;
use crate::backend::Backend;
use crate::communicator::CommEntry;

impl<B: Backend> Engine<B> {
    /// Frees a communicator by the MPI's own function, which may run callbacks of the user's, and returns what that returned.
    pub fn free(&self, comm: Handle, free: impl FnOnce() -> c_int) -> c_int {
        let is_idle = self.internal_comm().is_none() && !self.keeps.load(Ordering::Relaxed);
        if is_idle || self.backend.is_null_comm(comm) {
            return free();
        }
        let known = self.kept_entry(comm).ok().flatten();
        // As what is kept goes, one learns when callbacks run: so something is kept for every communicator.
        let placeholder = known.is_none() && self.keep_entry(comm, CommEntry::pending(0, None)).is_ok();
        if known.is_none() && !placeholder {
            return free();
        }
        let ending = self.backend.ending().begin(comm);
        self.backend.renew();
        let code = free();
        if code == 0 {
            self.backend.ending().returned(ending);
        } else {
            // The MPI has refused, and the communicator lives on. Attributes may be in another order on each rank, and the MPI stops at the
            // callback that refuses: the attribute of ours is there on some ranks and deleted on others, and must be the same on all.
            self.backend.ending().lives(comm);
            match (known, self.backend.kept(comm).is_some()) {
                (Some(entry), false) => {
                    // If it cannot be kept, the next call finds the communicator anew, as after an error it may.
                    let _ = self.backend.keep(comm, entry);
                }
                (None, true) => self.backend.forget(comm),
                _ => {}
            }
        }
        self.backend.renew();
        code
    }
}

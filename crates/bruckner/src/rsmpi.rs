//! Bruckner on rsmpi communicators.

use mpi::topology::Communicator as RsmpiCommunicator;

use crate::Error;
use crate::safe::Communicator;

/// What every rsmpi communicator gets.
pub trait Collectives {
    /// The same communicator for Bruckner's collectives. First use is collective.
    fn bruckner(&self) -> Result<Communicator, Error>;
}

impl<C: RsmpiCommunicator> Collectives for C {
    fn bruckner(&self) -> Result<Communicator, Error> {
        // A handle is an int or an address, whatever rsmpi wraps it in: its bytes are the word.
        let raw = self.as_raw();
        let mut handle = [0u8; 8];
        let width = size_of_val(&raw);
        assert!(width <= handle.len(), "a handle of {width} bytes");
        // SAFETY: so many bytes of a plain C value.
        unsafe { std::ptr::copy_nonoverlapping((&raw const raw).cast(), handle.as_mut_ptr(), width) };
        let handle = u64::from_le_bytes(handle);
        // SAFETY: rsmpi keeps the handle valid as long as the communicator is borrowed.
        unsafe { Communicator::from_handle(handle) }
    }
}

//! Conversion of rsmpi communicators, so that programs with rsmpi can use Bruckner.

use mpi::topology::Communicator as RsmpiCommunicator;

use crate::Error;
use crate::safe::Communicator;

/// Extension trait that all rsmpi communicators implement.
pub trait Collectives {
    /// Returns this communicator for use with Bruckner's collectives. The first use of the result is collective.
    fn bruckner(&self) -> Result<Communicator, Error>;
}

impl<C: RsmpiCommunicator> Collectives for C {
    fn bruckner(&self) -> Result<Communicator, Error> {
        // A handle is an int or a pointer, possibly wrapped in a struct by rsmpi. Its bytes, followed by zeros, are the 64-bit handle.
        let raw = self.as_raw();
        let mut handle = [0u8; 8];
        let width = size_of_val(&raw);
        assert!(width <= handle.len(), "a handle of {width} bytes");
        // SAFETY: copies the `width` bytes of a plain C value into a buffer that has room for them.
        unsafe { std::ptr::copy_nonoverlapping((&raw const raw).cast(), handle.as_mut_ptr(), width) };
        let handle = u64::from_le_bytes(handle);
        // SAFETY: rsmpi keeps the handle valid as long as the communicator is borrowed.
        unsafe { Communicator::from_handle(handle) }
    }
}

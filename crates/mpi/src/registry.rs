//! What belongs to a communicator, kept as an attribute of it.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::ending::Ending;
use crate::functions::Handle;
use crate::{Mpi, MpiError, check};

/// The attribute key under which something is kept until its communicator is freed.
static KEY: OnceLock<c_int> = OnceLock::new();

/// Counts what makes void whatever any thread remembers by handle: a communicator begins or ends, or what is kept for it changes.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Communicators that end.
static ENDING: Ending = Ending::new();

/// What is kept.
pub type Kept = Arc<dyn Any + Send + Sync>;

/// A duplicate starts anew.
pub(crate) unsafe extern "C" fn copy(
    _comm: Handle,
    _key: c_int,
    _extra: *mut c_void,
    _value: *mut c_void,
    _copied: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: MPI passes an integer to write.
    unsafe { *flag = 0 };
    0
}

/// Makes no MPI call: only memory is given back. The user's callbacks may follow, with collectives on the same communicator.
unsafe extern "C" fn delete(comm: Handle, _key: c_int, value: *mut c_void, _extra: *mut c_void) -> c_int {
    GENERATION.fetch_add(1, Ordering::Release);
    if let Ok(mpi) = Mpi::find() {
        ENDING.attribute_deleted(mpi.handle(comm));
    }
    // SAFETY: the value that `put` made, given back once.
    drop(unsafe { Box::from_raw(value.cast::<Kept>()) });
    0
}

impl Mpi {
    fn key(&self) -> Result<c_int, MpiError> {
        if let Some(key) = KEY.get() {
            return Ok(*key);
        }
        let mut key: c_int = 0;
        // SAFETY: callbacks with the signatures of the standard.
        check("MPI_Comm_create_keyval", unsafe {
            (self.f.comm_create_keyval)(
                copy as *mut c_void,
                delete as *mut c_void,
                &mut key,
                std::ptr::null_mut(),
            )
        })?;
        Ok(*KEY.get_or_init(|| key))
    }

    /// What any thread remembers by handle is valid only as long as this stays the same.
    #[inline]
    pub fn generation() -> u64 {
        GENERATION.load(Ordering::Acquire)
    }

    /// Makes void what threads remember.
    pub fn renew() {
        GENERATION.fetch_add(1, Ordering::Release);
    }

    /// Communicators that end.
    pub fn ending() -> &'static Ending {
        &ENDING
    }

    /// A communicator begins, with a handle that another may have had.
    pub fn begins(comm: Handle) {
        ENDING.lives(comm);
        Mpi::renew();
    }

    /// Keeps something until the communicator is freed.
    pub fn keep(&self, comm: Handle, value: Kept) -> Result<(), MpiError> {
        let (key, value) = (self.key()?, Box::into_raw(Box::new(value)));
        // SAFETY: a valid handle by contract; the value is given back by `delete`.
        let result = check("MPI_Comm_set_attr", unsafe { (self.f.comm_set_attr)(comm, key, value.cast()) });
        if result.is_err() {
            // SAFETY: MPI did not take it.
            drop(unsafe { Box::from_raw(value) });
        }
        result
    }

    /// What is kept.
    pub fn kept(&self, comm: Handle) -> Option<Kept> {
        let mut value: *mut Kept = std::ptr::null_mut();
        let mut found: c_int = 0;
        // SAFETY: a valid handle by contract; MPI writes the value that `keep` gave.
        let result =
            unsafe { (self.f.comm_get_attr)(comm, self.key().ok()?, (&raw mut value).cast(), &mut found) };
        if result != 0 || found == 0 || value.is_null() {
            return None;
        }
        // SAFETY: as above; it lives until the communicator is freed.
        Some(unsafe { (*value).clone() })
    }

    /// Forgets what is kept.
    pub fn forget(&self, comm: Handle) {
        if let Ok(key) = self.key() {
            // SAFETY: a valid handle by contract; `delete` gives the value back.
            unsafe { (self.f.comm_delete_attr)(comm, key) };
        }
    }
}

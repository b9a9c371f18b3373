//! State that this library attaches to a communicator as an MPI attribute.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::ending::FreeingCommunicators;
use crate::functions::Handle;
use crate::{Mpi, MpiError, check};

/// Key of the attribute that holds the attached state of a communicator.
static KEY: OnceLock<c_int> = OnceLock::new();

/// Number of events so far that invalidate data cached by handle: a communicator is created or freed, or its attached state changes.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Communicators that are being freed.
static ENDING: FreeingCommunicators = FreeingCommunicators::new();

/// State attached to a communicator.
pub type AttachedState = Arc<dyn Any + Send + Sync>;

/// Callback for the duplication of a communicator. The duplicate does not get the attribute.
pub(crate) unsafe extern "C" fn copy(
    _comm: Handle,
    _key: c_int,
    _extra: *mut c_void,
    _value: *mut c_void,
    _copied: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: MPI passes the address of an integer to write.
    unsafe { *flag = 0 };
    0
}

/// Callback with which MPI deletes the attribute. It frees the attached state, invalidates the caches of all threads, and records the
/// deletion. It makes no MPI call: callbacks of the user's attributes may follow, and may call collectives on the same communicator.
unsafe extern "C" fn delete(comm: Handle, _key: c_int, value: *mut c_void, _extra: *mut c_void) -> c_int {
    GENERATION.fetch_add(1, Ordering::Release);
    if let Ok(mpi) = Mpi::find() {
        ENDING.attribute_deleted(mpi.handle(comm));
    }
    // SAFETY: the value was created by `attach`, and is dropped only here.
    drop(unsafe { Box::from_raw(value.cast::<AttachedState>()) });
    0
}

impl Mpi {
    fn key(&self) -> Result<c_int, MpiError> {
        if let Some(key) = KEY.get() {
            return Ok(*key);
        }
        let mut key: c_int = 0;
        // SAFETY: the callbacks have the signatures of the standard.
        check("MPI_Comm_create_keyval", unsafe {
            (self.f.comm_create_keyval)(copy as *mut c_void, delete as *mut c_void, &mut key, std::ptr::null_mut())
        })?;
        Ok(*KEY.get_or_init(|| key))
    }

    /// Returns the number of the current generation. Data that a thread has cached by handle is valid only while this number stays the
    /// same.
    #[inline]
    pub fn generation() -> u64 {
        GENERATION.load(Ordering::Acquire)
    }

    /// Begins a new generation, so that all data cached by handle is invalid.
    pub fn invalidate_caches() {
        GENERATION.fetch_add(1, Ordering::Release);
    }

    /// Returns the list of communicators that are being freed.
    pub fn ending() -> &'static FreeingCommunicators {
        &ENDING
    }

    /// Records a new communicator. Its handle may have belonged to an earlier communicator.
    pub fn communicator_created(comm: Handle) {
        ENDING.mark_live(comm);
        Mpi::invalidate_caches();
    }

    /// Attaches state to a communicator. The state is dropped when the communicator is freed.
    pub fn attach(&self, comm: Handle, value: AttachedState) -> Result<(), MpiError> {
        let (key, value) = (self.key()?, Box::into_raw(Box::new(value)));
        // SAFETY: the handle is valid by contract; `delete` drops the value.
        let result = check("MPI_Comm_set_attr", unsafe { (self.f.comm_set_attr)(comm, key, value.cast()) });
        if result.is_err() {
            // SAFETY: MPI has not stored the value.
            drop(unsafe { Box::from_raw(value) });
        }
        result
    }

    /// Returns the state attached to a communicator, if there is any.
    pub fn attached(&self, comm: Handle) -> Option<AttachedState> {
        let mut value: *mut AttachedState = std::ptr::null_mut();
        let mut found: c_int = 0;
        // SAFETY: the handle is valid by contract; MPI writes the value that `attach` has set.
        let result = unsafe { (self.f.comm_get_attr)(comm, self.key().ok()?, (&raw mut value).cast(), &mut found) };
        if result != 0 || found == 0 || value.is_null() {
            return None;
        }
        // SAFETY: the value was set by `attach`, and lives until the communicator is freed.
        Some(unsafe { (*value).clone() })
    }

    /// Removes the state attached to a communicator.
    pub fn detach(&self, comm: Handle) {
        if let Ok(key) = self.key() {
            // SAFETY: the handle is valid by contract; `delete` drops the value.
            unsafe { (self.f.comm_delete_attr)(comm, key) };
        }
    }
}

//! MPI persistent requests that plans handle.
//!
//! The handle that a program gets is the MPI's own persistent request, and the library keeps an operation for it. `MPI_Start` of such a
//! handle starts the operation and leaves the MPI's request inactive, so the MPI itself reports that nothing is under way. Functions that
//! wait or test first look for such operations among their handles, pass the other handles to the MPI, and combine both results. A program
//! without such requests never enters this module.

mod looks;
mod waits;

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bruckner_mpi::{Handle, Mpi, Work};

use crate::Error;
use crate::account::OperationCounters;
use crate::backend::Backend;
use crate::call::Lists;
use crate::error::raise;
use crate::reason::Reason;
use crate::run::Persistent;

/// A persistent request that the library handles, or whose starts it counts for the report.
pub(crate) struct Known<B: Backend> {
    /// The operation that handles the request, or the reason why the MPI handles the request itself, so that its starts are only counted.
    pub(crate) handled: Result<Persistent<B>, Reason>,
    pub(crate) comm: Handle,
    /// Counters of the request's executions. An execution is under way from its start until a wait or test reports its end to the program.
    pub(crate) account: OperationCounters,
    /// Copies of the call's datatypes, because the user may free the originals before the request.
    pub(crate) types: Vec<Handle>,
    /// Memory of the call's lists of counts, if the library has converted them to C integers. It must exist as long as the request.
    pub(crate) _lists: Lists,
}

impl<B: Backend> Known<B> {
    /// Returns the operation, if the program has started it and no wait or test has reported its end.
    fn active(&self) -> Option<&Persistent<B>> {
        self.handled.as_ref().ok().filter(|_| self.account.is_under_way())
    }

    /// Counts an execution whose end a wait or test reports to the program.
    fn consume(&self) {
        if let Ok(operation) = &self.handled {
            self.account.end(operation.algorithm(), operation.reason(), operation.bytes(), false);
        }
    }
}

/// The persistent requests of a process that the library handles or counts.
pub struct PersistentRequests<B: Backend> {
    backend: &'static B,
    /// The function that the MPI calls inside its waits as long as operations of several rounds are started.
    inside: Work,
    count: AtomicUsize,
    known: Mutex<HashMap<Handle, Arc<Known<B>>>>,
}

impl<B: Backend> PersistentRequests<B> {
    pub(crate) fn new(backend: &'static B, inside: Work) -> PersistentRequests<B> {
        PersistentRequests { backend, inside, count: AtomicUsize::new(0), known: Mutex::default() }
    }

    /// Whether any request is handled or counted; if not, all requests are passed through.
    #[inline]
    pub fn are_known(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Handle, Arc<Known<B>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, request: Handle) -> Option<Arc<Known<B>>> {
        self.all().get(&request).cloned()
    }

    /// Returns what is known of a request, if an operation of the library handles it.
    fn planned(&self, request: Handle) -> Option<Arc<Known<B>>> {
        self.get(request).filter(|known| known.handled.is_ok())
    }

    pub(crate) fn put(&self, request: Handle, known: Known<B>) {
        let mut all = self.all();
        all.insert(request, Arc::new(known));
        self.count.store(all.len(), Ordering::Release);
    }

    fn remove(&self, request: Handle) -> Option<Arc<Known<B>>> {
        let mut all = self.all();
        let known = all.remove(&request);
        self.count.store(all.len(), Ordering::Release);
        known
    }
}

impl PersistentRequests<Mpi> {
    /// Handles `MPI_Start`.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Start`.
    pub unsafe fn start(&self, request: *mut c_void) -> c_int {
        // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
        let handle = unsafe { self.backend.handle_at(request, 0) };
        let known = self.get(handle);
        let (known, operation) = match known.as_ref().map(|known| (known, &known.handled)) {
            Some((known, Ok(operation))) => (known, operation),
            of_the_mpi => {
                if let Some((known, Err(reason))) = of_the_mpi {
                    known.account.count("native", reason, 0, 0.0);
                }
                // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
                return unsafe { (self.backend.f.start)(request) };
            }
        };
        // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
        let mut result = unsafe { operation.start() };
        if result.is_ok() && !operation.is_one_round() {
            result = self.backend.work_inside(self.inside).map_err(Error::from);
        }
        match result {
            Ok(()) => {
                known.account.begin();
                0
            }
            Err(error) => raise(self.backend, known.comm, &error),
        }
    }

    /// Handles `MPI_Startall`.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Startall`.
    pub unsafe fn start_all(&self, count: c_int, requests: *mut c_void) -> c_int {
        for i in 0..count.max(0) as usize {
            // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
            let code = unsafe { self.start(requests.wrapping_byte_add(i * self.backend.width())) };
            if code != 0 {
                return code;
            }
        }
        0
    }

    /// Handles `MPI_Request_free`.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Request_free`.
    pub unsafe fn free(&self, request: *mut c_void) -> c_int {
        // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
        unsafe {
            let known = self.remove(self.backend.handle_at(request, 0));
            let code = (self.backend.f.request_free)(request);
            if let Some(known) = known {
                let types = known.types.clone();
                drop(known);
                types.into_iter().for_each(|datatype| self.backend.free_type(datatype));
            }
            code
        }
    }
}

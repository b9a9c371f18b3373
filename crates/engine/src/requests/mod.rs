//! Persistent requests of MPI's that plans serve.
//!
//! The handle that a program gets is the MPI's own persistent request; a plan stands beside it. `MPI_Start` of such a handle
//! starts the plan and leaves the request inactive, so whoever asks the MPI itself about it is told that nothing is under
//! way. Whatever waits or tests looks for plans among its handles first, gives the MPI the rest, and puts both answers
//! together. A program that has no such request never comes here.

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

/// A persistent request that is known here.
pub(crate) struct Known<B: Backend> {
    /// The operation that serves it; the reason where it is the MPI's own, and only counted for the report.
    pub(crate) served: Result<Persistent<B>, Reason>,
    pub(crate) comm: Handle,
    /// It is under way as far as the program knows: from its start until the program is told that it is done.
    pub(crate) account: OperationCounters,
    /// Datatypes of its own: the user's may be freed before it.
    pub(crate) types: Vec<Handle>,
    /// The lists of the call, if it was narrowed.
    pub(crate) _lists: Lists,
}

impl<B: Backend> Known<B> {
    /// The operation, if it is under way as far as the program knows.
    fn active(&self) -> Option<&Persistent<B>> {
        self.served.as_ref().ok().filter(|_| self.account.is_under_way())
    }

    /// The program is told that it is done.
    fn consume(&self) {
        if let Ok(operation) = &self.served {
            self.account.end(operation.algorithm(), operation.reason(), operation.bytes(), false);
        }
    }
}

/// The persistent requests of a process that are known.
pub struct Requests<B: Backend> {
    backend: &'static B,
    /// The work that the MPI does inside its waits as long as operations of several rounds are started.
    inside: Work,
    count: AtomicUsize,
    known: Mutex<HashMap<Handle, Arc<Known<B>>>>,
}

impl<B: Backend> Requests<B> {
    pub(crate) fn new(backend: &'static B, inside: Work) -> Requests<B> {
        Requests { backend, inside, count: AtomicUsize::new(0), known: Mutex::default() }
    }

    /// Whether any request is known: if not, everything goes to the MPI.
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

    /// One that an operation serves.
    fn planned(&self, request: Handle) -> Option<Arc<Known<B>>> {
        self.get(request).filter(|known| known.served.is_ok())
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

impl Requests<Mpi> {
    /// `MPI_Start`.
    ///
    /// # Safety
    /// As for the MPI function of this name; so for all that follow.
    pub unsafe fn start(&self, request: *mut c_void) -> c_int {
        // SAFETY: ARGUMENTS.
        let handle = unsafe { self.backend.handle_at(request, 0) };
        let known = self.get(handle);
        let (known, operation) = match known.as_ref().map(|known| (known, &known.served)) {
            Some((known, Ok(operation))) => (known, operation),
            of_the_mpi => {
                if let Some((known, Err(reason))) = of_the_mpi {
                    known.account.count("native", reason, 0, 0.0);
                }
                // SAFETY: ARGUMENTS.
                return unsafe { (self.backend.f.start)(request) };
            }
        };
        // SAFETY: ARGUMENTS.
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

    /// `MPI_Startall`.
    ///
    /// # Safety
    /// As for `MPI_Startall`.
    pub unsafe fn start_all(&self, count: c_int, requests: *mut c_void) -> c_int {
        for i in 0..count.max(0) as usize {
            // SAFETY: ARGUMENTS.
            let code = unsafe { self.start(requests.wrapping_byte_add(i * self.backend.width())) };
            if code != 0 {
                return code;
            }
        }
        0
    }

    /// `MPI_Request_free`.
    ///
    /// # Safety
    /// As for `MPI_Request_free`.
    pub unsafe fn free(&self, request: *mut c_void) -> c_int {
        // SAFETY: ARGUMENTS.
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

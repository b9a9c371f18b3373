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
use std::time::Instant;

use bruckner_choose::Name;
use bruckner_mpi::{Mpi, Word, Work};

use crate::Error;
use crate::call::Lists;
use crate::error::raise;
use crate::execute::Persistent;
use crate::observe::{By, Event, Ledger};
use crate::reason::Reason;
use crate::world::World;

/// A persistent request that is known here.
pub(crate) struct Known<W: World> {
    /// The operation that serves it; the reason where it is the MPI's own, and only counted for the report.
    pub(crate) served: Result<Persistent<W>, Reason>,
    pub(crate) name: Name,
    pub(crate) comm: Word,
    pub(crate) ledger: Option<Arc<Ledger>>,
    /// Since when it is under way, as far as the program knows: it has started it and not yet been told that it is done.
    pub(crate) started: Mutex<Option<Instant>>,
    /// Datatypes of its own: the user's may be freed before it.
    pub(crate) types: Vec<Word>,
    /// What the call refers to, if it was narrowed.
    pub(crate) _lists: Lists,
}

impl<W: World> Known<W> {
    fn started(&self) -> MutexGuard<'_, Option<Instant>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The operation, if it is under way as far as the program knows.
    fn active(&self) -> Option<&Persistent<W>> {
        self.served.as_ref().ok().filter(|_| self.started().is_some())
    }

    /// The program is told that it is done.
    fn consume(&self) {
        let since = self.started().take();
        self.count(since.map_or(0.0, |since| since.elapsed().as_secs_f64()));
    }

    fn count(&self, seconds: f64) {
        let Some(ledger) = &self.ledger else { return };
        let (algorithm, why) = match &self.served {
            Ok(operation) => (operation.algorithm(), operation.reason().to_string()),
            Err(reason) => ("native", reason.to_string()),
        };
        let (name, bytes, persistent) = (self.name, 0, true);
        ledger.add(&Event { name, persistent, by: By::Words(algorithm, &why), bytes, seconds });
    }
}

/// The persistent requests of a process that are known.
pub struct Requests<W: World> {
    world: &'static W,
    /// What the MPI does inside its waits as long as operations of several rounds are under way.
    inside: Work,
    count: AtomicUsize,
    known: Mutex<HashMap<Word, Arc<Known<W>>>>,
}

impl<W: World> Requests<W> {
    pub(crate) fn new(world: &'static W, inside: Work) -> Requests<W> {
        Requests { world, inside, count: AtomicUsize::new(0), known: Mutex::default() }
    }

    /// Whether any request is known: if not, everything goes to the MPI.
    #[inline]
    pub fn are_known(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Word, Arc<Known<W>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, request: Word) -> Option<Arc<Known<W>>> {
        self.all().get(&request).cloned()
    }

    /// One that an operation serves.
    fn planned(&self, request: Word) -> Option<Arc<Known<W>>> {
        self.get(request).filter(|known| known.served.is_ok())
    }

    pub(crate) fn put(&self, request: Word, known: Known<W>) {
        let mut all = self.all();
        all.insert(request, Arc::new(known));
        self.count.store(all.len(), Ordering::Release);
    }

    fn remove(&self, request: Word) -> Option<Arc<Known<W>>> {
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
        let handle = unsafe { self.world.handle_at(request, 0) };
        let known = self.get(handle);
        let served = known.as_ref().and_then(|known| Some((known, known.served.as_ref().ok()?)));
        let Some((known, operation)) = served else {
            if let Some(known) = known {
                known.count(0.0);
            }
            // SAFETY: ARGUMENTS.
            return unsafe { (self.world.f.start)(request) };
        };
        // SAFETY: ARGUMENTS.
        let mut result = unsafe { operation.start() };
        if result.is_ok() && !operation.is_one_round() {
            result = self.world.work_inside(self.inside).map_err(Error::from);
        }
        match result {
            Ok(()) => {
                *known.started() = Some(Instant::now());
                0
            }
            Err(error) => raise(self.world, known.comm, &error),
        }
    }

    /// `MPI_Startall`.
    ///
    /// # Safety
    /// As for `MPI_Startall`.
    pub unsafe fn start_all(&self, count: c_int, requests: *mut c_void) -> c_int {
        for i in 0..count.max(0) as usize {
            // SAFETY: ARGUMENTS.
            let code = unsafe { self.start(requests.wrapping_byte_add(i * self.world.width())) };
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
            let known = self.remove(self.world.handle_at(request, 0));
            let code = (self.world.f.request_free)(request);
            if let Some(known) = known {
                let types = known.types.clone();
                drop(known);
                types.into_iter().for_each(|datatype| self.world.free_type(datatype));
            }
            code
        }
    }
}

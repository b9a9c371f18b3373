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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bruckner_mpi::Word;

use crate::Error;
use crate::call::{Call, Lists, Name};
use crate::engine::{Engine, Entry};
use crate::persistent::Persistent;
use crate::report::Event;

/// A persistent request that is known here.
struct Known {
    /// Its plan; `None` where it is the MPI's own, and only counted for the report.
    plan: Option<Persistent>,
    why: String,
    name: Name,
    comm: Word,
    entry: Arc<Entry>,
    /// Whether the program has started it and not yet been told that it is done.
    started: AtomicBool,
    since: Mutex<Option<Instant>>,
    /// Datatypes of its own: the user's may be freed before it.
    types: Vec<Word>,
    /// What the call refers to, if it was narrowed.
    _lists: Lists,
}

impl Known {
    /// A plan that is under way as far as the program knows.
    fn active(&self) -> Option<&Persistent> {
        self.plan.as_ref().filter(|_| self.started.load(Ordering::Acquire))
    }

    /// The program is told that it is done.
    fn consume(&self) {
        self.started.store(false, Ordering::Release);
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.count(since.map_or(0.0, |since| since.elapsed().as_secs_f64()));
    }

    fn count(&self, seconds: f64) {
        let Some(ledger) = &self.entry.ledger else { return };
        let (algorithm, why) = match &self.plan {
            Some(plan) => (plan.choice().expression.to_string(), plan.choice().why.as_str()),
            None => ("native".to_owned(), self.why.as_str()),
        };
        let (name, bytes, persistent) = (self.name, 0, true);
        ledger.add(&Event { name, persistent, algorithm: &algorithm, why, bytes, seconds });
    }
}

/// The persistent requests of a process that are known.
#[derive(Default)]
pub(crate) struct Requests {
    count: AtomicUsize,
    known: Mutex<HashMap<Word, Arc<Known>>>,
}

impl Requests {
    fn get(&self, request: Word) -> Option<Arc<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&request).cloned()
    }

    /// One that a plan serves.
    fn planned(&self, request: Word) -> Option<Arc<Known>> {
        self.get(request).filter(|known| known.plan.is_some())
    }

    fn put(&self, request: Word, known: Known) {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(request, Arc::new(known));
        self.count.store(all.len(), Ordering::Release);
    }

    fn remove(&self, request: Word) -> Option<Arc<Known>> {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.remove(&request);
        self.count.store(all.len(), Ordering::Release);
        known
    }
}

impl Engine {
    /// Whether any request is known: if not, everything goes to the MPI.
    #[inline]
    pub fn has_requests(&self) -> bool {
        self.requests.count.load(Ordering::Relaxed) > 0
    }

    /// Makes a persistent request of MPI's, and a plan beside it if one can serve. Collective.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of this name, and stay so as long as the request is used.
    pub unsafe fn request(
        &'static self,
        call: Call,
        lists: Lists,
        comm: Word,
        info: Word,
        request: *mut c_void,
    ) -> Result<c_int, Error> {
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { call.native_init(self.mpi, comm, info, request) } {
            return Ok(error.code);
        }
        let Some(door) = self.door(&call, comm)? else {
            std::mem::forget(lists);
            return Ok(0);
        };
        let entry = self.kept(comm, door)?;
        let (call, types) = self.own(call)?;
        // SAFETY: the caller's promise.
        let made = match call.op().is_some_and(|op| self.mpi.is_users(op)) {
            true => Err("an operation of the user's, which may be freed before the last start".to_owned()),
            // SAFETY: the caller's promise.
            false => unsafe { Persistent::for_request(self, entry.clone(), call, comm) }?,
        };
        if let Ok(plan) = &made
            && !plan.is_one_round()
        {
            self.mpi.work_inside(Engine::advance_inside)?;
        }
        let (plan, why) = match made {
            Ok(plan) => (Some(plan), String::new()),
            Err(why) => (None, why),
        };
        if plan.is_some() || entry.ledger.is_some() {
            let (name, started) = (call.name(), AtomicBool::new(false));
            let known = Known {
                plan,
                why,
                name,
                comm,
                entry,
                started,
                since: Mutex::default(),
                types,
                _lists: lists,
            };
            // SAFETY: the handle that was just made.
            self.requests.put(unsafe { self.mpi.handle_at(request, 0) }, known);
        } else {
            types.into_iter().for_each(|datatype| self.mpi.free_type(datatype));
            // The MPI may look at the lists as long as the request is used, which nobody here is told.
            std::mem::forget(lists);
        }
        Ok(0)
    }

    /// The same call with datatypes that nobody else frees.
    fn own(&self, mut call: Call) -> Result<(Call, Vec<Word>), Error> {
        let mut types = Vec::new();
        for datatype in call.types_mut(self.mpi) {
            if !self.mpi.types().is_named(*datatype) && !self.mpi.is_null_type(*datatype) {
                *datatype = self.mpi.same_type(*datatype)?;
                types.push(*datatype);
            }
        }
        Ok((call, types))
    }

    /// What MPI's progress does for plans that are started; whether there is more to do.
    fn advance_inside() -> bool {
        let Some(engine) = Engine::current() else { return false };
        engine.active.advance(true);
        !engine.active.is_empty()
    }

    /// `MPI_Start`.
    ///
    /// # Safety
    /// As for the MPI function of this name; so for all that follow.
    pub unsafe fn start(&self, request: *mut c_void) -> c_int {
        // SAFETY: the caller's promise.
        let handle = unsafe { self.mpi.handle_at(request, 0) };
        let known = self.requests.get(handle);
        let Some((known, plan)) = known.as_ref().and_then(|known| Some((known, known.plan.as_ref()?))) else {
            if let Some(known) = known {
                known.count(0.0);
            }
            // SAFETY: the caller's promise.
            return unsafe { (self.mpi.f.start)(request) };
        };
        // SAFETY: the caller's promise.
        let mut result = unsafe { plan.start() };
        if result.is_ok() && !plan.is_one_round() {
            result = self.mpi.work_inside(Engine::advance_inside).map_err(Error::from);
        }
        match result {
            Ok(()) => {
                known.started.store(true, Ordering::Release);
                *known.since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                0
            }
            Err(error) => self.raise(known.comm, &error),
        }
    }

    /// `MPI_Startall`.
    ///
    /// # Safety
    /// As for `MPI_Startall`.
    pub unsafe fn start_all(&self, count: c_int, requests: *mut c_void) -> c_int {
        for i in 0..count.max(0) as usize {
            // SAFETY: the caller's promise.
            let code = unsafe { self.start(requests.wrapping_byte_add(i * self.mpi.width())) };
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
        // SAFETY: the caller's promise.
        unsafe {
            let known = self.requests.remove(self.mpi.handle_at(request, 0));
            let code = (self.mpi.f.request_free)(request);
            if let Some(known) = known {
                let types = known.types.clone();
                drop(known);
                types.into_iter().for_each(|datatype| self.mpi.free_type(datatype));
            }
            code
        }
    }
}

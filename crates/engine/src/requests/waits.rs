//! Waiting and testing: every form, on arrays that mix plans with the MPI's own requests.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use bruckner_mpi::Mpi;

use super::{Known, Requests};
use crate::error::raise;
use crate::run::Persistent;

/// An array of requests of the program's, some of which plans serve.
pub(super) struct Mixed {
    /// The places of requests that have a plan. One that is not under way counts as nothing: MPICH's own waits hang on
    /// a persistent collective that was never started.
    pub(super) places: Vec<usize>,
    /// The plans that are under way, by their place in the array.
    pub(super) plans: Vec<(usize, Arc<Known<Mpi>>)>,
    /// The same array with nothing in all those places.
    pub(super) rest: Vec<u64>,
}

/// The statuses of a call: where they are, or that nobody wants them.
#[derive(Clone, Copy)]
pub(super) struct Statuses {
    pub(super) first: *mut c_void,
    pub(super) step: usize,
}

impl Statuses {
    pub(super) fn at(self, at: usize) -> *mut c_void {
        self.first.wrapping_byte_add(at * self.step)
    }
}

impl Requests<Mpi> {
    pub(super) fn statuses(&self, first: *mut c_void) -> Statuses {
        let ignored = self.backend.constants.get("MPI_STATUSES_IGNORE") == Some(first as u64);
        Statuses { first, step: if ignored { 0 } else { self.backend.family.status_bytes() } }
    }

    /// Writes what MPI says of a request that is none: an empty status.
    pub(super) unsafe fn empty(&self, status: *mut c_void) {
        let mut null = self.backend.constants.get("MPI_REQUEST_NULL").unwrap_or_default();
        let mut flag = 0;
        // SAFETY: a request that is none; ARGUMENTS has the status.
        unsafe { (self.backend.f.test)((&raw mut null).cast(), &mut flag, status) };
    }

    pub(super) unsafe fn mixed(&self, count: c_int, requests: *mut c_void) -> Option<Mixed> {
        let (mpi, count) = (self.backend, count.max(0) as usize);
        let (mut places, mut plans) = (Vec::new(), Vec::new());
        for i in 0..count {
            // SAFETY: ARGUMENTS.
            let handle = unsafe { mpi.handle_at(requests, i) };
            if let Some(known) = self.planned(handle) {
                places.push(i);
                plans.extend(known.active().is_some().then(|| (i, known.clone())));
            }
        }
        if places.is_empty() {
            return None;
        }
        let mut rest = vec![0u64; count];
        let null = mpi.constants.get("MPI_REQUEST_NULL").unwrap_or_default();
        // SAFETY: as many handles in both.
        unsafe {
            std::ptr::copy_nonoverlapping(
                requests.cast::<u8>(),
                rest.as_mut_ptr().cast(),
                count * mpi.width(),
            );
            for i in &places {
                mpi.put_handle(rest.as_mut_ptr().cast(), *i, null);
            }
        }
        Some(Mixed { places, plans, rest })
    }

    /// Tells a plan's end: its status, if that is so.
    pub(super) unsafe fn is_done(&self, known: &Known<Mpi>, status: *mut c_void) -> Result<bool, c_int> {
        match known.active().map_or(Ok(true), Persistent::test) {
            Ok(false) => Ok(false),
            Ok(true) => {
                // SAFETY: ARGUMENTS.
                unsafe { self.empty(status) };
                Ok(true)
            }
            Err(error) => {
                known.consume();
                Err(raise(self.backend, known.comm, &error))
            }
        }
    }

    /// `MPI_Wait`.
    ///
    /// # Safety
    /// As for `MPI_Wait`.
    pub unsafe fn wait(&self, request: *mut c_void, status: *mut c_void) -> c_int {
        // SAFETY: ARGUMENTS.
        let Some(known) = self.planned(unsafe { self.backend.handle_at(request, 0) }) else {
            // SAFETY: ARGUMENTS.
            return unsafe { (self.backend.f.wait)(request, status) };
        };
        let result = known.active().map_or(Ok(()), |plan| {
            let result = plan.wait();
            known.consume();
            result
        });
        // SAFETY: ARGUMENTS.
        unsafe { self.empty(status) };
        result.map_or_else(|error| raise(self.backend, known.comm, &error), |()| 0)
    }

    /// `MPI_Test`.
    ///
    /// # Safety
    /// As for `MPI_Test`.
    pub unsafe fn test(&self, request: *mut c_void, flag: *mut c_int, status: *mut c_void) -> c_int {
        // SAFETY: ARGUMENTS.
        let Some(known) = self.planned(unsafe { self.backend.handle_at(request, 0) }) else {
            // SAFETY: ARGUMENTS.
            return unsafe { (self.backend.f.test)(request, flag, status) };
        };
        // SAFETY: ARGUMENTS.
        match unsafe { self.is_done(&known, status) } {
            Ok(done) => {
                if done && known.active().is_some() {
                    known.consume();
                }
                // SAFETY: ARGUMENTS.
                unsafe { *flag = done.into() };
                0
            }
            Err(code) => code,
        }
    }

    /// `MPI_Waitall`. The MPI waits for its requests first: plans go on inside that.
    ///
    /// # Safety
    /// As for `MPI_Waitall`.
    pub unsafe fn wait_all(&self, count: c_int, requests: *mut c_void, statuses: *mut c_void) -> c_int {
        // SAFETY: ARGUMENTS, here and below.
        unsafe {
            let Some(mut mixed) = self.mixed(count, requests) else {
                return (self.backend.f.waitall)(count, requests, statuses);
            };
            let mut code = (self.backend.f.waitall)(count, mixed.rest.as_mut_ptr().cast(), statuses);
            self.give_back(&mixed, requests);
            let statuses = self.statuses(statuses);
            for (i, known) in &mixed.plans {
                let result = known.active().map_or(Ok(()), Persistent::wait);
                known.consume();
                self.empty(statuses.at(*i));
                if let Err(error) = result {
                    code = raise(self.backend, known.comm, &error);
                }
            }
            code
        }
    }

    /// `MPI_Testall`.
    ///
    /// # Safety
    /// As for `MPI_Testall`.
    pub unsafe fn test_all(
        &self,
        count: c_int,
        requests: *mut c_void,
        flag: *mut c_int,
        statuses: *mut c_void,
    ) -> c_int {
        // SAFETY: ARGUMENTS, here and below.
        unsafe {
            let Some(mut mixed) = self.mixed(count, requests) else {
                return (self.backend.f.testall)(count, requests, flag, statuses);
            };
            *flag = 0;
            for (_, known) in &mixed.plans {
                // The MPI is asked only when nothing else is open: what it says is done, it has given back.
                match known.active().map_or(Ok(true), Persistent::test) {
                    Ok(true) => {}
                    Ok(false) => return 0,
                    Err(error) => {
                        known.consume();
                        return raise(self.backend, known.comm, &error);
                    }
                }
            }
            let code = (self.backend.f.testall)(count, mixed.rest.as_mut_ptr().cast(), flag, statuses);
            if *flag != 0 {
                self.give_back(&mixed, requests);
                let statuses = self.statuses(statuses);
                for (i, known) in &mixed.plans {
                    known.consume();
                    self.empty(statuses.at(*i));
                }
            }
            code
        }
    }

    /// Brings handles that the MPI has changed back to the program's array.
    pub(super) unsafe fn give_back(&self, mixed: &Mixed, requests: *mut c_void) {
        for i in 0..mixed.rest.len() {
            if !mixed.places.contains(&i) {
                // SAFETY: ARGUMENTS; as many handles in both.
                unsafe {
                    let handle = self.backend.handle_at(mixed.rest.as_ptr().cast(), i);
                    self.backend.put_handle(requests, i, handle);
                }
            }
        }
    }

    pub(super) fn undefined(&self) -> c_int {
        self.backend.constants.get("MPI_UNDEFINED").unwrap_or_default() as c_int
    }

    /// `MPI_Testany`, and one turn of `MPI_Waitany`.
    ///
    /// # Safety
    /// As for `MPI_Testany`.
    pub unsafe fn test_any(
        &self,
        count: c_int,
        requests: *mut c_void,
        index: *mut c_int,
        flag: *mut c_int,
        status: *mut c_void,
    ) -> c_int {
        // SAFETY: ARGUMENTS, here and below.
        unsafe {
            let Some(mut mixed) = self.mixed(count, requests) else {
                return (self.backend.f.testany)(count, requests, index, flag, status);
            };
            for (i, known) in &mixed.plans {
                match self.is_done(known, status) {
                    Ok(false) => {}
                    Ok(true) => {
                        known.consume();
                        (*flag, *index) = (1, *i as c_int);
                        return 0;
                    }
                    Err(code) => return code,
                }
            }
            let code = (self.backend.f.testany)(count, mixed.rest.as_mut_ptr().cast(), index, flag, status);
            self.give_back(&mixed, requests);
            // Nothing of the MPI's is under way, but a plan is.
            if *flag != 0 && *index == self.undefined() && !mixed.plans.is_empty() {
                *flag = 0;
            }
            code
        }
    }

    /// `MPI_Waitany`.
    ///
    /// # Safety
    /// As for `MPI_Waitany`.
    pub unsafe fn wait_any(
        &self,
        count: c_int,
        requests: *mut c_void,
        index: *mut c_int,
        status: *mut c_void,
    ) -> c_int {
        // SAFETY: ARGUMENTS, here and below.
        unsafe {
            if self.mixed(count, requests).is_none() {
                return (self.backend.f.waitany)(count, requests, index, status);
            }
            self.until(|| {
                let mut flag = 0;
                let code = self.test_any(count, requests, index, &mut flag, status);
                (code != 0 || flag != 0).then_some(code)
            })
        }
    }

    /// Asks again and again, with patience: asking advances MPI.
    pub(super) fn until(&self, mut ask: impl FnMut() -> Option<c_int>) -> c_int {
        let mut answer = None;
        bruckner_runtime::Backoff::SharedCores.wait_for(|| {
            answer = ask();
            answer.is_some()
        });
        answer.unwrap_or_default()
    }

    /// `MPI_Testsome`, and one turn of `MPI_Waitsome`.
    ///
    /// # Safety
    /// As for `MPI_Testsome`.
    pub unsafe fn test_some(
        &self,
        count: c_int,
        requests: *mut c_void,
        done: *mut c_int,
        indices: *mut c_int,
        statuses: *mut c_void,
    ) -> c_int {
        // SAFETY: ARGUMENTS, here and below.
        unsafe {
            let Some(mut mixed) = self.mixed(count, requests) else {
                return (self.backend.f.testsome)(count, requests, done, indices, statuses);
            };
            let code =
                (self.backend.f.testsome)(count, mixed.rest.as_mut_ptr().cast(), done, indices, statuses);
            self.give_back(&mixed, requests);
            if *done == self.undefined() {
                if mixed.plans.is_empty() {
                    return code;
                }
                *done = 0;
            }
            let statuses = self.statuses(statuses);
            for (i, known) in &mixed.plans {
                match self.is_done(known, statuses.at(*done as usize)) {
                    Ok(false) => {}
                    Ok(true) => {
                        known.consume();
                        *indices.add(*done as usize) = *i as c_int;
                        *done += 1;
                    }
                    Err(code) => return code,
                }
            }
            code
        }
    }

    /// `MPI_Waitsome`.
    ///
    /// # Safety
    /// As for `MPI_Waitsome`.
    pub unsafe fn wait_some(
        &self,
        count: c_int,
        requests: *mut c_void,
        done: *mut c_int,
        indices: *mut c_int,
        statuses: *mut c_void,
    ) -> c_int {
        // SAFETY: ARGUMENTS, here and below.
        unsafe {
            if self.mixed(count, requests).is_none() {
                return (self.backend.f.waitsome)(count, requests, done, indices, statuses);
            }
            self.until(|| {
                let code = self.test_some(count, requests, done, indices, statuses);
                (code != 0 || *done != 0).then_some(code)
            })
        }
    }
}

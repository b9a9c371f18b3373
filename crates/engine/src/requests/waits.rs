//! `MPI_Wait`, `MPI_Test` and their variants for several requests, on arrays in which plans handle some requests and the MPI handles the
//! others.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use bruckner_mpi::Mpi;

use super::{Known, PersistentRequests};
use crate::error::raise;
use crate::run::Persistent;

/// An array of the program's requests, some of which plans handle.
pub(super) struct Mixed {
    /// Indices of the requests that plans handle. If such a request is inactive, it counts as a null request, because MPICH's own waits
    /// hang on a persistent collective that was never started.
    pub(super) places: Vec<usize>,
    /// The plans that are under way, with their index in the array.
    pub(super) plans: Vec<(usize, Arc<Known<Mpi>>)>,
    /// A copy of the array with null requests at the indices in `places`.
    pub(super) rest: Vec<u64>,
}

/// The array of statuses that a program passes: address of the first status, and bytes from one status to the next, 0 if the program
/// ignores statuses.
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

impl PersistentRequests<Mpi> {
    pub(super) fn statuses(&self, first: *mut c_void) -> Statuses {
        let ignored = self.backend.constants.get("MPI_STATUSES_IGNORE") == Some(first as u64);
        Statuses { first, step: if ignored { 0 } else { self.backend.family.status_bytes() } }
    }

    /// Writes an empty status, as MPI does for a null request.
    pub(super) unsafe fn empty(&self, status: *mut c_void) {
        let mut null = self.backend.constants.get("MPI_REQUEST_NULL").unwrap_or_default();
        let mut flag = 0;
        // SAFETY: the request is null; the status is valid by ARGUMENTS (see `lib.rs`).
        unsafe { (self.backend.f.test)((&raw mut null).cast(), &mut flag, status) };
    }

    pub(super) unsafe fn mixed(&self, count: c_int, requests: *mut c_void) -> Option<Mixed> {
        let (mpi, count) = (self.backend, count.max(0) as usize);
        let (mut places, mut plans) = (Vec::new(), Vec::new());
        for i in 0..count {
            // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
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
        // SAFETY: both arrays have the same number of handles.
        unsafe {
            std::ptr::copy_nonoverlapping(requests.cast::<u8>(), rest.as_mut_ptr().cast(), count * mpi.width());
            for i in &places {
                mpi.put_handle(rest.as_mut_ptr().cast(), *i, null);
            }
        }
        Some(Mixed { places, plans, rest })
    }

    /// Whether a plan is done; if so, writes its status.
    pub(super) unsafe fn is_done(&self, known: &Known<Mpi>, status: *mut c_void) -> Result<bool, c_int> {
        match known.active().map_or(Ok(true), Persistent::test) {
            Ok(false) => Ok(false),
            Ok(true) => {
                // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
                unsafe { self.empty(status) };
                Ok(true)
            }
            Err(error) => {
                known.consume();
                Err(raise(self.backend, known.comm, &error))
            }
        }
    }

    /// Handles `MPI_Wait`.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Wait`.
    pub unsafe fn wait(&self, request: *mut c_void, status: *mut c_void) -> c_int {
        // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
        let Some(known) = self.planned(unsafe { self.backend.handle_at(request, 0) }) else {
            // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
            return unsafe { (self.backend.f.wait)(request, status) };
        };
        let result = known.active().map_or(Ok(()), |plan| {
            let result = plan.wait();
            known.consume();
            result
        });
        // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
        unsafe { self.empty(status) };
        result.map_or_else(|error| raise(self.backend, known.comm, &error), |()| 0)
    }

    /// Handles `MPI_Test`.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Test`.
    pub unsafe fn test(&self, request: *mut c_void, flag: *mut c_int, status: *mut c_void) -> c_int {
        // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
        let Some(known) = self.planned(unsafe { self.backend.handle_at(request, 0) }) else {
            // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
            return unsafe { (self.backend.f.test)(request, flag, status) };
        };
        // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
        match unsafe { self.is_done(&known, status) } {
            Ok(done) => {
                if done && known.active().is_some() {
                    known.consume();
                }
                // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
                unsafe { *flag = done.into() };
                0
            }
            Err(code) => code,
        }
    }

    /// Handles `MPI_Waitall`. The MPI waits for its own requests first, and plans advance inside that wait.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Waitall`.
    pub unsafe fn wait_all(&self, count: c_int, requests: *mut c_void, statuses: *mut c_void) -> c_int {
        // SAFETY: ARGUMENTS (see `lib.rs`), here and below: the arguments are valid for this MPI function.
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

    /// Handles `MPI_Testall`.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Testall`.
    pub unsafe fn test_all(
        &self,
        count: c_int,
        requests: *mut c_void,
        flag: *mut c_int,
        statuses: *mut c_void,
    ) -> c_int {
        // SAFETY: ARGUMENTS (see `lib.rs`), here and below: the arguments are valid for this MPI function.
        unsafe {
            let Some(mut mixed) = self.mixed(count, requests) else {
                return (self.backend.f.testall)(count, requests, flag, statuses);
            };
            *flag = 0;
            for (_, known) in &mixed.plans {
                // The MPI's test runs only when all plans are done, because it frees the requests that it reports as done.
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

    /// Copies handles that the MPI has changed back to the program's array.
    pub(super) unsafe fn give_back(&self, mixed: &Mixed, requests: *mut c_void) {
        for i in 0..mixed.rest.len() {
            if !mixed.places.contains(&i) {
                // SAFETY: ARGUMENTS (see `lib.rs`); both arrays have the same number of handles.
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

    /// Handles `MPI_Testany`, and each test of `MPI_Waitany`.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Testany`.
    pub unsafe fn test_any(
        &self,
        count: c_int,
        requests: *mut c_void,
        index: *mut c_int,
        flag: *mut c_int,
        status: *mut c_void,
    ) -> c_int {
        // SAFETY: ARGUMENTS (see `lib.rs`), here and below: the arguments are valid for this MPI function.
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
            // If only plans are active, and none of the MPI's own requests, the MPI reports that all are done, but no plan is.
            if *flag != 0 && *index == self.undefined() && !mixed.plans.is_empty() {
                *flag = 0;
            }
            code
        }
    }

    /// Handles `MPI_Waitany`.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Waitany`.
    pub unsafe fn wait_any(
        &self,
        count: c_int,
        requests: *mut c_void,
        index: *mut c_int,
        status: *mut c_void,
    ) -> c_int {
        // SAFETY: ARGUMENTS (see `lib.rs`), here and below: the arguments are valid for this MPI function.
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

    /// Repeats a test, with backoff, until it returns a result. Each test also advances MPI.
    pub(super) fn until(&self, mut ask: impl FnMut() -> Option<c_int>) -> c_int {
        let mut answer = None;
        bruckner_runtime::Backoff::SharedCores.wait_for(|| {
            answer = ask();
            answer.is_some()
        });
        answer.unwrap_or_default()
    }

    /// Handles `MPI_Testsome`, and each test of `MPI_Waitsome`.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Testsome`.
    pub unsafe fn test_some(
        &self,
        count: c_int,
        requests: *mut c_void,
        done: *mut c_int,
        indices: *mut c_int,
        statuses: *mut c_void,
    ) -> c_int {
        // SAFETY: ARGUMENTS (see `lib.rs`), here and below: the arguments are valid for this MPI function.
        unsafe {
            let Some(mut mixed) = self.mixed(count, requests) else {
                return (self.backend.f.testsome)(count, requests, done, indices, statuses);
            };
            let code = (self.backend.f.testsome)(count, mixed.rest.as_mut_ptr().cast(), done, indices, statuses);
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

    /// Handles `MPI_Waitsome`.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Waitsome`.
    pub unsafe fn wait_some(
        &self,
        count: c_int,
        requests: *mut c_void,
        done: *mut c_int,
        indices: *mut c_int,
        statuses: *mut c_void,
    ) -> c_int {
        // SAFETY: ARGUMENTS (see `lib.rs`), here and below: the arguments are valid for this MPI function.
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

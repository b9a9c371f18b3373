//! Status queries that do not change requests: `MPI_Request_get_status` and related functions of MPI 4.1.

use std::ffi::{c_int, c_void};

use bruckner_mpi::{Handle, Mpi};

use super::PersistentRequests;
use super::waits::Statuses;
use crate::error::raise;
use crate::run::Persistent;

impl PersistentRequests<Mpi> {
    /// Handles `MPI_Request_get_status`, which reports the status of a request without completing it.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Request_get_status`.
    pub unsafe fn get_status(&self, request: Handle, flag: *mut c_int, status: *mut c_void) -> c_int {
        let Some(known) = self.planned(self.backend.handle(request)) else {
            // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
            return unsafe { (self.backend.f.request_get_status)(request, flag, status) };
        };
        // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
        match unsafe { self.is_done(&known, status) } {
            Ok(done) => {
                // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
                unsafe { *flag = done.into() };
                0
            }
            Err(code) => code,
        }
    }

    /// Queries several requests, some of which plans may handle, as the functions of MPI 4.1 do. `look` queries the MPI's own requests and
    /// returns the number of requests that are done, or `None` if no request is active. `tell` is called for each plan that is done, with
    /// the plan's index in the array and the number of requests found done before.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function that is handled.
    unsafe fn query(
        &self,
        count: c_int,
        requests: *const c_void,
        look: impl FnOnce(*const c_void) -> Result<Option<usize>, c_int>,
        mut tell: impl FnMut(usize, usize),
    ) -> Result<Option<usize>, c_int> {
        // SAFETY: ARGUMENTS (see `lib.rs`); the array is only read.
        let Some(mixed) = (unsafe { self.mixed(count, requests.cast_mut()) }) else { return look(requests) };
        let mut done = look(mixed.rest.as_ptr().cast())?;
        for (i, known) in &mixed.plans {
            let counted = done.get_or_insert(0);
            match known.active().map_or(Ok(true), Persistent::test) {
                Ok(false) => {}
                Ok(true) => {
                    tell(*i, *counted);
                    *counted += 1;
                }
                Err(error) => {
                    known.consume();
                    return Err(raise(self.backend, known.comm, &error));
                }
            }
        }
        Ok(done)
    }

    /// Handles `MPI_Request_get_status_all`.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Request_get_status_all`.
    pub unsafe fn get_status_all(
        &self,
        count: c_int,
        requests: *const c_void,
        flag: *mut c_int,
        statuses: *mut c_void,
    ) -> c_int {
        let at = self.statuses(statuses);
        // SAFETY: ARGUMENTS (see `lib.rs`), here and below: the arguments are valid for this MPI function.
        unsafe {
            *flag = 1;
            for i in 0..count.max(0) as usize {
                let (mut one, request) = (0, self.backend.handle_at(requests, i));
                let code = self.get_status(request, &mut one, at.at(i));
                if code != 0 {
                    return code;
                }
                *flag &= one;
            }
            0
        }
    }

    /// Handles `MPI_Request_get_status_some`.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Request_get_status_some`.
    pub unsafe fn get_status_some(
        &self,
        count: c_int,
        requests: *const c_void,
        done: *mut c_int,
        indices: *mut c_int,
        statuses: *mut c_void,
    ) -> c_int {
        let at = self.statuses(statuses);
        let rest = |rest: *const c_void| {
            let Some(native) = self.backend.extra.request_get_status_some else {
                // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
                return unsafe { self.one_by_one(count, rest, |i, n| *indices.add(n) = i as c_int, at) };
            };
            // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
            let code = unsafe { native(count, rest, done, indices, statuses) };
            // SAFETY: the MPI has written the number.
            let counted = unsafe { *done };
            if code != 0 { Err(code) } else { Ok(usize::try_from(counted).ok()) }
        };
        let tell = |i: usize, n: usize| {
            // SAFETY: both arrays have as many elements as there are requests.
            unsafe {
                *indices.add(n) = i as c_int;
                self.empty(at.at(n));
            }
        };
        // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
        let found = unsafe { self.query(count, requests, rest, tell) };
        let (code, number) = match found {
            Ok(Some(n)) => (0, n as c_int),
            Ok(None) => (0, self.undefined()),
            Err(code) => (code, 0),
        };
        // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
        unsafe { *done = number };
        code
    }

    /// Handles `MPI_Request_get_status_any`.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Request_get_status_any`.
    pub unsafe fn get_status_any(
        &self,
        count: c_int,
        requests: *const c_void,
        index: *mut c_int,
        flag: *mut c_int,
        status: *mut c_void,
    ) -> c_int {
        let at = Statuses { first: status, step: 0 };
        let rest = |rest: *const c_void| {
            let Some(native) = self.backend.extra.request_get_status_any else {
                // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
                return unsafe { self.one_by_one(count, rest, |i, _| *index = i as c_int, at) };
            };
            // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
            let code = unsafe { native(count, rest, index, flag, status) };
            // SAFETY: the MPI has written both values.
            let (found, flag) = unsafe { (*index, *flag) };
            match (code, flag != 0) {
                (0, true) => Ok((found != self.undefined()).then_some(1)),
                (0, false) => Ok(Some(0)),
                (code, _) => Err(code),
            }
        };
        let tell = |i: usize, _: usize| {
            // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
            unsafe {
                *index = i as c_int;
                self.empty(status);
            }
        };
        // SAFETY: ARGUMENTS (see `lib.rs`), here and below: the arguments are valid for this MPI function.
        unsafe {
            let (code, is_done) = match self.query(count, requests, rest, tell) {
                Ok(Some(n)) => (0, n > 0),
                Ok(None) => {
                    *index = self.undefined();
                    self.empty(status);
                    (0, true)
                }
                Err(code) => (code, false),
            };
            *flag = is_done.into();
            code
        }
    }

    /// Queries requests one after the other, for an MPI without a function that queries several. Null requests count as inactive.
    unsafe fn one_by_one(
        &self,
        count: c_int,
        requests: *const c_void,
        mut tell: impl FnMut(usize, usize),
        statuses: Statuses,
    ) -> Result<Option<usize>, c_int> {
        let null = self.backend.constants.get("MPI_REQUEST_NULL");
        let mut done = None;
        for i in 0..count.max(0) as usize {
            // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
            let request = unsafe { self.backend.handle_at(requests, i) };
            if Some(request) == null {
                continue;
            }
            let (counted, mut flag) = (done.get_or_insert(0), 0);
            // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
            let code = unsafe { (self.backend.f.request_get_status)(request, &mut flag, statuses.at(*counted)) };
            if code != 0 {
                return Err(code);
            }
            if flag != 0 {
                tell(i, *counted);
                *counted += 1;
            }
        }
        Ok(done)
    }
}

//! Looking at requests without changing them: `MPI_Request_get_status` and its kin of MPI 4.1.

use std::ffi::{c_int, c_void};

use bruckner_mpi::{Handle, Mpi};

use super::Requests;
use super::waits::Statuses;
use crate::error::raise;
use crate::run::Persistent;

impl Requests<Mpi> {
    /// `MPI_Request_get_status`: tells, and changes nothing.
    ///
    /// # Safety
    /// As for `MPI_Request_get_status`.
    pub unsafe fn get_status(&self, request: Handle, flag: *mut c_int, status: *mut c_void) -> c_int {
        let Some(known) = self.planned(self.backend.handle(request)) else {
            // SAFETY: ARGUMENTS.
            return unsafe { (self.backend.f.request_get_status)(request, flag, status) };
        };
        // SAFETY: ARGUMENTS.
        match unsafe { self.is_done(&known, status) } {
            Ok(done) => {
                // SAFETY: ARGUMENTS.
                unsafe { *flag = done.into() };
                0
            }
            Err(code) => code,
        }
    }

    /// Looks at some requests, of which some may be plans, as the functions of MPI 4.1 do: `look` asks the MPI about the
    /// rest and says how many of those are done, `None` if none is under way. Then each plan that is done is told.
    ///
    /// # Safety
    /// As for those functions.
    unsafe fn look(
        &self,
        count: c_int,
        requests: *const c_void,
        look: impl FnOnce(*const c_void) -> Result<Option<usize>, c_int>,
        mut tell: impl FnMut(usize, usize),
    ) -> Result<Option<usize>, c_int> {
        // SAFETY: ARGUMENTS; nothing is written to.
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

    /// `MPI_Request_get_status_all`.
    ///
    /// # Safety
    /// As for `MPI_Request_get_status_all`.
    pub unsafe fn get_status_all(
        &self,
        count: c_int,
        requests: *const c_void,
        flag: *mut c_int,
        statuses: *mut c_void,
    ) -> c_int {
        let at = self.statuses(statuses);
        // SAFETY: ARGUMENTS, here and below.
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

    /// `MPI_Request_get_status_some`.
    ///
    /// # Safety
    /// As for `MPI_Request_get_status_some`.
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
                // SAFETY: ARGUMENTS.
                return unsafe { self.one_by_one(count, rest, |i, n| *indices.add(n) = i as c_int, at) };
            };
            // SAFETY: ARGUMENTS.
            let code = unsafe { native(count, rest, done, indices, statuses) };
            // SAFETY: the MPI has written it.
            let counted = unsafe { *done };
            if code != 0 { Err(code) } else { Ok(usize::try_from(counted).ok()) }
        };
        let tell = |i: usize, n: usize| {
            // SAFETY: as many as there are requests.
            unsafe {
                *indices.add(n) = i as c_int;
                self.empty(at.at(n));
            }
        };
        // SAFETY: ARGUMENTS.
        let found = unsafe { self.look(count, requests, rest, tell) };
        let (code, number) = match found {
            Ok(Some(n)) => (0, n as c_int),
            Ok(None) => (0, self.undefined()),
            Err(code) => (code, 0),
        };
        // SAFETY: ARGUMENTS.
        unsafe { *done = number };
        code
    }

    /// `MPI_Request_get_status_any`.
    ///
    /// # Safety
    /// As for `MPI_Request_get_status_any`.
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
                // SAFETY: ARGUMENTS.
                return unsafe { self.one_by_one(count, rest, |i, _| *index = i as c_int, at) };
            };
            // SAFETY: ARGUMENTS.
            let code = unsafe { native(count, rest, index, flag, status) };
            // SAFETY: the MPI has written them.
            let (found, flag) = unsafe { (*index, *flag) };
            match (code, flag != 0) {
                (0, true) => Ok((found != self.undefined()).then_some(1)),
                (0, false) => Ok(Some(0)),
                (code, _) => Err(code),
            }
        };
        let tell = |i: usize, _: usize| {
            // SAFETY: ARGUMENTS.
            unsafe {
                *index = i as c_int;
                self.empty(status);
            }
        };
        // SAFETY: ARGUMENTS, here and below.
        unsafe {
            let (code, is_done) = match self.look(count, requests, rest, tell) {
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

    /// Where the MPI has no function for several requests: one after the other. A request that is none is not under way.
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
            // SAFETY: ARGUMENTS.
            let request = unsafe { self.backend.handle_at(requests, i) };
            if Some(request) == null {
                continue;
            }
            let (counted, mut flag) = (done.get_or_insert(0), 0);
            // SAFETY: ARGUMENTS.
            let code =
                unsafe { (self.backend.f.request_get_status)(request, &mut flag, statuses.at(*counted)) };
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

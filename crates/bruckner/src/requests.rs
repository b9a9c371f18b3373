//! Persistent requests of MPI's that plans serve.
//!
//! The handle that a program gets is the MPI's own persistent request; a plan stands beside it. `MPI_Start` of such a handle
//! starts the plan and leaves the request inactive, so whoever asks the MPI itself about it is told that nothing is under
//! way. Whatever waits or tests looks for plans among its handles first, gives the MPI the rest, and puts both answers
//! together. A program that has no such request never comes here.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bruckner_mpi::Word;

use crate::Error;
use crate::call::{Call, Lists, Name};
use crate::engine::{Door, Engine, Entry};
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

/// An array of requests of the program's, some of which plans serve.
struct Mixed {
    /// The places of requests that have a plan. One that is not under way counts as nothing: MPICH's own waits hang on
    /// a persistent collective that was never started.
    places: Vec<usize>,
    /// The plans that are under way, by their place in the array.
    plans: Vec<(usize, Arc<Known>)>,
    /// The same array with nothing in all those places.
    rest: Vec<u64>,
}

/// The statuses of a call: where they are, or that nobody wants them.
#[derive(Clone, Copy)]
struct Statuses {
    first: *mut c_void,
    step: usize,
}

impl Statuses {
    fn at(self, at: usize) -> *mut c_void {
        self.first.wrapping_byte_add(at * self.step)
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
        let entry = self.kept(comm, Door::Mpi)?;
        // SAFETY: the caller's promise.
        let made = unsafe { Persistent::for_request(self, entry.clone(), call, comm) }?;
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
            let known =
                Known { plan, why, name, comm, entry, started, since: Mutex::default(), _lists: lists };
            // SAFETY: the handle that was just made.
            self.requests.put(unsafe { self.mpi.handle_at(request, 0) }, known);
        } else {
            // The MPI may look at the lists as long as the request is used, which nobody here is told.
            std::mem::forget(lists);
        }
        Ok(0)
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

    fn statuses(&self, first: *mut c_void) -> Statuses {
        let ignored = self.mpi.constants.get("MPI_STATUSES_IGNORE") == Some(first as u64);
        Statuses { first, step: if ignored { 0 } else { self.mpi.family.status_bytes() } }
    }

    /// Writes what MPI says of a request that is none: an empty status.
    unsafe fn empty(&self, status: *mut c_void) {
        let mut null = self.mpi.constants.get("MPI_REQUEST_NULL").unwrap_or_default();
        let mut flag = 0;
        // SAFETY: a request that is none, and the caller's promise about the status.
        unsafe { (self.mpi.f.test)((&raw mut null).cast(), &mut flag, status) };
    }

    unsafe fn mixed(&self, count: c_int, requests: *mut c_void) -> Option<Mixed> {
        let (mpi, count) = (self.mpi, count.max(0) as usize);
        let (mut places, mut plans) = (Vec::new(), Vec::new());
        for i in 0..count {
            // SAFETY: the caller's promise.
            let handle = unsafe { mpi.handle_at(requests, i) };
            if let Some(known) = self.requests.get(handle).filter(|known| known.plan.is_some()) {
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
    unsafe fn is_done(&self, known: &Known, status: *mut c_void) -> Result<bool, c_int> {
        match known.active().map_or(Ok(true), Persistent::test) {
            Ok(false) => Ok(false),
            Ok(true) => {
                // SAFETY: the caller's promise.
                unsafe { self.empty(status) };
                Ok(true)
            }
            Err(error) => {
                known.consume();
                Err(self.raise(known.comm, &error))
            }
        }
    }

    /// `MPI_Wait`.
    ///
    /// # Safety
    /// As for `MPI_Wait`.
    pub unsafe fn wait(&self, request: *mut c_void, status: *mut c_void) -> c_int {
        // SAFETY: the caller's promise.
        let known = self.requests.get(unsafe { self.mpi.handle_at(request, 0) });
        let Some(known) = known.filter(|known| known.plan.is_some()) else {
            // SAFETY: the caller's promise.
            return unsafe { (self.mpi.f.wait)(request, status) };
        };
        let result = known.active().map_or(Ok(()), |plan| {
            let result = plan.wait();
            known.consume();
            result
        });
        // SAFETY: the caller's promise.
        unsafe { self.empty(status) };
        result.map_or_else(|error| self.raise(known.comm, &error), |()| 0)
    }

    /// `MPI_Test`.
    ///
    /// # Safety
    /// As for `MPI_Test`.
    pub unsafe fn test(&self, request: *mut c_void, flag: *mut c_int, status: *mut c_void) -> c_int {
        // SAFETY: the caller's promise.
        let known = self.requests.get(unsafe { self.mpi.handle_at(request, 0) });
        let Some(known) = known.filter(|known| known.plan.is_some()) else {
            // SAFETY: the caller's promise.
            return unsafe { (self.mpi.f.test)(request, flag, status) };
        };
        // SAFETY: the caller's promise.
        match unsafe { self.is_done(&known, status) } {
            Ok(done) => {
                if done && known.active().is_some() {
                    known.consume();
                }
                // SAFETY: the caller's promise.
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
        // SAFETY: the caller's promise, here and below.
        unsafe {
            let Some(mut mixed) = self.mixed(count, requests) else {
                return (self.mpi.f.waitall)(count, requests, statuses);
            };
            let mut code = (self.mpi.f.waitall)(count, mixed.rest.as_mut_ptr().cast(), statuses);
            self.give_back(&mixed, requests);
            let statuses = self.statuses(statuses);
            for (i, known) in &mixed.plans {
                let result = known.active().map_or(Ok(()), Persistent::wait);
                known.consume();
                self.empty(statuses.at(*i));
                if let Err(error) = result {
                    code = self.raise(known.comm, &error);
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
        // SAFETY: the caller's promise, here and below.
        unsafe {
            let Some(mut mixed) = self.mixed(count, requests) else {
                return (self.mpi.f.testall)(count, requests, flag, statuses);
            };
            *flag = 0;
            for (_, known) in &mixed.plans {
                // The MPI is asked only when nothing else is open: what it says is done, it has given back.
                match known.active().map_or(Ok(true), Persistent::test) {
                    Ok(true) => {}
                    Ok(false) => return 0,
                    Err(error) => {
                        known.consume();
                        return self.raise(known.comm, &error);
                    }
                }
            }
            let code = (self.mpi.f.testall)(count, mixed.rest.as_mut_ptr().cast(), flag, statuses);
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
    unsafe fn give_back(&self, mixed: &Mixed, requests: *mut c_void) {
        for i in 0..mixed.rest.len() {
            if !mixed.places.contains(&i) {
                // SAFETY: the caller's promise; as many handles in both.
                unsafe {
                    let handle = self.mpi.handle_at(mixed.rest.as_ptr().cast(), i);
                    self.mpi.put_handle(requests, i, handle);
                }
            }
        }
    }

    fn undefined(&self) -> c_int {
        self.mpi.constants.get("MPI_UNDEFINED").unwrap_or_default() as c_int
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
        // SAFETY: the caller's promise, here and below.
        unsafe {
            let Some(mut mixed) = self.mixed(count, requests) else {
                return (self.mpi.f.testany)(count, requests, index, flag, status);
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
            let code = (self.mpi.f.testany)(count, mixed.rest.as_mut_ptr().cast(), index, flag, status);
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
        // SAFETY: the caller's promise, here and below.
        unsafe {
            if self.mixed(count, requests).is_none() {
                return (self.mpi.f.waitany)(count, requests, index, status);
            }
            self.until(|| {
                let mut flag = 0;
                let code = self.test_any(count, requests, index, &mut flag, status);
                (code != 0 || flag != 0).then_some(code)
            })
        }
    }

    /// Asks again and again, with patience: asking advances MPI.
    fn until(&self, mut ask: impl FnMut() -> Option<c_int>) -> c_int {
        let mut answer = None;
        let patience = bruckner_runtime::Patience::SHARED_CORES;
        patience.wait(
            || {
                answer = ask();
                answer.is_some()
            },
            || {},
        );
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
        // SAFETY: the caller's promise, here and below.
        unsafe {
            let Some(mut mixed) = self.mixed(count, requests) else {
                return (self.mpi.f.testsome)(count, requests, done, indices, statuses);
            };
            let code = (self.mpi.f.testsome)(count, mixed.rest.as_mut_ptr().cast(), done, indices, statuses);
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
        // SAFETY: the caller's promise, here and below.
        unsafe {
            if self.mixed(count, requests).is_none() {
                return (self.mpi.f.waitsome)(count, requests, done, indices, statuses);
            }
            self.until(|| {
                let code = self.test_some(count, requests, done, indices, statuses);
                (code != 0 || *done != 0).then_some(code)
            })
        }
    }

    /// `MPI_Request_get_status`: tells, and changes nothing.
    ///
    /// # Safety
    /// As for `MPI_Request_get_status`.
    pub unsafe fn get_status(&self, request: Word, flag: *mut c_int, status: *mut c_void) -> c_int {
        let known = self.requests.get(request);
        let Some(known) = known.filter(|known| known.plan.is_some()) else {
            // SAFETY: the caller's promise.
            return unsafe { (self.mpi.f.request_get_status)(request, flag, status) };
        };
        // SAFETY: the caller's promise.
        match unsafe { self.is_done(&known, status) } {
            Ok(done) => {
                // SAFETY: the caller's promise.
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
        // SAFETY: the caller's promise; nothing is written to.
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
                    return Err(self.raise(known.comm, &error));
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
        // SAFETY: the caller's promise, here and below.
        unsafe {
            *flag = 1;
            for i in 0..count.max(0) as usize {
                let (mut one, request) = (0, self.mpi.handle_at(requests, i));
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
            let Some(native) = self.mpi.extra.request_get_status_some else {
                // SAFETY: the caller's promise.
                return unsafe { self.one_by_one(count, rest, |i, n| *indices.add(n) = i as c_int, at) };
            };
            // SAFETY: the caller's promise.
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
        // SAFETY: the caller's promise.
        let found = unsafe { self.look(count, requests, rest, tell) };
        let (code, number) = match found {
            Ok(Some(n)) => (0, n as c_int),
            Ok(None) => (0, self.undefined()),
            Err(code) => (code, 0),
        };
        // SAFETY: the caller's promise.
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
            let Some(native) = self.mpi.extra.request_get_status_any else {
                // SAFETY: the caller's promise.
                return unsafe { self.one_by_one(count, rest, |i, _| *index = i as c_int, at) };
            };
            // SAFETY: the caller's promise.
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
            // SAFETY: the caller's promise.
            unsafe {
                *index = i as c_int;
                self.empty(status);
            }
        };
        // SAFETY: the caller's promise, here and below.
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
        let null = self.mpi.constants.get("MPI_REQUEST_NULL");
        let mut done = None;
        for i in 0..count.max(0) as usize {
            // SAFETY: the caller's promise.
            let request = unsafe { self.mpi.handle_at(requests, i) };
            if Some(request) == null {
                continue;
            }
            let (counted, mut flag) = (done.get_or_insert(0), 0);
            // SAFETY: the caller's promise.
            let code = unsafe { (self.mpi.f.request_get_status)(request, &mut flag, statuses.at(*counted)) };
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

    /// `MPI_Request_free`.
    ///
    /// # Safety
    /// As for `MPI_Request_free`.
    pub unsafe fn free(&self, request: *mut c_void) -> c_int {
        // SAFETY: the caller's promise.
        unsafe {
            let known = self.requests.remove(self.mpi.handle_at(request, 0));
            let code = (self.mpi.f.request_free)(request);
            drop(known);
            code
        }
    }
}

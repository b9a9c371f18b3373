//! Plans bound to buffers for good: made once, then started and awaited again and again.
//!
//! **What advances a started plan.** A plan goes on whenever a thread is in [`Persistent::start`], [`Persistent::test`] or
//! [`Persistent::wait`] of this or any other plan, or in a blocking collective of this library: each of these, while it
//! waits, advances all plans that are started in the process. Calls of MPI itself do not advance a plan, and neither does
//! time. So a rank that has started a plan must not wait in MPI for something that another rank sends only after its own
//! plan is done.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bruckner_mpi::{Messages, Style, TagRange, Word};
use bruckner_runtime::{Buffers, Failure, Scratch, Transport};

use crate::Error;
use crate::call::Call;
use crate::choose::choose;
use crate::communicator::{Prepared, Room};
use crate::engine::{Engine, Entry, Output, Received, Stage};
use crate::normal::{Normal, normal};

/// Plans that are started and not yet done.
#[derive(Default)]
pub(crate) struct Active {
    count: AtomicUsize,
    plans: Mutex<Vec<Arc<Inner>>>,
}

impl Active {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn plans(&self) -> MutexGuard<'_, Vec<Arc<Inner>>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, plan: Arc<Inner>) {
        let mut plans = self.plans();
        plans.push(plan);
        self.count.store(plans.len(), Ordering::Relaxed);
    }

    fn remove(&self, plan: &Arc<Inner>) {
        let mut plans = self.plans();
        plans.retain(|other| !Arc::ptr_eq(other, plan));
        self.count.store(plans.len(), Ordering::Relaxed);
    }

    /// Advances every started plan that no other thread is advancing. What goes wrong with one is told to whoever waits
    /// for it.
    fn advance(&self) {
        let plans = self.plans().clone();
        for plan in plans {
            if let Some(mut body) = plan.body.try_take() {
                body.advance(&plan);
            }
        }
    }

    /// Waits for something and advances all started plans meanwhile.
    pub(crate) fn while_waiting(
        &self,
        messages: &Messages,
        mut done: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        messages.patience().wait(
            || match done() {
                Ok(done) => done,
                Err(failure) => {
                    result = Err(Error::from(failure));
                    true
                }
            },
            || {
                self.advance();
                messages.progress();
            },
        );
        result
    }
}

/// Executions of each way of posting messages after which it is settled.
const TRIALS: u32 = 40;

/// Whether posting messages anew or starting persistent ones is faster here: measured, not guessed.
enum Learning {
    /// Executions so far, when the one under way started, and the times of both ways.
    Measuring {
        executions: u32,
        started: Instant,
        times: [Vec<u64>; 2],
    },
    Settled,
}

struct Body {
    prepared: Prepared,
    temporary: Scratch,
    staged_input: Scratch,
    staged_output: Scratch,
    /// The native request, where the plan is the MPI's own.
    request: u64,
    is_active: bool,
    output: Option<Output>,
    received: Option<Received>,
    learning: Learning,
    /// The buffers, once it is settled that every execution has the same and nothing else is to be done.
    settled: Option<Buffers>,
    failed: Option<Error>,
}

/// A lock that is taken for short: whoever finds it taken by a thread that waits only looks in passing.
struct Turn<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

/// Having the turn.
struct Taken<'a, T>(&'a Turn<T>);

impl<T> Turn<T> {
    fn new(value: T) -> Turn<T> {
        Turn { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    fn try_take(&self) -> Option<Taken<'_, T>> {
        (!self.taken.swap(true, Ordering::Acquire)).then_some(Taken(self))
    }

    #[inline]
    fn take(&self) -> Taken<'_, T> {
        loop {
            if let Some(taken) = self.try_take() {
                return taken;
            }
            std::thread::yield_now();
        }
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: only one has the turn.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: only one has the turn.
        unsafe { &mut *self.0.value.get() }
    }
}

struct Inner {
    engine: &'static Engine,
    /// Keeps the communicator's books even if its handle is freed.
    entry: Arc<Entry>,
    comm: Word,
    call: Call,
    normal: Option<Normal>,
    tags: Option<TagRange>,
    body: Turn<Body>,
}

// SAFETY: the addresses in it are the user's, who vouches for them until the plan is done.
unsafe impl Send for Inner {}
// SAFETY: as above; what changes has its lock.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        if let (Entry::Served(communicator), Some(tags)) = (&*self.entry, self.tags) {
            communicator.hidden.give_back(tags);
        }
    }
}

/// A plan.
pub struct Persistent(Arc<Inner>);

impl Persistent {
    /// Makes a plan of a call. Collective. An algorithm that is named is used, or refused with the reason.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name, and stay so as long as the plan is used.
    pub unsafe fn new(
        engine: &'static Engine,
        call: Call,
        comm: Word,
        algorithm: Option<&str>,
    ) -> Result<Persistent, Error> {
        let entry = engine.kept(comm)?;
        let (mut prepared, mut kept_normal, mut tags) = (Prepared::Native, None, None);
        if let Entry::Served(communicator) = &*entry {
            let asked = algorithm.filter(|text| !text.is_empty()).map(str::parse).transpose();
            let asked = asked.map_err(|error| Error::Argument(format!("{error}")))?;
            if let Ok(normal) = normal(engine.mpi, &call, communicator.rank.0, communicator.size)? {
                let state = communicator.take()?;
                let (topology, rules) = (state.topology.clone(), state.rules.clone());
                communicator.put(state);
                let expression = asked
                    .clone()
                    .unwrap_or_else(|| choose(&normal.key, &topology, &rules, engine.mpi.name()));
                if let Some(range) = communicator.hidden.take_tags(comm)? {
                    // A segment of its own: plans may be started in any order.
                    let mut room = Room::none();
                    let made =
                        communicator.make(&topology, &normal.key, &expression, range, &mut room, &normal);
                    match made {
                        Ok(made) => prepared = made,
                        Err(error) => {
                            communicator.hidden.give_back(range);
                            return Err(error);
                        }
                    }
                    tags = Some(range);
                }
                let native = expression.to_string() == "native";
                if matches!(prepared, Prepared::Native) && asked.is_some() && !native {
                    if let Some(range) = tags {
                        communicator.hidden.give_back(range);
                    }
                    return Err(Error::Argument(format!(
                        "`{expression}` does not serve this {} on {topology}",
                        call.name().text()
                    )));
                }
                kept_normal = Some(normal);
            }
        }
        let needs = match &prepared {
            Prepared::Ready(plan) => plan.compiled().needs.temporary,
            _ => 0,
        };
        let measures = matches!(&prepared, Prepared::Ready(plan) if plan.compiled().fixed && plan.compiled().messages > 0);
        let learning = match measures {
            true => Learning::Measuring {
                executions: 0,
                started: Instant::now(),
                times: [Vec::new(), Vec::new()],
            },
            false => Learning::Settled,
        };
        let body = Body {
            prepared,
            temporary: Scratch::new(needs),
            staged_input: Scratch::new(0),
            staged_output: Scratch::new(0),
            request: 0,
            is_active: false,
            output: None,
            received: None,
            learning,
            settled: None,
            failed: None,
        };
        let inner = Inner { engine, entry, comm, call, normal: kept_normal, tags, body: Turn::new(body) };
        Ok(Persistent(Arc::new(inner)))
    }

    fn body(&self) -> Taken<'_, Body> {
        self.0.body.take()
    }

    /// Starts it. Not collective in order: ranks may start their plans in any order.
    ///
    /// # Safety
    /// The buffers are the plan's until it is done.
    pub unsafe fn start(&self) -> Result<(), Error> {
        let mut body = self.body();
        if body.is_active {
            return Err(Error::Plan("the plan is started already"));
        }
        // SAFETY: the caller's promise.
        unsafe { body.start(&self.0) }?;
        if body.is_active {
            drop(body);
            self.0.engine.active.add(self.0.clone());
        }
        Ok(())
    }

    /// Does what can be done without waiting; whether it is done. A plan that is not started is done.
    pub fn test(&self) -> Result<bool, Error> {
        let mut body = self.body();
        // Another thread, or a call that waited, may have brought it to its end.
        body.advance(&self.0);
        let done = !body.is_active;
        let failed = body.failed.take();
        drop(body);
        if done {
            self.0.engine.active.remove(&self.0);
        } else {
            self.0.engine.active.advance();
        }
        failed.map_or(Ok(done), Err)
    }

    /// Waits until it is done; all other started plans go on meanwhile.
    pub fn wait(&self) -> Result<(), Error> {
        let Entry::Served(communicator) = &*self.0.entry else {
            while !self.test()? {
                std::hint::spin_loop();
            }
            return Ok(());
        };
        let active = &self.0.engine.active;
        let messages = &communicator.hidden.messages;
        let mut body = self.body();
        if active.count.load(Ordering::Relaxed) <= 1
            && body.is_active
            && !matches!(body.prepared, Prepared::Native)
        {
            body.finish(&self.0, messages);
            let failed = body.failed.take();
            drop(body);
            active.remove(&self.0);
            return failed.map_or(Ok(()), Err);
        }
        drop(body);
        let mut result = Ok(());
        messages.patience().wait(
            || match self.test() {
                Ok(done) => done,
                Err(error) => {
                    result = Err(error);
                    true
                }
            },
            || messages.progress(),
        );
        result
    }

    /// Starts it and waits until it is done: what a blocking call costs least as.
    ///
    /// # Safety
    /// As for [`Persistent::start`].
    pub unsafe fn run(&self) -> Result<(), Error> {
        let Entry::Served(communicator) = &*self.0.entry else {
            // SAFETY: the caller's promise.
            return unsafe { self.0.call.native(self.0.engine.mpi, self.0.comm) }.map_err(Error::from);
        };
        let mut body = self.body();
        if self.0.engine.active.is_empty() && !body.is_active {
            // SAFETY: the caller's promise.
            return unsafe { body.run(&self.0, &communicator.hidden.messages) };
        }
        drop(body);
        // SAFETY: the caller's promise.
        unsafe { self.start() }?;
        self.wait()
    }

    /// Whether it is started and not yet done.
    pub fn is_active(&self) -> bool {
        self.body().is_active
    }

    /// Whether it is the MPI's own collective.
    pub fn is_native(&self) -> bool {
        matches!(self.body().prepared, Prepared::Native)
    }
}

impl Body {
    /// From beginning to end, with nothing else going on.
    #[inline]
    unsafe fn run(&mut self, inner: &Inner, messages: &Messages) -> Result<(), Error> {
        if let (Prepared::Ready(plan), Some(buffers)) = (&mut self.prepared, self.settled) {
            // SAFETY: as in the execution before.
            return unsafe { plan.run(messages, buffers) }.map_err(Error::from);
        }
        if let (Prepared::Ready(plan), Learning::Settled, Some(normal)) =
            (&mut self.prepared, &self.learning, &inner.normal)
        {
            let mpi = inner.engine.mpi;
            let mut stage = Stage {
                mpi,
                comm: inner.comm,
                input: &mut self.staged_input,
                output: &mut self.staged_output,
            };
            stage.grow(normal);
            let (buffers, output) = stage.bring(normal, plan, &self.temporary)?;
            // SAFETY: buffers of the sizes that the plan needs, by the user's promise or staged.
            unsafe { plan.run(messages, buffers) }?;
            if normal.is_direct(plan.compiled().in_place) {
                self.settled = Some(buffers);
            }
            return stage.take(normal, output, normal.bytes.1);
        }
        // SAFETY: the caller's promise.
        unsafe { self.start(inner) }?;
        if self.is_active {
            self.finish(inner, messages);
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    unsafe fn start(&mut self, inner: &Inner) -> Result<(), Error> {
        let mpi = inner.engine.mpi;
        let Body { prepared, temporary, staged_input, staged_output, learning, .. } = self;
        let mut stage = Stage { mpi, comm: inner.comm, input: staged_input, output: staged_output };
        match (prepared, &*inner.entry, &inner.normal) {
            (Prepared::Ready(plan), Entry::Served(communicator), Some(normal)) => {
                stage.grow(normal);
                let (buffers, output) = stage.bring(normal, plan, temporary)?;
                if let Learning::Measuring { executions, started, .. } = learning {
                    let style = if *executions % 2 == 0 { Style::Immediate } else { Style::Persistent };
                    plan.requests_mut().set_style(style);
                    *started = Instant::now();
                }
                let messages = &communicator.hidden.messages;
                // SAFETY: buffers of the sizes that the plan needs, by the user's promise or staged.
                unsafe { plan.start(messages, buffers) }?;
                self.output = Some(output);
                self.is_active = true;
                if matches!(&self.prepared, Prepared::Ready(plan) if !plan.is_active()) {
                    self.done(inner);
                }
            }
            (Prepared::Sized(plan), Entry::Served(communicator), _) => {
                let (buffers, received) = stage.bring_sized(&inner.call, communicator.size, plan)?;
                // SAFETY: as above.
                unsafe { plan.start(&communicator.hidden.messages, buffers) }?;
                self.received = Some(received);
                self.is_active = true;
            }
            _ => {
                let cell: *mut c_void = (&raw mut self.request).cast();
                // SAFETY: the caller's promise; the cell has room for the widest request.
                unsafe { inner.call.native_start(mpi, inner.comm, cell) }?;
                self.is_active = true;
            }
        }
        Ok(())
    }

    /// Does what can be done without waiting.
    fn advance(&mut self, inner: &Inner) {
        if !self.is_active {
            return;
        }
        let result = match (&mut self.prepared, &*inner.entry) {
            (Prepared::Ready(plan), Entry::Served(c)) => plan.test(&c.hidden.messages).map_err(Error::from),
            (Prepared::Sized(plan), Entry::Served(c)) => plan.test(&c.hidden.messages).map_err(Error::from),
            _ => {
                let mut flag = 0;
                let mpi = inner.engine.mpi;
                let ignore = mpi.constants.get("MPI_STATUSES_IGNORE").unwrap_or_default() as *mut c_void;
                // SAFETY: the request that `start` made.
                let code = unsafe { (mpi.f.testall)(1, (&raw mut self.request).cast(), &mut flag, ignore) };
                match code {
                    0 => Ok(flag != 0),
                    code => Err(Error::Mpi(bruckner_mpi::MpiError { call: "MPI_Testall", code })),
                }
            }
        };
        match result {
            Ok(false) => {}
            Ok(true) => self.done(inner),
            Err(error) => {
                self.failed = Some(error);
                self.is_active = false;
            }
        }
    }

    /// Waits until it is done; nothing else goes on.
    fn finish(&mut self, inner: &Inner, messages: &Messages) {
        let result = match &mut self.prepared {
            Prepared::Ready(plan) => plan.wait(messages).map_err(Error::from),
            Prepared::Sized(plan) => plan.wait(messages).map_err(Error::from),
            Prepared::Native => {
                while self.is_active {
                    self.advance(inner);
                }
                return;
            }
        };
        match result {
            Ok(()) => self.done(inner),
            Err(error) => {
                self.failed = Some(error);
                self.is_active = false;
            }
        }
    }

    /// What is left when the last step is done.
    fn done(&mut self, inner: &Inner) {
        self.is_active = false;
        let mpi = inner.engine.mpi;
        if let (Some(Output::Staged(from)), Some(normal)) = (self.output.take(), &inner.normal) {
            let bytes = normal.bytes.1;
            self.failed = normal.output.unpack(mpi, inner.comm, from, bytes).err();
        }
        if let Some(received) = self.received.take() {
            self.failed = received.take(mpi, inner.comm).err();
        }
        if let Learning::Measuring { executions, started, times } = &mut self.learning {
            times[*executions as usize % 2].push(started.elapsed().as_nanos() as u64);
            *executions += 1;
            if *executions == 2 * TRIALS {
                times.iter_mut().for_each(|times| times.sort_unstable());
                let median = |times: &[u64]| times[times.len() / 2];
                let style =
                    if median(&times[1]) < median(&times[0]) { Style::Persistent } else { Style::Immediate };
                if let Prepared::Ready(plan) = &mut self.prepared {
                    plan.requests_mut().set_style(style);
                }
                self.learning = Learning::Settled;
            }
        }
    }
}

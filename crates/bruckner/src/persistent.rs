//! Plans bound to buffers for good: made once, then started and awaited again and again.
//!
//! **What advances a started plan.** A plan goes on whenever a thread is in [`Persistent::start`], [`Persistent::test`] or
//! [`Persistent::wait`] of this or any other plan, or in a blocking collective of this library: each of these, while it
//! waits, advances all plans of the process that were started before it began to wait. Calls of MPI itself do not advance a plan, and neither does
//! time. So a rank that has started a plan must not wait in MPI for something that another rank sends only after its own
//! plan is done.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use bruckner_mpi::{Messages, Style, TagRange, Word};
use bruckner_runtime::{Buffers, Scratch, Transport};

use crate::Error;
use crate::call::Call;
use crate::choose::Choice;
use crate::communicator::{Communicator, Prepared, Room, Site};
use crate::engine::{Door, Engine, Entry, Serving};
use crate::normal::{Normal, normal};
use crate::stage::{Output, Received, Stage};
use crate::turn::{Taken, Turn};

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

pub(crate) struct Body {
    prepared: Prepared,
    room: Room,
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

pub(crate) struct Inner {
    engine: &'static Engine,
    /// Keeps the communicator's books even if its handle is freed.
    entry: Arc<Entry>,
    comm: Word,
    call: Call,
    normal: Option<Normal>,
    tags: Option<TagRange>,
    pub(crate) body: Turn<Body>,
    choice: Choice,
}

// SAFETY: the addresses in it are the user's, who vouches for them until the plan is done.
unsafe impl Send for Inner {}
// SAFETY: as above; what changes has its lock.
unsafe impl Sync for Inner {}

impl Inner {
    fn communicator(&self) -> Option<&Communicator> {
        match &self.entry.serving {
            Serving::Planned(communicator) => Some(communicator),
            _ => None,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let (Serving::Planned(communicator), Some(tags)) = (&self.entry.serving, self.tags) {
            communicator.hidden.give_back(tags);
        }
    }
}

/// What a plan is made of.
struct Made {
    prepared: Prepared,
    choice: Choice,
    room: Room,
    normal: Option<Normal>,
    tags: Option<TagRange>,
}

impl Made {
    fn native(choice: Choice) -> Made {
        Made { prepared: Prepared::Native, choice, room: Room::none(), normal: None, tags: None }
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
        let entry = engine.kept(comm, Door::Api)?;
        let asked = algorithm.filter(|text| !text.is_empty()).map(str::parse).transpose();
        let asked: Option<bruckner_algorithms::Expression> =
            asked.map_err(|error| Error::Argument(format!("{error}")))?;
        let normal = match &entry.serving {
            Serving::Planned(communicator) => {
                normal(engine.mpi, &call, communicator.rank.0, communicator.size)?
            }
            _ => return Ok(Persistent::native(engine, entry, comm, call, "the communicator is not served")),
        };
        let normal = match normal {
            Ok(normal) => normal,
            Err(native) => return Ok(Persistent::native(engine, entry, comm, call, native.why())),
        };
        let given = asked.clone().map(|expression| Choice { expression, why: "asked for".into() });
        let made = Persistent::planned(engine, entry, comm, call, normal, given, false)?;
        match asked {
            Some(asked) if made.is_native() && asked.to_string() != "native" => Err(Error::Argument(
                format!("`{asked}` does not serve this {} here: {}", call.name().text(), made.0.choice.why),
            )),
            _ => Ok(made),
        }
    }

    /// A plan for a persistent request of MPI's, which is advanced only where the MPI has a hook, or needs no advancing
    /// because it has one round. `Err` has the reason why there is none, on all ranks. Collective.
    ///
    /// # Safety
    /// As for [`Persistent::new`].
    pub(crate) unsafe fn for_request(
        engine: &'static Engine,
        entry: Arc<Entry>,
        call: Call,
        comm: Word,
    ) -> Result<Result<Persistent, String>, Error> {
        let communicator = match &entry.serving {
            Serving::Planned(communicator) => communicator,
            Serving::Native(why) => return Ok(Err((*why).to_owned())),
            Serving::NotYet(_) => return Ok(Err("the first calls on a communicator".to_owned())),
        };
        let normal = match normal(engine.mpi, &call, communicator.rank.0, communicator.size) {
            Ok(Ok(normal)) => normal,
            Ok(Err(native)) => return Ok(Err(native.why().to_owned())),
            Err(_) => return Ok(Err("arguments that are left to MPI".to_owned())),
        };
        let one_round = !communicator.hidden.hooked;
        let mut made = Persistent::planned(engine, entry, comm, call, normal, None, one_round)?;
        if made.is_native() {
            let why = &made.0.choice.why;
            let only = if one_round { "; nothing would advance a plan of several rounds here" } else { "" };
            return Ok(Err(format!("{why}{only}")));
        }
        // Inside MPI's progress only requests that are posted anew can be given back.
        let inner = Arc::get_mut(&mut made.0).expect("nobody else has it yet");
        inner.body.get_mut().learning = Learning::Settled;
        Ok(Ok(made))
    }

    /// Whether MPI alone brings it on once it is started.
    pub(crate) fn is_one_round(&self) -> bool {
        match &self.body().prepared {
            Prepared::Ready(plan) => plan.compiled().one_round,
            Prepared::Sized(plan) => plan.one_round,
            Prepared::Native => true,
        }
    }

    /// The algorithm, and why it.
    pub(crate) fn choice(&self) -> &Choice {
        &self.0.choice
    }

    /// A plan that is the MPI's own collective.
    fn native(engine: &'static Engine, entry: Arc<Entry>, comm: Word, call: Call, why: &str) -> Persistent {
        let expression =
            bruckner_algorithms::Expression::Plain(bruckner_algorithms::expression::Plain::Native);
        let choice = Choice { expression, why: why.to_owned() };
        Persistent::of(engine, entry, comm, call, Made::native(choice))
    }

    /// A plan by one of the algorithms for a call on a communicator that is served. Collective.
    fn planned(
        engine: &'static Engine,
        entry: Arc<Entry>,
        comm: Word,
        call: Call,
        normal: Normal,
        given: Option<Choice>,
        one_round: bool,
    ) -> Result<Persistent, Error> {
        let Serving::Planned(communicator) = &entry.serving else { unreachable!("it is served") };
        let state = communicator.take()?;
        let (topology, rules) = (state.topology.clone(), state.rules.clone());
        communicator.put(state);
        let choices = match given {
            Some(choice) => vec![choice],
            None => communicator.choices(&normal.key, &topology, &rules),
        };
        let Some(tags) = communicator.hidden.take_tags(comm)? else {
            return Ok(Persistent::native(engine, entry, comm, call, "no tags are left"));
        };
        // A segment of its own: plans may be started in any order.
        let mut room = Room::none();
        let site = Site { topology: &topology, tags, normal: &normal, one_round };
        let first = communicator.first(&site, choices, &mut room);
        let (prepared, choice) = match first {
            Ok(first) => first,
            Err(error) => {
                communicator.hidden.give_back(tags);
                return Err(error);
            }
        };
        let made = Made { prepared, choice, room, normal: Some(normal), tags: Some(tags) };
        Ok(Persistent::of(engine, entry, comm, call, made))
    }

    fn of(engine: &'static Engine, entry: Arc<Entry>, comm: Word, call: Call, made: Made) -> Persistent {
        let Made { prepared, choice, room, normal, tags } = made;
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
            room,
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
        let body = Turn::new(body);
        Persistent(Arc::new(Inner { engine, entry, comm, call, normal, tags, body, choice }))
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
        body.advance(&self.0, false);
        let done = !body.is_active;
        let failed = body.failed.take();
        drop(body);
        if done {
            self.0.engine.active.remove(&self.0);
        } else {
            self.0.engine.active.advance(false);
        }
        failed.map_or(Ok(done), Err)
    }

    /// Waits until it is done; all other started plans go on meanwhile.
    pub fn wait(&self) -> Result<(), Error> {
        let Some(communicator) = self.0.communicator() else {
            while !self.test()? {
                std::hint::spin_loop();
            }
            return Ok(());
        };
        let active = &self.0.engine.active;
        let messages = &communicator.hidden.messages;
        let mut body = self.body();
        if active.count() <= 1 && body.is_active && !matches!(body.prepared, Prepared::Native) {
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
        let Some(communicator) = self.0.communicator() else {
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
            let (buffers, output) = stage.bring(normal, plan, &self.room.temporary)?;
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
        let Body { prepared, room, staged_input, staged_output, learning, .. } = self;
        let mut stage = Stage { mpi, comm: inner.comm, input: staged_input, output: staged_output };
        match (prepared, inner.communicator(), &inner.normal) {
            (Prepared::Ready(plan), Some(communicator), Some(normal)) => {
                stage.grow(normal);
                let (buffers, output) = stage.bring(normal, plan, &room.temporary)?;
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
            (Prepared::Sized(plan), Some(communicator), _) => {
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

    pub(crate) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Does what can be done without waiting; inside MPI's own progress, without asking for any.
    pub(crate) fn advance(&mut self, inner: &Inner, inside: bool) {
        if !self.is_active {
            return;
        }
        let messages = |communicator: &Communicator| match inside {
            true => communicator.hidden.messages.quiet(),
            false => communicator.hidden.messages,
        };
        let result = match (&mut self.prepared, inner.communicator()) {
            (Prepared::Ready(plan), Some(c)) => plan.test(&messages(c)).map_err(Error::from),
            (Prepared::Sized(plan), Some(c)) => plan.test(&messages(c)).map_err(Error::from),
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
                    self.advance(inner, false);
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

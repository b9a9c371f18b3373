//! The engine: a call comes in; choose, plan, agree, keep, run. It knows all of the rooms around it, and none of them knows it.

mod again;
mod asks;
mod ends;
mod kept;
mod persistent;
mod process;

use std::ffi::c_int;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bruckner_choose::Choice;
use bruckner_config::{Destination, files};
use bruckner_mpi::{Agree, Function, Handle, Work, is_pinned};
use bruckner_report::{Event, Handler, JobPlacement, RunInfo, Statistics, assemble};
use bruckner_schedule::{Counts, Level};

use crate::Error;
use crate::backend::Backend;
use crate::call::Call;
use crate::communicator::{
    Communicator, Hidden, Natives, Prepared, State, Store, VersionId, arguments, is_built_in,
};
use crate::error::raise;
use crate::normalize::{NormalizedCall, alltoallv_layout, normalize};
use crate::progress::Active;
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::requests::Requests;
use crate::run::{NativeCheck, Staging};
use kept::{Counted, Entry, Serving};

/// By which door a call came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryPoint {
    /// A function of the library's own: whoever calls it wants it served, and told what is wrong.
    Api,
    /// A function of MPI's that was taken over: what is not understood goes to the MPI's own.
    Mpi,
}

/// The engine of a process, or of a rank that is a thread.
pub struct Engine<B: Backend> {
    backend: &'static B,
    /// The hidden communicator of `MPI_COMM_WORLD`, once there is one.
    hidden: Mutex<Option<Arc<Hidden<B>>>>,
    /// Communicators that have a hidden one of their own.
    private: AtomicUsize,
    active: Arc<Active>,
    requests: Requests<B>,
    statistics: Arc<Statistics>,
    natives: Natives,
    /// Whether calls that come again may be recognised: not if each may have to be compared.
    quick: AtomicBool,
    /// Whether calls are counted, for a report: then none goes to the MPI unseen.
    counts: AtomicBool,
    /// Whether anything was ever kept for a communicator.
    keeps: AtomicBool,
    /// What stands for the entries of communicators that are being freed.
    ending: Arc<Entry<B>>,
    /// Functions of the MPI's that are left alone, as bits; all, as long as there is no hidden communicator.
    left: AtomicU16,
}

/// What an engine found out about `MPI_COMM_WORLD`, for people.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Its ranks.
    pub ranks: u32,
    /// Where they are.
    pub topology: String,
    /// Whether nodes have shared memory.
    pub shared_memory: bool,
    /// Whether ranks of a node can read each other's buffers.
    pub reads: bool,
    /// Whether ranks outnumber cores.
    pub shared_cores: bool,
    /// What was wrong with the settings.
    pub complaints: Vec<String>,
}

/// What became of a call, for the report.
#[derive(Default)]
struct Outcome {
    /// What was chosen, or why it went to the MPI's own function without a choice.
    choice: Option<Arc<Choice>>,
    reason: Option<Reason>,
    bytes: u64,
    /// How long it waited.
    waited: Option<Duration>,
}

impl Outcome {
    /// Counts a call that all ranks are known to make, and waits until they have come, if that is to be seen.
    fn meet(
        &mut self,
        counted: Option<&Counted>,
        call: &Call,
        meet: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        if counted.is_some_and(|counted| counted.meets(call)) {
            let start = Instant::now();
            meet()?;
            self.waited = Some(start.elapsed());
        }
        Ok(())
    }
}

impl<B: Backend> Engine<B> {
    /// An engine. `inside` is what the MPI is to do inside its waits as long as operations are under way.
    pub fn new(backend: &'static B, inside: Work) -> Engine<B> {
        Engine {
            backend,
            hidden: Mutex::new(None),
            private: AtomicUsize::new(0),
            active: Arc::default(),
            requests: Requests::new(backend, inside),
            statistics: Arc::default(),
            natives: Natives::new(),
            quick: AtomicBool::new(true),
            counts: AtomicBool::new(false),
            keeps: AtomicBool::new(false),
            ending: Entry::ending(),
            left: AtomicU16::new(u16::MAX),
        }
    }

    /// Makes the hidden communicator. Collective over `MPI_COMM_WORLD`; a second call does nothing.
    pub fn init(&self) -> Result<(), Error> {
        self.hidden().map(|_| ())
    }

    /// Whether a function of the MPI's is left alone.
    #[inline]
    pub fn leaves(&self, function: Function) -> bool {
        self.left.load(Ordering::Relaxed) & (1 << function as u8) != 0
    }

    /// The MPI.
    #[inline]
    pub fn backend(&self) -> &'static B {
        self.backend
    }

    /// The persistent requests of the MPI's that operations serve.
    #[inline]
    pub fn requests(&self) -> &Requests<B> {
        &self.requests
    }

    /// Advances all operations that are started; whether any is left.
    pub fn advance(&self, inside: bool) -> bool {
        self.active.advance(inside);
        !self.active.is_empty()
    }

    /// The hidden communicator, if there is one.
    fn hidden_now(&self) -> Option<Arc<Hidden<B>>> {
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn hidden(&self) -> Result<Arc<Hidden<B>>, Error> {
        if let Some(hidden) = self.hidden_now() {
            return Ok(hidden);
        }
        let made = Arc::new(Hidden::new(self.backend, self.backend.comm_world(), self.active.clone())?);
        self.quick.store(made.settings.check == 0, Ordering::Relaxed);
        self.counts.store(made.settings.report.is_some(), Ordering::Relaxed);
        *self.hidden.lock().unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
        Ok(made)
    }

    /// Writes the report and forgets everything that needs MPI, before it is finalised. Collective over
    /// `MPI_COMM_WORLD`.
    pub fn finalize(&self) {
        let hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.left.store(u16::MAX, Ordering::Release);
        if let Some(hidden) = &hidden {
            self.report(hidden);
        }
        let backend = self.backend.comm_world();
        if self.backend.kept(backend).is_some() {
            self.backend.forget(backend);
        }
        self.backend.renew();
        kept::forget_last();
        if let Some(hidden) = hidden.and_then(Arc::into_inner) {
            self.backend.free(hidden.comm);
        }
    }

    fn report(&self, hidden: &Hidden<B>) {
        let Some(to) = &hidden.settings.report else { return };
        // There is nobody left to tell of a failure but the user.
        let texts = match hidden.collect(&self.statistics.text()) {
            Ok(Some(texts)) => texts,
            Ok(None) => return,
            Err(error) => return eprintln!("bruckner: the report cannot be put together: {error}"),
        };
        let mode = format!("{:?}", hidden.settings.mode).to_lowercase();
        let machine = JobPlacement {
            nodes: hidden.places.regions(Level::NODE),
            shared_cores: hidden.shared_cores,
            pinned: is_pinned(),
        };
        let run = RunInfo {
            mpi: self.backend.name(),
            mode: &mode,
            seconds: self.statistics.seconds(),
            machine,
            complaints: &hidden.settings.complaints,
        };
        let report = assemble(&texts, &run);
        match to {
            Destination::Stderr => eprint!("{}", report.table()),
            Destination::File(pattern) => {
                let path = files::named(pattern);
                match files::create_new(&path).and_then(|(mut file, other)| {
                    file.write_all(report.json().as_bytes())?;
                    Ok(other)
                }) {
                    Ok(None) => {}
                    Ok(Some(other)) => eprintln!(
                        "bruckner: {} is there already; the report is {}",
                        path.display(),
                        other.display()
                    ),
                    Err(error) => eprintln!("bruckner: BRUCKNER_REPORT={}: {error}", path.display()),
                }
            }
        }
    }

    /// Runs a collective. `Ok` has what the MPI's own function returned, if it was called, and otherwise 0; an error that it
    /// returned it has raised already.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name.
    pub unsafe fn run(&self, call: &Call, comm: Handle, entry_point: EntryPoint) -> Result<c_int, Error> {
        if entry_point == EntryPoint::Mpi && self.backend.is_null_comm(comm) {
            // SAFETY: as for this function; MPI raises its error.
            return Ok(unsafe { self.native(call, comm) });
        }
        let entry = match entry_point {
            EntryPoint::Api => self.entry(comm, entry_point)?,
            EntryPoint::Mpi => self.entry_for(call, comm)?,
        };
        let Some(counted) = &entry.counted else {
            // SAFETY: as for this function.
            return unsafe { self.serve_call(entry, call, comm, entry_point, None) };
        };
        let start = Instant::now();
        let mut outcome = Outcome::default();
        // SAFETY: as for this function.
        let result = unsafe { self.serve_call(entry, call, comm, entry_point, Some(&mut outcome)) };
        let took = start.elapsed();
        self.statistics.add_time(took, outcome.waited);
        let Some(counters) = &counted.counters else { return result };
        let Outcome { choice, reason, mut bytes, .. } = outcome;
        if bytes == 0
            && !self.backend.is_inter(comm)?
            && let Ok(normalized) =
                normalize(self.backend, call, self.backend.rank(comm)?, self.backend.size(comm)?)
        {
            bytes = normalized.signature.bytes();
        }
        let why = reason.map(|reason| reason.to_string());
        let by = match (&choice, &why) {
            (Some(choice), _) => Handler::Choice(choice),
            (None, why) => Handler::Named("native", why.as_deref().unwrap_or_default()),
        };
        let (name, seconds) = (call.name(), took.as_secs_f64());
        counters.add(&Event { name, persistent: false, by, bytes, seconds });
        result
    }

    /// Whether a call does something, and the MPI will not refuse it before it has talked to others.
    fn is_sound(&self, call: &Call, comm: Handle) -> Result<bool, Error> {
        let normalized = normalize(self.backend, call, self.backend.rank(comm)?, self.backend.size(comm)?);
        Ok(normalized.is_ok_and(|normalized| !normalized.signature.is_nothing()))
    }

    /// The same; what served is noted for the report.
    unsafe fn serve_call(
        &self,
        entry: &Entry<B>,
        call: &Call,
        comm: Handle,
        entry_point: EntryPoint,
        mut outcome: Option<&mut Outcome>,
    ) -> Result<c_int, Error> {
        let generation = self.backend.generation();
        let known = match is_built_in(self.backend, call) {
            true => arguments(self.backend, call, || entry.listed()),
            false => self.in_bytes(call).and_then(|bytes| arguments(self.backend, &bytes, || entry.listed())),
        };
        let reason = match &entry.serving {
            Serving::Planned(communicator) => {
                match normalize(self.backend, call, communicator.rank.0, communicator.size) {
                    Ok(normalized) if entry_point == EntryPoint::Mpi && normalized.signature.is_nothing() => {
                        if let Some(arguments) = known.filter(|_| self.passes_unseen()) {
                            self.natives.put(comm, generation, &arguments.words, 0..=0);
                        }
                        Reason::NothingToDo
                    }
                    Ok(mut normalized) => {
                        let mut state = communicator.take()?;
                        // SAFETY: as for this function.
                        let native = || Ok(unsafe { self.native(call, comm) });
                        // MPI judges its arguments before anybody waits for this rank.
                        let judged =
                            normalized.signature.is_local() && !state.is_native(&normalized.signature);
                        if judged && alltoallv_layout(self.backend, call, communicator.size).is_err() {
                            return native();
                        }
                        let Some(served) = communicator.plan_for(&mut state, &mut normalized)? else {
                            if let Some(outcome) = outcome {
                                outcome.reason = Some(Reason::Different);
                            }
                            return native();
                        };
                        if !state.store.plans.versions.get(served.id).is_the_call_itself() {
                            normalized.look_closer(self.backend);
                        }
                        if let Some(arguments) = known {
                            self.remember(
                                generation,
                                communicator,
                                &mut state,
                                arguments,
                                &served,
                                &normalized,
                            );
                        }
                        if let Some(outcome) = &mut outcome {
                            (outcome.choice, outcome.bytes) = (Some(state.why(&served)), served.bytes);
                            outcome.meet(entry.counted.as_ref(), call, || communicator.meet())?;
                        }
                        communicator.gather_for(&served)?;
                        let start = Instant::now();
                        // SAFETY: as for this function.
                        let result = unsafe {
                            self.execute(entry, communicator, &mut state, served.id, call, &normalized)
                        };
                        // A call that failed here is one of a look as well: all ranks count it.
                        let seen = communicator.looked(&mut state, &served, start.elapsed())?;
                        if let Some(counters) = entry.counters().filter(|_| !seen.is_empty()) {
                            let equal = matches!(normalized.signature.problem.counts, Counts::Equal(_));
                            counters.add_trial(call.name(), served.bytes, equal, &seen);
                        }
                        return result;
                    }
                    Err(Refusal::Native(reason)) => reason,
                    // Not every MPI looks.
                    Err(Refusal::Wrong(error @ Error::Negative(_))) => return Err(error),
                    // MPI itself judges its arguments, and raises its errors where they belong.
                    Err(Refusal::Wrong(_)) if entry_point == EntryPoint::Mpi => Reason::LeftToMpi,
                    Err(Refusal::Wrong(error)) => return Err(error),
                }
            }
            Serving::Native(reason) => {
                if let Some(arguments) = known.filter(|_| self.passes_unseen()) {
                    self.natives.put(comm, generation, &arguments.words, 0..=u64::MAX);
                }
                reason.clone()
            }
            Serving::NotYet(_) if self.is_off() => Reason::Off,
            Serving::NotYet(_) => Reason::FirstCalls,
        };
        if let Some(outcome) = outcome {
            // Where nothing is served, this is the way of all calls, on all ranks.
            let counted = entry.counted.as_ref().filter(|counted| reason == Reason::Off && counted.inside);
            if counted.is_some() && self.is_sound(call, comm)? {
                outcome.meet(counted, call, || Ok(self.backend.agree(comm, Agree::Max, &mut [0])?))?;
            }
            outcome.reason = Some(reason);
        }
        // SAFETY: as for this function.
        Ok(unsafe { self.native(call, comm) })
    }

    /// Whether a call that came before may go to the MPI's own function without a look at it.
    fn passes_unseen(&self) -> bool {
        self.quick.load(Ordering::Relaxed) && !self.counts.load(Ordering::Relaxed)
    }

    /// The MPI's own function, and what it returns.
    ///
    /// # Safety
    /// The arguments are right for it.
    #[inline(always)]
    pub unsafe fn native(&self, call: &Call, comm: Handle) -> c_int {
        // SAFETY: as for this function.
        match unsafe { self.backend.native(call, comm) } {
            Ok(()) => 0,
            Err(error) => error.code,
        }
    }

    unsafe fn execute(
        &self,
        entry: &Entry<B>,
        communicator: &Communicator<B>,
        state: &mut State<B>,
        id: VersionId,
        call: &Call,
        normalized: &NormalizedCall,
    ) -> Result<c_int, Error> {
        let State { store: Store { plans, room, .. }, staged_input, staged_output, calls, .. } = state;
        let version = plans.versions.get(id);
        let prepared = match &mut version.prepared {
            None | Some(Prepared::Native) => {
                // SAFETY: as for this function.
                return Ok(unsafe { self.native(call, communicator.comm) });
            }
            Some(prepared) => prepared,
        };
        let every = communicator.hidden.settings.check;
        let check = every > 0 && calls.is_multiple_of(every);
        let shadow = match check {
            // SAFETY: as for this function.
            true => unsafe { NativeCheck::cast(communicator, call, normalized) }?,
            false => None,
        };
        let (wire, comm) = (&communicator.hidden.wire, communicator.comm);
        let device = self.backend.has_device();
        let mut stage = Staging { backend: self.backend, input: staged_input, output: staged_output, device };
        match prepared {
            Prepared::Native => {}
            Prepared::Parts(parts) => {
                // SAFETY: as for this function.
                let code = unsafe { parts.run(self.backend, call, normalized, comm) }?;
                if code != 0 {
                    return Ok(code);
                }
            }
            Prepared::Ready(plan) => {
                stage.grow(normalized, plan);
                let (buffers, staged) = stage.bring(normalized, plan, &room.temporary)?;
                if self.active.is_empty() {
                    // SAFETY: buffers of the sizes that the plan needs, by the user's promise or staged.
                    unsafe { plan.run(wire, buffers) }?;
                } else {
                    // SAFETY: as above.
                    unsafe { plan.start(wire, buffers) }?;
                    self.active.while_waiting(wire, || plan.test(wire))?;
                }
                stage.take(normalized, staged)?;
            }
            Prepared::Sized(plan) => {
                let (buffers, staged) = stage.bring_sized(call, communicator.size, plan)?;
                // SAFETY: as above.
                unsafe { plan.start(wire, buffers) }?;
                if self.active.is_empty() {
                    plan.wait(wire)?;
                } else {
                    self.active.while_waiting(wire, || plan.test(wire))?;
                }
                staged.take(self.backend)?;
            }
        }
        if let Some(shadow) = shadow {
            let same = shadow.compare(self.backend, comm, call, &version.choice.expression)?;
            if let Some(counters) = entry.counters() {
                counters.add_check(same);
            }
        }
        Ok(0)
    }

    /// Raises an error on a communicator of the user's, as MPI would; what its handler returns.
    pub fn raise(&self, comm: Handle, error: &Error) -> c_int {
        raise(self.backend, comm, error)
    }
}

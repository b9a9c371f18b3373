//! The engine of a process: a call comes in, choose, plan, cache, run.

mod again;
mod asks;
mod kept;

use std::ffi::c_int;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use bruckner_mpi::launcher::{Launch, Reach};
use bruckner_mpi::{Agree, Mpi, Registry, Word, has_device_runtime};

use crate::Error;
use crate::active::Active;
use crate::call::{Call, Name};
use crate::check::Shadow;
use crate::choose::Choice;
use crate::communicator::{Communicator, State};
use crate::engine::kept::LAST;
pub(crate) use crate::engine::kept::{Entry, Serving};
use crate::hidden::Hidden;
use crate::memo::{Natives, arguments, is_built_in};
use crate::normal::{Common, Normal, normal, personal};
use crate::plans::{Prepared, Slot};
use crate::report::{self, Books, Event};
use crate::requests::Requests;
use crate::settings::{self, Mode, Report};
use crate::stage::Stage;

/// By which door a call came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Door {
    /// A function of the library's own: whoever calls it wants it served, and told what is wrong.
    Api,
    /// A function of MPI's that was taken over: what is not understood goes to the MPI's own.
    Mpi,
}

/// The engine.
pub struct Engine {
    pub(crate) mpi: &'static Mpi,
    registry: Registry,
    world: Mutex<Option<Arc<Hidden>>>,
    private: AtomicUsize,
    pub(crate) active: Active,
    pub(crate) requests: Requests,
    books: Arc<Books>,
    natives: Natives,
    /// Whether calls that come again may be recognised: not if each is to be counted or compared.
    quick: AtomicBool,
    /// Collectives whose MPI functions are left alone, as bits; all, as long as there is no hidden communicator.
    left: AtomicU8,
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
    /// Whether ranks outnumber cores.
    pub shared_cores: bool,
    /// What was wrong with the settings.
    pub complaints: Vec<String>,
}

/// Takes down what was chosen for a call, or why nothing was, and what the call was.
type Note<'n> = dyn FnMut(Option<&Choice>, &str, Option<&Common>) + 'n;

static ENGINE: OnceLock<Engine> = OnceLock::new();

impl Engine {
    /// The engine of this process, if there is one already.
    #[inline]
    pub fn current() -> Option<&'static Engine> {
        ENGINE.get()
    }

    /// The engine of this process.
    pub fn get() -> Result<&'static Engine, Error> {
        if let Some(engine) = Engine::current() {
            return Ok(engine);
        }
        let mpi = Mpi::find_or_load()?;
        if !mpi.is_running() {
            return Err(Error::NotRunning);
        }
        let registry = Registry::new(mpi)?;
        let engine = Engine {
            mpi,
            registry,
            world: Mutex::new(None),
            private: AtomicUsize::new(0),
            active: Active::default(),
            requests: Requests::default(),
            books: Arc::default(),
            natives: Natives::new(),
            quick: AtomicBool::new(true),
            left: AtomicU8::new(u8::MAX),
        };
        let engine = ENGINE.get_or_init(|| engine);
        // First of all that hangs on MPI_COMM_SELF, so that it runs last when MPI is finalised.
        engine.mpi.at_finalize(|| {
            if let Some(engine) = Engine::current() {
                engine.finalize();
            }
        })?;
        Ok(engine)
    }

    /// Makes the hidden communicator. Collective over `MPI_COMM_WORLD`; a second call does nothing.
    pub fn init(&self) -> Result<(), Error> {
        self.world().map(|_| ())
    }

    /// Prepares for calls of MPI's own functions, at the end of `MPI_Init`. Collective over `MPI_COMM_WORLD`. Whether
    /// anything is taken over is agreed on: a single rank whose environment says `BRUCKNER=off` keeps all from it.
    ///
    /// As long as a rank may lack the library, nobody says a word to another: then everything stays with the MPI, and the
    /// first rank tells the user what to do.
    pub fn take_over(&self) -> Result<(), Error> {
        let ranks = self.mpi.size(self.mpi.world())?;
        if let Reach::Unknown(why) = Launch::reach_of_this_process(ranks) {
            if self.mpi.rank(self.mpi.world())? == 0 && !settings::is_off_here() {
                eprintln!("bruckner: everything stays with the MPI: {why}");
            }
            return Ok(());
        }
        // Where MPI tells of failures and goes on, it alone must wait.
        let on = !settings::is_off_here() && !self.mpi.survives_failures();
        let mut on = [u64::from(on)];
        self.mpi.agree(self.mpi.world(), Agree::Min, &mut on)?;
        if on[0] == 0 {
            return Ok(());
        }
        let world = self.world()?;
        let settings = &world.settings;
        if self.mpi.rank(self.mpi.world())? == 0 {
            for complaint in &settings.complaints {
                eprintln!("bruckner: {complaint}");
            }
        }
        let bits = settings.left.iter().fold(0, |bits, name| bits | 1 << *name as u8);
        self.left.store(if settings.mode == Mode::Off { u8::MAX } else { bits }, Ordering::Release);
        Ok(())
    }

    /// Whether the MPI's function of a collective is left alone.
    #[inline]
    pub fn leaves(&self, name: Name) -> bool {
        self.left.load(Ordering::Relaxed) & (1 << name as u8) != 0
    }

    /// The MPI.
    #[inline]
    pub fn mpi(&self) -> &'static Mpi {
        self.mpi
    }

    /// A handle as the caller passed it, without what a wider register may carry besides.
    #[inline]
    pub fn handle(&self, word: Word) -> Word {
        self.mpi.handle(word)
    }

    /// A constant of `mpi.h` by its name.
    pub fn constant(&self, name: &str) -> Option<Word> {
        self.mpi.constants.get(name)
    }

    /// The version and the family of the MPI.
    pub fn about(&self) -> (String, &'static str) {
        (self.mpi.name().to_owned(), self.mpi.family.name())
    }

    /// What is done while ranks wait for each other to agree.
    pub(crate) fn meanwhile() {
        if let Some(engine) = Engine::current()
            && !engine.active.is_empty()
        {
            engine.active.advance(false);
        }
    }

    fn world(&self) -> Result<Arc<Hidden>, Error> {
        if let Some(world) = &*self.world.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(world.clone());
        }
        let made = Arc::new(Hidden::new(self.mpi, self.mpi.world(), Engine::meanwhile)?);
        let quick = made.settings.report.is_none() && made.settings.check == 0;
        self.quick.store(quick, Ordering::Relaxed);
        *self.world.lock().unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
        Ok(made)
    }

    /// Writes the report and forgets everything that needs MPI, before it is finalised. Collective over
    /// `MPI_COMM_WORLD`.
    pub fn finalize(&self) {
        let world = self.world.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.left.store(u8::MAX, Ordering::Release);
        if let Some(world) = &world {
            self.report(world);
        }
        if self.registry.get(self.mpi.world()).is_some() {
            self.registry.remove(self.mpi.world());
        }
        Registry::renew();
        LAST.set((0, u64::MAX, std::ptr::null()));
        if let Some(world) = world.and_then(Arc::into_inner) {
            self.mpi.free(world.comm);
        }
    }

    fn report(&self, world: &Hidden) {
        let Some(to) = &world.settings.report else { return };
        // There is nobody left to tell of a failure but the user.
        let texts = match world.collect(&self.books.text()) {
            Ok(Some(texts)) => texts,
            Ok(None) => return,
            Err(error) => return eprintln!("bruckner: the report cannot be put together: {error}"),
        };
        let mode = format!("{:?}", world.settings.mode).to_lowercase();
        let whole = report::join(&texts, self.mpi.name(), &mode, &world.settings.complaints);
        match to {
            Report::Stderr => eprint!("{}", whole.table()),
            Report::File(path) => {
                let written =
                    settings::create(path).and_then(|mut file| file.write_all(whole.json().as_bytes()));
                if let Err(error) = written {
                    eprintln!("bruckner: BRUCKNER_REPORT={}: {error}", path.display());
                }
            }
        }
    }

    /// Runs a collective. `Ok` has what the MPI's own function returned, if it was called, and otherwise 0; an error that it
    /// returned it has raised already.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name.
    pub unsafe fn run(&self, call: &Call, comm: Word, door: Door) -> Result<c_int, Error> {
        if door == Door::Mpi && self.mpi.is_null_comm(comm) {
            // SAFETY: the caller's promise; MPI raises its error.
            return Ok(unsafe { self.native(call, comm) });
        }
        let entry = match door {
            Door::Api => self.entry(comm, door)?,
            Door::Mpi => self.entry_for(call, comm)?,
        };
        let Some(ledger) = &entry.ledger else {
            // SAFETY: the caller's promise.
            return unsafe { self.serve_call(entry, call, comm, door, &mut |_, _, _| {}) };
        };
        let start = Instant::now();
        let (mut algorithm, mut why, mut bytes) = ("native".to_owned(), String::new(), 0);
        let mut note = |choice: Option<&Choice>, reason: &str, common: Option<&Common>| {
            if let Some(choice) = choice {
                (algorithm, why) = (choice.expression.to_string(), choice.why.clone());
            } else {
                reason.clone_into(&mut why);
            }
            bytes = common.map_or(0, Common::bytes);
        };
        // SAFETY: the caller's promise.
        let result = unsafe { self.serve_call(entry, call, comm, door, &mut note) };
        if bytes == 0
            && !self.mpi.is_inter(comm)?
            && let Ok(Ok(normal)) = normal(self.mpi, call, self.mpi.rank(comm)?, self.mpi.size(comm)?)
        {
            bytes = normal.common.bytes();
        }
        let seconds = start.elapsed().as_secs_f64();
        let (name, algorithm, why) = (call.name(), algorithm.as_str(), why.as_str());
        ledger.add(&Event { name, persistent: false, algorithm, why, bytes, seconds });
        result
    }

    /// The same; what was chosen, or why nothing was, is noted for the report.
    unsafe fn serve_call(
        &self,
        entry: &Entry,
        call: &Call,
        comm: Word,
        door: Door,
        note: &mut Note<'_>,
    ) -> Result<c_int, Error> {
        let generation = Registry::generation();
        let known = arguments(self.mpi, call).filter(|_| is_built_in(self.mpi, call));
        let reason = match &entry.serving {
            Serving::Planned(communicator) => {
                match normal(self.mpi, call, communicator.rank.0, communicator.size) {
                    Ok(Ok(normal)) if door == Door::Mpi && normal.common.is_nothing() => {
                        "there is nothing to do"
                    }
                    Ok(Ok(mut normal)) => {
                        let mut state = communicator.take()?;
                        // SAFETY: the caller's promise.
                        let native = || Ok(unsafe { self.native(call, comm) });
                        // MPI judges its arguments before anybody waits for this rank.
                        let judged = normal.common.is_local() && !state.is_native(&normal.common);
                        if judged && personal(self.mpi, call, communicator.size).is_err() {
                            return native();
                        }
                        let Some(slot) = communicator.plan_for(&mut state, &mut normal)? else {
                            return native();
                        };
                        // SAFETY: in the store, which stays as it is till the next call.
                        let slot = unsafe { &mut *slot.as_ptr() };
                        if let Some(arguments) = known {
                            self.remember(comm, generation, &mut state, arguments, slot, &normal);
                        }
                        note(Some(&slot.choice), "", Some(&normal.common));
                        // SAFETY: the caller's promise.
                        return unsafe { self.execute(communicator, &mut state, slot, call, &normal) };
                    }
                    Ok(Err(native)) => native.why(),
                    // Not every MPI looks.
                    Err(error @ Error::Negative(_)) => return Err(error),
                    // MPI itself judges its arguments, and raises its errors where they belong.
                    Err(_) if door == Door::Mpi => "arguments that are left to MPI",
                    Err(error) => return Err(error),
                }
            }
            Serving::Native(why) => {
                if let Some(arguments) = known.filter(|_| self.quick.load(Ordering::Relaxed)) {
                    self.natives.put(comm, generation, &arguments.words, 0..=u64::MAX);
                }
                why
            }
            Serving::NotYet(_) => "the first calls on a communicator",
        };
        note(None, reason, None);
        // SAFETY: the caller's promise.
        Ok(unsafe { self.native(call, comm) })
    }

    /// The MPI's own function, and what it returns.
    ///
    /// # Safety
    /// The arguments are right for it.
    #[inline(always)]
    pub unsafe fn native(&self, call: &Call, comm: Word) -> c_int {
        // SAFETY: the caller's promise.
        match unsafe { call.native(self.mpi, comm) } {
            Ok(()) => 0,
            Err(error) => error.code,
        }
    }

    unsafe fn execute(
        &self,
        communicator: &Communicator,
        state: &mut State,
        slot: &mut Slot,
        call: &Call,
        normal: &Normal,
    ) -> Result<c_int, Error> {
        // SAFETY: the caller's promise.
        let native = || Ok(unsafe { self.native(call, communicator.comm) });
        let Some(prepared) = &mut slot.prepared else { return native() };
        if matches!(prepared, Prepared::Native) {
            return native();
        }
        let every = communicator.hidden.settings.check;
        let check = every > 0 && state.calls.is_multiple_of(every);
        let State { store, staged_input, staged_output, .. } = state;
        let (messages, comm) = (&communicator.hidden.messages, communicator.comm);
        let device = has_device_runtime();
        let mut stage = Stage { mpi: self.mpi, input: staged_input, output: staged_output, device };
        let shadow = match check {
            // SAFETY: the caller's promise.
            true => unsafe { Shadow::cast(self.mpi, communicator, call, normal) }?,
            false => None,
        };
        match prepared {
            Prepared::Native => return native(),
            Prepared::Ready(plan) => {
                stage.grow(normal, plan);
                let (buffers, staged) = stage.bring(normal, plan, &store.room.temporary)?;
                if self.active.is_empty() {
                    // SAFETY: buffers of the sizes that the plan needs, by the user's promise or staged.
                    unsafe { plan.run(messages, buffers) }?;
                } else {
                    // SAFETY: as above.
                    unsafe { plan.start(messages, buffers) }?;
                    self.active.while_waiting(messages, || plan.test(messages))?;
                }
                stage.take(normal, staged)?;
            }
            Prepared::Sized(plan) => {
                let (buffers, staged) = stage.bring_sized(call, communicator.size, plan)?;
                // SAFETY: as above.
                unsafe { plan.start(messages, buffers) }?;
                if self.active.is_empty() {
                    plan.wait(messages)?;
                } else {
                    self.active.while_waiting(messages, || plan.test(messages))?;
                }
                staged.take(self.mpi)?;
            }
        }
        if let Some(shadow) = shadow {
            let same = shadow.compare(self.mpi, comm, call, &slot.choice.expression)?;
            if let Ok(entry) = self.entry(comm, Door::Api)
                && let Some(ledger) = &entry.ledger
            {
                ledger.checked(same);
            }
        }
        Ok(0)
    }

    /// Raises an error on a communicator of the user's, as MPI would; what its handler returns.
    pub fn raise(&self, comm: Word, error: &Error) -> c_int {
        let code = match error {
            Error::Mpi(error) => error.code,
            Error::Negative(_) => self.mpi.constants.get("MPI_ERR_COUNT").unwrap_or(2) as c_int,
            _ => self.mpi.constants.get("MPI_ERR_OTHER").unwrap_or(1) as c_int,
        };
        // SAFETY: a valid communicator by contract of the callers.
        unsafe { (self.mpi.f.comm_call_errhandler)(comm, code) };
        code
    }
}

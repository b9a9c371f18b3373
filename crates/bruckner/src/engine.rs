//! The engine of a process: a call comes in, choose, plan, cache, run.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use bruckner_mpi::{Agree, Mpi, Registry, Word};
use bruckner_runtime::{Buffers, Failure};

use crate::Error;
use crate::active::Active;
use crate::call::{Call, Name};
use crate::check::Shadow;
use crate::choose::{self, Choice, Rules};
use crate::communicator::{Communicator, Prepared, State};
use crate::hidden::Hidden;
use crate::memo::{Memo, Natives, arguments, is_built_in};
use crate::normal::{Key, Normal, normal};

use crate::report::{self, Books, Event, Ledger};
use crate::requests::Requests;
use crate::settings::{self, Mode, Report};
use crate::stage::Stage;

/// Communicators that may have a hidden one of their own, where `bruckner_init` was not called.
const QUOTA: usize = 64;

/// What is kept for a communicator.
pub(crate) struct Entry {
    pub(crate) serving: Serving,
    pub(crate) ledger: Option<Arc<Ledger>>,
}

/// Whether a communicator is served.
pub(crate) enum Serving {
    /// It is.
    Planned(Communicator),
    /// It is not, for a reason that all its ranks share.
    Native(&'static str),
    /// Not yet: it has had so many calls.
    NotYet(AtomicU32),
}

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

thread_local! {
    /// The communicator of the last call: its handle, the generation, and what is kept.
    static LAST: Cell<(Word, u64, *const Entry)> = const { Cell::new((0, u64::MAX, std::ptr::null())) };
}

/// Takes down what was chosen for a call, or why nothing was, and what the call was.
type Note<'n> = dyn FnMut(Option<&Choice>, &str, Option<&Key>) + 'n;

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
    pub fn take_over(&self) -> Result<(), Error> {
        let mut on = [u64::from(!settings::is_off_here())];
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

    fn world(&self) -> Result<Arc<Hidden>, Error> {
        if let Some(world) = &*self.world.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(world.clone());
        }
        let made = Arc::new(Hidden::new(self.mpi, self.mpi.world())?);
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
                if let Err(error) = std::fs::write(path, whole.json()) {
                    eprintln!("bruckner: BRUCKNER_REPORT={}: {error}", path.display());
                }
            }
        }
    }

    /// What is kept for a communicator; made at first use, which is collective.
    #[inline]
    pub(crate) fn entry(&self, comm: Word, door: Door) -> Result<&Entry, Error> {
        let (handle, generation, entry) = LAST.get();
        if handle == comm && generation == Registry::generation() && !entry.is_null() {
            // SAFETY: kept until its communicator is freed, which would have changed the generation.
            let entry = unsafe { &*entry };
            if !matches!(entry.serving, Serving::NotYet(_)) {
                return Ok(entry);
            }
        }
        let kept = self.kept(comm, door)?;
        let entry: *const Entry = Arc::as_ptr(&kept);
        LAST.set((comm, Registry::generation(), entry));
        // SAFETY: the registry keeps it until the communicator is freed.
        Ok(unsafe { &*entry })
    }

    /// The same, shared: for plans, which may outlive the communicator's handle.
    pub(crate) fn kept(&self, comm: Word, door: Door) -> Result<Arc<Entry>, Error> {
        let kept = self.registry.get(comm).map(|kept| {
            kept.downcast::<Entry>().map_err(|_| Error::NotServed("an attribute of another kind".into()))
        });
        let kept = kept.transpose()?;
        let mut ledger = None;
        if let Some(kept) = kept {
            match &kept.serving {
                Serving::NotYet(calls) => {
                    // Each call is made by all ranks: they all count the same.
                    let before = calls.fetch_add(1, Ordering::Relaxed);
                    if door == Door::Mpi && before < self.patience() {
                        return Ok(kept);
                    }
                    ledger = kept.ledger.clone();
                }
                _ => return Ok(kept),
            }
        } else if door == Door::Mpi && self.patience() > 0 {
            let ledger = self.ledger(comm, "")?;
            return self.keep(comm, Entry { serving: Serving::NotYet(AtomicU32::new(1)), ledger });
        }
        let serving = self.serve(comm)?;
        let topology = match &serving {
            Serving::Planned(communicator) => communicator.topology_text(),
            _ => String::new(),
        };
        let ledger = match ledger {
            Some(ledger) => {
                ledger.placed(&topology);
                Some(ledger)
            }
            None => self.ledger(comm, &topology)?,
        };
        self.keep(comm, Entry { serving, ledger })
    }

    fn keep(&self, comm: Word, entry: Entry) -> Result<Arc<Entry>, Error> {
        let entry = Arc::new(entry);
        self.registry.put(comm, entry.clone())?;
        Ok(entry)
    }

    /// A communicator's ledger, if there is to be a report; its first rank keeps it.
    fn ledger(&self, comm: Word, topology: &str) -> Result<Option<Arc<Ledger>>, Error> {
        let world = self.world.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if world.is_none_or(|world| world.settings.report.is_none()) || self.mpi.rank(comm)? != 0 {
            return Ok(None);
        }
        let name = if comm == self.mpi.world() { "MPI_COMM_WORLD" } else { "" };
        Ok(Some(self.books.open(name, self.mpi.size(comm)?, topology.to_owned())))
    }

    /// Calls that a communicator must have had before it is served.
    fn patience(&self) -> u32 {
        let world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.as_ref().map_or(0, |world| match world.settings.mode {
            Mode::Always => 0,
            _ => world.settings.after,
        })
    }

    fn serve(&self, comm: Word) -> Result<Serving, Error> {
        if self.mpi.is_inter(comm)? {
            return Ok(Serving::Native("an intercommunicator"));
        }
        if self.mpi.size(comm)? == 1 {
            return Ok(Serving::Native("one rank"));
        }
        let world = match comm == self.mpi.world() {
            true => Some(self.world()?),
            false => self.world.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        let hidden = match world {
            Some(world) => world,
            None => {
                let mut used = [self.private.load(Ordering::Relaxed) as u64];
                self.mpi.agree(comm, Agree::Max, &mut used)?;
                if used[0] >= QUOTA as u64 {
                    return Ok(Serving::Native("too many communicators without bruckner_init"));
                }
                self.private.fetch_add(1, Ordering::Relaxed);
                Arc::new(Hidden::new(self.mpi, comm)?)
            }
        };
        if hidden.settings.mode == Mode::Off {
            return Ok(Serving::Native("BRUCKNER=off"));
        }
        Ok(match Communicator::new(hidden, comm)? {
            Ok(communicator) => Serving::Planned(communicator),
            Err(why) => Serving::Native(why),
        })
    }

    /// The plans of a communicator, if it is served. Collective at first use.
    fn planned(&self, comm: Word) -> Result<Option<&Communicator>, Error> {
        Ok(match &self.entry(comm, Door::Api)?.serving {
            Serving::Planned(communicator) => Some(communicator),
            _ => None,
        })
    }

    /// Uses these algorithms on a communicator from now on. Collective, with the same text on all ranks.
    pub fn set_algorithms(&self, comm: Word, rules: &str) -> Result<(), Error> {
        let rules: Rules = rules.parse()?;
        self.change(comm, |state| state.rules.extend(rules))
    }

    /// Takes the ranks of a communicator to be placed so from now on: for tests and experiments. Collective, with the same
    /// text on all ranks. Ranks that are said to share a node must really share one.
    pub fn set_topology(&self, comm: Word, text: &str) -> Result<(), Error> {
        let topology: bruckner_schedule::Topology =
            text.parse().map_err(|error| Error::Argument(format!("{error}")))?;
        let size = self.mpi.size(comm)?;
        if topology.ranks() != size {
            return Err(Error::Argument(format!(
                "`{text}` has {} ranks, and there are {size}",
                topology.ranks()
            )));
        }
        self.change(comm, |state| {
            state.topology = Arc::new(topology);
            state.room = crate::communicator::Room::none();
        })
    }

    /// Changes what is chosen on a communicator: plans are made anew.
    fn change(&self, comm: Word, change: impl FnOnce(&mut State)) -> Result<(), Error> {
        let Some(communicator) = self.planned(comm)? else { return Ok(()) };
        let mut state = communicator.take()?;
        change(&mut state);
        state.memos.clear();
        state.plans.clear();
        // Other threads, too, may remember what was chosen before.
        Registry::renew();
        communicator.put(state);
        Ok(())
    }

    /// The algorithm of a collective's call on a communicator that was last looked for, for tests and reports. A call that
    /// is recognised as the same as one before is not looked for.
    pub fn algorithm_of(&self, comm: Word, name: Name) -> Result<Option<String>, Error> {
        let Some(communicator) = self.planned(comm)? else { return Ok(None) };
        let state = communicator.take()?;
        let newest =
            state.plans.iter().filter(|(key, _)| key.name == name).max_by_key(|(_, slot)| slot.looked_for);
        let text = newest.map(|(_, slot)| slot.choice.expression.to_string());
        communicator.put(state);
        Ok(text)
    }

    /// What was found about `MPI_COMM_WORLD`. Collective at first use.
    pub fn findings(&self) -> Result<Findings, Error> {
        let hidden = self.world()?;
        let places: Vec<(u64, u64)> = hidden.places.iter().map(|place| (place.node, place.socket)).collect();
        Ok(Findings {
            ranks: places.len() as u32,
            topology: bruckner_schedule::Topology::of(&places).to_string(),
            shared_memory: hidden.pool.is_some(),
            shared_cores: hidden.shared_cores,
            complaints: hidden.settings.complaints.clone(),
        })
    }

    /// Runs a collective. `Ok` has what the MPI's own function returned, if it was called, and otherwise 0; an error that it
    /// returned it has raised already.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name.
    pub unsafe fn run(&self, call: &Call, comm: Word, door: Door) -> Result<c_int, Error> {
        let start = Instant::now();
        let entry = self.entry(comm, door)?;
        let Some(ledger) = &entry.ledger else {
            // SAFETY: the caller's promise.
            return unsafe { self.serve_call(entry, call, comm, door, &mut |_, _, _| {}) };
        };
        let (mut algorithm, mut why, mut bytes) = ("native".to_owned(), String::new(), 0);
        let mut note = |choice: Option<&Choice>, reason: &str, key: Option<&Key>| {
            if let Some(choice) = choice {
                (algorithm, why) = (choice.expression.to_string(), choice.why.clone());
            } else {
                reason.clone_into(&mut why);
            }
            bytes = key.map_or(0, choose::bytes);
        };
        // SAFETY: the caller's promise.
        let result = unsafe { self.serve_call(entry, call, comm, door, &mut note) };
        if bytes == 0
            && !self.mpi.is_inter(comm)?
            && let Ok(Ok(normal)) = normal(self.mpi, call, self.mpi.rank(comm)?, self.mpi.size(comm)?)
        {
            bytes = choose::bytes(&normal.key);
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
                    Ok(Ok(normal)) => {
                        let mut state = communicator.take()?;
                        // SAFETY: the caller's promise.
                        let result = unsafe { self.execute(communicator, &mut state, call, &normal) };
                        if let Some(arguments) = known {
                            self.remember(comm, generation, &mut state, arguments, &normal);
                        }
                        if let Some(slot) = state.plans.get(&normal.key) {
                            note(Some(&slot.choice), "", Some(&normal.key));
                        }
                        communicator.put(state);
                        return result;
                    }
                    Ok(Err(native)) => native.why(),
                    // MPI itself judges its arguments, and raises its errors where they belong.
                    Err(_) if door == Door::Mpi => "arguments that are left to MPI",
                    Err(error) => return Err(error),
                }
            }
            Serving::Native(why) => {
                if let Some(arguments) = known.filter(|_| self.quick.load(Ordering::Relaxed)) {
                    self.natives.put(comm, generation, &arguments);
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

    /// Remembers a call whose buffers need no staging.
    fn remember(
        &self,
        comm: Word,
        generation: u64,
        state: &mut State,
        arguments: crate::memo::Arguments,
        normal: &Normal,
    ) {
        // Input and output that overlap are looked at each time.
        if !self.quick.load(Ordering::Relaxed) || !normal.is_direct(true) {
            return;
        }
        let Some(slot) = state.plans.get_mut(&normal.key) else { return };
        match *slot.prepared {
            Prepared::Native => self.natives.put(comm, generation, &arguments),
            Prepared::Ready(_) => {
                let memo = Memo { arguments, slot: &raw mut *slot, bytes: normal.bytes.0 };
                state.memos.put(memo);
            }
            Prepared::Sized(_) => {}
        }
    }

    /// Runs a call that came before on the same communicator; `None` if it did not.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name.
    #[inline(always)]
    pub unsafe fn again(&self, call: &Call, comm: Word) -> Option<Result<c_int, Failure>> {
        let arguments = arguments(self.mpi, call)?;
        if self.natives.has(comm, Registry::generation(), &arguments) {
            // SAFETY: the caller's promise.
            return Some(Ok(unsafe { self.native(call, comm) }));
        }
        // SAFETY: the caller's promise.
        unsafe { self.served_again(call, comm, &arguments) }
    }

    unsafe fn served_again(
        &self,
        call: &Call,
        comm: Word,
        arguments: &crate::memo::Arguments,
    ) -> Option<Result<c_int, Failure>> {
        let (handle, generation, entry) = LAST.get();
        if handle != comm
            || generation != Registry::generation()
            || entry.is_null()
            || !self.active.is_empty()
        {
            return None;
        }
        // SAFETY: kept until its communicator is freed, which would have changed the generation.
        let Serving::Planned(communicator) = (unsafe { &(*entry).serving }) else { return None };
        let mut state = communicator.take().ok()?;
        let result = state.memos.get(arguments).and_then(|memo| {
            // SAFETY: in the map, which is changed only together with the memos.
            let slot = unsafe { &mut *memo.slot };
            let Prepared::Ready(plan) = &mut *slot.prepared else { return None };
            let rank = communicator.rank.0;
            let (input, output) = match *call {
                Call::Allreduce { send, recv, .. } | Call::ReduceScatterBlock { send, recv, .. } => {
                    let overlaps = self.mpi.is_in_place(send) || send == recv.cast_const();
                    if overlaps && !plan.compiled().in_place {
                        return None;
                    }
                    (if overlaps { recv.cast_const() } else { send }, recv)
                }
                Call::Reduce { send, recv, root, .. } => {
                    if self.mpi.is_in_place(send) || (rank == root as u32 && send == recv.cast_const()) {
                        return None;
                    }
                    (send, recv)
                }
                Call::Allgather { send, recv, .. } => match self.mpi.is_in_place(send) {
                    true => (recv.wrapping_byte_add(rank as usize * memo.bytes).cast_const(), recv),
                    false => (send, recv),
                },
                Call::Alltoall { send, recv, .. } => (send, recv),
                Call::Bcast { data, .. } => (data.cast_const(), data),
                _ => (std::ptr::null(), std::ptr::null_mut()),
            };
            state.calls += 1;
            slot.used = state.calls;
            let temporary = state.room.temporary.start();
            let buffers = Buffers { input: input.cast(), output: output.cast(), temporary };
            // SAFETY: dense buffers of the sizes that the plan needs, by the user's promise.
            Some(unsafe { plan.run(&communicator.hidden.messages, buffers) }.map(|()| 0))
        });
        communicator.put(state);
        result
    }

    unsafe fn execute(
        &self,
        communicator: &Communicator,
        state: &mut State,
        call: &Call,
        normal: &Normal,
    ) -> Result<c_int, Error> {
        communicator.prepare(state, normal)?;
        let every = communicator.hidden.settings.check;
        let check = every > 0 && state.calls.is_multiple_of(every);
        let State { plans, room, staged_input, staged_output, .. } = state;
        let slot = plans.get_mut(&normal.key).expect("just prepared");
        let (messages, comm) = (&communicator.hidden.messages, communicator.comm);
        let mut stage = Stage { mpi: self.mpi, comm, input: staged_input, output: staged_output };
        // SAFETY: the caller's promise.
        let native = || Ok(unsafe { self.native(call, comm) });
        if matches!(*slot.prepared, Prepared::Native) {
            return native();
        }
        let shadow = match check {
            // SAFETY: the caller's promise.
            true => unsafe { Shadow::cast(self.mpi, communicator, call, normal) }?,
            false => None,
        };
        match &mut *slot.prepared {
            Prepared::Native => return native(),
            Prepared::Ready(plan) => {
                if normal.foreign.is_some() {
                    plan.set_reduction(normal.reduction(self.mpi));
                }
                stage.grow(normal);
                let (buffers, staged) = stage.bring(normal, plan, &room.temporary)?;
                if self.active.is_empty() {
                    // SAFETY: buffers of the sizes that the plan needs, by the user's promise or staged.
                    unsafe { plan.run(messages, buffers) }?;
                } else {
                    // SAFETY: as above.
                    unsafe { plan.start(messages, buffers) }?;
                    self.active.while_waiting(messages, || plan.test(messages))?;
                }
                stage.take(normal, staged, plan.compiled().needs.output)?;
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
                staged.take(self.mpi, comm)?;
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
            _ => self.mpi.constants.get("MPI_ERR_OTHER").unwrap_or(1) as c_int,
        };
        // SAFETY: a valid communicator by contract of the callers.
        unsafe { (self.mpi.f.comm_call_errhandler)(comm, code) };
        code
    }
}

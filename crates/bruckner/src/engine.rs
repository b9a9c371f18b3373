//! The engine of a process: a call comes in, choose, plan, cache, run.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bruckner_mpi::{Agree, Messages, Mpi, Registry, Word};
use bruckner_runtime::sized::Blocks;
use bruckner_runtime::{Buffers, Failure, Plan, Scratch, sized};

use crate::Error;
use crate::call::Call;
use crate::choose::Rules;
use crate::communicator::{Communicator, MEMOS, Memo, Prepared, State};
use crate::hidden::Hidden;
use crate::normal::{Normal, Side, normal, personal};
use crate::persistent::Active;

/// Communicators that may have a hidden one of their own, where `bruckner_init` was not called.
const QUOTA: usize = 64;

/// What is kept for a communicator.
pub(crate) enum Entry {
    Served(Communicator),
    Native,
}

/// The engine.
pub struct Engine {
    pub(crate) mpi: &'static Mpi,
    registry: Registry,
    world: Mutex<Option<Arc<Hidden>>>,
    private: AtomicUsize,
    pub(crate) active: Active,
}

/// What an engine found, for people.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Ranks of the communicator.
    pub ranks: u32,
    /// Where they are.
    pub topology: String,
    /// Whether nodes have shared memory.
    pub shared_memory: bool,
    /// Whether ranks outnumber cores.
    pub shared_cores: bool,
    /// What was wrong with the settings.
    pub complaint: Option<String>,
}

thread_local! {
    /// The last call that went to native: its communicator, the generation, and its arguments.
    static LAST_NATIVE: Cell<(Word, u64, [u64; 5])> = const { Cell::new((0, u64::MAX, [0; 5])) };
    /// The communicator of the last call: its handle, the generation, and what is kept.
    static LAST: Cell<(Word, u64, *const Entry)> = const { Cell::new((0, u64::MAX, std::ptr::null())) };
}

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
        };
        Ok(ENGINE.get_or_init(|| engine))
    }

    /// Makes the hidden communicator. Collective over `MPI_COMM_WORLD`; a second call does nothing.
    pub fn init(&self) -> Result<(), Error> {
        self.world().map(|_| ())
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
        *self.world.lock().unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
        Ok(made)
    }

    /// Forgets everything that needs MPI, before it is finalised.
    pub fn finalize(&self) {
        let world = self.world.lock().unwrap_or_else(PoisonError::into_inner).take();
        if self.registry.get(self.mpi.world()).is_some() {
            self.registry.remove(self.mpi.world());
        }
        LAST.set((0, u64::MAX, std::ptr::null()));
        if let Some(world) = world.and_then(Arc::into_inner) {
            self.mpi.free(world.comm);
        }
    }

    /// What is kept for a communicator; made at first use, which is collective.
    #[inline]
    pub(crate) fn entry(&self, comm: Word) -> Result<&Entry, Error> {
        let (handle, generation, entry) = LAST.get();
        if handle == comm && generation == Registry::generation() && !entry.is_null() {
            // SAFETY: kept until its communicator is freed, which would have changed the generation.
            return Ok(unsafe { &*entry });
        }
        let kept = self.kept(comm)?;
        let entry: *const Entry = Arc::as_ptr(&kept);
        LAST.set((comm, Registry::generation(), entry));
        // SAFETY: the registry keeps it until the communicator is freed.
        Ok(unsafe { &*entry })
    }

    /// The same, shared: for plans, which may outlive the communicator's handle.
    pub(crate) fn kept(&self, comm: Word) -> Result<Arc<Entry>, Error> {
        if let Some(kept) = self.registry.get(comm) {
            return kept
                .downcast::<Entry>()
                .map_err(|_| Error::NotServed("an attribute of another kind".into()));
        }
        let entry = match self.serve(comm)? {
            Some(communicator) => Entry::Served(communicator),
            None => Entry::Native,
        };
        let entry = Arc::new(entry);
        self.registry.put(comm, entry.clone())?;
        Ok(entry)
    }

    fn serve(&self, comm: Word) -> Result<Option<Communicator>, Error> {
        if self.mpi.is_inter(comm)? {
            return Ok(None);
        }
        if comm == self.mpi.world() {
            return Communicator::new(self.world()?, comm);
        }
        let world = self.world.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(world) = world {
            return Communicator::new(world, comm);
        }
        let mut used = [self.private.load(Ordering::Relaxed) as u64];
        self.mpi.agree(comm, Agree::Max, &mut used)?;
        if used[0] >= QUOTA as u64 {
            return Ok(None);
        }
        self.private.fetch_add(1, Ordering::Relaxed);
        Communicator::new(Arc::new(Hidden::new(self.mpi, comm)?), comm)
    }

    /// Uses these algorithms on a communicator from now on. Collective, with the same text on all ranks.
    pub fn set_algorithms(&self, comm: Word, rules: &str) -> Result<(), Error> {
        let rules: Rules = rules.parse()?;
        self.change(comm, |state| {
            state.rules.extend(rules);
            Ok(())
        })
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
            Ok(())
        })
    }

    /// Changes what is chosen on a communicator: plans are made anew.
    fn change(&self, comm: Word, change: impl FnOnce(&mut State) -> Result<(), Error>) -> Result<(), Error> {
        let Entry::Served(communicator) = self.entry(comm)? else { return Ok(()) };
        let mut state = communicator.take()?;
        let result = change(&mut state);
        state.memos = [None; MEMOS];
        state.plans.clear();
        // Other threads, too, may remember what was chosen before.
        Registry::renew();
        communicator.put(state);
        result
    }

    /// The algorithm of a collective's call on a communicator that was last looked for, for tests and reports. A call that
    /// is recognised as the same as one before is not looked for.
    pub fn algorithm_of(&self, comm: Word, name: crate::call::Name) -> Result<Option<String>, Error> {
        let Entry::Served(communicator) = self.entry(comm)? else { return Ok(None) };
        let state = communicator.take()?;
        let newest =
            state.plans.iter().filter(|(key, _)| key.name == name).max_by_key(|(_, slot)| slot.looked_for);
        let text = newest.map(|(_, slot)| match *slot.prepared {
            Prepared::Native => "native".to_owned(),
            _ => slot.expression.to_string(),
        });
        communicator.put(state);
        Ok(text)
    }

    /// What was found about a communicator. Collective at first use.
    pub fn findings(&self, comm: Word) -> Result<Option<Findings>, Error> {
        let Entry::Served(communicator) = self.entry(comm)? else { return Ok(None) };
        let state = communicator.take()?;
        let topology = state.topology.to_string();
        communicator.put(state);
        let hidden = &communicator.hidden;
        Ok(Some(Findings {
            ranks: communicator.size,
            topology,
            shared_memory: hidden.pool.is_some(),
            shared_cores: hidden.shared_cores,
            complaint: hidden.complaint.clone(),
        }))
    }

    /// Runs a collective.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name.
    pub unsafe fn run(&self, call: &Call, comm: Word) -> Result<(), Error> {
        let Entry::Served(communicator) = self.entry(comm)? else {
            // SAFETY: the caller's promise.
            return unsafe { call.native(self.mpi, comm) }.map_err(Error::from);
        };
        let normal = normal(self.mpi, call, communicator.rank.0, communicator.size)?;
        let Ok(normal) = normal else {
            // SAFETY: the caller's promise.
            return unsafe { call.native(self.mpi, comm) }.map_err(Error::from);
        };
        let mut state = communicator.take()?;
        // SAFETY: the caller's promise.
        let result = unsafe { self.execute(communicator, &mut state, call, &normal) };
        if let Some(arguments) = self.arguments(call).filter(|_| self.is_built_in(call)) {
            remember(&mut state, arguments, &normal);
        }
        communicator.put(state);
        result
    }

    /// The arguments that decide about a call, if they alone do.
    #[inline]
    fn arguments(&self, call: &Call) -> Option<[u64; 5]> {
        Some(match *call {
            Call::Allreduce { count, datatype, op, .. } => [1, count as u64, datatype, op, 0],
            Call::Allgather { send, send_count, send_type, recv_count, recv_type, .. } => {
                let given = !self.mpi.is_in_place(send);
                let (send_count, send_type) =
                    if given { (send_count, send_type) } else { (recv_count, recv_type) };
                [2, send_count as u64, send_type, recv_count as u64, recv_type]
            }
            Call::Alltoall { send, send_count, send_type, recv_count, recv_type, .. }
                if !self.mpi.is_in_place(send) =>
            {
                [3, send_count as u64, send_type, recv_count as u64, recv_type]
            }
            Call::ReduceScatterBlock { count, datatype, op, .. } => [4, count as u64, datatype, op, 0],
            Call::Reduce { count, datatype, op, root, .. } => [5, count as u64, datatype, op, root as u64],
            Call::Bcast { count, datatype, root, .. } => [6, count as u64, datatype, root as u64, 0],
            Call::Barrier => [7, 0, 0, 0, 0],
            _ => return None,
        })
    }

    /// Whether the types of a call are built in and dense: their handles never mean anything else.
    fn is_built_in(&self, call: &Call) -> bool {
        let is = |datatype: Word| self.mpi.types().is_built_in(datatype);
        match *call {
            Call::Allgather { send, send_type, recv_type, .. }
            | Call::Alltoall { send, send_type, recv_type, .. } => {
                is(recv_type) && (self.mpi.is_in_place(send) || is(send_type))
            }
            Call::Allreduce { datatype, .. }
            | Call::ReduceScatterBlock { datatype, .. }
            | Call::Reduce { datatype, .. }
            | Call::Bcast { datatype, .. } => is(datatype),
            _ => true,
        }
    }

    /// Runs a call that came before on the same communicator; `false` if it did not.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name.
    #[inline]
    pub unsafe fn again(&self, call: &Call, comm: Word) -> Result<bool, Failure> {
        let (handle, generation, entry) = LAST.get();
        if handle != comm
            || generation != Registry::generation()
            || entry.is_null()
            || !self.active.is_empty()
        {
            return Ok(false);
        }
        // SAFETY: kept until its communicator is freed, which would have changed the generation.
        let (Entry::Served(communicator), Some(arguments)) = (unsafe { &*entry }, self.arguments(call))
        else {
            return Ok(false);
        };
        let arguments = &arguments;
        if LAST_NATIVE.get() == (comm, generation, *arguments) {
            // SAFETY: the caller's promise.
            let result = unsafe { call.native(self.mpi, comm) };
            return result.map(|()| true).map_err(|error| Failure { call: error.call, code: error.code });
        }
        let Ok(mut state) = communicator.take() else { return Ok(false) };
        let memo = state.memos[memo_place(arguments)].filter(|memo| memo.arguments == *arguments);
        let result = memo.and_then(|memo| {
            // SAFETY: in the map, which is changed only together with the memos.
            let slot = unsafe { &mut *memo.slot };
            let plan = match &mut *slot.prepared {
                Prepared::Ready(plan) => plan,
                Prepared::Native => {
                    LAST_NATIVE.set((comm, generation, *arguments));
                    // SAFETY: the caller's promise.
                    let result = unsafe { call.native(self.mpi, comm) };
                    return Some(result.map_err(|error| Failure { call: error.call, code: error.code }));
                }
                Prepared::Sized(_) => return None,
            };
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
            let temporary = state.temporary.start();
            let buffers = Buffers { input: input.cast(), output: output.cast(), temporary };
            // SAFETY: dense buffers of the sizes that the plan needs, by the user's promise.
            Some(unsafe { plan.run(&communicator.hidden.messages, buffers) })
        });
        communicator.put(state);
        result.map_or(Ok(false), |result| result.map(|()| true))
    }

    unsafe fn execute(
        &self,
        communicator: &Communicator,
        state: &mut State,
        call: &Call,
        normal: &Normal,
    ) -> Result<(), Error> {
        communicator.prepare(state, normal)?;
        let State { plans, temporary, staged_input, staged_output, .. } = state;
        let prepared = &mut *plans.get_mut(&normal.key).expect("just prepared").prepared;
        let messages = &communicator.hidden.messages;
        let mut stage =
            Stage { mpi: self.mpi, comm: communicator.comm, input: staged_input, output: staged_output };
        match prepared {
            // SAFETY: the caller's promise.
            Prepared::Native => unsafe { call.native(self.mpi, communicator.comm) }.map_err(Error::from),
            Prepared::Ready(plan) => {
                if normal.foreign.is_some() {
                    plan.set_reduction(normal.reduction(self.mpi));
                }
                stage.grow(normal);
                let (buffers, staged) = stage.bring(normal, plan, temporary)?;
                if self.active.is_empty() {
                    // SAFETY: buffers of the sizes that the plan needs, by the user's promise or staged.
                    unsafe { plan.run(messages, buffers) }?;
                } else {
                    // SAFETY: as above.
                    unsafe { plan.start(messages, buffers) }?;
                    self.active.while_waiting(messages, || plan.test(messages))?;
                }
                stage.take(normal, staged, plan.compiled().needs.output)
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
                staged.take(self.mpi, communicator.comm)
            }
        }
    }
}

/// Where a call's memo lies.
#[inline]
fn memo_place(arguments: &[u64; 5]) -> usize {
    (arguments[0] ^ arguments[1] ^ (arguments[1] >> 3)) as usize % MEMOS
}

/// Remembers a call whose buffers need no staging.
fn remember(state: &mut State, arguments: [u64; 5], normal: &Normal) {
    // Input and output that overlap are looked at each time.
    if normal.foreign.is_some() || !normal.is_direct(true) {
        return;
    }
    let Some(slot) = state.plans.get_mut(&normal.key) else { return };
    if !matches!(*slot.prepared, Prepared::Sized(_)) {
        let memo = Memo { arguments, slot: &raw mut *slot, bytes: normal.bytes.0 };
        state.memos[memo_place(&arguments)] = Some(memo);
    }
}

/// Memory in which buffers are put together, where the user's are not as a plan wants them.
pub(crate) struct Stage<'a> {
    pub(crate) mpi: &'static Mpi,
    pub(crate) comm: Word,
    pub(crate) input: &'a mut Scratch,
    pub(crate) output: &'a mut Scratch,
}

/// Whether the output is to be unpacked.
#[derive(Clone, Copy)]
pub(crate) enum Output {
    Direct,
    Staged(*const u8),
}

/// The output of an alltoallv, if it is to be unpacked.
pub(crate) struct Received {
    side: Side,
    from: *const u8,
    bytes: usize,
    staged: bool,
}

impl Received {
    pub(crate) fn take(&self, mpi: &Mpi, comm: Word) -> Result<(), Error> {
        if self.staged { self.side.unpack(mpi, comm, self.from, self.bytes) } else { Ok(()) }
    }
}

impl Stage<'_> {
    /// The buffers of an execution, the input brought into shape.
    pub(crate) fn bring(
        &self,
        normal: &Normal,
        plan: &Plan<Messages>,
        temporary: &Scratch,
    ) -> Result<(Buffers, Output), Error> {
        let put_aside = normal.overlaps && !plan.compiled().in_place;
        let input = match &normal.input {
            Side::None => std::ptr::null(),
            Side::Direct(data) if !put_aside => data.cast_const().cast(),
            side => {
                side.pack(self.mpi, self.comm, self.input.start(), normal.bytes.0)?;
                self.input.start().cast_const()
            }
        };
        let (output, staged) = match &normal.output {
            Side::None => (std::ptr::null_mut(), Output::Direct),
            Side::Direct(data) => (data.cast(), Output::Direct),
            Side::Blocks { .. } => (self.output.start(), Output::Staged(self.output.start())),
        };
        Ok((Buffers { input, output, temporary: temporary.start() }, staged))
    }

    /// Makes the memory large enough; its addresses stay until it must grow again.
    pub(crate) fn grow(&mut self, normal: &Normal) {
        let staged = |side: &Side| matches!(side, Side::Blocks { .. });
        if normal.overlaps || staged(&normal.input) {
            self.input.grow(normal.bytes.0);
        }
        if staged(&normal.output) {
            self.output.grow(normal.bytes.1);
        }
    }

    /// Brings the output to the user.
    pub(crate) fn take(&self, normal: &Normal, staged: Output, bytes: usize) -> Result<(), Error> {
        match staged {
            Output::Direct => Ok(()),
            Output::Staged(from) => normal.output.unpack(self.mpi, self.comm, from, bytes),
        }
    }

    /// The buffers of an alltoallv, and its sizes.
    pub(crate) fn bring_sized(
        &mut self,
        call: &Call,
        size: u32,
        plan: &mut sized::Plan<Messages>,
    ) -> Result<(sized::Buffers, Received), Error> {
        let personal = personal(self.mpi, call, size)?;
        // A dense type's blocks lie where they are; others are packed one behind the other.
        let place = |side: &Side, lengths: &[usize], packed: bool| -> (Vec<usize>, usize) {
            let total: usize = lengths.iter().sum();
            let ends = lengths.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n)));
            match side {
                Side::Blocks { shape, blocks, .. } if !packed => {
                    // Negative displacements are fine: offsets wrap around with the addresses.
                    (blocks.iter().map(|(at, _)| (at * shape.extent) as usize).collect(), total)
                }
                _ => (ends.collect(), total),
            }
        };
        let is_dense = |side: &Side| matches!(side, Side::Blocks { shape, .. } if shape.is_dense());
        let start = |side: &Side| match side {
            Side::Blocks { data, .. } | Side::Direct(data) => data.cast::<u8>(),
            Side::None => std::ptr::null_mut(),
        };
        let packed_input = personal.overlaps || !is_dense(&personal.input);
        let (input_offsets, input_bytes) = place(&personal.input, &personal.sent, packed_input);
        let input = if packed_input {
            self.input.grow(input_bytes);
            personal.input.pack(self.mpi, self.comm, self.input.start(), input_bytes)?;
            self.input.start()
        } else {
            start(&personal.input)
        };
        let packed_output = !is_dense(&personal.output);
        let (output_offsets, output_bytes) = place(&personal.output, &personal.received, packed_output);
        let output = if packed_output {
            self.output.grow(output_bytes);
            self.output.start()
        } else {
            start(&personal.output)
        };
        plan.set_blocks(
            Blocks { offsets: input_offsets, lengths: personal.sent },
            Blocks { offsets: output_offsets, lengths: personal.received },
        );
        let received = Received {
            side: personal.output,
            from: output.cast_const(),
            bytes: output_bytes,
            staged: packed_output,
        };
        Ok((sized::Buffers { input: input.cast_const(), output }, received))
    }
}

//! The fast path: an earlier call is recognised by its key and run at once.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Instant;

use bruckner_choose::Choice;
use bruckner_mpi::{Function, Handle};
use bruckner_report::{Event, Handler};
use bruckner_runtime::{Buffers, Limits, TransportError};

use super::Engine;
use crate::backend::Backend;
use crate::cache::{Binding, Bytes, CallKey, key_of};
use crate::call::Call;
use crate::communicator::{CommEntry, Handling, State};
use crate::decide::Decider;
use crate::plan::{Prepared, Store, may_have};

impl<B: Backend> Engine<B> {
    /// Returns the key of a call on a communicator that this thread used recently.
    #[inline(always)]
    fn recent_key(&self, call: &Call, comm: Handle) -> Option<CallKey> {
        key_of(self.backend, call, || self.recent_entry(comm)?.listed())
    }

    /// Whether the call is in the cache of calls that are passed through to the MPI's own function.
    #[inline(always)]
    pub fn is_cached_native(&self, call: &Call, comm: Handle) -> bool {
        self.recent_key(call, comm).is_some_and(|key| self.natives.has(comm, self.backend.generation(), &key))
    }

    /// Runs a call that the caches recognise; `None` if they do not.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name.
    #[inline]
    pub unsafe fn run_cached(&self, call: &Call, comm: Handle) -> Option<Result<c_int, TransportError>> {
        let key = self.recent_key(call, comm)?;
        // A zero-byte call is not looked up here, because the cache entry may come from an intercepted call. Intercepted zero-byte calls
        // are passed through, but those of the library's API are handled.
        if key.count > 0 && self.natives.has(comm, self.backend.generation(), &key) {
            // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
            return Some(Ok(unsafe { self.native(call, comm) }));
        }
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        let ran = unsafe { self.run_by_key(call, &key, comm, call) };
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        ran.or_else(|| unsafe { self.run_cached_in_bytes(call, comm) })
    }

    /// Runs a call that the cache of handled calls recognises; `None` if it does not. Calls that are passed through are not looked up.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name.
    pub unsafe fn run_cached_handled(&self, call: &Call, comm: Handle) -> Option<Result<c_int, TransportError>> {
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        let ran = unsafe { self.run_by_key(call, &self.recent_key(call, comm)?, comm, call) };
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        ran.or_else(|| unsafe { self.run_cached_in_bytes(call, comm) })
    }

    /// Runs a call of user-defined datatypes, if the caches recognise the equivalent call in bytes.
    #[inline(never)]
    unsafe fn run_cached_in_bytes(&self, call: &Call, comm: Handle) -> Option<Result<c_int, TransportError>> {
        let bytes = self.in_bytes(call)?;
        let key = self.recent_key(&bytes, comm)?;
        if key.count > 0 && !call.is_wide() && self.natives.has(comm, self.backend.generation(), &key) {
            // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
            return Some(Ok(unsafe { self.native(call, comm) }));
        }
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        unsafe { self.run_by_key(&bytes, &key, comm, call) }
    }

    /// Whether the datatypes of a call that moves data are dense: elements have no gaps, and their bytes lie in the order in which they
    /// are sent.
    fn is_dense(&self, call: &Call) -> bool {
        let backend = self.backend;
        let is_dense = |datatype: Handle| {
            backend.shape(datatype).is_ok_and(|shape| backend.determine_order(datatype, shape).is_dense())
        };
        let sends = call.function != Function::Bcast && !backend.is_in_place(call.send.data);
        let (sent, received) = (call.send.datatype, call.recv.datatype);
        is_dense(received) && (!sends || sent == received || is_dense(sent))
    }

    /// Runs a call that the cache recognises by `key`. `said` is the call as the program made it; `call` is the same call or its
    /// equivalent in bytes.
    #[inline]
    unsafe fn run_by_key(
        &self,
        call: &Call,
        key: &CallKey,
        comm: Handle,
        said: &Call,
    ) -> Option<Result<c_int, TransportError>> {
        let entry = self.recent_entry(comm)?;
        if !self.active.is_empty() || self.backend.has_device() {
            return None;
        }
        let Handling::Handled(communicator) = &entry.handling else { return None };
        // A sampled call begins with a barrier, which only the pipeline runs.
        if entry.counted.as_ref().is_some_and(|counted| counted.is_sampled(call)) {
            return None;
        }
        let start = entry.counted.as_ref().map(|_| Instant::now());
        let mut taken = communicator.take().ok()?;
        let state = &mut *taken;
        let State { store: Store { calls, workspace, plans }, staged_input, staged_output, decider, .. } = state;
        let Decider { tuning, .. } = decider;
        let cached = calls.get(key)?;
        let version = plans.versions.get(cached.plan);
        let block = cached.blocks.bytes * key.count as usize;
        let plan = match &mut version.prepared {
            Some(Prepared::Ready(plan)) if std::ptr::eq(call, said) || self.is_dense(said) => plan,
            // An MPI may have no function for wide counts.
            Some(Prepared::Native) if !said.is_wide() && tuning.pass(cached.kind_id, block as u64) => {
                let why = cached.why.clone();
                drop(taken);
                // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
                let code = unsafe { self.native(said, comm) };
                self.account_cached(entry, call, start, why.as_ref(), block);
                return Some(Ok(code));
            }
            _ => return None,
        };
        let rank = communicator.group.rank.0;
        let bytes = cached.bytes_of(key, rank)?;
        let (mut input, output) = self.plain_buffers(call, rank, &bytes)?;
        // The input of an in-place reduction is copied aside if the plan writes output before it has read all input.
        if call.op != 0 && input.cast_mut() == output && !plan.compiled().in_place {
            if bytes.input > staged_input.bytes() {
                return None;
            }
            // SAFETY: the input has `bytes.input` bytes by ARGUMENTS (see `lib.rs`), and the staging memory has at least as many.
            unsafe { std::ptr::copy_nonoverlapping(input.cast(), staged_input.start(), bytes.input) };
            input = staged_input.start().cast_const().cast();
        }
        // Value-index pairs with padding are staged, and later copied to the user's buffer without their padding.
        let results = output;
        let output = match cached.padded {
            true if bytes.output > staged_output.bytes() => return None,
            true => staged_output.start().cast(),
            false => output,
        };
        let binding = |bindings| Some(Binding { count: key.count, bindings });
        if cached.bound != binding(plan.bindings()) {
            cached.problem.set_largest(key.count * cached.blocks.elements);
            // Two lists with the same largest count may need different amounts of memory.
            if key.listed.is_some() {
                let needs = version.extent.needs(plan.compiled().even, &cached.problem, &Limits::MEASURED);
                if !may_have(&communicator.group, &needs, version.failed_allocation) || workspace.lacks(&needs) {
                    return None;
                }
            }
            plan.bind(&cached.problem);
            cached.bound = binding(plan.bindings());
        }
        if version.combine != Some(cached.combine) {
            plan.set_reduction(cached.combine.kernel());
            version.combine = Some(cached.combine);
        }
        // From here on the call is run, unless online tuning must assign it to a candidate, which the pipeline does.
        if !tuning.pass(cached.kind_id, block as u64) {
            return None;
        }
        let temporary = workspace.temporary.start();
        let buffers = Buffers { input: input.cast(), output: output.cast(), temporary };
        // SAFETY: the buffers are dense and have the sizes that the plan needs, by ARGUMENTS (see `lib.rs`).
        let ran = unsafe { plan.run(&communicator.group.internal.wire, buffers) };
        if cached.padded
            && ran.is_ok()
            && let Some(pair) = cached.combine.pair()
        {
            // SAFETY: the user's buffer has `bytes.output` bytes by ARGUMENTS (see `lib.rs`), and the staging memory has at least as many.
            unsafe { pair.copy(staged_output.start(), results.cast(), bytes.output) };
        }
        self.account_cached(entry, call, start, cached.why.as_ref(), block);
        Some(ran.map(|()| 0))
    }

    /// Counts a call that ran from the cache, if calls are counted.
    #[inline]
    fn account_cached(
        &self,
        entry: &CommEntry<B>,
        call: &Call,
        start: Option<Instant>,
        why: Option<&Arc<Choice>>,
        bytes: usize,
    ) {
        let (Some(start), Some(counted)) = (start, &entry.counted) else { return };
        let took = start.elapsed();
        counted.count(call);
        self.statistics.add_time(took, None);
        if let (Some(counters), Some(why)) = (&counted.counters, why) {
            let (name, bytes, seconds) = (call.name(), bytes as u64, took.as_secs_f64());
            counters.add(&Event { name, persistent: false, by: Handler::Choice(why), bytes, seconds });
        }
    }

    /// Returns input and output of a call of dense data, if a plan can use them directly; for a reduction both may be the same. `None` for
    /// a missing buffer, an unexpected `MPI_IN_PLACE`, or one buffer where MPI requires two: the pipeline checks such calls.
    #[inline]
    fn plain_buffers(&self, call: &Call, rank: u32, bytes: &Bytes) -> Option<(*const c_void, *mut c_void)> {
        let backend = self.backend;
        let (send, recv) = (call.send.data, call.recv.data);
        let own = || recv.wrapping_byte_add(bytes.before);
        let (input, output) = match call.function {
            Function::Barrier => return Some((std::ptr::null(), std::ptr::null_mut())),
            Function::Allreduce | Function::ReduceScatter | Function::ReduceScatterBlock => {
                let aliased = send == recv;
                if aliased && backend.refuses_aliases() {
                    return None;
                }
                (if backend.is_in_place(send) { recv } else { send }, recv)
            }
            Function::Reduce => {
                let is_root = rank == call.root as u32;
                let lacks = backend.is_in_place(send) || send.is_null() || (is_root && send == recv);
                if lacks || (is_root && backend.is_in_place(recv)) {
                    return None;
                }
                return Some((send, recv));
            }
            Function::Allgather | Function::Allgatherv => match backend.is_in_place(send) {
                true => (own(), recv),
                false if backend.refuses_aliases() && send == own() => return None,
                false => (send, recv),
            },
            Function::Alltoall if send == recv => return None,
            _ => (send, recv),
        };
        let lacks = (input.is_null() && bytes.input > 0) || (output.is_null() && bytes.output > 0);
        let lacks = lacks || backend.is_in_place(output);
        (!lacks).then_some((input.cast_const(), output))
    }
}

//! The fast path: a call that came before is recognised by its key and run at once.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Instant;

use bruckner_choose::Choice;
use bruckner_mpi::{Function, Handle};
use bruckner_report::{Event, Handler};
use bruckner_runtime::{Buffers, Failure, Limits};

use super::Engine;
use crate::backend::Backend;
use crate::cache::{Binding, Bytes, CallKey, key_of};
use crate::call::Call;
use crate::communicator::{CommEntry, Handling, State};
use crate::decide::Decider;
use crate::plan::{Prepared, Store, may_have};

impl<B: Backend> Engine<B> {
    /// The key of a call on a communicator that this thread used recently.
    #[inline(always)]
    fn recent_key(&self, call: &Call, comm: Handle) -> Option<CallKey> {
        key_of(self.backend, call, || self.recent_entry(comm)?.listed())
    }

    /// Whether a call came before on the same communicator and went to the MPI's own function.
    #[inline(always)]
    pub fn is_cached_native(&self, call: &Call, comm: Handle) -> bool {
        self.recent_key(call, comm).is_some_and(|key| self.natives.has(comm, self.backend.generation(), &key))
    }

    /// Runs a call that came before on the same communicator; `None` if it did not.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name.
    #[inline]
    pub unsafe fn run_cached(&self, call: &Call, comm: Handle) -> Option<Result<c_int, Failure>> {
        let key = self.recent_key(call, comm)?;
        // A call of nothing that came in by MPI's own door went another way than one of the library's.
        if key.count > 0 && self.natives.has(comm, self.backend.generation(), &key) {
            // SAFETY: as for this function.
            return Some(Ok(unsafe { self.native(call, comm) }));
        }
        // SAFETY: as for this function.
        let ran = unsafe { self.run_by_key(call, &key, comm, call) };
        // SAFETY: as for this function.
        ran.or_else(|| unsafe { self.run_cached_in_bytes(call, comm) })
    }

    /// The same for a call that was served.
    ///
    /// # Safety
    /// As for [`Engine::run_cached`].
    pub unsafe fn run_cached_handled(&self, call: &Call, comm: Handle) -> Option<Result<c_int, Failure>> {
        // SAFETY: as for this function.
        let ran = unsafe { self.run_by_key(call, &self.recent_key(call, comm)?, comm, call) };
        // SAFETY: as for this function.
        ran.or_else(|| unsafe { self.run_cached_in_bytes(call, comm) })
    }

    /// A call of types that are not built in, of which one with as many bytes came before.
    #[inline(never)]
    unsafe fn run_cached_in_bytes(&self, call: &Call, comm: Handle) -> Option<Result<c_int, Failure>> {
        let bytes = self.in_bytes(call)?;
        let key = self.recent_key(&bytes, comm)?;
        if key.count > 0 && !call.is_wide() && self.natives.has(comm, self.backend.generation(), &key) {
            // SAFETY: as for this function.
            return Some(Ok(unsafe { self.native(call, comm) }));
        }
        // SAFETY: as for this function.
        unsafe { self.run_by_key(&bytes, &key, comm, call) }
    }

    /// Whether the data of a call that moves data lies in its buffers as it is sent, one byte behind the other.
    fn is_dense(&self, call: &Call) -> bool {
        let backend = self.backend;
        let is_dense = |datatype: Handle| {
            backend.shape(datatype).is_ok_and(|shape| backend.look_closer(datatype, shape).is_dense())
        };
        let sends = call.function != Function::Bcast && !backend.is_in_place(call.send.data);
        let (sent, received) = (call.send.datatype, call.recv.datatype);
        is_dense(received) && (!sends || sent == received || is_dense(sent))
    }

    /// Runs a call that came before, as `call` says it. What the program said may be of other types: it is `said`.
    #[inline]
    unsafe fn run_by_key(
        &self,
        call: &Call,
        key: &CallKey,
        comm: Handle,
        said: &Call,
    ) -> Option<Result<c_int, Failure>> {
        let entry = self.recent_entry(comm)?;
        if !self.active.is_empty() || self.backend.has_device() {
            return None;
        }
        let Handling::Handled(communicator) = &entry.handling else { return None };
        // Where ranks are to meet first, that is done the longer way.
        if entry.counted.as_ref().is_some_and(|counted| counted.is_sampled(call)) {
            return None;
        }
        let start = entry.counted.as_ref().map(|_| Instant::now());
        let mut taken = communicator.take().ok()?;
        let state = &mut *taken;
        let State { store: Store { calls, workspace, plans }, staged_input, staged_output, decider, .. } =
            state;
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
                // SAFETY: as for this function.
                let code = unsafe { self.native(said, comm) };
                self.account_cached(entry, call, start, why.as_ref(), block);
                return Some(Ok(code));
            }
            _ => return None,
        };
        let rank = communicator.group.rank.0;
        let bytes = cached.bytes_of(key, rank)?;
        let (mut input, output) = self.plain_buffers(call, rank, &bytes)?;
        // A reduction's input that the plan still reads when it has begun to write is put aside.
        if call.op != 0 && input.cast_mut() == output && !plan.compiled().in_place {
            if bytes.input > staged_input.bytes() {
                return None;
            }
            // SAFETY: so many bytes are there, by the user's promise, and the room has as many.
            unsafe { std::ptr::copy_nonoverlapping(input.cast(), staged_input.start(), bytes.input) };
            input = staged_input.start().cast_const().cast();
        }
        // Of pairs with padding the data alone is the user's to get.
        let results = output;
        let output = match cached.padded {
            true if bytes.output > staged_output.bytes() => return None,
            true => staged_output.start().cast(),
            false => output,
        };
        let binding = |bindings| Some(Binding { count: key.count, bindings });
        if cached.bound != binding(plan.bindings()) {
            cached.problem.set_largest(key.count * cached.blocks.elements);
            // A plan may need more for lists with as large a count as others.
            if key.listed.is_some() {
                let needs = version.extent.needs(plan.compiled().even, &cached.problem, &Limits::MEASURED);
                if !may_have(&communicator.group, &needs, version.too_much) || workspace.lacks(&needs) {
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
        // From here on it is served: what is to be done about it otherwise the longer way knows.
        if !tuning.pass(cached.kind_id, block as u64) {
            return None;
        }
        let temporary = workspace.temporary.start();
        let buffers = Buffers { input: input.cast(), output: output.cast(), temporary };
        // SAFETY: dense buffers of the sizes that the plan needs, by the user's promise.
        let ran = unsafe { plan.run(&communicator.group.internal.wire, buffers) };
        if cached.padded
            && ran.is_ok()
            && let Some(pair) = cached.combine.pair()
        {
            // SAFETY: so many bytes are there, by the user's promise, and the room has as many.
            unsafe { pair.copy(staged_output.start(), results.cast(), bytes.output) };
        }
        self.account_cached(entry, call, start, cached.why.as_ref(), block);
        Some(ran.map(|()| 0))
    }

    /// Counts a call that came before, if calls are counted.
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

    /// The buffers of a call of dense data, if they are as a plan wants them; those of a reduction may be one. What has no
    /// buffer, `MPI_IN_PLACE` for one, or one buffer where MPI wants two, is looked at more closely elsewhere.
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

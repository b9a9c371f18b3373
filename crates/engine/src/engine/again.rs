//! The short way for a call that came before.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bruckner_choose::{Choice, size_class};
use bruckner_mpi::{Function, Handle};
use bruckner_report::{Event, Handler};
use bruckner_runtime::{Buffers, Failure, Limits};
use bruckner_schedule::Counts;

use super::{Engine, Entry, Serving};
use crate::call::{Amount, Buffer, Call};
use crate::communicator::{
    Arguments, Bytes, Communicator, Memo, Prepared, Served, State, Store, arguments, is_built_in,
};
use crate::normalize::{CallSignature, NormalizedCall};

use crate::backend::Backend;

impl<B: Backend> Engine<B> {
    /// Remembers a call whose buffers need no staging, and those that differ from it in nothing but the count, as far as they
    /// are served alike.
    pub(super) fn remember(
        &self,
        generation: u64,
        communicator: &Communicator<B>,
        state: &mut State<B>,
        arguments: Arguments,
        served: &Served,
        normalized: &NormalizedCall,
    ) {
        // Calls of nothing go one way or another by the door that they come in by, and calls of a look each another.
        let looks = served.assignment.is_in_trial();
        if !self.quick.load(Ordering::Relaxed) || normalized.signature.is_nothing() || looks {
            return;
        }
        let (id, kind_id) = (served.id, served.kind_id);
        let why = self.counts.load(Ordering::Relaxed).then(|| state.why(served));
        let CallSignature { problem, combine, .. } = &normalized.signature;
        let version = state.store.plans.versions.get(id);
        let Arguments { words, count, listed } = arguments;
        let each = |all: u64| all / count.max(1);
        let bytes = each(normalized.signature.bytes());
        let changed = state.tuning.has_changed(kind_id);
        let wide =
            arguments.is_one_count() && (version.is_preferred || changed) && !served.fallback && bytes > 0;
        // Where it stands in, calls with as large a count but other lists may go elsewhere.
        if listed.is_some() && !wide {
            return;
        }
        // The same in all that is served alike, or only for about as much data.
        let alike = |narrow: bool| match wide {
            true => {
                let mut all = state.menus.alike(&normalized.signature.question());
                if narrow {
                    let class = size_class(served.bytes);
                    all = *all.start().max(class.start())..=*all.end().min(class.end());
                }
                all.start().div_ceil(bytes).max(1)..=*all.end() / bytes
            }
            false => count..=count,
        };
        match &version.prepared {
            Some(Prepared::Native) => {
                let tuned = state.tuning.is_tuned(kind_id, served.bytes);
                if state.tuning.is_stopped(kind_id, served.bytes) && why.is_none() {
                    self.natives.put(communicator.comm, generation, &words, alike(tuned));
                }
                if tuned || why.is_some() {
                    state.store.memos.put(Memo {
                        words,
                        counts: alike(changed),
                        kind_id,
                        version: id,
                        problem: problem.clone(),
                        elements: 0,
                        cut: (1, true),
                        bound: (0, 0),
                        each: bytes as usize,
                        bytes: Bytes::default(),
                        given: 0,
                        combine: *combine,
                        padded: false,
                        why,
                    });
                }
            }
            // Input and output that overlap are looked at each time.
            Some(Prepared::Ready(plan))
                if normalized.is_direct_or_padded(plan.compiled(), self.backend.has_device())
                    && normalized.user_op.is_none() =>
            {
                let (listed, alike) = (listed.is_some(), alike(changed));
                if listed && !version.is_for_any_lists(problem) {
                    return;
                }
                let pieces = if matches!(problem.counts, Counts::Equal(_)) { problem.pieces } else { 1 };
                let size = |datatype: Handle| self.backend.shape(datatype).map_or(0, |shape| shape.size);
                state.store.memos.put(Memo {
                    words,
                    // There may be room for no more; with lists that is looked at.
                    counts: *alike.start()..=if listed { *alike.end() } else { count },
                    kind_id,
                    version: id,
                    problem: problem.clone(),
                    elements: each(problem.largest()),
                    cut: (pieces, problem.equal().is_some()),
                    bound: (0, 0),
                    each: bytes as usize,
                    bytes: Bytes {
                        input: each(normalized.bytes.0 as u64) as usize,
                        output: each(normalized.bytes.1 as u64) as usize,
                        before: communicator.rank.0 as usize * bytes as usize,
                    },
                    given: if listed && !problem.collective.reduces() { size(words[2]) } else { 0 },
                    combine: *combine,
                    // Whatever this rank's own block is in this call: that may be empty.
                    padded: combine.pair().is_some(),
                    why,
                });
            }
            _ => {}
        }
    }

    /// The arguments that decide about a call on one of the communicators of this thread's last calls.
    #[inline(always)]
    fn arguments(&self, call: &Call, comm: Handle) -> Option<Arguments> {
        arguments(self.backend, call, || self.last(comm)?.listed())
    }

    /// Whether a call came before on the same communicator and went to the MPI's own function.
    #[inline(always)]
    pub fn is_native_again(&self, call: &Call, comm: Handle) -> bool {
        self.arguments(call, comm)
            .is_some_and(|arguments| self.natives.has(comm, self.backend.generation(), &arguments))
    }

    /// Runs a call that came before on the same communicator; `None` if it did not.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name.
    #[inline]
    pub unsafe fn again(&self, call: &Call, comm: Handle) -> Option<Result<c_int, Failure>> {
        let arguments = self.arguments(call, comm)?;
        // A call of nothing that came in by MPI's own door went another way than one of the library's.
        if arguments.count > 0 && self.natives.has(comm, self.backend.generation(), &arguments) {
            // SAFETY: as for this function.
            return Some(Ok(unsafe { self.native(call, comm) }));
        }
        // SAFETY: as for this function.
        let ran = unsafe { self.run_again(call, &arguments, comm, call) };
        // SAFETY: as for this function.
        ran.or_else(|| unsafe { self.again_in_bytes(call, comm) })
    }

    /// The same for a call that was served.
    ///
    /// # Safety
    /// As for [`Engine::again`].
    pub unsafe fn served_again(&self, call: &Call, comm: Handle) -> Option<Result<c_int, Failure>> {
        // SAFETY: as for this function.
        let ran = unsafe { self.run_again(call, &self.arguments(call, comm)?, comm, call) };
        // SAFETY: as for this function.
        ran.or_else(|| unsafe { self.again_in_bytes(call, comm) })
    }

    /// The same call in bytes, where it moves data of types that are not built in. Their handles may mean other types soon, so such calls are
    /// recognised by their sizes. How the data lies is not looked at.
    pub(super) fn in_bytes(&self, call: &Call) -> Option<Call> {
        let backend = self.backend;
        let moves = matches!(call.function, Function::Allgather | Function::Alltoall | Function::Bcast);
        if !moves || is_built_in(backend, call) {
            return None;
        }
        let in_bytes = |buffer: &Buffer| {
            let count = buffer.amount.each();
            if count < 0 || backend.is_null_type(buffer.datatype) {
                return None;
            }
            let bytes = count.checked_mul(backend.type_size(buffer.datatype).ok()? as i64)?;
            Some(Buffer { amount: Amount::Each(bytes), datatype: backend.byte(), ..*buffer })
        };
        let sends = call.function != Function::Bcast && !backend.is_in_place(call.send.data);
        let send = if sends { in_bytes(&call.send)? } else { call.send };
        Some(Call { send, recv: in_bytes(&call.recv)?, ..*call })
    }

    /// A call of types that are not built in, of which one with as many bytes came before.
    #[inline(never)]
    unsafe fn again_in_bytes(&self, call: &Call, comm: Handle) -> Option<Result<c_int, Failure>> {
        let bytes = self.in_bytes(call)?;
        let arguments = self.arguments(&bytes, comm)?;
        if arguments.count > 0
            && !call.is_wide()
            && self.natives.has(comm, self.backend.generation(), &arguments)
        {
            // SAFETY: as for this function.
            return Some(Ok(unsafe { self.native(call, comm) }));
        }
        // SAFETY: as for this function.
        unsafe { self.run_again(&bytes, &arguments, comm, call) }
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
    unsafe fn run_again(
        &self,
        call: &Call,
        arguments: &Arguments,
        comm: Handle,
        said: &Call,
    ) -> Option<Result<c_int, Failure>> {
        let entry = self.last(comm)?;
        if !self.active.is_empty() || self.backend.has_device() {
            return None;
        }
        let Serving::Planned(communicator) = &entry.serving else { return None };
        // Where ranks are to meet first, that is done the longer way.
        if entry.counted.as_ref().is_some_and(|counted| counted.meets_next(call)) {
            return None;
        }
        let start = entry.counted.as_ref().map(|_| Instant::now());
        let mut taken = communicator.take().ok()?;
        let state = &mut *taken;
        let State { store: Store { memos, room, plans }, staged_input, staged_output, tuning, .. } = state;
        let memo = memos.get(arguments)?;
        let version = plans.versions.get(memo.version);
        let block = memo.each * arguments.count as usize;
        let plan = match &mut version.prepared {
            Some(Prepared::Ready(plan)) if std::ptr::eq(call, said) || self.is_dense(said) => plan,
            // An MPI may have no function for wide counts.
            Some(Prepared::Native) if !said.is_wide() && tuning.pass(memo.kind_id, block as u64) => {
                let why = memo.why.clone();
                drop(taken);
                // SAFETY: as for this function.
                let code = unsafe { self.native(said, comm) };
                self.count_again(entry, call, start, why.as_ref(), block);
                return Some(Ok(code));
            }
            _ => return None,
        };
        let rank = communicator.rank.0;
        let bytes = memo.bytes_of(arguments, rank)?;
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
        let output = match memo.padded {
            true if bytes.output > staged_output.bytes() => return None,
            true => staged_output.start().cast(),
            false => output,
        };
        if memo.bound != (arguments.count, plan.bindings()) {
            memo.problem.set_largest(arguments.count * memo.elements);
            // A plan may need more for lists with as large a count as others.
            if arguments.listed.is_some() {
                let needs = version.extent.needs(plan.compiled().even, &memo.problem, &Limits::MEASURED);
                if !communicator.may_have(&needs, version.too_much) || room.lacks(&needs) {
                    return None;
                }
            }
            plan.bind(&memo.problem);
            memo.bound = (arguments.count, plan.bindings());
        }
        if version.combine != Some(memo.combine) {
            plan.set_reduction(memo.combine.kernel());
            version.combine = Some(memo.combine);
        }
        // From here on it is served: what is to be done about it otherwise the longer way knows.
        if !tuning.pass(memo.kind_id, block as u64) {
            return None;
        }
        let temporary = room.temporary.start();
        let buffers = Buffers { input: input.cast(), output: output.cast(), temporary };
        // SAFETY: dense buffers of the sizes that the plan needs, by the user's promise.
        let ran = unsafe { plan.run(&communicator.hidden.wire, buffers) };
        if memo.padded
            && ran.is_ok()
            && let Some(pair) = memo.combine.pair()
        {
            // SAFETY: so many bytes are there, by the user's promise, and the room has as many.
            unsafe { pair.copy(staged_output.start(), results.cast(), bytes.output) };
        }
        self.count_again(entry, call, start, memo.why.as_ref(), block);
        Some(ran.map(|()| 0))
    }

    /// Counts a call that came before, if calls are counted.
    #[inline]
    fn count_again(
        &self,
        entry: &Entry<B>,
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

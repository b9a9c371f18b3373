//! The short way for a call that came before.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use bruckner_mpi::{Flavour, Registry, Word, has_device_runtime};
use bruckner_runtime::{Buffers, Failure};

use crate::call::Call;
use crate::communicator::{State, Store};
use crate::engine::{Engine, LAST, Serving};
use crate::memo::{Arguments, Memo, arguments};
use crate::normal::{Common, Normal};
use crate::plans::{Prepared, Slot};

impl Engine {
    /// Remembers a call whose buffers need no staging, and those that differ from it in nothing but the count, as far as they
    /// are served alike.
    pub(super) fn remember(
        &self,
        comm: Word,
        generation: u64,
        state: &mut State,
        arguments: Arguments,
        slot: &mut Slot,
        normal: &Normal,
    ) {
        if !self.quick.load(Ordering::Relaxed) {
            return;
        }
        let Common { problem, combine, .. } = &normal.common;
        let Arguments { words, count } = arguments;
        let each = |all: u64| all / count.max(1);
        let bytes = each(normal.common.bytes());
        let alike = match arguments.is_one_count() && slot.is_preferred && bytes > 0 {
            true => {
                let all = state.limits.alike(&normal.common);
                all.start().div_ceil(bytes).max(1)..=*all.end() / bytes
            }
            false => count..=count,
        };
        match &slot.prepared {
            Some(Prepared::Native) => self.natives.put(comm, generation, &words, alike),
            // Input and output that overlap are looked at each time.
            Some(Prepared::Ready(plan))
                if normal.is_direct(plan.compiled(), true) && normal.foreign.is_none() =>
            {
                // There is room for no more; and pieces may be equal for one count and not for the next.
                let least = if problem.pieces == 1 { *alike.start() } else { count };
                state.store.memos.put(Memo {
                    words,
                    counts: least..=count,
                    slot: &raw mut *slot,
                    problem: problem.clone(),
                    elements: each(problem.largest()),
                    bound: (0, 0),
                    bytes: bytes as usize,
                    combine: *combine,
                });
            }
            _ => {}
        }
    }

    /// The MPI's own function, if a call came before on the same communicator and went there. The whole of what it costs to
    /// be taken over where the choice is native.
    #[inline(always)]
    pub fn native_again(&self, call: &Call, wide: bool, comm: Word) -> Option<NonNull<c_void>> {
        let arguments = arguments(self.mpi, call)?;
        match self.natives.has(comm, Registry::generation(), &arguments) {
            true => self.mpi.address(call.function(), Flavour::Blocking, wide),
            false => None,
        }
    }

    /// Runs a call that came before on the same communicator; `None` if it did not.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name.
    #[inline]
    pub unsafe fn again(&self, call: &Call, comm: Word) -> Option<Result<c_int, Failure>> {
        if self.native_again(call, false, comm).is_some() {
            // SAFETY: the caller's promise.
            return Some(Ok(unsafe { self.native(call, comm) }));
        }
        // SAFETY: the caller's promise.
        unsafe { self.served_again(call, comm) }
    }

    /// The same for a call that was served.
    ///
    /// # Safety
    /// As for [`Engine::again`].
    pub unsafe fn served_again(&self, call: &Call, comm: Word) -> Option<Result<c_int, Failure>> {
        let arguments = &arguments(self.mpi, call)?;
        let (handle, generation, entry) = LAST.get();
        if handle != comm
            || generation != Registry::generation()
            || entry.is_null()
            || !self.active.is_empty()
            || has_device_runtime()
        {
            return None;
        }
        // SAFETY: kept until its communicator is freed, which would have changed the generation.
        let Serving::Planned(communicator) = (unsafe { &(*entry).serving }) else { return None };
        let mut state = communicator.take().ok()?;
        let state = &mut *state;
        let Store { memos, room, .. } = &mut state.store;
        memos.get(arguments).and_then(|memo| {
            // SAFETY: in the store, which is changed only together with the memos.
            let slot = unsafe { &mut *memo.slot };
            let Some(Prepared::Ready(plan)) = &mut slot.prepared else { return None };
            let rank = communicator.rank.0;
            let block = memo.bytes * arguments.count as usize;
            let (input, output) = match *call {
                Call::Allreduce { send, recv, .. } | Call::ReduceScatterBlock { send, recv, .. } => {
                    let aliased = send == recv.cast_const();
                    let overlaps = aliased || self.mpi.is_in_place(send);
                    if (overlaps && !plan.compiled().in_place) || (aliased && self.mpi.refuses_aliases()) {
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
                    true => (recv.wrapping_byte_add(rank as usize * block).cast_const(), recv),
                    false
                        if self.mpi.refuses_aliases()
                            && send == recv.wrapping_byte_add(rank as usize * block).cast_const() =>
                    {
                        return None;
                    }
                    false => (send, recv),
                },
                Call::Alltoall { send, recv, .. } => {
                    if send == recv.cast_const() {
                        return None;
                    }
                    (send, recv)
                }
                Call::Bcast { data, .. } => (data.cast_const(), data),
                _ => (std::ptr::null(), std::ptr::null_mut()),
            };
            // What has no buffer, or `MPI_IN_PLACE` for one, is looked at more closely.
            let lacks = match call {
                Call::Barrier => false,
                Call::Reduce { root, .. } => {
                    input.is_null() || (rank == *root as u32 && self.mpi.is_in_place(output))
                }
                _ => input.is_null() || output.is_null() || self.mpi.is_in_place(output),
            };
            if lacks {
                return None;
            }
            if memo.bound != (arguments.count, plan.bindings()) {
                memo.problem.set_largest(arguments.count * memo.elements);
                plan.bind(&memo.problem);
                memo.bound = (arguments.count, plan.bindings());
            }
            if slot.combine != Some(memo.combine) {
                plan.set_reduction(memo.combine.kernel());
                slot.combine = Some(memo.combine);
            }
            let temporary = room.temporary.start();
            let buffers = Buffers { input: input.cast(), output: output.cast(), temporary };
            // SAFETY: dense buffers of the sizes that the plan needs, by the user's promise.
            Some(unsafe { plan.run(&communicator.hidden.messages, buffers) }.map(|()| 0))
        })
    }
}

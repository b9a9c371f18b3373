//! The short way for a call that came before.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bruckner_choose::Choice;
use bruckner_mpi::{Function, Word};
use bruckner_runtime::{Buffers, Failure};
use bruckner_schedule::Counts;

use super::{Engine, Entry, Serving};
use crate::buffers::{Common, Normal};
use crate::call::Call;
use crate::communicator::{Arguments, Memo, Prepared, Served, State, Store, about, arguments};
use crate::observe::{By, Event};
use crate::world::World;

impl<W: World> Engine<W> {
    /// Remembers a call whose buffers need no staging, and those that differ from it in nothing but the count, as far as they
    /// are served alike.
    pub(super) fn remember(
        &self,
        comm: Word,
        generation: u64,
        state: &mut State<W>,
        arguments: Arguments,
        served: &Served,
        normal: &Normal,
    ) {
        // Calls of nothing go one way or another by the door that they come in by, and calls of a look each another.
        let looks = served.turn.is_of_a_look();
        if !self.quick.load(Ordering::Relaxed) || normal.common.is_nothing() || looks {
            return;
        }
        let (id, watch) = (served.id, served.watch);
        let why = self.counts.load(Ordering::Relaxed).then(|| state.why(served));
        let Common { problem, combine, .. } = &normal.common;
        let version = state.store.plans.versions.get(id);
        let Arguments { words, count } = arguments;
        let each = |all: u64| all / count.max(1);
        let bytes = each(normal.common.bytes());
        let changed = state.watches.has_changed(watch);
        let wide =
            arguments.is_one_count() && (version.is_preferred || changed) && !served.fallback && bytes > 0;
        // The same in all that is served alike, or only for about as much data.
        let alike = |narrow: bool| match wide {
            true => {
                let mut all = state.menus.alike(&normal.common.question());
                if narrow {
                    let about = about(served.bytes);
                    all = *all.start().max(about.start())..=*all.end().min(about.end());
                }
                all.start().div_ceil(bytes).max(1)..=*all.end() / bytes
            }
            false => count..=count,
        };
        match &version.prepared {
            Some(Prepared::Native) => {
                let watched = state.watches.is_watched(watch, served.bytes);
                if state.watches.is_over(watch, served.bytes) && why.is_none() {
                    self.natives.put(comm, generation, &words, alike(watched));
                }
                if watched || why.is_some() {
                    state.store.memos.put(Memo {
                        words,
                        counts: alike(changed),
                        watch,
                        version: id,
                        problem: problem.clone(),
                        elements: 0,
                        cut: (1, true),
                        bound: (0, 0),
                        bytes: bytes as usize,
                        combine: *combine,
                        why,
                    });
                }
            }
            // Input and output that overlap are looked at each time.
            Some(Prepared::Ready(plan))
                if normal.is_direct(plan.compiled(), true, self.world.has_device())
                    && normal.foreign.is_none() =>
            {
                let pieces = if matches!(problem.counts, Counts::Equal(_)) { problem.pieces } else { 1 };
                state.store.memos.put(Memo {
                    words,
                    // There is room for no more.
                    counts: *alike(changed).start()..=count,
                    watch,
                    version: id,
                    problem: problem.clone(),
                    elements: each(problem.largest()),
                    cut: (pieces, problem.equal().is_some()),
                    bound: (0, 0),
                    bytes: bytes as usize,
                    combine: *combine,
                    why,
                });
            }
            _ => {}
        }
    }

    /// Whether a call came before on the same communicator and went to the MPI's own function.
    #[inline(always)]
    pub fn is_native_again(&self, call: &Call, comm: Word) -> bool {
        arguments(self.world, call)
            .is_some_and(|arguments| self.natives.has(comm, self.world.generation(), &arguments))
    }

    /// Runs a call that came before on the same communicator; `None` if it did not.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name.
    #[inline]
    pub unsafe fn again(&self, call: &Call, comm: Word) -> Option<Result<c_int, Failure>> {
        let arguments = arguments(self.world, call)?;
        if self.natives.has(comm, self.world.generation(), &arguments) {
            // SAFETY: as for this function.
            return Some(Ok(unsafe { self.native(call, comm) }));
        }
        // SAFETY: as for this function.
        unsafe { self.run_again(call, &arguments, comm) }
    }

    /// The same for a call that was served.
    ///
    /// # Safety
    /// As for [`Engine::again`].
    pub unsafe fn served_again(&self, call: &Call, comm: Word) -> Option<Result<c_int, Failure>> {
        // SAFETY: as for this function.
        unsafe { self.run_again(call, &arguments(self.world, call)?, comm) }
    }

    #[inline]
    unsafe fn run_again(
        &self,
        call: &Call,
        arguments: &Arguments,
        comm: Word,
    ) -> Option<Result<c_int, Failure>> {
        let entry = self.last(comm)?;
        if !self.active.is_empty() || self.world.has_device() {
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
        let State { store: Store { memos, room, plans }, staged_input, watches, .. } = state;
        let memo = memos.get(arguments)?;
        let version = plans.versions.get(memo.version);
        let block = memo.bytes * arguments.count as usize;
        let plan = match &mut version.prepared {
            Some(Prepared::Ready(plan)) => plan,
            Some(Prepared::Native) if watches.pass(memo.watch, block as u64) => {
                let why = memo.why.clone();
                drop(taken);
                // SAFETY: as for this function.
                let code = unsafe { self.native(call, comm) };
                self.count_again(entry, call, start, why.as_ref(), block);
                return Some(Ok(code));
            }
            _ => return None,
        };
        let rank = communicator.rank.0;
        let (mut input, output) = self.plain_buffers(call, rank, block)?;
        // A reduction's input that the plan still reads when it has begun to write is put aside.
        let reduced = match call.function {
            Function::Allreduce => Some(block),
            Function::ReduceScatterBlock => Some(block * communicator.size as usize),
            _ => None,
        };
        if let Some(bytes) = reduced
            && input.cast_mut() == output
            && !plan.compiled().in_place
        {
            if bytes > staged_input.bytes() {
                return None;
            }
            // SAFETY: so many bytes are there, by the user's promise, and the room has as many.
            unsafe { std::ptr::copy_nonoverlapping(input.cast(), staged_input.start(), bytes) };
            input = staged_input.start().cast_const().cast();
        }
        if memo.bound != (arguments.count, plan.bindings()) {
            memo.problem.set_largest(arguments.count * memo.elements);
            plan.bind(&memo.problem);
            memo.bound = (arguments.count, plan.bindings());
        }
        if version.combine != Some(memo.combine) {
            plan.set_reduction(memo.combine.kernel());
            version.combine = Some(memo.combine);
        }
        // From here on it is served: what is to be done about it otherwise the longer way knows.
        if !watches.pass(memo.watch, block as u64) {
            return None;
        }
        let temporary = room.temporary.start();
        let buffers = Buffers { input: input.cast(), output: output.cast(), temporary };
        // SAFETY: dense buffers of the sizes that the plan needs, by the user's promise.
        let ran = unsafe { plan.run(&communicator.hidden.wire, buffers) };
        self.count_again(entry, call, start, memo.why.as_ref(), block);
        Some(ran.map(|()| 0))
    }

    /// Counts a call that came before, if calls are counted.
    #[inline]
    fn count_again(
        &self,
        entry: &Entry<W>,
        call: &Call,
        start: Option<Instant>,
        why: Option<&Arc<Choice>>,
        bytes: usize,
    ) {
        let (Some(start), Some(counted)) = (start, &entry.counted) else { return };
        let took = start.elapsed();
        counted.count(call);
        self.books.spent(took, None);
        if let (Some(ledger), Some(why)) = (&counted.ledger, why) {
            let (name, bytes, seconds) = (call.name(), bytes as u64, took.as_secs_f64());
            ledger.add(&Event { name, persistent: false, by: By::Choice(why), bytes, seconds });
        }
    }

    /// The buffers of a call of dense data, if they are as a plan wants them; those of a reduction may be one. What has no
    /// buffer, `MPI_IN_PLACE` for one, or one buffer where MPI wants two, is looked at more closely elsewhere.
    #[inline]
    fn plain_buffers(&self, call: &Call, rank: u32, block: usize) -> Option<(*const c_void, *mut c_void)> {
        let world = self.world;
        let (send, recv) = (call.send.data, call.recv.data);
        let own = || recv.wrapping_byte_add(rank as usize * block);
        let (input, output) = match call.function {
            Function::Barrier => return Some((std::ptr::null(), std::ptr::null_mut())),
            Function::Allreduce | Function::ReduceScatterBlock => {
                let aliased = send == recv;
                if aliased && world.refuses_aliases() {
                    return None;
                }
                (if world.is_in_place(send) { recv } else { send }, recv)
            }
            Function::Reduce => {
                let is_root = rank == call.root as u32;
                let lacks = world.is_in_place(send) || send.is_null() || (is_root && send == recv);
                if lacks || (is_root && world.is_in_place(recv)) {
                    return None;
                }
                return Some((send, recv));
            }
            Function::Allgather => match world.is_in_place(send) {
                true => (own(), recv),
                false if world.refuses_aliases() && send == own() => return None,
                false => (send, recv),
            },
            Function::Alltoall if send == recv => return None,
            _ => (send, recv),
        };
        let lacks = input.is_null() || output.is_null() || world.is_in_place(output);
        (!lacks).then_some((input.cast_const(), output))
    }
}

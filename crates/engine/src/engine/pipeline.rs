//! The path of a call that the caches do not recognise: normalise, decide, plan, run, account.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bruckner_choose::Choice;
use bruckner_mpi::{AgreeOp, Handle};
use bruckner_report::{Event, Handler};
use bruckner_schedule::Counts;

use super::incoming::Incoming;
use super::{Engine, EntryPoint};
use crate::Error;
use crate::account::CommCounters;
use crate::backend::Backend;
use crate::cache::CallKey;
use crate::call::Call;
use crate::communicator::{CommEntry, Communicator, Handling, PlannedCall, State};
use crate::normalize::{NormalizedCall, alltoallv_layout};
use crate::plan::{Prepared, Store};
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::run::{NativeCheck, Staging};

/// The outcome of a call, for the report.
#[derive(Default)]
struct Outcome {
    /// The algorithm that handled the call.
    choice: Option<Arc<Choice>>,
    /// The reason why the call was passed through.
    reason: Option<Reason>,
    /// Time that this rank waited in a barrier before the call, if the call was sampled.
    waited: Option<Duration>,
}

impl Outcome {
    /// Counts a call that all ranks are known to make. If the call is to be sampled, waits in a barrier first.
    fn sample(
        &mut self,
        counted: Option<&CommCounters>,
        call: &Call,
        barrier: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(counted) = counted else { return Ok(()) };
        let sampled = counted.is_sampled(call);
        counted.count(call);
        if sampled {
            let start = Instant::now();
            barrier()?;
            self.waited = Some(start.elapsed());
        }
        Ok(())
    }
}

/// Key of a call and generation of handles, with which the call is added to the caches.
struct Recognition {
    /// The key of the call; `None` if its arguments alone do not decide how it is handled.
    key: Option<CallKey>,
    generation: u64,
}

impl<B: Backend> Engine<B> {
    /// Runs a collective. `Ok` contains the code of the MPI's own function if that was called, otherwise 0. If the code is an error, the
    /// MPI has already raised it.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name.
    pub unsafe fn run(&self, call: &Call, comm: Handle, entry_point: EntryPoint) -> Result<c_int, Error> {
        if entry_point == EntryPoint::Mpi && self.backend.is_null_comm(comm) {
            // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller; MPI raises the error for the null communicator.
            return Ok(unsafe { self.native(call, comm) });
        }
        let mut incoming = Incoming::new(self.backend, call, comm);
        let entry = match entry_point {
            EntryPoint::Api => self.entry(comm)?,
            EntryPoint::Mpi => self.entry_for(&incoming)?,
        };
        let Some(counted) = &entry.counted else {
            // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
            return unsafe { self.handle_call(entry, &mut incoming, entry_point, None) };
        };
        let start = Instant::now();
        let mut outcome = Outcome::default();
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        let result = unsafe { self.handle_call(entry, &mut incoming, entry_point, Some(&mut outcome)) };
        self.account(counted, &incoming, &outcome, start.elapsed())?;
        result
    }

    /// Adds a call to the report.
    fn account(
        &self,
        counted: &CommCounters,
        incoming: &Incoming<'_, B>,
        outcome: &Outcome,
        took: Duration,
    ) -> Result<(), Error> {
        self.statistics.add_time(took, outcome.waited);
        let Some(counters) = &counted.counters else { return Ok(()) };
        let why = outcome.reason.as_ref().map(ToString::to_string);
        let by = match (&outcome.choice, &why) {
            (Some(choice), _) => Handler::Choice(choice),
            (None, why) => Handler::Named("native", why.as_deref().unwrap_or_default()),
        };
        let (name, bytes, seconds) = (incoming.call.name(), incoming.bytes()?, took.as_secs_f64());
        counters.add(&Event { name, persistent: false, by, bytes, seconds });
        Ok(())
    }

    /// Handles a call, or passes it through.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name.
    unsafe fn handle_call(
        &self,
        entry: &CommEntry<B>,
        incoming: &mut Incoming<'_, B>,
        entry_point: EntryPoint,
        outcome: Option<&mut Outcome>,
    ) -> Result<c_int, Error> {
        let (call, comm) = (incoming.call, incoming.comm);
        let generation = self.backend.generation();
        let seen = Recognition { key: self.key_of(call, || entry.listed()), generation };
        let reason = match &entry.handling {
            Handling::Handled(communicator) => {
                match incoming.take_normalized(communicator.group.rank.0, communicator.group.size) {
                    Ok(normalized) if entry_point == EntryPoint::Mpi && normalized.signature.is_nothing() => {
                        self.remember_native(&seen, comm, 0..=0);
                        Reason::NothingToDo
                    }
                    Ok(normalized) => {
                        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
                        return unsafe {
                            self.handle_normalized(entry, communicator, call, normalized, &seen, outcome)
                        };
                    }
                    Err(Refusal::PassThrough(reason)) => reason,
                    // A negative count is an error here, because not every MPI checks counts.
                    Err(Refusal::Error(error @ Error::Negative(_))) => return Err(error),
                    // The MPI checks the arguments itself, and raises the error on the right communicator.
                    Err(Refusal::Error(_)) if entry_point == EntryPoint::Mpi => Reason::LeftToMpi,
                    Err(Refusal::Error(error)) => return Err(error),
                }
            }
            Handling::PassedThrough(reason) => {
                self.remember_native(&seen, comm, 0..=u64::MAX);
                reason.clone()
            }
            Handling::Pending(_) if self.is_off() => Reason::Off,
            Handling::Pending(_) => Reason::FirstCalls,
        };
        if let Some(outcome) = outcome {
            // A sample needs a barrier, so all ranks must come here in the same call. That is certain only if the library is switched off.
            let counted = entry.counted.as_ref().filter(|counted| reason == Reason::Off && counted.inside);
            if counted.is_some() && incoming.is_sound()? {
                let barrier = || Ok(self.backend.agree(comm, AgreeOp::Max, &mut [0])?);
                outcome.sample(counted, call, barrier)?;
            }
            outcome.reason = Some(reason);
        }
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        Ok(unsafe { self.native(call, comm) })
    }

    /// Decides which algorithm handles a normalised call, gets the plan, and runs it.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name.
    unsafe fn handle_normalized(
        &self,
        entry: &CommEntry<B>,
        communicator: &Communicator<B>,
        call: &Call,
        mut normalized: NormalizedCall,
        seen: &Recognition,
        mut outcome: Option<&mut Outcome>,
    ) -> Result<c_int, Error> {
        let group = &communicator.group;
        let mut state = communicator.take()?;
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        let native = || Ok(unsafe { self.native(call, group.comm) });
        // An invalid alltoallv is passed to the MPI, which rejects it. This happens before other ranks wait for this rank to make a plan.
        let checked = normalized.signature.is_local() && !state.is_native(&normalized.signature);
        if checked && alltoallv_layout(self.backend, call, group.size).is_err() {
            return native();
        }
        let Some(planned) = communicator.plan(&mut state, &mut normalized)? else {
            if let Some(outcome) = outcome {
                outcome.reason = Some(Reason::Different);
            }
            return native();
        };
        if !state.store.plans.versions.get(planned.id).is_the_call_itself() {
            normalized.look_closer(self.backend);
        }
        if let Some(key) = seen.key {
            self.remember(seen.generation, communicator, &mut state, key, &planned, &normalized);
        }
        if let Some(outcome) = &mut outcome {
            outcome.choice = Some(state.why(&planned));
            outcome.sample(entry.counted.as_ref(), call, || group.barrier())?;
        }
        communicator.begin_trial_call(&planned.decision)?;
        let start = Instant::now();
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        let result = unsafe { self.run_planned(entry, communicator, &mut state, &planned, call, &normalized) };
        // A call that failed on this rank still counts in its trial, because all ranks count it.
        let timed = communicator.end_trial_call(&mut state, &planned.decision, start.elapsed())?;
        if let Some(counters) = entry.counters().filter(|_| !timed.is_empty()) {
            let equal = matches!(normalized.signature.problem.counts, Counts::Equal(_));
            counters.add_trial(call.name(), planned.decision.bytes, equal, &timed);
        }
        result
    }

    /// Runs a call by its plan, and compares the result with the MPI's own if `BRUCKNER_CHECK` requests it for this call.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name.
    unsafe fn run_planned(
        &self,
        entry: &CommEntry<B>,
        communicator: &Communicator<B>,
        state: &mut State<B>,
        planned: &PlannedCall,
        call: &Call,
        normalized: &NormalizedCall,
    ) -> Result<c_int, Error> {
        let State { store: Store { plans, workspace, .. }, staged_input, staged_output, calls, .. } = state;
        let group = &communicator.group;
        let version = plans.versions.get(planned.id);
        let prepared = match &mut version.prepared {
            None | Some(Prepared::Native) => {
                // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
                return Ok(unsafe { self.native(call, group.comm) });
            }
            Some(prepared) => prepared,
        };
        let every = group.internal.settings.check_interval;
        let check = match every > 0 && calls.is_multiple_of(every) {
            // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
            true => unsafe { NativeCheck::run(group, call, normalized) }?,
            false => None,
        };
        let (wire, comm) = (&group.internal.wire, group.comm);
        let device = self.backend.has_device();
        let mut staging = Staging { backend: self.backend, input: staged_input, output: staged_output, device };
        match prepared {
            Prepared::Native => {}
            Prepared::Parts(parts) => {
                // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
                let code = unsafe { parts.run(self.backend, call, normalized, comm) }?;
                if code != 0 {
                    return Ok(code);
                }
            }
            Prepared::Ready(plan) => {
                staging.grow(normalized, plan);
                let (buffers, staged) = staging.pack_input(normalized, plan, &workspace.temporary)?;
                if self.active.is_empty() {
                    // SAFETY: the buffers have the sizes that the plan needs: the user's by ARGUMENTS (see `lib.rs`), the others because
                    // they are staged.
                    unsafe { plan.run(wire, buffers) }?;
                } else {
                    // SAFETY: the buffers have the sizes that the plan needs: the user's by ARGUMENTS (see `lib.rs`), the others because
                    // they are staged.
                    unsafe { plan.start(wire, buffers) }?;
                    self.active.while_waiting(wire, || plan.test(wire))?;
                }
                staging.take(normalized, staged)?;
            }
            Prepared::Sized(plan) => {
                let (buffers, staged) = staging.pack_alltoallv_input(call, group.size, plan)?;
                // SAFETY: the buffers have the sizes that the plan needs: the user's by ARGUMENTS (see `lib.rs`), the others because they
                // are staged.
                unsafe { plan.start(wire, buffers) }?;
                if self.active.is_empty() {
                    plan.wait(wire)?;
                } else {
                    self.active.while_waiting(wire, || plan.test(wire))?;
                }
                staged.take(self.backend)?;
            }
        }
        if let Some(check) = check {
            let same = check.compare(self.backend, comm, call, &version.choice.expression)?;
            if let Some(counters) = entry.counters() {
                counters.add_check(same);
            }
        }
        Ok(0)
    }

    /// Remembers that calls with these counts are passed through.
    fn remember_native(&self, seen: &Recognition, comm: Handle, counts: std::ops::RangeInclusive<u64>) {
        let unseen = self.recognises.load(Ordering::Relaxed) && !self.counts.load(Ordering::Relaxed);
        if let (Some(key), true) = (&seen.key, unseen) {
            self.natives.put(comm, seen.generation, &key.words, counts);
        }
    }

    /// Calls the MPI's own function, and returns its code.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name.
    #[inline(always)]
    pub unsafe fn native(&self, call: &Call, comm: Handle) -> c_int {
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        match unsafe { self.backend.native(call, comm) } {
            Ok(()) => 0,
            Err(error) => error.code,
        }
    }
}

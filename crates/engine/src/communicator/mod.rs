//! The state of a user's communicator: its ranks, its decisions, and its plans.

mod entry;

use std::sync::Arc;
use std::time::Duration;

use bruckner_choose::{Assignment, Choice, OnlineTuning};
use bruckner_mpi::{AgreeOp, Handle};
use bruckner_runtime::Scratch;

use crate::Error;
use crate::backend::Backend;
use crate::cache::PlanId;
use crate::decide::{Decider, Decision};
use crate::group::{Group, InternalComm};
use crate::normalize::{CallSignature, NormalizedCall};
use crate::plan::{Candidate, Site, Slots, Stopped, Store, Workspace};
use crate::progress::{Taken, Turn};
use crate::refusal::Refusal;

pub(crate) use entry::{CommEntry, Handling};

/// A call with its plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedCall {
    pub(crate) id: PlanId,
    pub(crate) decision: Decision,
    /// Whether the candidate that was decided on cannot handle this call, so that another one does.
    pub(crate) fallback: bool,
}

/// The part of a communicator's state that changes from call to call.
pub(crate) struct State<B: Backend> {
    pub(crate) decider: Decider,
    pub(crate) store: Store<B>,
    pub(crate) staged_input: Scratch,
    pub(crate) staged_output: Scratch,
    pub(crate) calls: u64,
}

impl<B: Backend> State<B> {
    /// Passes every call through from now on: ranks have agreed that a buffer may be in device memory.
    pub(crate) fn pass_through(&mut self) {
        self.forget();
        self.decider.device = true;
    }

    /// Whether the MPI's own function is known to be the first choice for calls of this kind.
    pub(crate) fn is_native(&self, signature: &CallSignature) -> bool {
        self.store.plans.is_native(&self.decider.kind(&signature.question()))
    }

    /// Returns the algorithm of a call, and the reason for it.
    pub(crate) fn why(&mut self, planned: &PlannedCall) -> Arc<Choice> {
        let Decision { kind, kind_id, bytes, assignment } = planned.decision;
        let choice = self.store.plans.versions.get(planned.id).choice.clone();
        let candidates = self.store.plans.known(&kind);
        let named = |at: usize| candidates[at].choice.expression.clone();
        match self.decider.tuning.reason(kind_id, bytes, assignment, named) {
            Some(reason) => Arc::new(Choice { reason, expression: choice.expression.clone() }),
            None => choice,
        }
    }

    /// Drops all plans and results of tuning, because the inputs of decisions have changed.
    pub(crate) fn forget(&mut self) {
        self.store.forget();
        self.decider.forget();
    }

    /// Decides which candidate handles a call.
    fn decide(&mut self, signature: &CallSignature) -> Decision {
        let State { decider, store, .. } = self;
        let kind = decider.kind(&signature.question());
        let candidates = store.plans.of(kind, || decider.choices(&kind)).0;
        let first = candidates[0].choice.clone();
        decider.decide(kind, signature, &first, |alternative| Candidate::number(candidates, alternative))
    }
}

/// A user's communicator whose calls the library handles.
pub(crate) struct Communicator<B: Backend> {
    pub(crate) group: Group<B>,
    /// State that is locked while a call runs. A thread that finds it locked gets an error instead of waiting.
    state: Turn<State<B>>,
    /// Plans, tags and memory of freed persistent operations.
    pub(crate) slots: Slots<B>,
}

impl<B: Backend> Drop for Communicator<B> {
    fn drop(&mut self) {
        // This makes no MPI call, because it may run in a delete callback of an attribute.
        self.slots.free(&self.group);
        let store = &mut self.state.get_mut().store;
        std::mem::replace(store, Store::new(Workspace::of_communicator())).free(&self.group);
    }
}

impl<B: Backend> Communicator<B> {
    /// Creates the state of a communicator. Collective. Returns the reason, the same on all ranks, if the library cannot handle its calls.
    pub(crate) fn new(internal: Arc<InternalComm<B>>, comm: Handle) -> Result<Communicator<B>, Refusal> {
        let (group, topology) = Group::new(internal, comm)?;
        let internal = &group.internal;
        let topology = internal.reuse.topology(topology);
        let calibration = group.calibration(&topology)?;
        let settings = &internal.settings;
        let decider = Decider {
            rules: settings.rules.clone(),
            tables: internal.tables(&topology, calibration.as_ref()),
            topology,
            tuning: OnlineTuning::default(),
            tuned: settings.online_tuning && settings.check_interval == 0,
            calibration,
            device: false,
            revision: 0,
        };
        let state = State {
            decider,
            store: Store::new(Workspace::of_communicator()),
            staged_input: Scratch::new(0),
            staged_output: Scratch::new(0),
            calls: 0,
        };
        Ok(Communicator { group, state: Turn::new(state), slots: Slots::default() })
    }

    /// Locks the state for a call; returns an error if another thread has locked it. The lock is released even if the call panics.
    pub(crate) fn take(&self) -> Result<Taken<'_, State<B>>, Error> {
        self.state.try_take().ok_or(Error::Plan("another thread is running a collective on this communicator"))
    }

    /// Returns the topology and the calibration of messages as text.
    pub(crate) fn texts(&self) -> (String, String) {
        self.take().map_or_else(
            |_| Default::default(),
            |state| {
                let Decider { topology, calibration, .. } = &state.decider;
                (topology.to_string(), calibration.map_or_else(String::new, |found| found.to_string()))
            },
        )
    }

    /// Decides which algorithm handles a call, and returns the plan, bound to the call's sizes. Making a plan is collective; whether one
    /// must be made depends only on values that all ranks share. Returns `None`, on all ranks, if they find that they make different
    /// calls; that result is not cached.
    pub(crate) fn plan(
        &self,
        state: &mut State<B>,
        normalized: &mut NormalizedCall,
    ) -> Result<Option<PlannedCall>, Error> {
        state.calls += 1;
        loop {
            let mut decision = state.decide(&normalized.signature);
            let State { decider, store, calls, .. } = &mut *state;
            let site = Site { topology: &decider.topology, tags: self.group.tags, one_round: false };
            let (kind, asked) = (decision.kind, decision.assignment.candidate());
            let choices = || decider.choices(&kind);
            match store.prepare(&self.group, &site, kind, choices, asked, normalized) {
                Ok((id, candidate)) => {
                    store.plans.versions.get(id).last_lookup = *calls;
                    let fallback = candidate != asked;
                    if fallback {
                        decider.replace(&mut decision, candidate);
                    }
                    return Ok(Some(PlannedCall { id, decision, fallback }));
                }
                Err(Stopped::Device) => state.pass_through(),
                Err(Stopped::Different) => {
                    // Only the MPI can handle such calls.
                    decider.stop_trial(&decision);
                    return Ok(None);
                }
                Err(Stopped::Failed(error)) => return Err(error),
            }
        }
    }

    /// Waits in a barrier if all ranks must begin this call of a trial together. Collective.
    pub(crate) fn begin_trial_call(&self, decision: &Decision) -> Result<(), Error> {
        match decision.assignment {
            Assignment::FromBarrier(_) => self.group.barrier(),
            Assignment::Regular(_) | Assignment::Following(_) => Ok(()),
        }
    }

    /// Adds the time of a call of a trial; if it was the last one, concludes the trial, which is collective, and returns the times of the
    /// candidates.
    pub(crate) fn end_trial_call(
        &self,
        state: &mut State<B>,
        decision: &Decision,
        took: Duration,
    ) -> Result<Vec<(Arc<Choice>, f64)>, Error> {
        let Decision { kind, kind_id, bytes, assignment } = *decision;
        if !assignment.is_in_trial() {
            return Ok(Vec::new());
        }
        let State { decider: Decider { tuning, .. }, store, .. } = state;
        let Some(mut times) = tuning.add_time(kind_id, bytes, took.as_nanos() as u64) else {
            return Ok(Vec::new());
        };
        // The fingerprint shows whether ranks are in different trials because they make different calls.
        let fingerprint = tuning.fingerprint(kind_id, bytes);
        times.extend([fingerprint, !fingerprint]);
        self.group.agree(AgreeOp::Max, &mut times)?;
        store.calls.clear();
        let candidates = store.plans.known(&kind);
        match (times.pop(), times.pop()) {
            (Some(inverse), Some(fingerprint)) if inverse == !fingerprint => {
                let timed = tuning.conclude(kind_id, bytes, &times, |at| candidates[at].is_native());
                Ok(timed.into_iter().map(|(at, time)| (candidates[at].choice.clone(), time)).collect())
            }
            _ => {
                tuning.stop(kind_id, bytes);
                Ok(Vec::new())
            }
        }
    }
}

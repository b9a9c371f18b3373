//! Creation of persistent operations, which is collective.

use std::sync::Arc;

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_choose::{Choice, Reason as Chosen};
use bruckner_mpi::Handle;

use super::incoming::Incoming;
use super::{Engine, EntryPoint};
use crate::Error;
use crate::account::OperationCounters;
use crate::backend::Backend;
use crate::call::Call;
use crate::communicator::{CommEntry, Communicator, Handling};
use crate::normalize::NormalizedCall;
use crate::plan::{Prepared, Purpose, Site, Stopped};
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::run::{Made, Persistent};

impl<B: Backend> Engine<B> {
    /// Makes a persistent operation of a call. Collective. If `algorithm` is empty, the library chooses; otherwise the named algorithm is
    /// used, or an error gives the reason why it cannot handle the call. If the library is switched off, the MPI's own function is used
    /// instead of a named algorithm, so that switching off breaks no program.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name, and stay so as long as the operation is used.
    pub unsafe fn persistent(&self, call: Call, comm: Handle, algorithm: &str) -> Result<Persistent<B>, Error> {
        let entry = self.use_entry(comm, EntryPoint::Api)?;
        let asked = match algorithm {
            "" => None,
            text => Some(text.parse::<Expression>().map_err(|error| Error::Argument(format!("{error}")))?),
        };
        let (communicator, made) = match &entry.handling {
            Handling::Handled(communicator) => {
                let (rank, size) = (communicator.group.rank.0, communicator.group.size);
                let made = match Incoming::new(self.backend, &call, comm).take_normalized(rank, size) {
                    Ok(normalized) => self.planned_for(communicator, normalized, asked.as_ref(), false)?,
                    Err(Refusal::PassThrough(reason)) => Made::native(reason),
                    Err(Refusal::Error(error)) => return Err(error),
                };
                (Some(communicator.clone()), made)
            }
            Handling::PassedThrough(reason) => (None, Made::native(reason.clone())),
            Handling::Pending(_) => (None, Made::native(Reason::FirstCalls)),
        };
        let counted = entry.counted.as_ref();
        let account = counted
            .map(|counted| OperationCounters::new(self.statistics.clone(), counted.counters.clone(), call.name()));
        let made = self.bound(communicator, comm, call, made, account);
        match asked {
            Some(asked)
                if made.is_the_call_itself()
                    && asked != Expression::Plain(Plain::Native)
                    && *made.reason() != Reason::Off =>
            {
                let why = made.reason();
                Err(Error::Argument(format!(
                    "algorithm `{asked}` cannot handle this {} on this communicator: {why}",
                    call.name()
                )))
            }
            _ => Ok(made),
        }
    }

    /// Makes an operation for an MPI persistent request. If the MPI cannot call the library inside its waits, the operation must have a
    /// single round, which needs no advancing. If no operation can be made, returns the reason, the same on all ranks. Collective.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name, and stay so as long as the operation is used.
    pub(super) unsafe fn for_request(
        &self,
        entry: &CommEntry<B>,
        incoming: &mut Incoming<'_, B>,
    ) -> Result<Persistent<B>, Refusal> {
        let (call, comm) = (*incoming.call, incoming.comm);
        let communicator = match &entry.handling {
            Handling::Handled(communicator) => communicator,
            Handling::PassedThrough(reason) => return Err(reason.clone().into()),
            Handling::Pending(_) => return Err(Reason::FirstCalls.into()),
        };
        let (rank, size) = (communicator.group.rank.0, communicator.group.size);
        let normalized = match incoming.take_normalized(rank, size) {
            Ok(normalized) => normalized,
            Err(Refusal::PassThrough(reason)) => return Err(reason.into()),
            Err(Refusal::Error(_)) => return Err(Reason::LeftToMpi.into()),
        };
        let one_round = !communicator.group.internal.hooked;
        let made = self.planned_for(communicator, normalized, None, one_round)?;
        // The operation has no counters of its own, because its executions are counted with the request.
        let mut made = self.bound(Some(communicator.clone()), comm, call, made, None);
        if made.is_the_call_itself() {
            let reason = match made.reason() {
                Reason::Chosen(reason) if one_round => Reason::NotAdvanced(reason.clone()),
                reason => reason.clone(),
            };
            return Err(reason.into());
        }
        made.post_anew();
        Ok(made)
    }

    fn bound(
        &self,
        communicator: Option<Arc<Communicator<B>>>,
        comm: Handle,
        call: Call,
        made: Made<B>,
        account: Option<OperationCounters>,
    ) -> Persistent<B> {
        Persistent::new(self.backend, self.active.clone(), communicator, comm, call, made, account)
    }

    /// Makes a plan for a call by one of its candidates, with tags and memory of its own so that operations may be started in any order.
    /// Collective.
    fn planned_for(
        &self,
        communicator: &Communicator<B>,
        mut normalized: NormalizedCall,
        asked: Option<&Expression>,
        one_round: bool,
    ) -> Result<Made<B>, Error> {
        let state = communicator.take()?;
        let decider = &state.decider;
        let (topology, revision) = (decider.topology.clone(), decider.revision);
        let kind = decider.kind(&normalized.signature.question());
        let all = match asked {
            Some(expression) => {
                let asked = Choice { expression: expression.clone(), reason: Chosen::Requested };
                vec![asked, Choice::native(Chosen::NothingFits)]
            }
            None => decider.choices(&kind),
        };
        // Compositions are blocking and cannot be started and tested later, so they are used only if the caller names one.
        let waits = |choice: &Choice| choice.expression.is_composition();
        let all: Vec<Choice> = all.into_iter().filter(|choice| asked.is_some() || !waits(choice)).collect();
        let purpose = Purpose { kind, asked: asked.cloned(), one_round, revision };
        drop(state);
        if let Some(native) = all.first().filter(|choice| choice.is_native()) {
            return Ok(Made::native(native.reason.clone().into()).of(normalized));
        }
        let Some(mut resources) = communicator.slots.take(&communicator.group, purpose, &normalized.signature)? else {
            return Ok(Made::native(Reason::NoTags));
        };
        let site = Site { topology: &topology, tags: resources.tags, one_round };
        let group = &communicator.group;
        let prepared = resources.store.prepare(group, &site, kind, || all, 0, &mut normalized);
        let reason: Reason = match prepared {
            Ok((id, _)) => {
                let choice = resources.store.plans.versions.get(id).choice.clone();
                match resources.plan(id) {
                    Prepared::Native => choice.reason.clone().into(),
                    plan => {
                        normalized.look_closer(self.backend);
                        return Ok(Made::planned(plan, resources, &choice, normalized));
                    }
                }
            }
            Err(Stopped::Device) => {
                communicator.take()?.pass_through();
                Chosen::Device.into()
            }
            Err(Stopped::Different) => Reason::Different,
            Err(Stopped::Failed(error)) => {
                resources.free(group);
                return Err(error);
            }
        };
        communicator.slots.remove(group, resources);
        Ok(Made::native(reason).of(normalized))
    }
}

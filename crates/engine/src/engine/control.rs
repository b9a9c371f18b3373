//! Requests to the engine besides collectives: setting algorithms, setting a topology, and queries.

use std::sync::Arc;

use bruckner_choose::{Name, Rules};
use bruckner_mpi::Handle;

use super::{Engine, Findings};
use crate::Error;
use crate::backend::Backend;
use crate::communicator::{Communicator, Handling, State};
use crate::plan::Workspace;

impl<B: Backend> Engine<B> {
    /// Sets the algorithms for a communicator's calls from now on. Collective, with the same text on all ranks.
    pub fn set_algorithms(&self, comm: Handle, rules: &str) -> Result<(), Error> {
        let rules: Rules = rules.parse()?;
        self.change(comm, |_, state| state.decider.rules.extend(rules))
    }

    /// Sets the placement of a communicator's ranks from now on, for tests and experiments. Collective, with the same text on all ranks.
    /// Ranks that the text places on one node must really share one.
    pub fn set_topology(&self, comm: Handle, text: &str) -> Result<(), Error> {
        let topology: bruckner_schedule::Topology =
            text.parse().map_err(|error| Error::Argument(format!("{error}")))?;
        let size = self.backend.size(comm)?;
        if topology.ranks() != size {
            return Err(Error::Argument(format!(
                "topology `{text}` has {} ranks, but the communicator has {size}",
                topology.ranks()
            )));
        }
        self.change(comm, |communicator, state| {
            let decider = &mut state.decider;
            decider.topology = Arc::new(topology);
            decider.tables = communicator.group.internal.tables(&decider.topology, decider.calibration.as_ref());
            state.store.workspace = Workspace::of_communicator();
        })
    }

    /// Changes the inputs of a communicator's decisions, and drops its plans so that they are made anew.
    fn change(&self, comm: Handle, change: impl FnOnce(&Communicator<B>, &mut State<B>)) -> Result<(), Error> {
        let Some(communicator) = self.communicator(comm)? else { return Ok(()) };
        let mut state = communicator.take()?;
        change(communicator, &mut state);
        state.forget();
        // A new generation also invalidates what other threads have cached, such as calls that are passed through.
        self.backend.advance_generation();
        Ok(())
    }

    /// Returns the algorithm of a collective's plan that was last looked up on a communicator, for tests and reports. A call that the
    /// cache recognises needs no lookup. Does not communicate: a communicator that was never used has no algorithm.
    pub fn algorithm_of(&self, comm: Handle, name: Name) -> Result<Option<String>, Error> {
        let Some(entry) = self.attached_entry(comm)? else { return Ok(None) };
        let Handling::Handled(communicator) = &entry.handling else { return Ok(None) };
        let state = communicator.take()?;
        Ok(state.store.plans.newest(name).map(|version| version.choice.expression.to_string()))
    }

    /// Returns facts about `MPI_COMM_WORLD`. Collective at first use.
    pub fn findings(&self) -> Result<Findings, Error> {
        let internal = self.make_internal_comm()?;
        Ok(Findings {
            ranks: internal.places.ranks(),
            topology: internal.places.to_string(),
            shared_memory: internal.pool.is_some(),
            reads: internal.reads,
            oversubscribed: internal.oversubscribed,
            complaints: internal.settings.complaints.clone(),
        })
    }
}

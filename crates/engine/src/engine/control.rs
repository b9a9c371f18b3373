//! Requests to the engine besides collectives: other algorithms, another topology, information.

use std::sync::Arc;

use bruckner_choose::{Name, Rules};
use bruckner_mpi::Handle;

use super::{Engine, Findings};
use crate::Error;
use crate::backend::Backend;
use crate::communicator::{Communicator, Handling, State};
use crate::plan::Workspace;

impl<B: Backend> Engine<B> {
    /// Uses these algorithms on a communicator from now on. Collective, with the same text on all ranks.
    pub fn set_algorithms(&self, comm: Handle, rules: &str) -> Result<(), Error> {
        let rules: Rules = rules.parse()?;
        self.change(comm, |_, state| state.decider.rules.extend(rules))
    }

    /// Takes the ranks of a communicator to be placed so from now on: for tests and experiments. Collective, with the same
    /// text on all ranks. Ranks that are said to share a node must really share one.
    pub fn set_topology(&self, comm: Handle, text: &str) -> Result<(), Error> {
        let topology: bruckner_schedule::Topology =
            text.parse().map_err(|error| Error::Argument(format!("{error}")))?;
        let size = self.backend.size(comm)?;
        if topology.ranks() != size {
            return Err(Error::Argument(format!(
                "`{text}` has {} ranks, and there are {size}",
                topology.ranks()
            )));
        }
        self.change(comm, |communicator, state| {
            let decider = &mut state.decider;
            decider.topology = Arc::new(topology);
            decider.menus =
                communicator.group.internal.menus(&decider.topology, decider.calibration.as_ref());
            state.store.workspace = Workspace::of_communicator();
        })
    }

    /// Changes what is chosen on a communicator: plans are made anew.
    fn change(
        &self,
        comm: Handle,
        change: impl FnOnce(&Communicator<B>, &mut State<B>),
    ) -> Result<(), Error> {
        let Some(communicator) = self.communicator(comm)? else { return Ok(()) };
        let mut state = communicator.take()?;
        change(communicator, &mut state);
        state.forget();
        // Other threads, too, may remember what was chosen before.
        self.backend.renew();
        Ok(())
    }

    /// The algorithm of a collective's call on a communicator that was last looked for, for tests and reports. A call that
    /// is recognised as the same as one before is not looked for. Communicates with nobody: a communicator that was never
    /// used has none.
    pub fn algorithm_of(&self, comm: Handle, name: Name) -> Result<Option<String>, Error> {
        let Some(entry) = self.kept_entry(comm)? else { return Ok(None) };
        let Handling::Handled(communicator) = &entry.handling else { return Ok(None) };
        let state = communicator.take()?;
        Ok(state.store.plans.newest(name).map(|version| version.choice.expression.to_string()))
    }

    /// Facts about `MPI_COMM_WORLD`. Collective at first use.
    pub fn findings(&self) -> Result<Findings, Error> {
        let internal = self.make_internal_comm()?;
        Ok(Findings {
            ranks: internal.places.ranks(),
            topology: internal.places.to_string(),
            shared_memory: internal.pool.is_some(),
            reads: internal.reads,
            shared_cores: internal.shared_cores,
            complaints: internal.settings.complaints.clone(),
        })
    }
}

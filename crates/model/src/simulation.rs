//! A plan whose ranks are grouped into classes (ranks that do the same at the same time), ready to be simulated on any machine.

use bruckner_algorithms::TaskPlan;
use bruckner_algorithms::lower::empty::MessagePurpose;
use bruckner_schedule::program::flatten;
use bruckner_schedule::{Message, Payload, Program, Rank, Topology};

use crate::classes::{Classes, Unmatched, classes};
use crate::machine::Machine;
use crate::simulate::{Deadlock, simulate};
use crate::steps::{Steps, steps};

/// A collective, ready to be simulated on any machine: the steps of each class of ranks that do the same at the same time.
#[derive(Debug)]
pub struct Simulation(Classes);

/// Result of a simulation: the time at which each rank finishes.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome<'a> {
    of: &'a [u32],
    ends: Vec<f64>,
}

impl Outcome<'_> {
    /// Returns the time at which a rank finishes, in seconds.
    pub fn end(&self, rank: Rank) -> f64 {
        self.ends[self.of[rank.0 as usize] as usize]
    }

    /// Returns the time at which the last rank finishes, in seconds.
    pub fn last(&self) -> f64 {
        self.ends.iter().copied().fold(0.0, f64::max)
    }
}

/// Returns the steps of a rank in a plan. The messages of a round start together, and all are awaited before the local work of the round.
/// Messages without data are left out, unless they order accesses to shared memory.
pub fn steps_of(plan: &TaskPlan, rank: Rank) -> Steps {
    let mut rounds = plan.rounds(rank);
    if plan.purpose == MessagePurpose::CarriesData {
        let carries = |message: &Message| {
            message.payload != Payload::Data || message.places.iter().any(|place| plan.problem.any_nonempty(&place.set))
        };
        rounds.iter_mut().for_each(|round| round.messages.retain(|message| carries(message)));
    }
    steps(&plan.problem, &plan.topology, rank, &flatten(rounds))
}

/// Returns the steps of a rank in a program.
pub fn program_steps(program: &Program, rank: Rank) -> Steps {
    let instrs = program.ranks.get(&rank).map_or(&[][..], |code| &code.instrs);
    steps(&program.problem, &program.topology, rank, instrs)
}

impl Simulation {
    /// Prepares the simulation of `steps`, with rank `r` arriving at `arrival(r)`, in seconds.
    pub fn new(
        topology: &Topology,
        steps: impl Fn(Rank) -> Steps + Sync,
        arrival: impl Fn(Rank) -> f64 + Sync,
    ) -> Result<Simulation, Unmatched> {
        classes(topology, steps, arrival).map(Simulation)
    }

    /// Prepares the simulation of a plan whose ranks all arrive at the same time.
    pub fn of(plan: &TaskPlan) -> Result<Simulation, Unmatched> {
        Simulation::with_arrivals(plan, |_| 0.0)
    }

    /// Prepares the simulation of a plan, with rank `r` arriving at `arrival(r)`, in seconds.
    pub fn with_arrivals(plan: &TaskPlan, arrival: impl Fn(Rank) -> f64 + Sync) -> Result<Simulation, Unmatched> {
        Simulation::new(&plan.topology, |rank| steps_of(plan, rank), arrival)
    }

    /// Returns the number of classes of ranks that do the same at the same time.
    pub fn classes(&self) -> usize {
        self.0.classes.len()
    }

    /// Simulates the collective on a machine.
    pub fn run(&self, machine: &Machine) -> Result<Outcome<'_>, Deadlock> {
        Ok(Outcome { of: &self.0.of, ends: simulate(machine, &self.0)? })
    }
}

//! A plan's ranks by classes, ready to be played on any machine.

use bruckner_algorithms::Plan;
use bruckner_algorithms::lower::empty::Purpose;
use bruckner_schedule::program::flatten;
use bruckner_schedule::{Message, Payload, Program, Rank, Topology};

use crate::classes::{Classes, Unmatched, classes};
use crate::machine::Machine;
use crate::simulate::{Stuck, simulate};
use crate::steps::{Steps, steps};

/// A collective as steps.
#[derive(Debug)]
pub struct Played(Classes);

/// What came out.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome<'a> {
    of: &'a [u32],
    ends: Vec<f64>,
}

impl Outcome<'_> {
    /// When a rank was through, in seconds.
    pub fn end(&self, rank: Rank) -> f64 {
        self.ends[self.of[rank.0 as usize] as usize]
    }

    /// When the last one was.
    pub fn last(&self) -> f64 {
        self.ends.iter().copied().fold(0.0, f64::max)
    }
}

/// The plain reading of what a rank does: the messages of a round are started together, and all awaited before its work. Messages
/// without data are not sent, unless they order what ranks do to shared memory.
pub fn steps_of(plan: &Plan, rank: Rank) -> Steps {
    let mut rounds = plan.rounds(rank);
    if plan.purpose == Purpose::CarriesData {
        let carries = |message: &Message| {
            message.payload != Payload::Data
                || message.places.iter().any(|place| plan.problem.any_filled(&place.set))
        };
        rounds.iter_mut().for_each(|round| round.messages.retain(|message| carries(message)));
    }
    steps(&plan.problem, &plan.topology, rank, &flatten(rounds))
}

/// What a rank of a program does.
pub fn program_steps(program: &Program, rank: Rank) -> Steps {
    let instrs = program.ranks.get(&rank).map_or(&[][..], |code| &code.instrs);
    steps(&program.problem, &program.topology, rank, instrs)
}

impl Played {
    /// Steps of ranks that each come at their time.
    pub fn new(
        topology: &Topology,
        steps: impl Fn(Rank) -> Steps + Sync,
        arrival: impl Fn(Rank) -> f64 + Sync,
    ) -> Result<Played, Unmatched> {
        classes(topology, steps, arrival).map(Played)
    }

    /// A plan, read plainly, whose ranks come at once.
    pub fn of(plan: &Plan) -> Result<Played, Unmatched> {
        Played::late(plan, |_| 0.0)
    }

    /// The same if each rank comes at its time.
    pub fn late(plan: &Plan, arrival: impl Fn(Rank) -> f64 + Sync) -> Result<Played, Unmatched> {
        Played::new(&plan.topology, |rank| steps_of(plan, rank), arrival)
    }

    /// How many classes of ranks are played.
    pub fn classes(&self) -> usize {
        self.0.classes.len()
    }

    /// What happens on a machine.
    pub fn on(&self, machine: &Machine) -> Result<Outcome<'_>, Stuck> {
        Ok(Outcome { of: &self.0.of, ends: simulate(machine, &self.0)? })
    }
}

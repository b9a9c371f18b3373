//! From a task and an expression to schedules.

use bruckner_schedule::{
    Claims, Collective, Counts, Level, Order, Problem, Rank, Round, Schedule, Topology, Whole,
};

use crate::bruck::BruckAlltoall;
use crate::expression::{Expression, Plain};
use crate::factors::Factored;
use crate::gather::{Gather, ShmGather};
use crate::locality::{GatherAll, Locality};
use crate::nap::Nap;
use crate::shm::ShmAllreduce;
use crate::sparbit::Sparbit;
use crate::{Algorithm, Refusal};

/// What a user asks for: a collective on a machine, without the algorithm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// Which collective.
    pub collective: Collective,
    /// On which ranks.
    pub topology: Topology,
    /// How much; an allreduce's vector is `Equal`.
    pub counts: Counts,
    /// Bytes of one element.
    pub element: u32,
    /// What order a reduction needs.
    pub order: Order,
}

impl Task {
    /// One element of 8 bytes.
    pub fn new(collective: Collective, topology: Topology) -> Task {
        Task { collective, topology, counts: Counts::Equal(1), element: 8, order: Order::Any }
    }

    /// Equal blocks, or a vector, of so many bytes: elements of 8 bytes where that divides them.
    pub fn bytes(mut self, bytes: u64) -> Task {
        self.element = if bytes.is_multiple_of(8) { 8 } else { 1 };
        self.counts = Counts::Equal(bytes / u64::from(self.element));
        self
    }

    /// Other counts.
    pub fn counts(mut self, counts: Counts) -> Task {
        self.counts = counts;
        self
    }
}

/// An algorithm that fits a task.
pub struct Plan {
    /// The problem, with the vector cut as the algorithm wants it.
    pub problem: Problem,
    /// Where the ranks are.
    pub topology: Topology,
    algorithm: Box<dyn Algorithm>,
}

impl Plan {
    /// What one rank does.
    pub fn rounds(&self, rank: Rank) -> Vec<Round> {
        self.algorithm.rounds(&self.problem, &self.topology, rank)
    }

    /// What some ranks do.
    pub fn schedule_of(&self, ranks: impl IntoIterator<Item = Rank>) -> Schedule {
        Whole {
            problem: self.problem.clone(),
            topology: self.topology.clone(),
            claims: Claims::default(),
            ranks: ranks.into_iter().map(|rank| (rank, self.rounds(rank))).collect(),
        }
    }

    /// What all ranks do.
    pub fn schedule(&self) -> Schedule {
        self.schedule_of((0..self.problem.ranks).map(Rank))
    }
}

/// Finds the algorithm that an expression names for a task.
pub fn plan(task: &Task, expression: &Expression) -> Result<Plan, Refusal> {
    let algorithm = find(task, expression)?;
    let counts = match (&task.counts, task.collective) {
        (Counts::Equal(elements), Collective::Allreduce) => {
            Counts::Vector { elements: *elements, pieces: algorithm.pieces(&task.topology) }
        }
        (counts, _) => counts.clone(),
    };
    let mut problem = Problem::new(task.collective, task.topology.ranks(), counts, task.element)
        .map_err(|message| Refusal(message.to_owned()))?;
    problem.order = task.order;
    Ok(Plan { problem, topology: task.topology.clone(), algorithm })
}

fn find(task: &Task, expression: &Expression) -> Result<Box<dyn Algorithm>, Refusal> {
    use Collective::{Allgather, Allreduce, Alltoall};
    match (task.collective, expression) {
        (Allgather, Expression::Plain(Plain::Sparbit)) => Ok(Box::new(Sparbit)),
        (Allgather, Expression::Plain(Plain::Shm)) => {
            one_node(task)?;
            Ok(Box::new(GatherAll(Box::new(ShmGather))))
        }
        (Allgather, Expression::Locality { .. }) => Ok(Box::new(GatherAll(gather(expression, Level::NODE)?))),
        (Allreduce, Expression::Plain(Plain::Shm)) => {
            one_node(task)?;
            Ok(Box::new(ShmAllreduce))
        }
        (Allreduce, Expression::Locality { level, inside, lanes }) => {
            let inside = gather(inside, *level)?;
            Ok(Box::new(Nap { level: *level, inside, lanes: *lanes }))
        }
        (Allreduce, Expression::Factors(factors)) => {
            Ok(Box::new(Factored::new(factors, task.topology.ranks())?))
        }
        (Alltoall, Expression::Bruck(radix)) => Ok(Box::new(BruckAlltoall { radix: *radix })),
        (collective, _) => Err(Refusal(format!("there is no `{expression}` for {collective}"))),
    }
}

/// A way to gather within a region of a level.
fn gather(expression: &Expression, around: Level) -> Result<Box<dyn Gather>, Refusal> {
    match expression {
        Expression::Plain(Plain::Shm) => Ok(Box::new(ShmGather)),
        Expression::Locality { level, inside, lanes } => {
            if *level < around {
                return Err(Refusal(format!("a {level} is not inside a {around}")));
            }
            let inside = gather(inside, *level)?;
            Ok(Box::new(Locality { level: *level, inside, lanes: *lanes }))
        }
        _ => Err(Refusal(format!("`{expression}` cannot run inside a region"))),
    }
}

fn one_node(task: &Task) -> Result<(), Refusal> {
    match task.topology.regions(Level::NODE) {
        1 => Ok(()),
        nodes => Err(Refusal(format!("`shm` needs one node, and {} has {nodes}", task.topology))),
    }
}

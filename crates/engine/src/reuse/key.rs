//! The keys of plans and of compiled programs.

use bruckner_algorithms::exchange::Exchange;
use bruckner_algorithms::lower::OnNode;
use bruckner_algorithms::{Expression, Task, orders};
use bruckner_schedule::{Collective, Counts, Order, Problem, Rank, Topology};

/// Properties that calls must share to use the same plan of an algorithm: whether chunks are equal; the order into which the algorithm sorts
/// unequal blocks; and how ranks of a node exchange data, which differs for collectives with a root.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PlanForm {
    /// Whether all chunks have the same size; `None` if each rank knows only its own sizes.
    pub(crate) even: Option<bool>,
    pub(crate) orders: Box<[u32]>,
    pub(crate) through: Exchange,
}

impl PlanForm {
    /// Returns the form of the plan for a problem whose blocks are already cut into the pieces that the algorithm needs.
    pub(crate) fn of(problem: &Problem, topology: &Topology, expression: &Expression) -> PlanForm {
        let even = (problem.counts != Counts::Local).then(|| problem.chunk_elements().is_some());
        let orders = match expression.reorders() {
            false => Box::default(),
            true => orders(&task(problem, topology), expression).into(),
        };
        PlanForm { even, orders, through: Exchange::of(&problem.counts, expression) }
    }
}

/// Converts a problem to a task for the algorithms.
pub(crate) fn task(problem: &Problem, topology: &Topology) -> Task {
    Task {
        collective: problem.collective,
        topology: topology.clone(),
        counts: problem.counts.clone(),
        element: problem.element,
        order: problem.order,
    }
}

/// Key of a compiled program: all inputs of its compilation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ProgramKey {
    /// Address of the topology. The address stays valid because the cache stores the topology with the program.
    pub(crate) topology: usize,
    pub(crate) rank: Rank,
    pub(crate) collective: Collective,
    pub(crate) pieces: u64,
    pub(crate) order: Order,
    pub(crate) expression: Expression,
    pub(crate) form: PlanForm,
    pub(crate) on_node: OnNode,
}

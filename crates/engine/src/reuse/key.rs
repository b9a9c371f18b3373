//! The keys of plans and of compiled programs.

use bruckner_algorithms::exchange::Exchange;
use bruckner_algorithms::lower::OnNode;
use bruckner_algorithms::{Expression, Task, orders};
use bruckner_schedule::{Collective, Counts, Order, Problem, Rank, Topology};

/// The calls that one plan of an algorithm can run: those with equal sizes, or those with other sizes that the algorithm takes in the same
/// order; and whether there is a root, which may run ahead.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PlanForm {
    /// None where each rank knows only its own sizes.
    pub(crate) even: Option<bool>,
    pub(crate) orders: Box<[u32]>,
    pub(crate) through: Exchange,
}

impl PlanForm {
    /// That of a problem, cut as an algorithm wants it.
    pub(crate) fn of(problem: &Problem, topology: &Topology, expression: &Expression) -> PlanForm {
        let even = (problem.counts != Counts::Local).then(|| problem.equal().is_some());
        let orders = match expression.reorders() {
            false => Box::default(),
            true => orders(&task(problem, topology), expression).into(),
        };
        PlanForm { even, orders, through: Exchange::of(&problem.counts, expression) }
    }
}

/// A problem as a task for algorithms.
pub(crate) fn task(problem: &Problem, topology: &Topology) -> Task {
    Task {
        collective: problem.collective,
        topology: topology.clone(),
        counts: problem.counts.clone(),
        element: problem.element,
        order: problem.order,
    }
}

/// The inputs of a compiled program.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ProgramKey {
    /// The address of the topology, which is kept with the program.
    pub(crate) topology: usize,
    pub(crate) rank: Rank,
    pub(crate) collective: Collective,
    pub(crate) pieces: u64,
    pub(crate) order: Order,
    pub(crate) expression: Expression,
    pub(crate) form: PlanForm,
    pub(crate) on_node: OnNode,
}

//! Eight reference cases, chosen to be very different, on which the schedule language is tested.

use bruckner_schedule::{Claims, Collective, Counts, Layout, Level, Program, Rank, Schedule};

use crate::PlanError;
use crate::expression::{Expression, Factor, Lanes, Plain};
use crate::lower::{OnNode, lower};
use crate::plan::{Task, plan};

/// A reference case: a task and the algorithm that handles it.
#[derive(Clone, Debug)]
pub struct ReferenceCase {
    /// Name of the case in the documentation.
    pub name: &'static str,
    /// Collective, topology and counts.
    pub task: Task,
    /// The algorithm.
    pub expression: Expression,
    /// Claims about the schedule, which the verifier checks.
    pub claims: Claims,
}

impl ReferenceCase {
    /// Returns the schedule of all ranks, with the claims.
    pub fn schedule(&self) -> Result<Schedule, PlanError> {
        let mut schedule = plan(&self.task, &self.expression)?.schedule();
        schedule.claims = self.claims.clone();
        Ok(schedule)
    }
}

/// Plans another allgather for the ranks of `program` on one node, to run in sequence with it on the same segment. The result is lowered
/// if `program` is lowered.
pub fn neighbour(program: &Program, elements: u64) -> Result<Program, PlanError> {
    let task = Task::new(Collective::Allgather, program.topology.clone()).counts(Counts::Equal(elements));
    let schedule = plan(&task, &Expression::Plain(Plain::Shm))?.schedule();
    let placed = program.ranks.values().any(|code| code.layout != Layout::Unplaced);
    Ok(if placed { lower(&schedule, OnNode::Segment) } else { schedule.flatten() })
}

/// Returns the eight reference cases.
pub fn reference_cases() -> Vec<ReferenceCase> {
    let task = |collective, topology: &str, counts| {
        Task::new(collective, topology.parse().expect("a topology")).counts(counts)
    };
    let locality =
        |level, inside: Expression| Expression::Locality { level, inside: Box::new(inside), lanes: Lanes::ALL };
    let shm = Expression::Plain(Plain::Shm);
    let probe = |name, task, expression, claims| ReferenceCase { name, task, expression, claims };
    let none = Claims::default();
    let equal = Claims { consistent: true, ordered: true, ..none.clone() };
    vec![
        probe(
            "sparbit",
            task(Collective::Allgather, "5x1", Counts::Listed(vec![2, 0, 3, 1, 2])),
            Expression::Plain(Plain::Sparbit),
            Claims { messages: Some(3), sent: Some(11), memory: Some(8), ..none.clone() },
        ),
        probe(
            "locality",
            task(Collective::Allgather, "2+2,2+2,2+1,1", Counts::Equal(2)),
            locality(Level::NODE, locality(Level::SOCKET, shm.clone())),
            none.clone(),
        ),
        probe(
            "nap",
            task(Collective::Allreduce, "4,4,3,1", Counts::Equal(3)),
            locality(Level::NODE, shm.clone()),
            equal.clone(),
        ),
        probe(
            "factors",
            task(Collective::Allreduce, "8x1", Counts::Equal(12)),
            Expression::Factors(vec![Factor { factor: 8, ports: vec![-1, 1, 1, 1] }]),
            Claims { messages: Some(4), ..none.clone() },
        ),
        probe("shm", task(Collective::Allreduce, "4", Counts::Equal(2)), shm, equal),
        probe(
            "direct",
            task(Collective::Allreduce, "3", Counts::Equal(4)),
            Expression::Plain(Plain::Direct),
            Claims { consistent: true, ..none.clone() },
        ),
        probe("bruck", task(Collective::Alltoall, "7x1", Counts::Local), Expression::Bruck(3), none.clone()),
        probe(
            "bcast",
            task(Collective::Allgather, "6x1", Counts::Root { root: Rank(2), count: 4 }),
            Expression::Plain(Plain::Sparbit),
            none,
        ),
    ]
}

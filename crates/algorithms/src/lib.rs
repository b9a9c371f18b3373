//! Collective algorithms as pure functions, one file each.
//!
//! An [`Algorithm`] computes the rounds of one rank from the problem, the topology and its parameters alone: no MPI, no clock, no
//! randomness. It never computes the rounds of other ranks, so with a logarithmic algorithm one rank of 2^20 is planned in milliseconds.
//! An [`Expression`] names an algorithm; [`plan`] finds it, and [`lower`] turns its schedule into a program.
//!
//! ```
//! use bruckner_algorithms::{Task, plan};
//! use bruckner_schedule::{Collective, verify::verify};
//! let task = Task::new(Collective::Allgather, "4,4,3,1".parse().unwrap()).bytes(8);
//! let plan = plan(&task, &"locality(node)".parse().unwrap()).unwrap();
//! assert!(verify(&plan.schedule().flatten()).is_correct());
//! ```

pub mod aliases;
pub mod alltoall;
pub mod bruck;
mod builder;
pub mod catalogue;
pub mod direct;
pub mod exchange;
pub mod expression;
pub mod factors;
pub mod gather;
pub mod gather_reduce;
pub mod intra_region;
pub mod leader;
pub mod leader_allreduce;
pub mod locality;
pub mod lower;
pub mod nap;
pub mod patterns;
pub mod pipeline;
mod plan;
pub mod planning_work;
pub mod properties;
pub mod reference_cases;
pub mod regional_alltoall;
mod regional_view;
pub mod reversed;
pub mod route;
pub mod selftest;
pub mod shm;
pub mod shm_rotate;
pub mod shm_split;
pub mod user_schedule;

pub use builder::Builder;
pub use expression::{Expression, ExpressionError};
pub use plan::{Task, TaskPlan, orders, plan, plan_on};
pub use planning_work::planning_work;

use bruckner_schedule::{Problem, Rank, Round, Topology};

/// Reason why an algorithm cannot handle a task.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct PlanError(pub String);

/// An algorithm for a collective.
pub trait Algorithm: Send + Sync {
    /// Returns the number of pieces into which every block is cut; the vector of an allreduce is one block.
    fn pieces(&self, _topology: &Topology) -> u64 {
        1
    }

    /// Returns the number of rounds by which a message may start before its own round.
    fn overlap(&self) -> u32 {
        0
    }

    /// Returns whether every message has the same round number at its sender and at its receiver, if each rank may count from a first
    /// round of its own. Then a pipeline can run each part of the data one round behind the part before it.
    fn in_step(&self) -> bool {
        false
    }

    /// Returns whether the rounds already contain the operations that keep the next execution from overwriting a segment while some rank
    /// still reads it. If not, [`TaskPlan::rounds`] adds these operations.
    fn closes_segments(&self) -> bool {
        false
    }

    /// Returns the rounds of one rank. Planning calls this function once for each rank that it needs, in any order.
    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round>;
}

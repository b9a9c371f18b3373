//! Collective algorithms as pure functions, one file each.
//!
//! An [`Algorithm`] gives the rounds of one rank from the problem, the topology and its parameters: no MPI, no
//! clock, no randomness, and no look at the other ranks' work, so a rank of 2^20 plans as quickly as one of 16.
//! An [`Expression`] names an algorithm; [`plan`] finds it, and [`lower`] turns its schedule into a program.
//!
//! ```
//! use bruckner_algorithms::{Task, plan};
//! use bruckner_schedule::{Collective, verify::verify};
//! let task = Task::new(Collective::Allgather, "4,4,3,1".parse().unwrap()).bytes(8);
//! let plan = plan(&task, &"locality(node)".parse().unwrap()).unwrap();
//! assert!(verify(&plan.schedule().flatten()).holds());
//! ```

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
pub mod hand_over;
pub mod leader;
pub mod leader_allreduce;
pub mod locality;
pub mod lower;
pub mod nap;
pub mod patterns;
pub mod pipeline;
mod plan;
pub mod probes;
pub mod properties;
pub mod regional_alltoall;
mod regional_view;
pub mod reversed;
pub mod route;
pub mod selftest;
pub mod shm;
pub mod shm_rotate;
pub mod shm_split;
pub mod work;
pub mod written;

pub use builder::Builder;
pub use expression::{Expression, ExpressionError};
pub use plan::{Plan, Task, orders, plan, plan_on};
pub use work::work;

use bruckner_schedule::{Problem, Rank, Round, Topology};

/// Why an algorithm does not serve a task.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// One way to carry out a collective.
pub trait Algorithm: Send + Sync {
    /// Into how many pieces an allreduce cuts its vector.
    fn pieces(&self, _topology: &Topology) -> u64 {
        1
    }

    /// How many rounds early a message may start.
    fn overlap(&self) -> u32 {
        0
    }

    /// Whether messages meet in the same round of both ranks, counted from a first one of each: then parts of a pipeline can
    /// each be a round behind the one before.
    fn in_step(&self) -> bool {
        false
    }

    /// Whether its rounds themselves end with whatever lets the next execution find everyone gone from segments.
    fn closes_segments(&self) -> bool {
        false
    }

    /// What one rank does. Called once for each rank that is looked at, in any order.
    fn rounds(&self, problem: &Problem, topology: &Topology, rank: Rank) -> Vec<Round>;
}

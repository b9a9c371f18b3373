//! Properties of an algorithm that are known without its schedule: whether all ranks combine the operands of a reduction in the same way,
//! and whether they combine them in rank order.
//!
//! The verifier derives both properties from a schedule of all ranks. The selection of algorithms cannot wait for such a schedule; it uses
//! only data that all ranks share: the algorithm expression, the placement and the number of ranks. The answers are conservative (a
//! property reported as false may still hold), and a test compares them with the verifier's.

use bruckner_schedule::{Collective, Topology};

use crate::expression::{Expression, Factor, Plain};
use crate::user_schedule::Proven;

/// Placement of ranks in regions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RankPlacement {
    /// Ranks are placed in rank order: each region holds consecutive ranks, one region after the other.
    InOrder,
    /// Ranks are placed in any other way.
    Mixed,
}

impl RankPlacement {
    /// Returns the placement of the ranks in a topology.
    pub fn of(topology: &Topology) -> RankPlacement {
        if topology.is_in_rank_order() { RankPlacement::InOrder } else { RankPlacement::Mixed }
    }
}

/// Properties of an algorithm that the selection of algorithms may rely on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Properties {
    /// Whether all ranks combine operands in the same way, so that floating-point results have the same bits on all ranks.
    pub consistent: bool,
    /// Whether operands are combined in rank order, so that non-commutative operations give the right result.
    pub ordered: bool,
}

const BOTH: Properties = Properties { consistent: true, ordered: true };
const CONSISTENT: Properties = Properties { consistent: true, ordered: false };
const NEITHER: Properties = Properties { consistent: false, ordered: false };

/// Returns the properties of an algorithm for a collective.
///
/// ```
/// use bruckner_algorithms::properties::{RankPlacement, properties};
/// use bruckner_schedule::Collective;
/// let nap = "locality(node)".parse().unwrap();
/// assert!(properties(Collective::Allreduce, &nap, RankPlacement::InOrder, 64).ordered);
/// assert!(!properties(Collective::Allreduce, &nap, RankPlacement::Mixed, 64).ordered);
/// let short = "64(1 1 1 1 1 1)".parse().unwrap();
/// assert!(!properties(Collective::Allreduce, &short, RankPlacement::InOrder, 64).consistent);
/// ```
pub fn properties(collective: Collective, expression: &Expression, placement: RankPlacement, ranks: u32) -> Properties {
    let regional = Properties { consistent: true, ordered: placement == RankPlacement::InOrder };
    match (collective, expression) {
        (_, Expression::Plain(Plain::Native)) => NEITHER,
        (Collective::Allgather | Collective::Alltoall, _) => BOTH,
        _ if ranks == 1 => BOTH,
        // Each result is computed once, on one rank, but not necessarily in rank order.
        (Collective::ReduceScatter, _) => CONSISTENT,
        (_, Expression::File(written)) => {
            let Proven { consistent, ordered } = written.proven();
            Properties { consistent, ordered }
        }
        (_, Expression::Pipeline { of, .. }) => properties(collective, of, placement, ranks),
        (_, Expression::Plain(Plain::Shm | Plain::ShmSplit) | Expression::ShmTree(_)) => regional,
        (_, Expression::Locality { .. }) => regional,
        // Each piece is reduced once, in rotated rank order.
        (_, Expression::Plain(Plain::ShmRotate | Plain::Direct)) => CONSISTENT,
        (_, Expression::Leader { between, .. } | Expression::MultiLane { between, .. }) => {
            // The members of the algorithm between regions are the regions, in order. Their number is unknown here; 2 stands for any
            // number above 1.
            let among = properties(collective, between, RankPlacement::InOrder, 2);
            Properties { consistent: among.consistent, ordered: among.ordered && regional.ordered }
        }
        // A reduce_scatter and an allgather: each piece is reduced on one rank and copied to all.
        (_, Expression::Plain(Plain::Rabenseifner | Plain::Ring) | Expression::ReduceScatterAllgather(_)) => CONSISTENT,
        (_, Expression::Factors(factors)) if scatters_wholly(factors) => CONSISTENT,
        (_, Expression::Factors(_) | Expression::ModifiedBruck(_)) => NEITHER,
        // Partial results are combined in rank order, or all vectors are gathered and then reduced in rank order.
        (_, Expression::Plain(_) | Expression::SpreadOut { .. } | Expression::Bruck(_) | Expression::Reorder(_)) => {
            BOTH
        }
    }
}

/// Returns whether reduce_scatter steps do the whole reduction: every group has only reduce_scatter steps or only allgather steps, and the
/// groups with allgather steps gather exactly what the others scattered.
fn scatters_wholly(factors: &[Factor]) -> bool {
    let of = |sign: i32| {
        let groups = factors.iter().filter(move |group| group.ports.iter().all(|q| q.signum() == sign));
        groups.map(|group| u64::from(group.factor)).product::<u64>()
    };
    let pure = |group: &Factor| group.ports.windows(2).all(|w| w[0].signum() == w[1].signum());
    factors.iter().all(pure) && of(-1) == of(1)
}

//! MPICH: the built-in selection trees, which are the same in versions 4.0.2 and 5.0.1.
//!
//! `maint/tuning/coll/ch4/generic.json` makes an allreduce with a commutative operation hierarchical, and leaves the other collectives here
//! flat. `maint/tuning/coll/mpir/generic.json` selects flat algorithms. Lines are those of version 4.0.2.

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_model::Shape;
use bruckner_schedule::{Collective, Level};

use super::{NativeAlgorithm, SourceLine, WORD, plain};

/// Number of messages that a rank sends at once in a scattered alltoall (`MPIR_CVAR_ALLTOALL_THROTTLE`).
const THROTTLE: u32 = 32;

/// File with the hierarchical algorithms.
const COMPOSITIONS: &str = "src/mpid/ch4/src/ch4_coll_impl.h";

/// Returns what MPICH's own function does. Its allreduce within a node uses shared memory from the fifth call on.
pub(super) fn native(collective: Collective, shape: Shape, bytes: u64) -> NativeAlgorithm {
    let ranks = shape.ranks();
    let total = bytes.saturating_mul(ranks.into());
    let flat = |name, line: u32, like| NativeAlgorithm {
        name,
        place: SourceLine { file: "maint/tuning/coll/mpir/generic.json", line },
        like: Some(like),
    };
    match collective {
        Collective::Allreduce if shape.nodes == 1 => NativeAlgorithm {
            name: "release_gather: through shared memory",
            place: SourceLine { file: COMPOSITIONS, line: 306 },
            like: None,
        },
        Collective::Allreduce if shape.on_node > 1 => NativeAlgorithm {
            name: "alpha: reduce on nodes, allreduce between nodes, broadcast on nodes",
            place: SourceLine { file: COMPOSITIONS, line: 217 },
            like: Some(Expression::Leader {
                level: Level::NODE,
                between: Box::new(allreduce(shape.nodes, bytes)),
                leaders: 1,
            }),
        },
        Collective::Allreduce => {
            let like = allreduce(ranks, bytes);
            match like == plain(Plain::Rabenseifner) {
                true => flat("reduce_scatter_allgather", 130, like),
                false => flat("recursive_doubling", if bytes <= WORD { 114 } else { 126 }, like),
            }
        }
        Collective::Allgather if ranks.is_power_of_two() => match total < 524_288 {
            true => flat("recursive_doubling", 146, plain(Plain::RecursiveDoubling)),
            false => flat("ring", 152, plain(Plain::Ring)),
        },
        Collective::Allgather => match total < 81_920 {
            true => flat("brucks", 157, Expression::Bruck(2)),
            false => flat("ring", 163, plain(Plain::Ring)),
        },
        Collective::ReduceScatter => match total < 524_288 {
            true => flat("recursive_halving", 320, plain(Plain::RecursiveHalving)),
            false => flat("pairwise", 326, plain(Plain::Pairwise)),
        },
        // The tree says fewer than 8 ranks, but the comparison includes 8 (`src/mpi/coll/src/csel.c:1211`).
        Collective::Alltoall if ranks > 8 && bytes <= 256 => flat("brucks", 453, Expression::Bruck(2)),
        Collective::Alltoall if bytes <= 32_768 => {
            let at_once = ranks <= THROTTLE;
            let like = if at_once { plain(Plain::SpreadOut) } else { Expression::SpreadOut { window: THROTTLE } };
            flat("scattered", if ranks > 8 { 459 } else { 442 }, like)
        }
        Collective::Alltoall => flat("pairwise", if ranks > 8 { 463 } else { 448 }, plain(Plain::Pairwise)),
    }
}

/// Returns the allreduce among `members` ranks: recursive doubling up to 8 bytes, or with fewer elements than the largest power of two up
/// to `members`; otherwise Rabenseifner's. Elements of 8 bytes are assumed.
fn allreduce(members: u32, bytes: u64) -> Expression {
    let short = bytes <= WORD || bytes / WORD < u64::from(1u32 << members.max(1).ilog2());
    plain(if short { Plain::RecursiveDoubling } else { Plain::Rabenseifner })
}

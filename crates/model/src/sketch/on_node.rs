//! Cost formulas (sketches) of algorithms within one node, which use shared memory.

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_schedule::Collective;

use super::Stage;

/// Returns the stages (local work and messages) of an algorithm within one node, if its formula is known.
pub(super) fn stages(collective: Collective, expression: &Expression, ranks: u32, bytes: f64) -> Option<Vec<Stage>> {
    let (all, others) = (f64::from(ranks), f64::from(ranks - 1));
    let piece = bytes / all;
    let (copies, shares, reduces, reads) = (Stage::copies, Stage::shares, Stage::reduces, Stage::reads);
    let (meets, waits) = (Stage::meets(), Stage::waits());
    Some(match (collective, expression) {
        (Collective::Allgather, Expression::Plain(Plain::Shm)) => {
            vec![copies(bytes), shares(all * bytes), meets.times(2.0)]
        }
        (Collective::Allgather | Collective::Alltoall, Expression::Plain(Plain::Direct)) => {
            vec![copies(bytes), waits, reads(bytes).times(others), meets]
        }
        (Collective::Alltoall, Expression::Locality { .. }) => {
            vec![copies(bytes), shares(2.0 * others * bytes), meets.times(2.0)]
        }
        (Collective::ReduceScatter, Expression::Plain(Plain::Shm)) => {
            vec![copies((all + 1.0) * bytes), shares(others * bytes), reduces(others * bytes), meets.times(2.0)]
        }
        (Collective::ReduceScatter, Expression::Plain(Plain::Direct)) => {
            vec![waits, copies(bytes), reads(bytes).times(others), reduces(others * bytes), meets]
        }
        (Collective::Allreduce, Expression::Plain(Plain::Shm)) => {
            vec![shares(2.0 * bytes), waits, reduces(others * bytes), meets]
        }
        (Collective::Allreduce, Expression::Plain(Plain::ShmSplit)) => {
            vec![shares(bytes + 2.0 * piece + others * piece), reduces(others * piece), meets.times(3.0)]
        }
        (Collective::Allreduce, Expression::Plain(Plain::ShmRotate)) => {
            vec![shares(2.0 * piece), waits.times(2.0 * others), reduces(others * piece), shares(others * piece), meets]
        }
        (Collective::Allreduce, Expression::Plain(Plain::Direct)) => {
            vec![waits.times(2.0), copies(piece), reads(piece).times(2.0 * others), reduces(others * piece), meets]
        }
        (Collective::Allreduce, Expression::ShmTree(group)) => {
            let group = (*group).max(2);
            let mut stages = vec![shares(bytes)];
            let mut left = ranks;
            while left > 1 {
                let here = f64::from(group.min(left) - 1);
                stages.extend([waits, shares(2.0 * bytes), reduces(here * bytes)]);
                left = left.div_ceil(group);
            }
            stages.extend([waits, shares(bytes)]);
            stages
        }
        _ => return None,
    })
}

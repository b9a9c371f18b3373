//! Normalisation of collectives that reduce: allreduce, reduce_scatter, reduce.

use std::ffi::c_void;

use bruckner_mpi::Function;
use bruckner_schedule::{Collective, Counts, Problem, Rank};

use super::layout::{BufferLayout, require_non_null};
use super::operation::{Reduced, UserOp, reduced};
use super::{CallSignature, Name, NormalizedCall, check_root, read_counts, to_count};
use crate::backend::Backend;
use crate::call::Call;
use crate::refusal::Refusal;

/// Normalises a reduction. A reduce_scatter gives each rank its block of the result, and an allreduce gives each rank the whole result. A
/// reduce is treated as a reduce_scatter in which only the root's block is not empty.
pub(super) fn reduction(backend: &impl Backend, call: &Call, rank: u32, size: u32) -> Result<NormalizedCall, Refusal> {
    let each = || to_count(call.recv.amount.each());
    let (name, collective) = match call.function {
        Function::Allreduce => (Name::Allreduce, Collective::Allreduce),
        Function::Reduce => (Name::Reduce, Collective::ReduceScatter),
        _ => (Name::ReduceScatter, Collective::ReduceScatter),
    };
    // Counts of the problem, elements that this rank receives, and elements of the whole vector.
    let (counts, own, all) = match call.function {
        Function::Allreduce => (Counts::Equal(each()? as u64), each()?, each()?),
        Function::Reduce => {
            let (count, root) = (each()?, check_root(call.root, size)?);
            let counts = Counts::Root { root: Rank(root), count: count as u64 };
            (counts, if root == rank { count } else { 0 }, count)
        }
        Function::ReduceScatter => {
            let counts = read_counts(call.recv.amount.lists().0, size)?;
            let (own, all) = (counts[rank as usize], counts.iter().sum());
            (Counts::Listed(counts.iter().map(|n| *n as u64).collect()), own, all)
        }
        _ => (Counts::Equal(each()? as u64), each()?, each()? * size as usize),
    };
    let Reduced { element, order, combine, user_op } = reduced(backend, call.recv.datatype, call.op)?;
    let (send, recv) = (call.send.data, call.recv.data);
    let overlaps = backend.is_in_place(send) || send == recv;
    let side = |data: *mut c_void, count: usize| match user_op {
        _ if count == 0 => Ok(BufferLayout::None),
        Some(UserOp { datatype, shape, .. }) if !shape.is_dense() => {
            let blocks = vec![(0, count)];
            Ok(BufferLayout::Blocks { data, datatype, shape, blocks, pitch: None })
        }
        _ => require_non_null(data).map(|()| BufferLayout::Direct(data)),
    };
    let input = side(if overlaps { recv } else { send }, all)?;
    let output = match (side(recv, own)?, combine.pair()) {
        (BufferLayout::Direct(data), Some(pair)) => BufferLayout::Padded(data, pair),
        (side, _) => side,
    };
    let problem = Problem { collective, ranks: size, counts, pieces: 1, element, order };
    let signature = CallSignature { name, problem, combine };
    let bytes = (all * element as usize, own * element as usize);
    Ok(NormalizedCall { overlaps, user_op, ..NormalizedCall::plain(signature, input, output, bytes) })
}

//! Normalisation of collectives that move data: allgather, alltoall, bcast, barrier.

use bruckner_schedule::{Collective, Counts, Rank};

use super::layout::{BufferLayout, blocks_layout, input_blocks_layout, shape_of};
use super::{CallSignature, Name, NormalizedCall, check_root, read_counts, read_displacements, to_count};
use crate::Error;
use crate::backend::Backend;
use crate::call::{Call, UserBuffer};
use crate::refusal::Refusal;

/// Normalises a barrier: it is treated as an allgather of blocks without data.
pub(super) fn barrier(size: u32) -> NormalizedCall {
    let signature = CallSignature::moves(Name::Barrier, Collective::Allgather, size, Counts::Equal(1), 0);
    NormalizedCall::plain(signature, BufferLayout::None, BufferLayout::None, (0, 0))
}

/// Returns the start and length, in elements, of `size` contiguous blocks of `count` elements.
fn row(size: u32, count: usize) -> Vec<(isize, usize)> {
    (0..size as usize).map(|r| ((r * count) as isize, count)).collect()
}

/// Normalises an allgather of equal blocks.
pub(super) fn allgather(backend: &impl Backend, call: &Call, rank: u32, size: u32) -> Result<NormalizedCall, Refusal> {
    let UserBuffer { data, amount, datatype } = call.recv;
    let (count, shape) = (to_count(amount.each())?, shape_of(backend, datatype)?);
    let bytes = count * shape.size;
    let output = blocks_layout(data, datatype, shape, row(size, count), bytes * size as usize)?;
    let (input, misfit) = gather_input(backend, &call.send, &output, rank, rank as usize * bytes, bytes)?;
    let counts = Counts::Equal(bytes as u64);
    let signature = CallSignature::moves(Name::Allgather, Collective::Allgather, size, counts, 1);
    Ok(NormalizedCall { misfit, ..NormalizedCall::plain(signature, input, output, (bytes, bytes * size as usize)) })
}

/// Normalises an allgatherv: an allgather with a list of block sizes.
pub(super) fn allgatherv(backend: &impl Backend, call: &Call, rank: u32, size: u32) -> Result<NormalizedCall, Refusal> {
    let UserBuffer { data, amount, datatype } = call.recv;
    let (shape, (counts, at)) = (shape_of(backend, datatype)?, amount.lists());
    let (counts, at) = (read_counts(counts, size)?, read_displacements(at, size));
    let blocks = at.iter().zip(&counts).map(|(at, count)| (*at as isize, *count)).collect();
    let total: usize = counts.iter().map(|count| count * shape.size).sum();
    let output = blocks_layout(data, datatype, shape, blocks, total)?;
    let own = counts[rank as usize] * shape.size;
    let before = counts[..rank as usize].iter().sum::<usize>() * shape.size;
    let (input, misfit) = gather_input(backend, &call.send, &output, rank, before, own)?;
    let counts = Counts::Listed(counts.iter().map(|count| (count * shape.size) as u64).collect());
    let signature = CallSignature::moves(Name::Allgather, Collective::Allgather, size, counts, 1);
    Ok(NormalizedCall { misfit, ..NormalizedCall::plain(signature, input, output, (own, total)) })
}

/// Returns the input of an allgather: the send buffer, or this rank's block of the output if the call is in place.
fn gather_input(
    backend: &impl Backend,
    given: &UserBuffer,
    output: &BufferLayout,
    rank: u32,
    before: usize,
    bytes: usize,
) -> Result<(BufferLayout, Option<(usize, usize)>), Error> {
    if !backend.is_in_place(given.data) {
        let (count, datatype) = (given.amount.each(), given.datatype);
        if bytes == 0 && count == 0 {
            return Ok((BufferLayout::None, None));
        }
        let (count, shape) = (to_count(count)?, shape_of(backend, datatype)?);
        return input_blocks_layout((given.data, datatype, shape), vec![(0, count)], count * shape.size, bytes);
    }
    let own = match output {
        BufferLayout::Direct(data) if bytes > 0 => BufferLayout::Direct(data.wrapping_byte_add(before)),
        BufferLayout::Blocks { data, datatype, shape, blocks, .. } if bytes > 0 => BufferLayout::Blocks {
            data: *data,
            datatype: *datatype,
            shape: *shape,
            blocks: vec![blocks[rank as usize]],
            pitch: None,
        },
        _ => BufferLayout::None,
    };
    Ok((own, None))
}

/// Normalises an alltoall of equal blocks.
pub(super) fn alltoall(backend: &impl Backend, call: &Call, size: u32) -> Result<NormalizedCall, Refusal> {
    let UserBuffer { data, amount, datatype } = call.recv;
    let (count, shape) = (to_count(amount.each())?, shape_of(backend, datatype)?);
    let bytes = count * shape.size;
    let all = bytes * size as usize;
    let output = blocks_layout(data, datatype, shape, row(size, count), all)?;
    let overlaps = backend.is_in_place(call.send.data);
    let (input, misfit) = if overlaps {
        (output.clone(), None)
    } else {
        let UserBuffer { data, amount, datatype } = call.send;
        let (count, shape) = (to_count(amount.each())?, shape_of(backend, datatype)?);
        input_blocks_layout((data, datatype, shape), row(size, count), count * shape.size, bytes)?
    };
    let signature = CallSignature::moves(Name::Alltoall, Collective::Alltoall, size, Counts::Equal(bytes as u64), 1);
    Ok(NormalizedCall { overlaps, misfit, ..NormalizedCall::plain(signature, input, output, (all, all)) })
}

/// Normalises an alltoallv, in which each rank knows only its own sizes.
pub(super) fn alltoallv(size: u32) -> NormalizedCall {
    let signature = CallSignature::moves(Name::Alltoall, Collective::Alltoall, size, Counts::Local, 1);
    NormalizedCall::plain(signature, BufferLayout::None, BufferLayout::None, (0, 0))
}

/// Normalises a broadcast: it is treated as an allgather in which only the root's block is not empty.
pub(super) fn bcast(backend: &impl Backend, call: &Call, rank: u32, size: u32) -> Result<NormalizedCall, Refusal> {
    let UserBuffer { data, amount, datatype } = call.recv;
    let (count, shape) = (to_count(amount.each())?, shape_of(backend, datatype)?);
    let (root, bytes) = (check_root(call.root, size)?, count * shape.size);
    let theirs = blocks_layout(data, datatype, shape, vec![(0, count)], bytes)?;
    let (input, output) =
        if root == rank { (theirs, BufferLayout::AlreadyInPlace) } else { (BufferLayout::None, theirs) };
    let counts = Counts::Root { root: Rank(root), count: bytes as u64 };
    let signature = CallSignature::moves(Name::Bcast, Collective::Allgather, size, counts, 1);
    Ok(NormalizedCall::plain(signature, input, output, (if root == rank { bytes } else { 0 }, bytes)))
}

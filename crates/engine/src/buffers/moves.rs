//! Collectives that move data: allgather, alltoall, bcast, barrier.

use bruckner_schedule::{Collective, Counts, Rank};

use super::side::{Side, fitted, shape_of, side};
use super::{Common, Name, Normal, counted, placed, positive, rooted};
use crate::Error;
use crate::call::{Buffer, Call};
use crate::refusal::Refusal;
use crate::world::World;

/// A barrier: an allgather of nothing.
pub(super) fn barrier(size: u32) -> Normal {
    let common = Common::moves(Name::Barrier, Collective::Allgather, size, Counts::Equal(1), 0);
    Normal::plain(common, Side::None, Side::None, (0, 0))
}

/// Blocks of so many elements for each rank, one behind the other.
fn row(size: u32, count: usize) -> Vec<(isize, usize)> {
    (0..size as usize).map(|r| ((r * count) as isize, count)).collect()
}

/// An allgather of equal blocks.
pub(super) fn allgather(world: &impl World, call: &Call, rank: u32, size: u32) -> Result<Normal, Refusal> {
    let Buffer { data, amount, datatype } = call.recv;
    let (count, shape) = (positive(amount.each())?, shape_of(world, datatype)?);
    let bytes = count * shape.size;
    let output = side(data, datatype, shape, row(size, count), bytes * size as usize)?;
    let (input, misfit) = gather_input(world, &call.send, &output, rank, rank as usize * bytes, bytes)?;
    let counts = Counts::Equal(bytes as u64);
    let common = Common::moves(Name::Allgather, Collective::Allgather, size, counts, 1);
    Ok(Normal { misfit, ..Normal::plain(common, input, output, (bytes, bytes * size as usize)) })
}

/// An allgather of blocks whose sizes are listed.
pub(super) fn allgatherv(world: &impl World, call: &Call, rank: u32, size: u32) -> Result<Normal, Refusal> {
    let Buffer { data, amount, datatype } = call.recv;
    let (shape, (counts, at)) = (shape_of(world, datatype)?, amount.lists());
    let (counts, at) = (counted(counts, size)?, placed(at, size));
    let blocks = at.iter().zip(&counts).map(|(at, count)| (*at as isize, *count)).collect();
    let total: usize = counts.iter().map(|count| count * shape.size).sum();
    let output = side(data, datatype, shape, blocks, total)?;
    let own = counts[rank as usize] * shape.size;
    let before = counts[..rank as usize].iter().sum::<usize>() * shape.size;
    let (input, misfit) = gather_input(world, &call.send, &output, rank, before, own)?;
    let counts = Counts::Listed(counts.iter().map(|count| (count * shape.size) as u64).collect());
    let common = Common::moves(Name::Allgather, Collective::Allgather, size, counts, 1);
    Ok(Normal { misfit, ..Normal::plain(common, input, output, (own, total)) })
}

/// The input of an allgather: given, or this rank's block of the output.
fn gather_input(
    world: &impl World,
    given: &Buffer,
    output: &Side,
    rank: u32,
    before: usize,
    bytes: usize,
) -> Result<(Side, Option<(usize, usize)>), Error> {
    if !world.is_in_place(given.data) {
        let (count, datatype) = (given.amount.each(), given.datatype);
        if bytes == 0 && count == 0 {
            return Ok((Side::None, None));
        }
        let (count, shape) = (positive(count)?, shape_of(world, datatype)?);
        return fitted((given.data, datatype, shape), vec![(0, count)], count * shape.size, bytes);
    }
    let own = match output {
        Side::Direct(data) if bytes > 0 => Side::Direct(data.wrapping_byte_add(before)),
        Side::Blocks { data, datatype, shape, blocks, .. } if bytes > 0 => Side::Blocks {
            data: *data,
            datatype: *datatype,
            shape: *shape,
            blocks: vec![blocks[rank as usize]],
            pitch: None,
        },
        _ => Side::None,
    };
    Ok((own, None))
}

/// An alltoall of equal blocks.
pub(super) fn alltoall(world: &impl World, call: &Call, size: u32) -> Result<Normal, Refusal> {
    let Buffer { data, amount, datatype } = call.recv;
    let (count, shape) = (positive(amount.each())?, shape_of(world, datatype)?);
    let bytes = count * shape.size;
    let all = bytes * size as usize;
    let output = side(data, datatype, shape, row(size, count), all)?;
    let overlaps = world.is_in_place(call.send.data);
    let (input, misfit) = if overlaps {
        (output.clone(), None)
    } else {
        let Buffer { data, amount, datatype } = call.send;
        let (count, shape) = (positive(amount.each())?, shape_of(world, datatype)?);
        fitted((data, datatype, shape), row(size, count), count * shape.size, bytes)?
    };
    let common = Common::moves(Name::Alltoall, Collective::Alltoall, size, Counts::Equal(bytes as u64), 1);
    Ok(Normal { overlaps, misfit, ..Normal::plain(common, input, output, (all, all)) })
}

/// An alltoall whose sizes each rank knows for itself.
pub(super) fn alltoallv(size: u32) -> Normal {
    let common = Common::moves(Name::Alltoall, Collective::Alltoall, size, Counts::Local, 1);
    Normal::plain(common, Side::None, Side::None, (0, 0))
}

/// A broadcast: an allgather in which only the root has something.
pub(super) fn bcast(world: &impl World, call: &Call, rank: u32, size: u32) -> Result<Normal, Refusal> {
    let Buffer { data, amount, datatype } = call.recv;
    let (count, shape) = (positive(amount.each())?, shape_of(world, datatype)?);
    let (root, bytes) = (rooted(call.root, size)?, count * shape.size);
    let theirs = side(data, datatype, shape, vec![(0, count)], bytes)?;
    let (input, output) = if root == rank { (theirs, Side::Kept) } else { (Side::None, theirs) };
    let counts = Counts::Root { root: Rank(root), count: bytes as u64 };
    let common = Common::moves(Name::Bcast, Collective::Allgather, size, counts, 1);
    Ok(Normal::plain(common, input, output, (if root == rank { bytes } else { 0 }, bytes)))
}

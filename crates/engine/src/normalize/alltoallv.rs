//! Buffers of an alltoallv, in which each rank knows only its own sizes.

use bruckner_mpi::Function;

use super::layout::{BufferLayout, shape_of};
use super::{read_counts, read_displacements};
use crate::Error;
use crate::backend::Backend;
use crate::call::{Call, UserBuffer};

/// Layout of this rank's buffers in an alltoallv, with the bytes of each block sent and received.
pub(crate) struct AlltoallvLayout {
    pub(crate) input: BufferLayout,
    pub(crate) output: BufferLayout,
    pub(crate) sent: Vec<usize>,
    pub(crate) received: Vec<usize>,
    pub(crate) overlaps: bool,
}

/// Returns the layout of this rank's buffers in an alltoallv.
pub(crate) fn alltoallv_layout(backend: &impl Backend, call: &Call, size: u32) -> Result<AlltoallvLayout, Error> {
    assert_eq!(call.function, Function::Alltoallv, "each rank knows only its own sizes");
    let blocks = |buffer: &UserBuffer| {
        let UserBuffer { data, datatype, .. } = *buffer;
        let (shape, (counts, at)) = (shape_of(backend, datatype)?, buffer.amount.lists());
        let counts = read_counts(counts, size)?;
        let lengths: Vec<usize> = counts.iter().map(|count| count * shape.size).collect();
        let blocks =
            read_displacements(at, size).iter().zip(&counts).map(|(at, count)| (*at as isize, *count)).collect();
        Ok::<_, Error>((BufferLayout::Blocks { data, datatype, shape, blocks, pitch: None }, lengths))
    };
    let (output, received) = blocks(&call.recv)?;
    let overlaps = backend.is_in_place(call.send.data);
    let (input, sent) = match overlaps {
        true => (output.clone(), received.clone()),
        false => blocks(&call.send)?,
    };
    Ok(AlltoallvLayout { input, output, sent, received, overlaps })
}

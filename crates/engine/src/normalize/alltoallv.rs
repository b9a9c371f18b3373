//! Alltoallv: each rank knows only its own sizes.

use bruckner_mpi::Function;

use super::layout::{BufferLayout, shape_of};
use super::{counted, placed};
use crate::Error;
use crate::backend::Backend;
use crate::call::{Buffer, Call};

/// The blocks of an alltoallv, packed: its sides with the length of each block in bytes.
pub(crate) struct AlltoallvLayout {
    pub(crate) input: BufferLayout,
    pub(crate) output: BufferLayout,
    pub(crate) sent: Vec<usize>,
    pub(crate) received: Vec<usize>,
    pub(crate) overlaps: bool,
}

/// The layout of this rank's buffers in an alltoallv.
pub(crate) fn alltoallv_layout(
    backend: &impl Backend,
    call: &Call,
    size: u32,
) -> Result<AlltoallvLayout, Error> {
    assert_eq!(call.function, Function::Alltoallv, "each rank knows only its own sizes");
    let blocks = |buffer: &Buffer| {
        let Buffer { data, datatype, .. } = *buffer;
        let (shape, (counts, at)) = (shape_of(backend, datatype)?, buffer.amount.lists());
        let counts = counted(counts, size)?;
        let lengths: Vec<usize> = counts.iter().map(|count| count * shape.size).collect();
        let blocks = placed(at, size).iter().zip(&counts).map(|(at, count)| (*at as isize, *count)).collect();
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

//! Native collectives with counts above the range of a C integer, for an MPI without functions for wide counts.

use std::ffi::{c_int, c_void};

use bruckner_mpi::{Function, Handle, Mpi, MpiError};

use super::{Communicators as _, Datatypes as _, Natives as _};
use crate::call::{Amount, Call, Count, UserBuffer};

/// Maximum number of elements in one piece of a reduction.
const MOST: Count = 1 << 30;

/// Calls the MPI's own function with counts that do not fit a C integer, where the MPI has no function for wide counts. Data movement uses
/// fewer elements of a larger datatype; reductions, whose counts are the same on all ranks, are done piece by piece.
///
/// # Safety
/// The arguments are valid for the MPI function of the same name.
#[cold]
pub(super) unsafe fn native(mpi: &Mpi, call: &Call, comm: Handle) -> Result<(), MpiError> {
    let (mut larger, mut made) = (*call, Vec::new());
    let result = match enlarge(mpi, &mut larger, &mut made) {
        // SAFETY: the caller guarantees valid arguments; the larger datatypes describe the same elements.
        Ok(true) => unsafe { mpi.native(&larger, comm) },
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        Ok(false) => unsafe { in_pieces(mpi, call, comm) },
        Err(error) => Err(error),
    };
    made.into_iter().for_each(|datatype| mpi.free_type(datatype));
    result
}

/// Replaces a large count by one element of a larger datatype, which is added to `made` to be freed; returns whether the function allows
/// that.
fn enlarge(mpi: &Mpi, call: &mut Call, made: &mut Vec<Handle>) -> Result<bool, MpiError> {
    let mut enlarge = |buffer: &mut UserBuffer| {
        let count = buffer.amount.each();
        if count > Count::from(c_int::MAX) {
            buffer.datatype = mpi.large_type(count as usize, buffer.datatype)?;
            made.push(buffer.datatype);
            buffer.amount = Amount::Each(1);
        }
        Ok::<_, MpiError>(())
    };
    match call.function {
        Function::Bcast => {
            enlarge(&mut call.recv)?;
            // A broadcast has one buffer only.
            call.send = call.recv;
        }
        Function::Allgather | Function::Alltoall => {
            match mpi.is_in_place(call.send.data) {
                true => call.send.amount = Amount::Each(0),
                false => enlarge(&mut call.send)?,
            }
            enlarge(&mut call.recv)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Runs an allreduce or reduce piece by piece; returns an error for any other function.
unsafe fn in_pieces(mpi: &Mpi, call: &Call, comm: Handle) -> Result<(), MpiError> {
    if !matches!(call.function, Function::Allreduce | Function::Reduce) {
        let code = mpi.bad_count();
        // The MPI has not seen the call, so the error is raised here.
        mpi.raise(comm, code);
        return Err(MpiError { call: call.function.name(), code });
    }
    let (count, extent) = (call.recv.amount.each(), mpi.shape(call.recv.datatype)?.extent);
    let moved = |at: *mut c_void, by: isize| if mpi.is_in_place(at) { at } else { at.wrapping_byte_offset(by) };
    for at in (0..count).step_by(MOST as usize) {
        let (mut piece, by) = (*call, at as isize * extent);
        let amount = Amount::Each((count - at).min(MOST));
        piece.send = UserBuffer { data: moved(call.send.data, by), amount, ..call.send };
        piece.recv = UserBuffer { data: call.recv.data.wrapping_byte_offset(by), amount, ..call.recv };
        // SAFETY: each piece is part of the buffers that the caller guarantees to be valid.
        unsafe { mpi.native(&piece, comm) }?;
    }
    Ok(())
}

//! Counts that the MPI has no form of a function for.

use std::ffi::{c_int, c_void};

use bruckner_mpi::{Function, Handle, Mpi, MpiError};

use super::{Communicators as _, Datatypes as _, Natives as _};
use crate::call::{Amount, Buffer, Call, Count};

/// The most elements of a reduction at once.
const MOST: Count = 1 << 30;

/// The MPI's own function with counts that it has no form for: elements are made into larger ones, and reductions, whose
/// counts are the same on all ranks, are done piece by piece.
///
/// # Safety
/// The arguments are right for the MPI function of the same name.
#[cold]
pub(super) unsafe fn native(mpi: &Mpi, call: &Call, comm: Handle) -> Result<(), MpiError> {
    let (mut larger, mut made) = (*call, Vec::new());
    let result = match enlarge(mpi, &mut larger, &mut made) {
        // SAFETY: as for this function; the same elements, otherwise counted.
        Ok(true) => unsafe { mpi.native(&larger, comm) },
        // SAFETY: as for this function.
        Ok(false) => unsafe { in_pieces(mpi, call, comm) },
        Err(error) => Err(error),
    };
    made.into_iter().for_each(|datatype| mpi.free_type(datatype));
    result
}

/// Counts fewer and larger elements, of types that are to be freed; whether that can be done.
fn enlarge(mpi: &Mpi, call: &mut Call, made: &mut Vec<Handle>) -> Result<bool, MpiError> {
    let mut enlarge = |buffer: &mut Buffer| {
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
            // It has one buffer.
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

/// A reduction of a vector, piece by piece; anything else is refused.
unsafe fn in_pieces(mpi: &Mpi, call: &Call, comm: Handle) -> Result<(), MpiError> {
    if !matches!(call.function, Function::Allreduce | Function::Reduce) {
        let code = mpi.bad_count();
        // The MPI has not raised it, so it is raised here.
        mpi.raise(comm, code);
        return Err(MpiError { call: call.function.name(), code });
    }
    let (count, extent) = (call.recv.amount.each(), mpi.shape(call.recv.datatype)?.extent);
    let moved =
        |at: *mut c_void, by: isize| if mpi.is_in_place(at) { at } else { at.wrapping_byte_offset(by) };
    for at in (0..count).step_by(MOST as usize) {
        let (mut piece, by) = (*call, at as isize * extent);
        let amount = Amount::Each((count - at).min(MOST));
        piece.send = Buffer { data: moved(call.send.data, by), amount, ..call.send };
        piece.recv = Buffer { data: call.recv.data.wrapping_byte_offset(by), amount, ..call.recv };
        // SAFETY: a part of what the caller vouches for.
        unsafe { mpi.native(&piece, comm) }?;
    }
    Ok(())
}

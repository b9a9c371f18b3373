//! Counts that the MPI has no form of a function for.

use std::ffi::c_int;

use bruckner_mpi::{Mpi, MpiError, Word};

use super::{Call, Count, Read};

/// The most elements of a reduction at once.
const MOST: Count = 1 << 30;

impl Call {
    /// The MPI's own function with counts that it has no form for: elements are made into larger ones, and reductions, whose
    /// counts are the same on all ranks, are done piece by piece.
    ///
    /// # Safety
    /// As for [`Call::native`].
    #[cold]
    pub(super) unsafe fn native_large(&self, mpi: &Mpi, comm: Word) -> Result<(), MpiError> {
        let mut call = *self;
        let mut made = Vec::new();
        let enlarged = call.enlarge(mpi, &mut made);
        let result = match enlarged {
            // SAFETY: the caller's promise; the same elements, otherwise counted.
            Ok(true) => unsafe { call.native(mpi, comm) },
            // SAFETY: the caller's promise.
            Ok(false) => unsafe { self.in_pieces(mpi, comm) },
            Err(error) => Err(error),
        };
        made.into_iter().for_each(|datatype| mpi.free_type(datatype));
        result
    }

    /// Counts fewer and larger elements, of types that are to be freed; whether that can be done.
    fn enlarge(&mut self, mpi: &Mpi, made: &mut Vec<Word>) -> Result<bool, MpiError> {
        let mut enlarge = |count: &mut Count, datatype: &mut Word| {
            if *count > Count::from(c_int::MAX) {
                *datatype = mpi.large_type(*count as usize, *datatype)?;
                made.push(*datatype);
                *count = 1;
            }
            Ok::<_, MpiError>(())
        };
        match self {
            Call::Bcast { count, datatype, .. } => enlarge(count, datatype)?,
            Call::Allgather { send, send_count, send_type, recv_count, recv_type, .. }
            | Call::Alltoall { send, send_count, send_type, recv_count, recv_type, .. } => {
                match mpi.is_in_place(*send) {
                    true => *send_count = 0,
                    false => enlarge(send_count, send_type)?,
                }
                enlarge(recv_count, recv_type)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A reduction of a vector, piece by piece; anything else is refused.
    unsafe fn in_pieces(&self, mpi: &Mpi, comm: Word) -> Result<(), MpiError> {
        let (Call::Allreduce { count, datatype, .. } | Call::Reduce { count, datatype, .. }) = *self else {
            let code = mpi.constants.get("MPI_ERR_COUNT").unwrap_or(1) as c_int;
            // SAFETY: the caller's promise. The MPI has not raised it, so it is raised here.
            unsafe { (mpi.f.comm_call_errhandler)(comm, code) };
            return Err(MpiError { call: self.function().name(), code });
        };
        let extent = mpi.shape(datatype)?.extent;
        let moved = |at: Read, by: isize| if mpi.is_in_place(at) { at } else { at.wrapping_byte_offset(by) };
        for at in (0..count).step_by(MOST as usize) {
            let (mut piece, by) = (*self, at as isize * extent);
            if let Call::Allreduce { send, recv, count, .. } | Call::Reduce { send, recv, count, .. } =
                &mut piece
            {
                (*send, *recv) = (moved(*send, by), recv.wrapping_byte_offset(by));
                *count = (*count - at).min(MOST);
            }
            // SAFETY: the caller's promise about the whole.
            unsafe { piece.native(mpi, comm) }?;
        }
        Ok(())
    }
}

//! Calls that MPI rejects as errors.

use bruckner_mpi::Function;

use super::layout::shape_of;
use crate::Error;
use crate::backend::Backend;
use crate::call::Call;

/// Returns an error if send and receive buffer are the same memory and the MPI rejects that.
pub(super) fn not_aliased(backend: &impl Backend, call: &Call, rank: u32) -> Result<(), Error> {
    let (send, recv) = (&call.send, &call.recv);
    let count = recv.amount.each();
    let same = || send.amount == recv.amount && send.datatype == recv.datatype && count > 0;
    let wrong = match call.function {
        Function::Allreduce | Function::ReduceScatterBlock => count > 0 && send.data == recv.data,
        Function::Reduce => count > 0 && rank == call.root as u32 && send.data == recv.data,
        Function::Allgather if same() => {
            let own = i64::from(rank) * count * shape_of(backend, recv.datatype)?.size as i64;
            send.data == recv.data.wrapping_byte_offset(own as isize)
        }
        Function::Alltoall => same() && send.data == recv.data,
        _ => false,
    };
    match wrong && backend.refuses_aliases() {
        true => {
            Err(Error::Argument("the send buffer and the receive buffer are the same memory: use MPI_IN_PLACE".into()))
        }
        false => Ok(()),
    }
}

/// Returns an error if `MPI_IN_PLACE` is used where MPI does not allow it.
pub(super) fn not_in_place(backend: &impl Backend, call: &Call, rank: u32) -> Result<(), Error> {
    let wrong = match call.function {
        Function::Barrier => false,
        Function::Reduce if rank != call.root as u32 => {
            backend.refuses_in_place_off_root() && backend.is_in_place(call.send.data)
        }
        _ => backend.is_in_place(call.recv.data),
    };
    if wrong { Err(Error::Argument("MPI_IN_PLACE is not allowed for this argument".into())) } else { Ok(()) }
}

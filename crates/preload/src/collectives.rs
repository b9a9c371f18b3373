//! The collectives of the C API.

use std::ffi::{c_int, c_void};

use bruckner_engine::call::List;
use bruckner_engine::mpi::MpiError;
use bruckner_engine::{Call, Door, Engine, Error};

use crate::errors::guard;
use crate::handles::{MPI_Comm, MPI_Datatype, MPI_Op, word};

#[inline]
unsafe fn run(call: &Call, comm: MPI_Comm) -> c_int {
    // SAFETY: ARGUMENTS.
    let again = Engine::current().and_then(|engine| unsafe { engine.again(call, engine.handle(comm.0)) });
    if let Some(Ok(0)) = again {
        return 0;
    }
    guard(|| {
        let code = match again {
            Some(result) => result?,
            None => {
                let engine = Engine::get()?;
                // SAFETY: ARGUMENTS.
                unsafe { engine.run(call, engine.handle(comm.0), Door::Api) }?
            }
        };
        match code {
            0 => Ok(()),
            code => Err(Error::Mpi(MpiError { call: call.function.name(), code })),
        }
    })
}

/// Does what MPI_Allgather does.
///
/// # Safety
/// The arguments are right for MPI_Allgather.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_allgather(
    send: *const c_void,
    send_count: c_int,
    send_type: MPI_Datatype,
    recv: *mut c_void,
    recv_count: c_int,
    recv_type: MPI_Datatype,
    comm: MPI_Comm,
) -> c_int {
    let call = Call::allgather(
        send,
        send_count.into(),
        word(send_type.0),
        recv,
        recv_count.into(),
        word(recv_type.0),
    );
    // SAFETY: ARGUMENTS.
    unsafe { run(&call, comm) }
}

/// Does what MPI_Allgatherv does.
///
/// # Safety
/// The arguments are right for MPI_Allgatherv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_allgatherv(
    send: *const c_void,
    send_count: c_int,
    send_type: MPI_Datatype,
    recv: *mut c_void,
    recv_counts: *const c_int,
    displacements: *const c_int,
    recv_type: MPI_Datatype,
    comm: MPI_Comm,
) -> c_int {
    let call = Call::allgatherv(
        send,
        send_count.into(),
        word(send_type.0),
        recv,
        List::Ints(recv_counts),
        List::Ints(displacements),
        word(recv_type.0),
    );
    // SAFETY: ARGUMENTS.
    unsafe { run(&call, comm) }
}

/// Does what MPI_Allreduce does.
///
/// # Safety
/// The arguments are right for MPI_Allreduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_allreduce(
    send: *const c_void,
    recv: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
) -> c_int {
    let call = Call::allreduce(send, recv, count.into(), word(datatype.0), word(op.0));
    // SAFETY: ARGUMENTS.
    unsafe { run(&call, comm) }
}

/// Does what MPI_Reduce_scatter does.
///
/// # Safety
/// The arguments are right for MPI_Reduce_scatter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_reduce_scatter(
    send: *const c_void,
    recv: *mut c_void,
    counts: *const c_int,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
) -> c_int {
    let call = Call::reduce_scatter(send, recv, List::Ints(counts), word(datatype.0), word(op.0));
    // SAFETY: ARGUMENTS.
    unsafe { run(&call, comm) }
}

/// Does what MPI_Reduce_scatter_block does.
///
/// # Safety
/// The arguments are right for MPI_Reduce_scatter_block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_reduce_scatter_block(
    send: *const c_void,
    recv: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
) -> c_int {
    let call = Call::reduce_scatter_block(send, recv, count.into(), word(datatype.0), word(op.0));
    // SAFETY: ARGUMENTS.
    unsafe { run(&call, comm) }
}

/// Does what MPI_Alltoall does.
///
/// # Safety
/// The arguments are right for MPI_Alltoall.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_alltoall(
    send: *const c_void,
    send_count: c_int,
    send_type: MPI_Datatype,
    recv: *mut c_void,
    recv_count: c_int,
    recv_type: MPI_Datatype,
    comm: MPI_Comm,
) -> c_int {
    let call = Call::alltoall(
        send,
        send_count.into(),
        word(send_type.0),
        recv,
        recv_count.into(),
        word(recv_type.0),
    );
    // SAFETY: ARGUMENTS.
    unsafe { run(&call, comm) }
}

/// Does what MPI_Alltoallv does.
///
/// # Safety
/// The arguments are right for MPI_Alltoallv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_alltoallv(
    send: *const c_void,
    send_counts: *const c_int,
    send_displacements: *const c_int,
    send_type: MPI_Datatype,
    recv: *mut c_void,
    recv_counts: *const c_int,
    recv_displacements: *const c_int,
    recv_type: MPI_Datatype,
    comm: MPI_Comm,
) -> c_int {
    let call = Call::alltoallv(
        send,
        List::Ints(send_counts),
        List::Ints(send_displacements),
        word(send_type.0),
        recv,
        List::Ints(recv_counts),
        List::Ints(recv_displacements),
        word(recv_type.0),
    );
    // SAFETY: ARGUMENTS.
    unsafe { run(&call, comm) }
}

/// Does what MPI_Bcast does.
///
/// # Safety
/// The arguments are right for MPI_Bcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_bcast(
    data: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
) -> c_int {
    let call = Call::bcast(data, count.into(), word(datatype.0), root);
    // SAFETY: ARGUMENTS.
    unsafe { run(&call, comm) }
}

/// Does what MPI_Reduce does.
///
/// # Safety
/// The arguments are right for MPI_Reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_reduce(
    send: *const c_void,
    recv: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    op: MPI_Op,
    root: c_int,
    comm: MPI_Comm,
) -> c_int {
    let call = Call::reduce(send, recv, count.into(), word(datatype.0), word(op.0), root);
    // SAFETY: ARGUMENTS.
    unsafe { run(&call, comm) }
}

/// Does what MPI_Barrier does.
///
/// # Safety
/// The arguments are right for MPI_Barrier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_barrier(comm: MPI_Comm) -> c_int {
    let call = Call::barrier();
    // SAFETY: ARGUMENTS.
    unsafe { run(&call, comm) }
}

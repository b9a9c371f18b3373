//! Plans in the C API: collectives bound to their buffers.

use std::ffi::{c_char, c_int, c_void};

use bruckner_engine::call::List;
use bruckner_engine::{Call, Engine, Error, Mpi, Persistent};

use crate::errors::{guard, text};
use crate::handles::{MPI_Comm, MPI_Datatype, MPI_Op, word};

/// A plan: a collective bound to its buffers.
pub struct bruckner_plan(Persistent<Mpi>);

unsafe fn prepare(
    call: Call,
    comm: MPI_Comm,
    algorithm: *const c_char,
    plan: *mut *mut bruckner_plan,
) -> c_int {
    guard(|| {
        if plan.is_null() {
            return Err(Error::Argument("the address for the plan is a null pointer".to_owned()));
        }
        let engine = Engine::get()?;
        // SAFETY: ARGUMENTS.
        let made = unsafe {
            let algorithm = text(algorithm)?;
            engine.persistent(call, engine.handle(comm.0), algorithm)
        }?;
        // SAFETY: not null.
        unsafe { *plan = Box::into_raw(Box::new(bruckner_plan(made))) };
        Ok(())
    })
}

/// Makes a plan that does what MPI_Allgather does each time it is started. An algorithm that is named is used or refused;
/// null or "" leaves the choice to the library. Collective.
///
/// # Safety
/// The arguments are right for MPI_Allgather, and stay so as long as the plan is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_allgather_init(
    send: *const c_void,
    send_count: c_int,
    send_type: MPI_Datatype,
    recv: *mut c_void,
    recv_count: c_int,
    recv_type: MPI_Datatype,
    comm: MPI_Comm,
    algorithm: *const c_char,
    plan: *mut *mut bruckner_plan,
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
    unsafe { prepare(call, comm, algorithm, plan) }
}

/// Makes a plan that does what MPI_Allgatherv does each time it is started. An algorithm that is named is used or refused;
/// null or "" leaves the choice to the library. Collective.
///
/// # Safety
/// The arguments are right for MPI_Allgatherv, and stay so as long as the plan is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_allgatherv_init(
    send: *const c_void,
    send_count: c_int,
    send_type: MPI_Datatype,
    recv: *mut c_void,
    recv_counts: *const c_int,
    displacements: *const c_int,
    recv_type: MPI_Datatype,
    comm: MPI_Comm,
    algorithm: *const c_char,
    plan: *mut *mut bruckner_plan,
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
    unsafe { prepare(call, comm, algorithm, plan) }
}

/// Makes a plan that does what MPI_Allreduce does each time it is started. An algorithm that is named is used or refused;
/// null or "" leaves the choice to the library. Collective.
///
/// # Safety
/// The arguments are right for MPI_Allreduce, and stay so as long as the plan is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_allreduce_init(
    send: *const c_void,
    recv: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
    algorithm: *const c_char,
    plan: *mut *mut bruckner_plan,
) -> c_int {
    let call = Call::allreduce(send, recv, count.into(), word(datatype.0), word(op.0));
    // SAFETY: ARGUMENTS.
    unsafe { prepare(call, comm, algorithm, plan) }
}

/// Makes a plan that does what MPI_Reduce_scatter does each time it is started. An algorithm that is named is used or refused;
/// null or "" leaves the choice to the library. Collective.
///
/// # Safety
/// The arguments are right for MPI_Reduce_scatter, and stay so as long as the plan is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_reduce_scatter_init(
    send: *const c_void,
    recv: *mut c_void,
    counts: *const c_int,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
    algorithm: *const c_char,
    plan: *mut *mut bruckner_plan,
) -> c_int {
    let call = Call::reduce_scatter(send, recv, List::Ints(counts), word(datatype.0), word(op.0));
    // SAFETY: ARGUMENTS.
    unsafe { prepare(call, comm, algorithm, plan) }
}

/// Makes a plan that does what MPI_Reduce_scatter_block does each time it is started. An algorithm that is named is used or refused;
/// null or "" leaves the choice to the library. Collective.
///
/// # Safety
/// The arguments are right for MPI_Reduce_scatter_block, and stay so as long as the plan is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_reduce_scatter_block_init(
    send: *const c_void,
    recv: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    op: MPI_Op,
    comm: MPI_Comm,
    algorithm: *const c_char,
    plan: *mut *mut bruckner_plan,
) -> c_int {
    let call = Call::reduce_scatter_block(send, recv, count.into(), word(datatype.0), word(op.0));
    // SAFETY: ARGUMENTS.
    unsafe { prepare(call, comm, algorithm, plan) }
}

/// Makes a plan that does what MPI_Alltoall does each time it is started. An algorithm that is named is used or refused;
/// null or "" leaves the choice to the library. Collective.
///
/// # Safety
/// The arguments are right for MPI_Alltoall, and stay so as long as the plan is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_alltoall_init(
    send: *const c_void,
    send_count: c_int,
    send_type: MPI_Datatype,
    recv: *mut c_void,
    recv_count: c_int,
    recv_type: MPI_Datatype,
    comm: MPI_Comm,
    algorithm: *const c_char,
    plan: *mut *mut bruckner_plan,
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
    unsafe { prepare(call, comm, algorithm, plan) }
}

/// Makes a plan that does what MPI_Alltoallv does each time it is started. An algorithm that is named is used or refused;
/// null or "" leaves the choice to the library. Collective.
///
/// # Safety
/// The arguments are right for MPI_Alltoallv, and stay so as long as the plan is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_alltoallv_init(
    send: *const c_void,
    send_counts: *const c_int,
    send_displacements: *const c_int,
    send_type: MPI_Datatype,
    recv: *mut c_void,
    recv_counts: *const c_int,
    recv_displacements: *const c_int,
    recv_type: MPI_Datatype,
    comm: MPI_Comm,
    algorithm: *const c_char,
    plan: *mut *mut bruckner_plan,
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
    unsafe { prepare(call, comm, algorithm, plan) }
}

/// Makes a plan that does what MPI_Bcast does each time it is started. An algorithm that is named is used or refused;
/// null or "" leaves the choice to the library. Collective.
///
/// # Safety
/// The arguments are right for MPI_Bcast, and stay so as long as the plan is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_bcast_init(
    data: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    root: c_int,
    comm: MPI_Comm,
    algorithm: *const c_char,
    plan: *mut *mut bruckner_plan,
) -> c_int {
    let call = Call::bcast(data, count.into(), word(datatype.0), root);
    // SAFETY: ARGUMENTS.
    unsafe { prepare(call, comm, algorithm, plan) }
}

/// Makes a plan that does what MPI_Reduce does each time it is started. An algorithm that is named is used or refused;
/// null or "" leaves the choice to the library. Collective.
///
/// # Safety
/// The arguments are right for MPI_Reduce, and stay so as long as the plan is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_reduce_init(
    send: *const c_void,
    recv: *mut c_void,
    count: c_int,
    datatype: MPI_Datatype,
    op: MPI_Op,
    root: c_int,
    comm: MPI_Comm,
    algorithm: *const c_char,
    plan: *mut *mut bruckner_plan,
) -> c_int {
    let call = Call::reduce(send, recv, count.into(), word(datatype.0), word(op.0), root);
    // SAFETY: ARGUMENTS.
    unsafe { prepare(call, comm, algorithm, plan) }
}

/// Makes a plan that does what MPI_Barrier does each time it is started. An algorithm that is named is used or refused;
/// null or "" leaves the choice to the library. Collective.
///
/// # Safety
/// The arguments are right for MPI_Barrier, and stay so as long as the plan is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_barrier_init(
    comm: MPI_Comm,
    algorithm: *const c_char,
    plan: *mut *mut bruckner_plan,
) -> c_int {
    let call = Call::barrier();
    // SAFETY: ARGUMENTS.
    unsafe { prepare(call, comm, algorithm, plan) }
}

/// # Safety
/// Null, or a plan.
unsafe fn with(
    plan: *const bruckner_plan,
    body: impl FnOnce(&Persistent<Mpi>) -> Result<(), Error>,
) -> c_int {
    guard(|| {
        // SAFETY: ARGUMENTS.
        let plan = unsafe { plan.as_ref() }.ok_or(Error::Plan("the plan is a null pointer"))?;
        body(&plan.0)
    })
}

/// Starts a plan. It is active until bruckner_wait returns or bruckner_test says that it is done; an active plan may neither be started
/// nor freed, whether it is done on this rank or not. Its communicator is freed after it. Ranks may start different plans in any order, but for plans that are the MPI's own collectives
/// (bruckner_plan_is_native): all ranks start those in the same order.
///
/// # Safety
/// A plan, whose buffers are its own until it is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_start(plan: *mut bruckner_plan) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { with(plan, |plan| plan.start()) }
}

/// Says whether a plan is the MPI's own collective.
///
/// # Safety
/// A plan, and room for an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_plan_is_native(plan: *const bruckner_plan, native: *mut c_int) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        with(plan, |plan| {
            if !native.is_null() {
                *native = plan.is_native().into();
            }
            Ok(())
        })
    }
}

/// Advances all started plans without waiting, and says whether this one is done.
///
/// # Safety
/// A plan, and room for an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_test(plan: *mut bruckner_plan, done: *mut c_int) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        with(plan, |plan| {
            let is_done = plan.test()?;
            if !done.is_null() {
                *done = is_done.into();
            }
            Ok(())
        })
    }
}

/// Waits until a plan is done, and advances all others that are started meanwhile.
///
/// # Safety
/// A plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_wait(plan: *mut bruckner_plan) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { with(plan, Persistent::wait) }
}

/// Starts a plan and waits until it is done: cheaper than the two one after the other.
///
/// # Safety
/// As for bruckner_start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_run(plan: *mut bruckner_plan) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { with(plan, |plan| plan.run()) }
}

/// Ends a plan that is not active, and sets the pointer to null.
///
/// # Safety
/// The address of a plan that a bruckner_*_init gave, or of null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_free(plan: *mut *mut bruckner_plan) -> c_int {
    guard(|| {
        // SAFETY: ARGUMENTS.
        let Some(slot) = (unsafe { plan.as_mut() }) else { return Ok(()) };
        // SAFETY: as above.
        match unsafe { slot.as_ref() } {
            None => return Ok(()),
            Some(plan) if plan.0.is_active() => {
                return Err(Error::Plan("the plan is started: wait for it first"));
            }
            Some(_) => {}
        }
        // SAFETY: made by `prepare`, and given back once.
        drop(unsafe { Box::from_raw(std::mem::replace(slot, std::ptr::null_mut())) });
        Ok(())
    })
}

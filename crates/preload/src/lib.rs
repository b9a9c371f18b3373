//! `libbruckner.so`: the C API.
//!
//! Each function translates its arguments into a call of the engine, and an error into a code. Nothing unwinds into C, and
//! nothing is written to standard output.
#![allow(non_camel_case_types)]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bruckner::call::Name;
use bruckner::{Call, Engine, Error, Persistent};

/// A communicator of the MPI's, by value: an int or an address.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct MPI_Comm(u64);

/// A datatype of the MPI's.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct MPI_Datatype(u64);

/// An operation of the MPI's.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct MPI_Op(u64);

/// A plan: a collective bound to its buffers.
pub struct bruckner_plan(Persistent);

/// An error that is ours: it must not happen, and says so instead of unwinding.
const INTERNAL: c_int = 99;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

fn remember(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    LAST_ERROR.with(|last| *last.borrow_mut() = text);
}

fn guard(body: impl FnOnce() -> Result<(), Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            remember(&error.to_string());
            error.code()
        }
        Err(_) => {
            remember("an internal error of Bruckner's: please report it");
            INTERNAL
        }
    }
}

/// # Safety
/// Null, or a C string.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Error> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::Argument("a text is not UTF-8".to_owned()))
}

#[inline]
unsafe fn run(call: &Call, comm: MPI_Comm) -> c_int {
    if let Some(engine) = Engine::current() {
        // SAFETY: the caller's promise.
        let again = catch_unwind(AssertUnwindSafe(|| unsafe { engine.again(call, engine.handle(comm.0)) }));
        if let Ok(Ok(true)) = again {
            return 0;
        }
        if !matches!(again, Ok(Ok(false))) {
            return guard(|| match again {
                Ok(result) => result.map(|_| ()).map_err(Error::from),
                Err(cause) => std::panic::resume_unwind(cause),
            });
        }
    }
    guard(|| {
        let engine = Engine::get()?;
        // SAFETY: the caller's promise.
        unsafe { engine.run(call, engine.handle(comm.0)) }
    })
}

unsafe fn prepare(
    call: Call,
    comm: MPI_Comm,
    algorithm: *const c_char,
    plan: *mut *mut bruckner_plan,
) -> c_int {
    guard(|| {
        if plan.is_null() {
            return Err(Error::Argument("there is nowhere to put the plan".to_owned()));
        }
        let engine = Engine::get()?;
        // SAFETY: the caller's promises.
        let made = unsafe {
            let algorithm = text(algorithm)?;
            Persistent::new(engine, call, engine.handle(comm.0), Some(algorithm))
        }?;
        // SAFETY: not null.
        unsafe { *plan = Box::into_raw(Box::new(bruckner_plan(made))) };
        Ok(())
    })
}

/// A datatype or operation as the family has it.
#[inline]
fn word(handle: u64) -> u64 {
    match Engine::current().or_else(|| Engine::get().ok()) {
        Some(engine) => engine.handle(handle),
        None => handle,
    }
}

/// Prepares the library: collective over MPI_COMM_WORLD, after MPI_Init. Without it, communicators other than
/// MPI_COMM_WORLD get a hidden communicator each, and only the first 64 are served.
#[unsafe(no_mangle)]
pub extern "C" fn bruckner_init() -> c_int {
    guard(|| Engine::get()?.init())
}

/// Gives back what the library has; collective over MPI_COMM_WORLD, before MPI_Finalize. It may be left out.
#[unsafe(no_mangle)]
pub extern "C" fn bruckner_finalize() -> c_int {
    guard(|| {
        Engine::get()?.finalize();
        Ok(())
    })
}

/// Uses algorithms on a communicator from now on: "allreduce=locality(node); allgather=sparbit". Collective, with the
/// same text on all ranks.
///
/// # Safety
/// A valid communicator and a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_set_algorithms(comm: MPI_Comm, rules: *const c_char) -> c_int {
    guard(|| {
        let engine = Engine::get()?;
        // SAFETY: the caller's promise.
        engine.set_algorithms(engine.handle(comm.0), unsafe { text(rules) }?)
    })
}

/// Takes the ranks of a communicator to be placed so from now on, as "4,4,1" or "2x2:cyclic": for tests and experiments.
/// Collective, with the same text on all ranks. Ranks that are said to share a node must really share one.
///
/// # Safety
/// A valid communicator and a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_set_topology(comm: MPI_Comm, topology: *const c_char) -> c_int {
    guard(|| {
        let engine = Engine::get()?;
        // SAFETY: the caller's promise.
        engine.set_topology(engine.handle(comm.0), unsafe { text(topology) }?)
    })
}

/// Writes the algorithm that last served a collective ("allreduce") on a communicator: an expression, "native", or
/// nothing if there was no call yet.
///
/// # Safety
/// A valid communicator, a C string, and room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_algorithm(
    comm: MPI_Comm,
    collective: *const c_char,
    algorithm: *mut c_char,
    length: usize,
) -> c_int {
    guard(|| {
        let engine = Engine::get()?;
        // SAFETY: the caller's promise.
        let wanted = unsafe { text(collective) }?;
        let name = Name::ALL.into_iter().find(|name| name.text() == wanted);
        let name = name.ok_or_else(|| Error::Argument(format!("there is no collective `{wanted}`")))?;
        let found = engine.algorithm_of(engine.handle(comm.0), name)?.unwrap_or_default();
        // SAFETY: the caller's promise.
        unsafe { write_text(&found, algorithm, length) }
    })
}

/// Writes which MPI this is: its version, and its family ("MPICH", "Open MPI", "MPI-5 ABI").
///
/// # Safety
/// Room for so many bytes each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_about(
    version: *mut c_char,
    version_length: usize,
    family: *mut c_char,
    family_length: usize,
) -> c_int {
    guard(|| {
        let (its_version, its_family) = Engine::get()?.about();
        // SAFETY: the caller's promise.
        unsafe {
            write_text(&its_version, version, version_length)?;
            write_text(its_family, family, family_length)
        }
    })
}

/// # Safety
/// Null, or room for so many bytes.
unsafe fn write_text(text: &str, to: *mut c_char, length: usize) -> Result<(), Error> {
    if to.is_null() || length <= text.len() {
        return Err(Error::Argument(format!("the text needs room for {} bytes", text.len() + 1)));
    }
    // SAFETY: there is room for the text and its end.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        *to.add(text.len()) = 0;
    }
    Ok(())
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
    let call = Call::Allgather {
        send,
        send_count,
        send_type: word(send_type.0),
        recv,
        recv_count,
        recv_type: word(recv_type.0),
    };
    // SAFETY: the caller's promise.
    unsafe { run(&call, comm) }
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
    let call = Call::Allgather {
        send,
        send_count,
        send_type: word(send_type.0),
        recv,
        recv_count,
        recv_type: word(recv_type.0),
    };
    // SAFETY: the caller's promise.
    unsafe { prepare(call, comm, algorithm, plan) }
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
    let call = Call::Allgatherv {
        send,
        send_count,
        send_type: word(send_type.0),
        recv,
        recv_counts,
        displacements,
        recv_type: word(recv_type.0),
    };
    // SAFETY: the caller's promise.
    unsafe { run(&call, comm) }
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
    let call = Call::Allgatherv {
        send,
        send_count,
        send_type: word(send_type.0),
        recv,
        recv_counts,
        displacements,
        recv_type: word(recv_type.0),
    };
    // SAFETY: the caller's promise.
    unsafe { prepare(call, comm, algorithm, plan) }
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
    let call = Call::Allreduce { send, recv, count, datatype: word(datatype.0), op: word(op.0) };
    // SAFETY: the caller's promise.
    unsafe { run(&call, comm) }
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
    let call = Call::Allreduce { send, recv, count, datatype: word(datatype.0), op: word(op.0) };
    // SAFETY: the caller's promise.
    unsafe { prepare(call, comm, algorithm, plan) }
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
    let call = Call::ReduceScatter { send, recv, counts, datatype: word(datatype.0), op: word(op.0) };
    // SAFETY: the caller's promise.
    unsafe { run(&call, comm) }
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
    let call = Call::ReduceScatter { send, recv, counts, datatype: word(datatype.0), op: word(op.0) };
    // SAFETY: the caller's promise.
    unsafe { prepare(call, comm, algorithm, plan) }
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
    let call = Call::ReduceScatterBlock { send, recv, count, datatype: word(datatype.0), op: word(op.0) };
    // SAFETY: the caller's promise.
    unsafe { run(&call, comm) }
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
    let call = Call::ReduceScatterBlock { send, recv, count, datatype: word(datatype.0), op: word(op.0) };
    // SAFETY: the caller's promise.
    unsafe { prepare(call, comm, algorithm, plan) }
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
    let call = Call::Alltoall {
        send,
        send_count,
        send_type: word(send_type.0),
        recv,
        recv_count,
        recv_type: word(recv_type.0),
    };
    // SAFETY: the caller's promise.
    unsafe { run(&call, comm) }
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
    let call = Call::Alltoall {
        send,
        send_count,
        send_type: word(send_type.0),
        recv,
        recv_count,
        recv_type: word(recv_type.0),
    };
    // SAFETY: the caller's promise.
    unsafe { prepare(call, comm, algorithm, plan) }
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
    let call = Call::Alltoallv {
        send,
        send_counts,
        send_displacements,
        send_type: word(send_type.0),
        recv,
        recv_counts,
        recv_displacements,
        recv_type: word(recv_type.0),
    };
    // SAFETY: the caller's promise.
    unsafe { run(&call, comm) }
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
    let call = Call::Alltoallv {
        send,
        send_counts,
        send_displacements,
        send_type: word(send_type.0),
        recv,
        recv_counts,
        recv_displacements,
        recv_type: word(recv_type.0),
    };
    // SAFETY: the caller's promise.
    unsafe { prepare(call, comm, algorithm, plan) }
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
    let call = Call::Bcast { data, count, datatype: word(datatype.0), root };
    // SAFETY: the caller's promise.
    unsafe { run(&call, comm) }
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
    let call = Call::Bcast { data, count, datatype: word(datatype.0), root };
    // SAFETY: the caller's promise.
    unsafe { prepare(call, comm, algorithm, plan) }
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
    let call = Call::Reduce { send, recv, count, datatype: word(datatype.0), op: word(op.0), root };
    // SAFETY: the caller's promise.
    unsafe { run(&call, comm) }
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
    let call = Call::Reduce { send, recv, count, datatype: word(datatype.0), op: word(op.0), root };
    // SAFETY: the caller's promise.
    unsafe { prepare(call, comm, algorithm, plan) }
}

/// Does what MPI_Barrier does.
///
/// # Safety
/// The arguments are right for MPI_Barrier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_barrier(comm: MPI_Comm) -> c_int {
    let call = Call::Barrier;
    // SAFETY: the caller's promise.
    unsafe { run(&call, comm) }
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
    let call = Call::Barrier;
    // SAFETY: the caller's promise.
    unsafe { prepare(call, comm, algorithm, plan) }
}

/// # Safety
/// Null, or a plan.
unsafe fn with(plan: *const bruckner_plan, body: impl FnOnce(&Persistent) -> Result<(), Error>) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let plan = unsafe { plan.as_ref() }.ok_or(Error::Plan("there is no plan"))?;
        body(&plan.0)
    })
}

/// Starts a plan. Ranks may start different plans in any order.
///
/// # Safety
/// A plan, whose buffers are its own until it is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_start(plan: *mut bruckner_plan) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { with(plan, |plan| plan.start()) }
}

/// Advances all started plans without waiting, and says whether this one is done.
///
/// # Safety
/// A plan, and room for an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_test(plan: *mut bruckner_plan, done: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
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
    // SAFETY: the caller's promise.
    unsafe { with(plan, Persistent::wait) }
}

/// Starts a plan and waits until it is done: cheaper than the two one after the other.
///
/// # Safety
/// As for bruckner_start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_run(plan: *mut bruckner_plan) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { with(plan, |plan| plan.run()) }
}

/// Ends a plan that is not started, and sets the pointer to null.
///
/// # Safety
/// The address of a plan that a bruckner_*_init gave, or of null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_free(plan: *mut *mut bruckner_plan) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
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

/// What a code means; never null.
#[unsafe(no_mangle)]
pub extern "C" fn bruckner_error_text(code: c_int) -> *const c_char {
    let text: &'static CStr = match code {
        0 => c"success",
        1 => c"there is no MPI here, or none that is understood",
        2 => c"MPI is not running",
        3 => c"an MPI function failed",
        4 => c"an argument is wrong",
        5 => c"the plan is not in a state for this",
        6 => c"the communicator cannot be served",
        INTERNAL => c"an internal error of Bruckner's",
        _ => c"no error of Bruckner's",
    };
    text.as_ptr()
}

/// What the last failure of this thread was, in words; valid until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn bruckner_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

/// The value that the library has for a constant of mpi.h, by its name: for tests. Returns 4 for one that it does not
/// have.
///
/// # Safety
/// A C string, and room for the value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_constant(name: *const c_char, value: *mut c_longlong) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { text(name) }?;
        let found = Engine::get()?.constant(name);
        let found = found.ok_or_else(|| Error::Argument(format!("{name} is not in the table")))?;
        // SAFETY: the caller's promise.
        unsafe { *value = found as c_longlong };
        Ok(())
    })
}

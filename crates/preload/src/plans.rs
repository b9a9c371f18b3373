//! Plans in the C API: collectives bound to their buffers.

use std::ffi::{c_char, c_int};

use bruckner_engine::{Call, Engine, Error, Mpi, Persistent};

use crate::errors::{guard, text};
use crate::handles::MPI_Comm;

/// A plan: a collective bound to its buffers, which can be run many times.
pub struct bruckner_plan(Persistent<Mpi>);

/// Makes a plan of a call and stores its address in `plan`.
///
/// # Safety
/// The arguments are valid for the MPI function that `call` stands for, and stay valid as long as the plan is used.
pub(crate) unsafe fn prepare(
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

/// # Safety
/// `plan` is null or a valid plan.
unsafe fn with_plan(plan: *const bruckner_plan, body: impl FnOnce(&Persistent<Mpi>) -> Result<(), Error>) -> c_int {
    guard(|| {
        // SAFETY: ARGUMENTS.
        let plan = unsafe { plan.as_ref() }.ok_or(Error::Plan("the plan is a null pointer"))?;
        body(&plan.0)
    })
}

/// Starts a plan. The plan is active until bruckner_wait returns or bruckner_test reports that it is done. An active plan must not be
/// started again or freed, even if this rank has no more work to do for it. Free a plan before its communicator. Ranks may start different
/// plans in different orders. Exception: plans that use the MPI's own collectives (bruckner_plan_is_native) must be started in the same
/// order on all ranks.
///
/// # Safety
/// `plan` is a valid plan, and nothing else uses its buffers until the plan is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_start(plan: *mut bruckner_plan) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { with_plan(plan, |plan| plan.start()) }
}

/// Stores in `native` whether a plan uses the MPI's own collective: 1 if so, otherwise 0.
///
/// # Safety
/// `plan` is a valid plan; `native` points to an int or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_plan_is_native(plan: *const bruckner_plan, native: *mut c_int) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        with_plan(plan, |plan| {
            if !native.is_null() {
                *native = plan.is_native().into();
            }
            Ok(())
        })
    }
}

/// Advances all started plans without waiting, and stores in `done` whether `plan` is done: 1 if so, otherwise 0.
///
/// # Safety
/// `plan` is a valid plan; `done` points to an int or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_test(plan: *mut bruckner_plan, done: *mut c_int) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe {
        with_plan(plan, |plan| {
            let is_done = plan.test()?;
            if !done.is_null() {
                *done = is_done.into();
            }
            Ok(())
        })
    }
}

/// Waits until a plan is done. All other started plans advance meanwhile.
///
/// # Safety
/// `plan` is a valid plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_wait(plan: *mut bruckner_plan) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { with_plan(plan, Persistent::wait) }
}

/// Starts a plan and waits until it is done; cheaper than bruckner_start followed by bruckner_wait.
///
/// # Safety
/// `plan` is a valid plan, and nothing else uses its buffers until this function returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_run(plan: *mut bruckner_plan) -> c_int {
    // SAFETY: ARGUMENTS.
    unsafe { with_plan(plan, |plan| plan.run()) }
}

/// Frees a plan that is not active, and sets the pointer to null.
///
/// # Safety
/// `plan` is the address of a plan that a bruckner_*_init function made, or the address of a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_free(plan: *mut *mut bruckner_plan) -> c_int {
    guard(|| {
        // SAFETY: ARGUMENTS.
        let Some(slot) = (unsafe { plan.as_mut() }) else { return Ok(()) };
        // SAFETY: as above.
        match unsafe { slot.as_ref() } {
            None => return Ok(()),
            Some(plan) if plan.0.is_active() => {
                return Err(Error::Plan("the plan is active: wait for it first"));
            }
            Some(_) => {}
        }
        // SAFETY: allocated by `prepare`, and freed only once.
        drop(unsafe { Box::from_raw(std::mem::replace(slot, std::ptr::null_mut())) });
        Ok(())
    })
}

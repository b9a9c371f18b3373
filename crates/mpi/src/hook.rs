//! Hooks: mechanisms by which an MPI calls a function of this library while it waits inside an MPI call.
//!
//! A plan of several rounds that is started and not yet awaited must proceed while its rank waits in MPI for something else. Two MPIs let
//! a library take part in their progress: Open MPI by a callback (`opal_progress_register`), and MPICH 5 by tasks that it polls
//! (`MPIX_Async_start`). A function that MPICH calls during its progress must not make MPI progress itself, so it only tests whether
//! requests are complete.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::family::Family;
use crate::functions::Handle;
use crate::load::Library;
use crate::{Mpi, MpiError};

/// Function that returns whether a request is complete, without making progress.
pub(crate) type IsComplete = unsafe extern "C" fn(Handle) -> c_int;

type Register = unsafe extern "C" fn(unsafe extern "C" fn() -> c_int) -> c_int;
type Start = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void) -> c_int, *mut c_void, Handle) -> c_int;

/// Function that an MPI calls during its progress. It returns whether there is still work to do.
pub type Work = fn() -> bool;

/// Mechanism by which an MPI calls a function of this library during its progress.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hook {
    OpenMpi { register: Register },
    Mpich { start: Start, is_complete: IsComplete },
}

/// `MPIX_STREAM_NULL`.
const NO_STREAM: Handle = 0x3c00_0000;
/// `MPIX_ASYNC_NOPROGRESS`; the next constant is `MPIX_ASYNC_DONE`.
const PENDING: c_int = 0;
const DONE: c_int = 1;

static WORK: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// Whether MPI currently calls the work function: in Open MPI permanently once it is registered, in MPICH until its task is done.
static INSIDE: AtomicBool = AtomicBool::new(false);
/// Whether the program has called `MPI_Finalize`. From then on MPICH accepts no more tasks.
static FINALIZES: AtomicBool = AtomicBool::new(false);
/// Whether a thread is executing the work function. The function may call MPI, which then calls it again.
static WORKING: AtomicBool = AtomicBool::new(false);

fn work() -> bool {
    let work = WORK.load(Ordering::Acquire);
    if work.is_null() || WORKING.swap(true, Ordering::Acquire) {
        return !work.is_null();
    }
    // SAFETY: only functions of this type are stored there.
    let more = unsafe { std::mem::transmute::<*mut c_void, Work>(work) }();
    WORKING.store(false, Ordering::Release);
    more
}

unsafe extern "C" fn callback() -> c_int {
    work();
    0
}

unsafe extern "C" fn poll(_thing: *mut c_void) -> c_int {
    if work() {
        return PENDING;
    }
    INSIDE.store(false, Ordering::SeqCst);
    // Another thread may have started an operation in the meantime, and found that this task was still running.
    if work() && !INSIDE.swap(true, Ordering::SeqCst) { PENDING } else { DONE }
}

impl Hook {
    pub(crate) fn of(family: Family, library: &Library) -> Option<Hook> {
        // SAFETY: the functions of these names have these signatures in the MPIs that have them.
        unsafe {
            match family {
                Family::OpenMpi => {
                    let register = library.symbol(c"opal_progress_register")?;
                    Some(Hook::OpenMpi { register: std::mem::transmute::<*mut c_void, Register>(register) })
                }
                Family::Mpich => {
                    let start = library.symbol(c"PMPIX_Async_start")?;
                    let is_complete = library.symbol(c"PMPIX_Request_is_complete")?;
                    Some(Hook::Mpich {
                        start: std::mem::transmute::<*mut c_void, Start>(start),
                        is_complete: std::mem::transmute::<*mut c_void, IsComplete>(is_complete),
                    })
                }
                Family::Abi => None,
            }
        }
    }

    pub(crate) fn is_complete(&self) -> Option<IsComplete> {
        match self {
            Hook::OpenMpi { .. } => None,
            Hook::Mpich { is_complete, .. } => Some(*is_complete),
        }
    }
}

impl Mpi {
    /// Returns whether this MPI can call a function of this library while it waits.
    pub fn has_hook(&self) -> bool {
        self.hook.is_some()
    }

    /// Records that the program has called `MPI_Finalize`.
    pub fn finalizes() {
        FINALIZES.store(true, Ordering::Relaxed);
    }

    /// Makes MPI call `work` during each of its waits from now on, until `work` returns false. Every call must pass the same function.
    pub fn work_inside(&self, work: Work) -> Result<(), MpiError> {
        WORK.store(work as *mut c_void, Ordering::Release);
        // During `MPI_Finalize`, MPICH accepts no tasks, so operations proceed only while a thread waits for them.
        if FINALIZES.load(Ordering::Relaxed) && matches!(self.hook, Some(Hook::Mpich { .. })) {
            return Ok(());
        }
        if INSIDE.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        // SAFETY: the callbacks have the types that these functions require.
        let (call, code) = unsafe {
            match self.hook {
                Some(Hook::OpenMpi { register }) => ("opal_progress_register", register(callback)),
                Some(Hook::Mpich { start, .. }) => ("MPIX_Async_start", start(poll, std::ptr::null_mut(), NO_STREAM)),
                None => ("a hook", 1),
            }
        };
        if code != 0 {
            INSIDE.store(false, Ordering::SeqCst);
            return Err(MpiError { call, code });
        }
        Ok(())
    }
}

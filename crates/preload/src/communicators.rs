//! The intercepted functions of MPI that create and free communicators. Each calls the MPI's own function and informs the engine, because
//! the MPI may reuse the handle of a freed communicator for a new one.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use bruckner_engine::Engine;
use bruckner_engine::mpi::{Handle, Mpi};

use crate::entries::ERROR_CODE;
use crate::next::hand_on;

/// Address of a handle that MPI reads or writes.
type Place = *mut c_void;
/// Address of an array of numbers, flags or handles.
type List = *const c_void;
type Text = *const c_char;

/// Returns the MPI's own function, or null if the MPI has none. The function is looked up once.
fn native(found: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = found.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let function = Mpi::find().ok().and_then(|mpi| mpi.function(name)).unwrap_or(null_mut());
    found.store(function, Ordering::Relaxed);
    function
}

/// Calls a function that creates a communicator and stores the new handle at `at`, and registers the new handle.
fn create(call: impl FnOnce() -> c_int, at: Place) -> c_int {
    let code = call();
    if let (0, false, Ok(mpi)) = (code, at.is_null(), Mpi::find()) {
        // SAFETY: ARGUMENTS: the function has stored a handle at `at`.
        Mpi::communicator_created(unsafe { mpi.handle_at(at, 0) });
    }
    code
}

/// Calls a function that frees the communicator whose handle is at `at`.
fn free(call: impl FnOnce() -> c_int, at: Place) -> c_int {
    match (Engine::current(), at.is_null()) {
        (Some(engine), false) => {
            // SAFETY: ARGUMENTS: `at` points to a handle.
            let comm = unsafe { engine.backend().handle_at(at, 0) };
            // A panic in a callback that runs here must not unwind into C.
            catch_unwind(AssertUnwindSafe(|| engine.free(comm, call))).unwrap_or(ERROR_CODE)
        }
        _ => call(),
    }
}

/// Calls a function that frees an object with an internal communicator of the MPI. This communicator may have copies of the user's
/// attributes, so the data that threads have cached by handle is invalidated.
fn free_container(call: impl FnOnce() -> c_int, _: Place) -> c_int {
    Mpi::invalidate_caches();
    let code = call();
    Mpi::invalidate_caches();
    code
}

/// Calls `MPI_Finalize`, which ends all communicators.
fn finalize(call: impl FnOnce() -> c_int, _: Place) -> c_int {
    Mpi::finalizes();
    call()
}

const NOWHERE: Place = null_mut();

/// Defines each function under its two names. A line of the table names the wrapper that calls the function, and the argument that is the
/// address of the handle.
macro_rules! lives {
    ($($how:ident $at:ident $name:literal $arguments:tt;)*) => {$(
        lives!(@one $how $at [$name] [concat!("P", $name, "\0")] $arguments);
        lives!(@one $how $at [concat!("P", $name)] [concat!("P", $name, "\0")] $arguments);
    )*};
    (@one $how:ident $at:ident [$export:expr] [$native:expr] ($($argument:ident : $type:ty),*)) => {
        const _: () = {
            #[unsafe(export_name = $export)]
            unsafe extern "C" fn entry($($argument: $type),*) -> c_int {
                hand_on!($export, ($($argument: $type),*));
                static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
                const NAME: &CStr = match CStr::from_bytes_with_nul($native.as_bytes()) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                };
                let native = native(&FOUND, NAME);
                if native.is_null() {
                    return ERROR_CODE;
                }
                let call = || {
                    // SAFETY: the MPI's function of the same name; ARGUMENTS.
                    unsafe {
                        let native: unsafe extern "C" fn($($type),*) -> c_int = std::mem::transmute(native);
                        native($($argument),*)
                    }
                };
                $how(call, $at)
            }
        };
    };
}

lives! {
    create made "MPI_Comm_dup"(comm: Handle, made: Place);
    create made "MPI_Comm_dup_with_info"(comm: Handle, info: Handle, made: Place);
    create made "MPI_Comm_idup"(comm: Handle, made: Place, request: Place);
    create made "MPI_Comm_idup_with_info"(comm: Handle, info: Handle, made: Place, request: Place);
    create made "MPI_Comm_create"(comm: Handle, group: Handle, made: Place);
    create made "MPI_Comm_create_group"(comm: Handle, group: Handle, tag: c_int, made: Place);
    create made "MPI_Comm_create_from_group"(group: Handle, tag: Text, info: Handle, handler: Handle, made: Place);
    create made "MPI_Comm_split"(comm: Handle, color: c_int, key: c_int, made: Place);
    create made "MPI_Comm_split_type"(comm: Handle, kind: c_int, key: c_int, info: Handle, made: Place);
    create made "MPI_Cart_create"(comm: Handle, dimensions: c_int, sizes: List, periods: List, reorder: c_int, made: Place);
    create made "MPI_Cart_sub"(comm: Handle, remain: List, made: Place);
    create made "MPI_Graph_create"(comm: Handle, nodes: c_int, index: List, edges: List, reorder: c_int, made: Place);
    create made "MPI_Dist_graph_create"(comm: Handle, nodes: c_int, sources: List, degrees: List, destinations: List, weights: List, info: Handle, reorder: c_int, made: Place);
    create made "MPI_Dist_graph_create_adjacent"(comm: Handle, sources: c_int, from: List, from_weights: List, destinations: c_int, to: List, to_weights: List, info: Handle, reorder: c_int, made: Place);
    create made "MPI_Intercomm_create"(local: Handle, local_leader: c_int, peers: Handle, remote_leader: c_int, tag: c_int, made: Place);
    create made "MPI_Intercomm_create_from_groups"(local: Handle, local_leader: c_int, remote: Handle, remote_leader: c_int, tag: Text, info: Handle, handler: Handle, made: Place);
    create made "MPI_Intercomm_merge"(comm: Handle, high: c_int, made: Place);
    create made "MPI_Comm_spawn"(command: Text, arguments: List, most: c_int, info: Handle, root: c_int, comm: Handle, made: Place, errors: List);
    create made "MPI_Comm_spawn_multiple"(count: c_int, commands: List, arguments: List, most: List, infos: List, root: c_int, comm: Handle, made: Place, errors: List);
    create made "MPI_Comm_accept"(port: Text, info: Handle, root: c_int, comm: Handle, made: Place);
    create made "MPI_Comm_connect"(port: Text, info: Handle, root: c_int, comm: Handle, made: Place);
    create made "MPI_Comm_join"(socket: c_int, made: Place);
    create made "MPIX_Comm_shrink"(comm: Handle, made: Place);
    create made "MPIX_Stream_comm_create"(comm: Handle, stream: Handle, made: Place);
    create made "MPIX_Stream_comm_create_multiplex"(comm: Handle, count: c_int, streams: List, made: Place);
    create made "MPIX_Threadcomm_init"(comm: Handle, threads: c_int, made: Place);
    finalize NOWHERE "MPI_Finalize"();
    free comm "MPI_Comm_free"(comm: Place);
    free comm "MPI_Comm_disconnect"(comm: Place);
    free_container file "MPI_File_close"(file: Place);
    free_container window "MPI_Win_free"(window: Place);
    free_container session "MPI_Session_finalize"(session: Place);
}

//! The functions of MPI that deal with requests: persistent collectives among them may be served by plans.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bruckner::Engine;
use bruckner::mpi::{Mpi, Word};

/// Each function under both its names: by the engine if it knows any request, else by the MPI.
macro_rules! requests {
    ($($name:literal $method:ident $field:ident ($($argument:ident : $type:ty),*);)*) => {$(
        requests!(@one [concat!("MPI_", $name)] $method $field ($($argument : $type),*));
        requests!(@one [concat!("PMPI_", $name)] $method $field ($($argument : $type),*));
    )*};
    (@one [$export:expr] $method:ident $field:ident ($($argument:ident : $type:ty),*)) => {
        const _: () = {
            #[unsafe(export_name = $export)]
            unsafe extern "C" fn entry($($argument: $type),*) -> c_int {
                let Ok(mpi) = Mpi::find() else { return crate::entries::NO_MPI };
                if let Some(engine) = Engine::current().filter(|engine| engine.has_requests()) {
                    // SAFETY: the caller's promise.
                    let done = catch_unwind(AssertUnwindSafe(|| unsafe { engine.$method($($argument),*) }));
                    return done.unwrap_or(crate::entries::NO_MPI);
                }
                // SAFETY: the caller's promise.
                unsafe { (mpi.f.$field)($($argument),*) }
            }
        };
    };
}

/// Those of MPI 4.1, which not every MPI has: by the engine in any case, which asks the MPI.
macro_rules! looks {
    ($($name:literal $method:ident ($($argument:ident : $type:ty),*);)*) => {$(
        looks!(@one [concat!("MPI_", $name)] $method ($($argument : $type),*));
        looks!(@one [concat!("PMPI_", $name)] $method ($($argument : $type),*));
    )*};
    (@one [$export:expr] $method:ident ($($argument:ident : $type:ty),*)) => {
        const _: () = {
            #[unsafe(export_name = $export)]
            unsafe extern "C" fn entry($($argument: $type),*) -> c_int {
                let Ok(engine) = Engine::get() else { return crate::entries::NO_MPI };
                // SAFETY: the caller's promise.
                let done = catch_unwind(AssertUnwindSafe(|| unsafe { engine.$method($($argument),*) }));
                done.unwrap_or(crate::entries::NO_MPI)
            }
        };
    };
}

looks! {
    "Request_get_status_all" get_status_all(count: c_int, requests: Handles, flag: Out, statuses: Status);
    "Request_get_status_any" get_status_any(count: c_int, requests: Handles, index: Out, flag: Out, status: Status);
    "Request_get_status_some" get_status_some(count: c_int, requests: Handles, done: Out, indices: Out, statuses: Status);
}

type Handles = *const c_void;
type Request = *mut c_void;
type Status = *mut c_void;
type Out = *mut c_int;

requests! {
    "Start" start start(request: Request);
    "Startall" start_all startall(count: c_int, requests: Request);
    "Wait" wait wait(request: Request, status: Status);
    "Waitall" wait_all waitall(count: c_int, requests: Request, statuses: Status);
    "Waitany" wait_any waitany(count: c_int, requests: Request, index: Out, status: Status);
    "Waitsome" wait_some waitsome(count: c_int, requests: Request, done: Out, indices: Out, statuses: Status);
    "Test" test test(request: Request, flag: Out, status: Status);
    "Testall" test_all testall(count: c_int, requests: Request, flag: Out, statuses: Status);
    "Testany" test_any testany(count: c_int, requests: Request, index: Out, flag: Out, status: Status);
    "Testsome" test_some testsome(count: c_int, requests: Request, done: Out, indices: Out, statuses: Status);
    "Request_free" free request_free(request: Request);
    "Request_get_status" get_status request_get_status(request: Word, flag: Out, status: Status);
}

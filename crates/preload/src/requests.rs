//! The intercepted functions of MPI for requests. They are intercepted because the library may handle persistent collectives.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bruckner_engine::Engine;
use bruckner_engine::mpi::{Handle, Mpi};

use crate::entries::ERROR_CODE;
use crate::next::hand_on;

/// Defines each function under its two names. The function calls the engine if the engine knows any persistent request, and otherwise the
/// MPI.
macro_rules! requests {
    ($($name:literal $method:ident $group:ident $field:ident ($($argument:ident : $type:ty),*);)*) => {$(
        requests!(@one [concat!("MPI_", $name)] $method $group $field ($($argument : $type),*));
        requests!(@one [concat!("PMPI_", $name)] $method $group $field ($($argument : $type),*));
    )*};
    (@one [$export:expr] $method:ident $group:ident $field:ident ($($argument:ident : $type:ty),*)) => {
        const _: () = {
            #[unsafe(export_name = $export)]
            unsafe extern "C" fn entry($($argument: $type),*) -> c_int {
                hand_on!($export, ($($argument: $type),*));
                let Ok(mpi) = Mpi::find() else { return ERROR_CODE };
                let native = requests!(@native mpi $group $field);
                let engine = match native {
                    // SAFETY: ARGUMENTS.
                    Some(native) if !has_requests() => return unsafe { native($($argument),*) },
                    _ => Engine::get(),
                };
                let Ok(engine) = engine else { return ERROR_CODE };
                // SAFETY: ARGUMENTS.
                let done = catch_unwind(AssertUnwindSafe(|| unsafe { engine.requests().$method($($argument),*) }));
                done.unwrap_or(ERROR_CODE)
            }
        };
    };
    (@native $mpi:ident f $field:ident) => { Some($mpi.f.$field) };
    (@native $mpi:ident extra $field:ident) => { $mpi.extra.$field };
}

#[inline]
fn has_requests() -> bool {
    Engine::current().is_some_and(|engine| engine.requests().are_known())
}

type Handles = *const c_void;
type Request = *mut c_void;
type Status = *mut c_void;
type Out = *mut c_int;

requests! {
    "Start" start f start(request: Request);
    "Startall" start_all f startall(count: c_int, requests: Request);
    "Wait" wait f wait(request: Request, status: Status);
    "Waitall" wait_all f waitall(count: c_int, requests: Request, statuses: Status);
    "Waitany" wait_any f waitany(count: c_int, requests: Request, index: Out, status: Status);
    "Waitsome" wait_some f waitsome(count: c_int, requests: Request, done: Out, indices: Out, statuses: Status);
    "Test" test f test(request: Request, flag: Out, status: Status);
    "Testall" test_all f testall(count: c_int, requests: Request, flag: Out, statuses: Status);
    "Testany" test_any f testany(count: c_int, requests: Request, index: Out, flag: Out, status: Status);
    "Testsome" test_some f testsome(count: c_int, requests: Request, done: Out, indices: Out, statuses: Status);
    "Request_free" free f request_free(request: Request);
    "Request_get_status" get_status f request_get_status(request: Handle, flag: Out, status: Status);
    "Request_get_status_all" get_status_all extra request_get_status_all(count: c_int, requests: Handles, flag: Out, statuses: Status);
    "Request_get_status_any" get_status_any extra request_get_status_any(count: c_int, requests: Handles, index: Out, flag: Out, status: Status);
    "Request_get_status_some" get_status_some extra request_get_status_some(count: c_int, requests: Handles, done: Out, indices: Out, statuses: Status);
}

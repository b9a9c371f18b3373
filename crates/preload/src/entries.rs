//! The intercepted functions of MPI.
//!
//! Each function is exported under two names, `MPI_*` and `PMPI_*`. Open MPI's Fortran interface calls the `PMPI_*` functions, and so do
//! tools that are loaded before this library and define the `MPI_*` functions. The MPI's own functions are looked up inside the MPI's
//! library, never by global name, so both names can be defined here. Open MPI 4 has persistent collectives under a third name, `MPIX_*`.
//! Calls that the library does not handle go to the MPI's own function unchanged.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use bruckner_engine::backend::{Natives as _, native_init};
use bruckner_engine::call::{List, Lists};
use bruckner_engine::mpi::{Flavour, Function, Handle, Mpi};
use bruckner_engine::{Call, Engine, EntryPoint, Error};

use crate::next::hand_on;
use crate::table::collectives;

/// Return code of a function if no MPI is found or after a panic. The value means only that there is an error.
pub(crate) const ERROR_CODE: c_int = 1;

/// Runs a call by the engine if the library may handle calls of this function, and otherwise by the MPI's own function.
unsafe fn run(mpi: &'static Mpi, call: Call, comm: Handle) -> c_int {
    match Engine::current() {
        // SAFETY: ARGUMENTS.
        Some(engine) if !engine.bypasses(call.function) => unsafe { run_handled(engine, &call, comm) },
        // SAFETY: ARGUMENTS.
        _ => unsafe { native(mpi, &call, comm) },
    }
}

unsafe fn run_handled(engine: &'static Engine<Mpi>, call: &Call, comm: Handle) -> c_int {
    // SAFETY: ARGUMENTS.
    match unsafe { engine.run_cached_handled(call, comm) } {
        Some(Ok(code)) => code,
        Some(Err(failure)) => engine.raise(comm, &failure.into()),
        // SAFETY: ARGUMENTS.
        None => unsafe { run_uncached(engine, call, comm) },
    }
}

/// Runs a call that the engine's call cache does not have.
#[cold]
unsafe fn run_uncached(engine: &'static Engine<Mpi>, call: &Call, comm: Handle) -> c_int {
    let run = || {
        // SAFETY: ARGUMENTS.
        unsafe {
            let narrowed = narrowed(engine.backend(), call, Flavour::Blocking, comm);
            let call = narrowed.as_ref().map_or(call, |(call, _)| call);
            engine.run(call, comm, EntryPoint::Mpi)
        }
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => engine.raise(comm, &error),
        Err(_) => engine.raise(comm, &Error::Plan("internal error of Bruckner")),
    }
}

/// Calls the MPI's own function and returns the code that the function returns.
#[inline(always)]
unsafe fn native(mpi: &Mpi, call: &Call, comm: Handle) -> c_int {
    // SAFETY: ARGUMENTS.
    let result = unsafe {
        match narrowed(mpi, call, Flavour::Blocking, comm) {
            Some((narrow, _lists)) => mpi.native(&narrow, comm),
            None => mpi.native(call, comm),
        }
    };
    result.map_or_else(|error| error.code, |()| 0)
}

/// Creates a persistent request for a collective, by the engine or by the MPI.
unsafe fn persistent(mpi: &'static Mpi, call: Call, comm: Handle, info: Handle, request: *mut c_void) -> c_int {
    let make = || {
        // SAFETY: ARGUMENTS.
        let (call, lists) =
            unsafe { narrowed(mpi, &call, Flavour::Persistent, comm) }.unwrap_or((call, Lists::default()));
        match Engine::current() {
            Some(engine) if !engine.bypasses(call.function) => {
                // SAFETY: ARGUMENTS.
                let made = unsafe { engine.request(call, lists, comm, info, request) };
                made.unwrap_or_else(|error| engine.raise(comm, &error))
            }
            _ => {
                // The lists are leaked, because the MPI may read them as long as the request is used.
                std::mem::forget(lists);
                // SAFETY: ARGUMENTS.
                unsafe { native_init(mpi, &call, comm, info, request) }.map_or_else(|error| error.code, |()| 0)
            }
        }
    };
    catch_unwind(AssertUnwindSafe(make)).unwrap_or(ERROR_CODE)
}

/// Converts a call with large counts (`MPI_Count`) to one with C integers, if the MPI lacks the function for large counts. Returns `None`
/// if no conversion is needed or possible.
#[inline(always)]
unsafe fn narrowed(mpi: &Mpi, call: &Call, flavour: Flavour, comm: Handle) -> Option<(Call, Lists)> {
    if !call.is_wide() || mpi.has(call.function, flavour, true) {
        return None;
    }
    let size = match call.function {
        Function::ReduceScatter => mpi.size(comm).ok()?,
        _ => mpi.peers(comm).ok()?,
    };
    // SAFETY: the MPI standard requires lists of this length (ARGUMENTS).
    unsafe { call.narrowed(mpi.is_in_place(call.send.data), size) }
}

/// Gives the C type of an argument, and its value in a [`Call`].
macro_rules! argument {
    (@type $width:ident Read) => { *const c_void };
    (@type $width:ident Write) => { *mut c_void };
    (@type $width:ident Type) => { Handle };
    (@type $width:ident Op) => { Handle };
    (@type $width:ident Root) => { c_int };
    (@type int Count) => { c_int };
    (@type wide Count) => { i64 };
    (@type int List) => { *const c_int };
    (@type wide List) => { *const i64 };
    (@wide int) => { false };
    (@wide wide) => { true };
    (@word $mpi:ident $width:ident Type $argument:ident) => { $mpi.handle($argument) };
    (@word $mpi:ident $width:ident Op $argument:ident) => { $mpi.handle($argument) };
    (@word $mpi:ident int Count $argument:ident) => { i64::from($argument) };
    (@word $mpi:ident int List $argument:ident) => { List::Ints($argument) };
    (@word $mpi:ident wide List $argument:ident) => { List::Wide($argument) };
    (@word $mpi:ident $width:ident $kind:ident $argument:ident) => { $argument };
}

macro_rules! entries {
    ($($function:ident $name:literal ($($argument:ident : $kind:ident),*);)*) => {$(
        entries!(@blocking $function [concat!("MPI_", $name)] int ($($argument : $kind),*));
        entries!(@blocking $function [concat!("PMPI_", $name)] int ($($argument : $kind),*));
        entries!(@persistent $function [concat!("MPI_", $name, "_init")] int ($($argument : $kind),*));
        entries!(@persistent $function [concat!("PMPI_", $name, "_init")] int ($($argument : $kind),*));
        entries!(@persistent $function [concat!("MPIX_", $name, "_init")] int ($($argument : $kind),*));
        entries!(@persistent $function [concat!("PMPIX_", $name, "_init")] int ($($argument : $kind),*));
        entries!(@wide $function $name ($($argument : $kind),*));
    )*};
    // A function without counts has no large-count variant.
    (@wide $function:ident $name:literal ()) => {};
    (@wide $function:ident $name:literal ($($argument:ident : $kind:ident),+)) => {
        entries!(@blocking $function [concat!("MPI_", $name, "_c")] wide ($($argument : $kind),*));
        entries!(@blocking $function [concat!("PMPI_", $name, "_c")] wide ($($argument : $kind),*));
        entries!(@persistent $function [concat!("MPI_", $name, "_init_c")] wide ($($argument : $kind),*));
        entries!(@persistent $function [concat!("PMPI_", $name, "_init_c")] wide ($($argument : $kind),*));
    };
    (@persistent $function:ident [$export:expr] $width:ident ($($argument:ident : $kind:ident),*)) => {
        const _: () = {
            #[unsafe(export_name = $export)]
            unsafe extern "C" fn entry(
                $($argument: argument!(@type $width $kind),)*
                comm: Handle,
                info: Handle,
                request: *mut c_void,
            ) -> c_int {
                hand_on!($export, ($($argument: argument!(@type $width $kind),)* comm: Handle, info: Handle, request: *mut c_void));
                let Ok(mpi) = Mpi::find() else { return ERROR_CODE };
                let call = Call::$function($(argument!(@word mpi $width $kind $argument)),*);
                // SAFETY: ARGUMENTS.
                unsafe { persistent(mpi, call, mpi.handle(comm), info, request) }
            }
        };
    };
    (@blocking $function:ident [$export:expr] $width:ident ($($argument:ident : $kind:ident),*)) => {
        const _: () = {
            #[unsafe(export_name = $export)]
            unsafe extern "C" fn entry($($argument: argument!(@type $width $kind),)* comm: Handle) -> c_int {
                hand_on!($export, ($($argument: argument!(@type $width $kind),)* comm: Handle));
                // If the cache knows that the call is passed through, jumps to the MPI's function with the arguments unchanged.
                if let Some(engine) = Engine::current() {
                    let mpi = engine.backend();
                    let call = Call::$function($(argument!(@word mpi $width $kind $argument)),*);
                    if let Some(native) = engine.cached_native(&call, argument!(@wide $width), mpi.handle(comm)) {
                        // SAFETY: the MPI's function of the same name; ARGUMENTS.
                        return unsafe {
                            let native: unsafe extern "C" fn($(argument!(@type $width $kind),)* Handle) -> c_int =
                                std::mem::transmute(native);
                            native($($argument,)* comm)
                        };
                    }
                }
                // SAFETY: ARGUMENTS.
                unsafe { otherwise($($argument,)* comm) }
            }

            #[inline(never)]
            unsafe extern "C" fn otherwise($($argument: argument!(@type $width $kind),)* comm: Handle) -> c_int {
                let Ok(mpi) = Mpi::find() else { return ERROR_CODE };
                let call = Call::$function($(argument!(@word mpi $width $kind $argument)),*);
                // SAFETY: ARGUMENTS.
                unsafe { run(mpi, call, mpi.handle(comm)) }
            }
        };
    };
}

collectives!(entries);

/// Whether an initialisation function of this library has called the MPI's own initialisation function.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Starts the interception on all ranks, after the MPI's own initialisation. After an error no call is intercepted.
fn start_interception(mpi: &'static Mpi, code: c_int) -> c_int {
    BEGUN.store(true, Ordering::Relaxed);
    if code == 0 && Engine::current().is_none() && mpi.is_running() {
        let taken = catch_unwind(|| Engine::get().and_then(Engine::enable_interception));
        if let Ok(Err(error)) = taken {
            eprintln!("bruckner: no MPI calls are intercepted: {error}");
        }
    }
    code
}

/// Warns if a tool preloaded after the library has initialised MPI without calling the library's `PMPI_Init`.
fn initialised(code: c_int) -> c_int {
    if code == 0 && !BEGUN.load(Ordering::Relaxed) {
        eprintln!(
            "bruckner: no MPI calls are intercepted: a tool preloaded after the library has an MPI_Init that does not call PMPI_Init; \
             start the program with `bruckner exec`, which loads tools before the library"
        );
    }
    code
}

macro_rules! beginnings {
    ($($export:literal $field:ident ($($argument:ident : $type:ty),*);)*) => {$(
        const _: () = {
            #[unsafe(export_name = $export)]
            unsafe extern "C" fn entry($($argument: $type),*) -> c_int {
                let call = || {
                    hand_on!($export, ($($argument: $type),*));
                    let Ok(mpi) = Mpi::find() else { return ERROR_CODE };
                    // SAFETY: ARGUMENTS.
                    start_interception(mpi, unsafe { (mpi.f.$field)($($argument),*) })
                };
                initialised(call())
            }
        };
    )*};
}

beginnings! {
    "MPI_Init" init(argc: *mut c_int, argv: *mut *mut *mut c_char);
    "PMPI_Init" init(argc: *mut c_int, argv: *mut *mut *mut c_char);
    "MPI_Init_thread" init_thread(argc: *mut c_int, argv: *mut *mut *mut c_char, wanted: c_int, given: *mut c_int);
    "PMPI_Init_thread" init_thread(argc: *mut c_int, argv: *mut *mut *mut c_char, wanted: c_int, given: *mut c_int);
}

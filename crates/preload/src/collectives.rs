//! The collectives of the C API, generated from the table: blocking functions and plans.

use std::ffi::{c_char, c_int, c_void};

use bruckner_engine::call::List;
use bruckner_engine::mpi::MpiError;
use bruckner_engine::{Call, Engine, EntryPoint, Error};

use crate::errors::guard;
use crate::handles::{MPI_Comm, MPI_Datatype, MPI_Op, handle_value};
use crate::plans::{bruckner_plan, prepare};
use crate::table::collectives;

#[inline]
unsafe fn run(call: &Call, comm: MPI_Comm) -> c_int {
    // SAFETY: ARGUMENTS.
    let again = Engine::current().and_then(|engine| unsafe { engine.run_cached(call, engine.handle(comm.0)) });
    if let Some(Ok(0)) = again {
        return 0;
    }
    guard(|| {
        let code = match again {
            Some(result) => result?,
            None => {
                let engine = Engine::get()?;
                // SAFETY: ARGUMENTS.
                unsafe { engine.run(call, engine.handle(comm.0), EntryPoint::Api) }?
            }
        };
        match code {
            0 => Ok(()),
            code => Err(Error::Mpi(MpiError { call: call.function.name(), code })),
        }
    })
}

/// Gives the C type of an argument, and its value in a [`Call`].
macro_rules! argument {
    (@type Read) => { *const c_void };
    (@type Write) => { *mut c_void };
    (@type Count) => { c_int };
    (@type List) => { *const c_int };
    (@type Type) => { MPI_Datatype };
    (@type Op) => { MPI_Op };
    (@type Root) => { c_int };
    (@value Count $argument:ident) => { $argument.into() };
    (@value List $argument:ident) => { List::Ints($argument) };
    (@value Type $argument:ident) => { handle_value($argument.0) };
    (@value Op $argument:ident) => { handle_value($argument.0) };
    (@value $kind:ident $argument:ident) => { $argument };
}

macro_rules! functions {
    ($($function:ident $name:literal ($($argument:ident : $kind:ident),*);)*) => {$(
        const _: () = {
            #[unsafe(export_name = concat!("bruckner_", stringify!($function)))]
            unsafe extern "C" fn blocking($($argument: argument!(@type $kind),)* comm: MPI_Comm) -> c_int {
                let call = Call::$function($(argument!(@value $kind $argument)),*);
                // SAFETY: ARGUMENTS.
                unsafe { run(&call, comm) }
            }

            #[unsafe(export_name = concat!("bruckner_", stringify!($function), "_init"))]
            unsafe extern "C" fn plan(
                $($argument: argument!(@type $kind),)*
                comm: MPI_Comm,
                algorithm: *const c_char,
                plan: *mut *mut bruckner_plan,
            ) -> c_int {
                let call = Call::$function($(argument!(@value $kind $argument)),*);
                // SAFETY: ARGUMENTS.
                unsafe { prepare(call, comm, algorithm, plan) }
            }
        };
    )*};
}

collectives!(functions);

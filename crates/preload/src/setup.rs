//! The C API besides collectives: initialisation, settings, information.

use std::ffi::{c_char, c_int, c_longlong};

use bruckner_engine::{Engine, Error, Name};

use crate::errors::{guard, text};
use crate::handles::MPI_Comm;

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
        // SAFETY: ARGUMENTS.
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
        // SAFETY: ARGUMENTS.
        engine.set_topology(engine.handle(comm.0), unsafe { text(topology) }?)
    })
}

/// Writes the algorithm that last served a collective ("allreduce") on a communicator: an expression, "native", or
/// nothing if there was no call yet. Talks to no other rank.
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
        // SAFETY: ARGUMENTS.
        let wanted = unsafe { text(collective) }?;
        let name = Name::read(wanted)
            .ok_or_else(|| Error::Argument(format!("there is no collective `{wanted}`")))?;
        let found = engine.algorithm_of(engine.handle(comm.0), name)?.unwrap_or_default();
        // SAFETY: ARGUMENTS.
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
        // SAFETY: ARGUMENTS.
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
        return Err(Error::Argument(format!(
            "the buffer is too small: the text takes {} bytes",
            text.len() + 1
        )));
    }
    // SAFETY: there is room for the text and its end.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        *to.add(text.len()) = 0;
    }
    Ok(())
}

/// The value that the library has for a constant of mpi.h, by its name: for tests. Returns 4 for one that it does not
/// have.
///
/// # Safety
/// A C string, and room for the value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_constant(name: *const c_char, value: *mut c_longlong) -> c_int {
    guard(|| {
        // SAFETY: ARGUMENTS.
        let name = unsafe { text(name) }?;
        let found = Engine::get()?.constant(name);
        let found = found.ok_or_else(|| Error::Argument(format!("{name} is not in the table")))?;
        // SAFETY: ARGUMENTS.
        unsafe { *value = found as c_longlong };
        Ok(())
    })
}

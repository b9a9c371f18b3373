//! The C API besides collectives: initialisation, settings, information.

use std::ffi::{c_char, c_int, c_longlong};

use bruckner_engine::{Engine, Error, Name};

use crate::errors::{guard, text};
use crate::handles::MPI_Comm;

/// Initialises the library. Collective over MPI_COMM_WORLD, after MPI_Init. Without this call, each communicator other than MPI_COMM_WORLD
/// gets an internal communicator of its own, and the library handles calls only on the first 64 such communicators.
#[unsafe(no_mangle)]
pub extern "C" fn bruckner_init() -> c_int {
    guard(|| Engine::get()?.init())
}

/// Releases the resources of the library. Collective over MPI_COMM_WORLD, before MPI_Finalize. This call is optional.
#[unsafe(no_mangle)]
pub extern "C" fn bruckner_finalize() -> c_int {
    guard(|| {
        Engine::get()?.finalize();
        Ok(())
    })
}

/// Sets the algorithms of a communicator from now on, for example "allreduce=locality(node); allgather=sparbit". Collective; all ranks
/// must pass the same text.
///
/// # Safety
/// `comm` is a valid communicator and `rules` a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_set_algorithms(comm: MPI_Comm, rules: *const c_char) -> c_int {
    guard(|| {
        let engine = Engine::get()?;
        // SAFETY: ARGUMENTS.
        engine.set_algorithms(engine.handle(comm.0), unsafe { text(rules) }?)
    })
}

/// Replaces the topology of a communicator from now on, for example by "4,4,1" or "2x2:cyclic"; for tests and experiments. Collective; all
/// ranks must pass the same text. Ranks that the text places on one node must really share a node.
///
/// # Safety
/// `comm` is a valid communicator and `topology` a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_set_topology(comm: MPI_Comm, topology: *const c_char) -> c_int {
    guard(|| {
        let engine = Engine::get()?;
        // SAFETY: ARGUMENTS.
        engine.set_topology(engine.handle(comm.0), unsafe { text(topology) }?)
    })
}

/// Writes to `algorithm` the algorithm that last ran a collective (for example "allreduce") on a communicator: an expression, "native", or
/// an empty string if the collective was not called yet. Does not communicate.
///
/// # Safety
/// `comm` is a valid communicator, `collective` a C string, and `algorithm` has room for `length` bytes.
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
        let name = Name::read(wanted).ok_or_else(|| Error::Argument(format!("there is no collective `{wanted}`")))?;
        let found = engine.algorithm_of(engine.handle(comm.0), name)?.unwrap_or_default();
        // SAFETY: ARGUMENTS.
        unsafe { write_text(&found, algorithm, length) }
    })
}

/// Writes the version of the MPI in use, and its family ("MPICH", "Open MPI" or "MPI-5 ABI").
///
/// # Safety
/// `version` has room for `version_length` bytes, and `family` for `family_length` bytes.
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
/// `to` is null or has room for `length` bytes.
unsafe fn write_text(text: &str, to: *mut c_char, length: usize) -> Result<(), Error> {
    if to.is_null() || length <= text.len() {
        return Err(Error::Argument(format!("the buffer is too small: the text takes {} bytes", text.len() + 1)));
    }
    // SAFETY: there is room for the text and the terminating zero.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        *to.add(text.len()) = 0;
    }
    Ok(())
}

/// Writes to `value` the value of the constant `name` of mpi.h that the library uses; for tests. Returns 4 if the library does not know
/// the constant.
///
/// # Safety
/// `name` is a C string, and `value` has room for a long long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bruckner_constant(name: *const c_char, value: *mut c_longlong) -> c_int {
    guard(|| {
        // SAFETY: ARGUMENTS.
        let name = unsafe { text(name) }?;
        let found = Engine::get()?.constant(name);
        let found = found.ok_or_else(|| Error::Argument(format!("the library has no constant {name}")))?;
        // SAFETY: ARGUMENTS.
        unsafe { *value = found as c_longlong };
        Ok(())
    })
}

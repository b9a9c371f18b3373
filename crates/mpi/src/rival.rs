//! Collectives of another library, to be measured beside the MPI's own.

use std::ffi::CString;
use std::path::Path;
use std::ptr::NonNull;

use crate::collectives::{Address, Function, invoke};
use crate::functions::Handle;
use crate::load::{Library, NoMpi};
use crate::{Mpi, MpiError};

/// A shared object that exports some of MPI's collectives under their own names: someone else's, or an adapter to them.
pub struct Rival {
    library: Library,
    functions: [Address; Function::ALL.len()],
}

impl Rival {
    /// Loads it, which runs its initialisers. It sees its own functions before those of others, so that its calls of MPI go
    /// where it was linked to; and nobody else sees its functions.
    ///
    /// # Safety
    /// Its initialisers do no harm, and functions with the names of MPI's collectives are what these names say.
    pub unsafe fn load(path: &Path) -> Result<Rival, NoMpi> {
        let library = Library::apart(path)?;
        let mut functions = [None; Function::ALL.len()];
        for function in Function::ALL {
            let name = CString::new(function.name()).expect("a name without zeros");
            functions[function as usize] = library.own_symbol(&name).and_then(NonNull::new);
        }
        Ok(Rival { library, functions })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.library.path
    }

    /// Whether it has such a function.
    pub fn has(&self, function: Function) -> bool {
        self.functions[function as usize].is_some()
    }

    /// Calls one of its functions with its arguments as words.
    ///
    /// # Safety
    /// As for [`Mpi::collective`]; and counts are C integers.
    #[inline]
    pub unsafe fn collective(&self, mpi: &Mpi, function: Function, words: &[Handle]) -> Result<(), MpiError> {
        let code = match self.functions[function as usize] {
            // SAFETY: as asked for above.
            Some(address) => unsafe { invoke(address.as_ptr(), words) },
            None => mpi.constants.must("MPI_ERR_OTHER") as i32,
        };
        if code == 0 { Ok(()) } else { Err(MpiError { call: function.name(), code }) }
    }
}

//! Collectives of another library, which are measured alongside the collectives of the MPI.

use std::ffi::CString;
use std::path::Path;
use std::ptr::NonNull;

use crate::collectives::{Address, Function, invoke};
use crate::functions::Handle;
use crate::load::{Library, NoMpi};
use crate::{Mpi, MpiError};

/// A shared object that exports some MPI collectives under their MPI names: another library of collectives, or an adapter to such a
/// library.
pub struct ExternalCollectives {
    library: Library,
    functions: [Address; Function::ALL.len()],
}

impl ExternalCollectives {
    /// Loads a shared object and runs its initialisers. The object finds symbols first in itself and in the libraries it is linked to, so
    /// its MPI calls go to those. Its own symbols are invisible to other objects.
    ///
    /// # Safety
    /// The initialisers of the object are harmless, and its functions with names of MPI collectives have the semantics of these
    /// collectives.
    pub unsafe fn load(path: &Path) -> Result<ExternalCollectives, NoMpi> {
        let library = Library::open_isolated(path)?;
        let mut functions = [None; Function::ALL.len()];
        for function in Function::ALL {
            let name = CString::new(function.name()).expect("a name without zeros");
            functions[function as usize] = library.own_symbol(&name).and_then(NonNull::new);
        }
        Ok(ExternalCollectives { library, functions })
    }

    /// Returns the path of the shared object.
    pub fn path(&self) -> &Path {
        &self.library.path
    }

    /// Returns whether the shared object exports a collective.
    pub fn has(&self, function: Function) -> bool {
        self.functions[function as usize].is_some()
    }

    /// Calls a collective of the shared object, with its arguments as 64-bit words.
    ///
    /// # Safety
    /// The requirements of [`Mpi::collective`] hold, and counts are C integers.
    #[inline]
    pub unsafe fn collective(&self, mpi: &Mpi, function: Function, words: &[Handle]) -> Result<(), MpiError> {
        let code = match self.functions[function as usize] {
            // SAFETY: the caller guarantees that the words are valid arguments of the function.
            Some(address) => unsafe { invoke(address.as_ptr(), words) },
            None => mpi.constants.required("MPI_ERR_OTHER") as i32,
        };
        if code == 0 { Ok(()) } else { Err(MpiError { call: function.name(), code }) }
    }
}

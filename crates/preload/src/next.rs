//! Support for tools that are preloaded *behind* the library, that is, later in the order of `LD_PRELOAD`. A program's call reaches the
//! library first. If a tool behind the library defines a function of the same name, the library passes the call to the tool. The tool then
//! calls the `PMPI_*` function, which the library defines too. So a tool sees the program's calls whether it is loaded before or behind
//! the library.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use bruckner_engine::mpi::Mpi;

/// A tool's function with the same name as one of the library's MPI functions. The tool comes after the library in `LD_PRELOAD`. The function
/// is looked up until an MPI is loaded, then stored.
pub(crate) struct ToolFunction {
    function: AtomicPtr<c_void>,
    state: AtomicU8,
}

const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
const TOOL: u8 = 2;

impl ToolFunction {
    pub(crate) const fn new() -> ToolFunction {
        ToolFunction { function: AtomicPtr::new(null_mut()), state: AtomicU8::new(UNKNOWN) }
    }

    /// Returns the tool's function with this name, or `None` if there is none. Names `PMPI_*` always give `None`.
    #[inline(always)]
    pub(crate) fn find(&self, name: &'static str) -> Option<*mut c_void> {
        if !name.starts_with("MPI") {
            return None;
        }
        match self.state.load(Ordering::Acquire) {
            NONE => None,
            TOOL => Some(self.function.load(Ordering::Relaxed)),
            _ => self.look(name),
        }
    }

    #[cold]
    fn look(&self, name: &'static str) -> Option<*mut c_void> {
        // Before an MPI is loaded, its own functions cannot be distinguished from a tool's.
        let mpi = Mpi::find().ok()?;
        let found = CString::new(name).ok().and_then(|name| mpi.function_of_tool(&name));
        self.function.store(found.unwrap_or(null_mut()), Ordering::Relaxed);
        self.state.store(if found.is_some() { TOOL } else { NONE }, Ordering::Release);
        found
    }
}

/// Passes a call to a tool that is preloaded behind the library, if there is one.
macro_rules! hand_on {
    ($export:expr, ($($argument:ident : $type:ty),*)) => {
        static NEXT: crate::next::ToolFunction = crate::next::ToolFunction::new();
        if let Some(next) = NEXT.find($export) {
            // SAFETY: a function of the same name, called with the arguments that this one received: ARGUMENTS.
            return unsafe {
                let next: unsafe extern "C" fn($($type),*) -> std::ffi::c_int = std::mem::transmute(next);
                next($($argument),*)
            };
        }
    };
}

pub(crate) use hand_on;

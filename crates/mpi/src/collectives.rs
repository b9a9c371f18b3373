//! The collectives of the loaded MPI: blocking, nonblocking and persistent, with `int` or large counts.
//!
//! All arguments are integers or addresses, which the calling convention passes as 64-bit words, so one function can call all collectives.

use std::ffi::{CString, c_int, c_void};
use std::ptr::NonNull;

use crate::functions::Handle;
use crate::load::{Library, NoMpi};
use crate::{Mpi, MpiError};

/// A collective function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(usize)]
pub enum Function {
    /// `MPI_Allgather`.
    Allgather,
    /// `MPI_Allgatherv`.
    Allgatherv,
    /// `MPI_Allreduce`.
    Allreduce,
    /// `MPI_Reduce_scatter`.
    ReduceScatter,
    /// `MPI_Reduce_scatter_block`.
    ReduceScatterBlock,
    /// `MPI_Alltoall`.
    Alltoall,
    /// `MPI_Alltoallv`.
    Alltoallv,
    /// `MPI_Bcast`.
    Bcast,
    /// `MPI_Reduce`.
    Reduce,
    /// `MPI_Barrier`.
    Barrier,
}

impl Function {
    /// All collective functions.
    pub const ALL: [Function; 10] = [
        Function::Allgather,
        Function::Allgatherv,
        Function::Allreduce,
        Function::ReduceScatter,
        Function::ReduceScatterBlock,
        Function::Alltoall,
        Function::Alltoallv,
        Function::Bcast,
        Function::Reduce,
        Function::Barrier,
    ];

    /// Returns the name of the function in `mpi.h`.
    pub fn name(self) -> &'static str {
        match self {
            Function::Allgather => "MPI_Allgather",
            Function::Allgatherv => "MPI_Allgatherv",
            Function::Allreduce => "MPI_Allreduce",
            Function::ReduceScatter => "MPI_Reduce_scatter",
            Function::ReduceScatterBlock => "MPI_Reduce_scatter_block",
            Function::Alltoall => "MPI_Alltoall",
            Function::Alltoallv => "MPI_Alltoallv",
            Function::Bcast => "MPI_Bcast",
            Function::Reduce => "MPI_Reduce",
            Function::Barrier => "MPI_Barrier",
        }
    }
}

/// How a collective is called: blocking, nonblocking or persistent. The examples are for `MPI_Bcast`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Flavour {
    /// The call is blocking, as `MPI_Bcast(…)`.
    Blocking,
    /// The call is nonblocking, as `MPI_Ibcast(…, request)`.
    Nonblocking,
    /// The call creates a persistent request, as `MPI_Bcast_init(…, info, request)`.
    Persistent,
}

const FLAVOURS: [Flavour; 3] = [Flavour::Blocking, Flavour::Nonblocking, Flavour::Persistent];

/// Address of a function; `None` if the MPI library lacks the function.
pub(crate) type Address = Option<NonNull<c_void>>;

/// Addresses of the collectives, indexed by function, flavour, and whether counts are large (`MPI_Count`).
#[derive(Clone, Debug)]
pub(crate) struct Collectives([[[Address; 2]; 3]; Function::ALL.len()]);

fn symbol(function: Function, flavour: Flavour, wide: bool) -> String {
    let name = function.name().trim_start_matches("MPI_");
    let c = if wide { "_c" } else { "" };
    match flavour {
        Flavour::Blocking => format!("PMPI_{name}{c}"),
        Flavour::Nonblocking => format!("PMPI_I{}{c}", name.to_lowercase()),
        Flavour::Persistent => format!("PMPI_{name}_init{c}"),
    }
}

impl Collectives {
    pub(crate) fn of(library: &Library) -> Result<Collectives, NoMpi> {
        let mut table = [[[None; 2]; 3]; Function::ALL.len()];
        for function in Function::ALL {
            for flavour in FLAVOURS {
                for wide in [false, true] {
                    let name = symbol(function, flavour, wide);
                    // Open MPI 4 has persistent collectives as extensions, with the prefix `MPIX_`.
                    let extension = name.replace("PMPI_", "PMPIX_");
                    let find = |name: String| library.symbol(&CString::new(name).ok()?);
                    let found = find(name).or_else(|| find(extension)).and_then(NonNull::new);
                    if found.is_none() && !wide && flavour != Flavour::Persistent {
                        return Err(NoMpi::Lacks(function.name()));
                    }
                    table[function as usize][flavour as usize][usize::from(wide)] = found;
                }
            }
        }
        Ok(Collectives(table))
    }
}

impl Mpi {
    /// Returns the address of a collective, with counts of type `MPI_Count` if `wide`. `None` if the MPI lacks the function.
    #[inline(always)]
    pub fn address(&self, function: Function, flavour: Flavour, wide: bool) -> Option<NonNull<c_void>> {
        self.collectives.0[function as usize][flavour as usize][usize::from(wide)]
    }

    /// Returns whether the MPI has a collective, with counts of type `MPI_Count` if `wide`.
    #[inline]
    pub fn has(&self, function: Function, flavour: Flavour, wide: bool) -> bool {
        self.address(function, flavour, wide).is_some()
    }

    /// Calls a collective of the MPI, with its arguments as 64-bit words. If the MPI lacks the function, the call fails with
    /// `MPI_ERR_COUNT`.
    ///
    /// # Safety
    /// There is one word for each argument of the function, and the words are valid arguments.
    #[inline(always)]
    pub unsafe fn collective(
        &self,
        function: Function,
        flavour: Flavour,
        wide: bool,
        words: &[Handle],
    ) -> Result<(), MpiError> {
        let code = match self.address(function, flavour, wide) {
            // SAFETY: the caller guarantees one valid word for each argument.
            Some(address) => unsafe { invoke(address.as_ptr(), words) },
            None => self.constants.required("MPI_ERR_COUNT") as c_int,
        };
        if code == 0 { Ok(()) } else { Err(MpiError { call: function.name(), code }) }
    }
}

/// Calls a function with its arguments as 64-bit words.
///
/// # Safety
/// The function has `words.len()` arguments, all integers or addresses, and the words are valid for it.
#[inline(always)]
pub(crate) unsafe fn invoke(function: *mut c_void, words: &[Handle]) -> c_int {
    macro_rules! with {
        ($($word:ident)*) => {{
            let &[$($word),*] = words else { unreachable!("counted") };
            // SAFETY: integers and addresses are passed in the same way; the caller guarantees the number of arguments.
            unsafe {
                let function: unsafe extern "C" fn($(with!(@type $word)),*) -> c_int = std::mem::transmute(function);
                function($($word),*)
            }
        }};
        (@type $word:ident) => { Handle };
    }
    match words.len() {
        1 => with!(a),
        2 => with!(a b),
        3 => with!(a b c),
        5 => with!(a b c d e),
        6 => with!(a b c d e f),
        7 => with!(a b c d e f g),
        8 => with!(a b c d e f g h),
        9 => with!(a b c d e f g h i),
        10 => with!(a b c d e f g h i j),
        11 => with!(a b c d e f g h i j k),
        n => unreachable!("no collective has {n} arguments"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_standard() {
        let of = |function, flavour, wide| symbol(function, flavour, wide);
        assert_eq!(of(Function::Bcast, Flavour::Blocking, false), "PMPI_Bcast");
        assert_eq!(of(Function::ReduceScatterBlock, Flavour::Nonblocking, false), "PMPI_Ireduce_scatter_block");
        assert_eq!(of(Function::Alltoallv, Flavour::Persistent, true), "PMPI_Alltoallv_init_c");
    }

    #[test]
    fn words_arrive_in_order() {
        unsafe extern "C" fn f(a: c_int, b: *const c_void, c: u64, d: u64, e: u64, f: c_int, g: c_int) -> c_int {
            (a == -1 && b as usize == 2 && c == 3 && d == 4 && e == 5 && f == 6 && g == -7).into()
        }
        let words = [-1i64 as u64, 2, 3, 4, 5, 6, -7i64 as u64];
        // SAFETY: the function has seven arguments, and there are seven words.
        assert_eq!(unsafe { invoke(f as *mut c_void, &words) }, 1);
    }
}

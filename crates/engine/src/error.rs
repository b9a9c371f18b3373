//! Errors.

use bruckner_choose::BadRule;
use bruckner_mpi::{Handle, MpiError, NoMpi};
use bruckner_runtime::Failure;

use crate::backend::Backend;

/// Why a call did not do what it was asked. In C these are codes, the same numbers.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// There is no MPI here, or none that is understood.
    #[error("{0}")]
    NoMpi(#[from] NoMpi),
    /// MPI is not initialised, or finalised already.
    #[error("MPI is not running: call MPI_Init first, and nothing after MPI_Finalize")]
    NotRunning,
    /// An MPI function failed.
    #[error("{0}")]
    Mpi(#[from] MpiError),
    /// An argument is wrong.
    #[error("{0}")]
    Argument(String),
    /// A count is negative.
    #[error("a count is negative: {0}")]
    Negative(i64),
    /// A plan is started already, or not a plan.
    #[error("{0}")]
    Plan(&'static str),
    /// The communicator cannot be served, and there is no native call to fall back on.
    #[error("{0}")]
    NotServed(String),
}

impl Error {
    /// The number of an error in C; 0 is success.
    pub fn code(&self) -> i32 {
        match self {
            Error::NoMpi(_) => 1,
            Error::NotRunning => 2,
            Error::Mpi(_) => 3,
            Error::Argument(_) | Error::Negative(_) => 4,
            Error::Plan(_) => 5,
            Error::NotServed(_) => 6,
        }
    }
}

impl From<BadRule> for Error {
    fn from(bad: BadRule) -> Error {
        Error::Argument(bad.to_string())
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::Mpi(MpiError { call: failure.call, code: failure.code })
    }
}

/// Raises an error on a communicator of the user's, as MPI would; what its handler returns.
pub(crate) fn raise<B: Backend>(backend: &B, comm: Handle, error: &Error) -> i32 {
    let code = match error {
        Error::Mpi(error) => error.code,
        Error::Negative(_) => backend.bad_count(),
        _ => backend.other_error(),
    };
    backend.raise(comm, code);
    code
}

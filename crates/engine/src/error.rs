//! The engine's error type.

use bruckner_choose::BadRule;
use bruckner_mpi::{Handle, MpiError, NoMpi};
use bruckner_runtime::TransportError;

use crate::backend::Backend;

/// Error of an engine call. [`Error::code`] returns its number in the C API.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// No MPI library was found, or none that is supported.
    #[error("{0}")]
    NoMpi(#[from] NoMpi),
    /// MPI is not initialised yet, or is already finalised.
    #[error("MPI is not running: call this function between MPI_Init and MPI_Finalize")]
    NotRunning,
    /// An MPI function failed.
    #[error("{0}")]
    Mpi(#[from] MpiError),
    /// An argument is invalid.
    #[error("{0}")]
    Argument(String),
    /// A count is negative.
    #[error("a count is negative: {0}")]
    Negative(i64),
    /// A plan is null or already started, another thread is using the communicator, or an internal error occurred.
    #[error("{0}")]
    Plan(&'static str),
    /// The library cannot handle the communicator, and there is no native call to fall back on.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    /// Returns the error's number in the C API, where 0 is success.
    pub fn code(&self) -> i32 {
        match self {
            Error::NoMpi(_) => 1,
            Error::NotRunning => 2,
            Error::Mpi(_) => 3,
            Error::Argument(_) | Error::Negative(_) => 4,
            Error::Plan(_) => 5,
            Error::Unsupported(_) => 6,
        }
    }
}

impl From<BadRule> for Error {
    fn from(bad: BadRule) -> Error {
        Error::Argument(bad.to_string())
    }
}

impl From<TransportError> for Error {
    fn from(failure: TransportError) -> Error {
        Error::Mpi(MpiError { call: failure.call, code: failure.code })
    }
}

/// Raises an error on a user's communicator, as MPI would, and returns its error code.
pub(crate) fn raise<B: Backend>(backend: &B, comm: Handle, error: &Error) -> i32 {
    let code = match error {
        Error::Mpi(error) => error.code,
        Error::Negative(_) => backend.bad_count(),
        _ => backend.other_error(),
    };
    backend.raise(comm, code);
    code
}

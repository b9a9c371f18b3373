//! The reasons why the library does not handle a communicator, a call or a request.

use bruckner_mpi::MpiError;

use crate::Error;
use crate::reason::Reason;

/// Why the library does not handle a communicator, a call or a request.
pub(crate) enum Refusal {
    /// All ranks pass the calls through to the MPI's own functions, for this reason.
    PassThrough(Reason),
    /// An error: an invalid argument that MPI detects before it communicates, or a failed MPI function.
    Error(Error),
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Refusal {
        Refusal::PassThrough(reason)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Error(error)
    }
}

impl From<MpiError> for Refusal {
    fn from(error: MpiError) -> Refusal {
        Refusal::Error(error.into())
    }
}

//! Why something is not served.

use bruckner_mpi::MpiError;

use crate::Error;
use crate::reason::Reason;

/// Why a communicator, a call or a request is not served.
pub(crate) enum Refusal {
    /// It goes to the MPI's own function, on all ranks.
    Native(Reason),
    /// Something is wrong: with the arguments, in a way that MPI finds before it talks to anybody, or with the MPI.
    Wrong(Error),
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Refusal {
        Refusal::Native(reason)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Wrong(error)
    }
}

impl From<MpiError> for Refusal {
    fn from(error: MpiError) -> Refusal {
        Refusal::Wrong(error.into())
    }
}

//! The reason why a call is handled by an algorithm, or passed through to the MPI's own function.

use std::fmt;

/// Why a call is handled by an algorithm or passed through; the same on all ranks.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Reason {
    /// The selection of algorithms chose an algorithm, or `native`, for this reason.
    Chosen(bruckner_choose::Reason),
    /// The communicator is an intercommunicator.
    Intercommunicator,
    /// The communicator has one rank.
    OneRank,
    /// Too many communicators have an internal communicator of their own.
    Quota,
    /// The settings switch the library off.
    Off,
    /// Some ranks of the communicator are outside `MPI_COMM_WORLD`.
    OutsideWorld,
    /// The communicator is being freed: the call comes from a delete callback of one of its attributes.
    BeingFreed,
    /// No message tags are left for the communicator.
    NoTags,
    /// A rank failed to prepare the communicator, or may have buffers in device memory.
    Unprepared,
    /// The library passes the first calls on a communicator through (`BRUCKNER_AFTER`), and this is one of them.
    FirstCalls,
    /// A zero-byte call: no rank sends any data.
    NothingToDo,
    /// The built-in operation is not defined for the datatype.
    Undefined,
    /// An element of the datatype has more than 4 GiB.
    HugeElement,
    /// The elements of the datatype have no data.
    EmptyElement,
    /// The arguments are invalid: the MPI's own function checks them and raises its error.
    LeftToMpi,
    /// Ranks make different calls.
    Different,
    /// The call makes a persistent request with a user-defined operation, which the program may free before it last starts the request.
    UsersOperation,
    /// The call makes a persistent request. The algorithm chosen for this reason has several rounds, and this MPI cannot call the library
    /// inside its waits to advance them.
    NotAdvanced(bruckner_choose::Reason),
}

impl From<bruckner_choose::Reason> for Reason {
    fn from(reason: bruckner_choose::Reason) -> Reason {
        Reason::Chosen(reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Chosen(reason) => return reason.fmt(f),
            Reason::NotAdvanced(reason) => {
                return write!(f, "{reason}; but with this MPI the library cannot advance persistent collectives of several rounds");
            }
            Reason::Intercommunicator => "the communicator is an intercommunicator",
            Reason::OneRank => "the communicator has one rank",
            Reason::Quota => "more than 64 communicators were used without bruckner_init: call bruckner_init after MPI_Init",
            Reason::Off => "the library is switched off (BRUCKNER=off)",
            Reason::OutsideWorld => "some ranks are outside MPI_COMM_WORLD",
            Reason::BeingFreed => "the communicator is being freed",
            Reason::NoTags => "no message tags are left for the communicator",
            Reason::Unprepared => "some rank has loaded a GPU runtime, or failed to prepare the communicator",
            Reason::FirstCalls => "the first calls on a communicator are passed through (BRUCKNER_AFTER)",
            Reason::NothingToDo => "a zero-byte call",
            Reason::Undefined => "the operation is not supported for this datatype",
            Reason::HugeElement => "an element of the datatype is larger than 4 GiB",
            Reason::EmptyElement => "the datatype contains no data",
            Reason::LeftToMpi => "invalid arguments: the MPI itself reports the error",
            Reason::Different => "ranks made different calls",
            Reason::UsersOperation => {
                "a persistent request with a user-defined operation: the program may free the operation before the last start"
            }
        })
    }
}

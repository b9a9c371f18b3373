//! Why a call is served by an algorithm, or goes to the MPI's own function.

use std::fmt;

/// The reason; the same on all ranks.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Reason {
    /// An algorithm, or `native`, was chosen.
    Chosen(bruckner_choose::Reason),
    /// The communicator has two groups.
    Intercommunicator,
    /// The communicator has one rank.
    OneRank,
    /// Too many communicators have a hidden one of their own.
    Quota,
    /// The settings say so.
    Off,
    /// Some ranks are of another world.
    OutsideWorld,
    /// The communicator is being freed: this is a callback of one of its attributes.
    BeingFreed,
    /// Tags are used up.
    NoTags,
    /// A rank could not prepare, or may have buffers in device memory.
    Unprepared,
    /// A communicator is served only after some calls.
    FirstCalls,
    /// Nobody gives anything to anybody.
    NothingToDo,
    /// The operation is not defined for the datatype.
    Undefined,
    /// An element of more than 4 GiB.
    HugeElement,
    /// Elements without data.
    EmptyElement,
    /// MPI itself is to judge the arguments.
    LeftToMpi,
    /// Ranks are in different calls.
    Different,
    /// A persistent request with an operation of the user's.
    UsersOperation,
    /// A persistent request for which an algorithm was chosen that nothing would advance here.
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
                return write!(f, "{reason}; nothing would advance a plan of several rounds here");
            }
            Reason::Intercommunicator => "an intercommunicator",
            Reason::OneRank => "one rank",
            Reason::Quota => "too many communicators without bruckner_init",
            Reason::Off => "BRUCKNER=off",
            Reason::OutsideWorld => "not inside MPI_COMM_WORLD",
            Reason::BeingFreed => "the communicator is being freed",
            Reason::NoTags => "no tags are left",
            Reason::Unprepared => "a rank has a GPU runtime loaded, or failed to prepare",
            Reason::FirstCalls => "the first calls on a communicator",
            Reason::NothingToDo => "there is nothing to do",
            Reason::Undefined => "the built-in operation is not known for this datatype",
            Reason::HugeElement => "an element of more than 4 GiB",
            Reason::EmptyElement => "elements without data",
            Reason::LeftToMpi => "arguments that are left to MPI",
            Reason::Different => "ranks make different calls",
            Reason::UsersOperation => "an operation of the user's, which may be freed before the last start",
        })
    }
}

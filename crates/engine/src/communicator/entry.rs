//! The entry of a communicator: whether the library handles its calls, its state, and its counters.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bruckner_report::Counters;

use super::Communicator;
use crate::account::CommCounters;
use crate::backend::Backend;
use crate::reason::Reason;

/// Whether the library handles the calls of a communicator.
pub(crate) enum Handling<B: Backend> {
    /// The library handles the calls. Contains the state of the communicator.
    Handled(Arc<Communicator<B>>),
    /// The calls are passed through, for a reason that all ranks share.
    PassedThrough(Reason),
    /// It is not decided yet whether the library handles the calls. Contains the number of calls so far.
    Pending(AtomicU32),
}

/// The value attached to a communicator: whether the library handles its calls, and its counters.
pub(crate) struct CommEntry<B: Backend> {
    pub(crate) handling: Handling<B>,
    /// Counters of the communicator's calls; `None` if there is to be no report.
    pub(crate) counted: Option<CommCounters>,
}

impl<B: Backend> CommEntry<B> {
    /// Creates the entry of a communicator that has had `calls` calls, before it is decided whether the library handles them.
    pub(crate) fn pending(calls: u32, counted: Option<CommCounters>) -> CommEntry<B> {
        CommEntry { handling: Handling::Pending(AtomicU32::new(calls)), counted }
    }

    /// Creates the entry that all communicators have while they are being freed.
    pub(crate) fn being_freed() -> Arc<CommEntry<B>> {
        Arc::new(CommEntry { handling: Handling::PassedThrough(Reason::BeingFreed), counted: None })
    }

    pub(crate) fn is_pending(&self) -> bool {
        matches!(self.handling, Handling::Pending(_))
    }

    /// Returns how many counts of a list are read for the key of a call: one for each rank, 0 if calls are passed through, `None` while
    /// that is undecided.
    #[inline]
    pub(crate) fn listed(&self) -> Option<u32> {
        match &self.handling {
            Handling::Handled(communicator) => Some(communicator.group.size),
            Handling::PassedThrough(_) => Some(0),
            Handling::Pending(_) => None,
        }
    }

    /// Returns the communicator's counters for the report, which only its first rank has.
    pub(crate) fn counters(&self) -> Option<&Arc<Counters>> {
        self.counted.as_ref()?.counters.as_ref()
    }
}

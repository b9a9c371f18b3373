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
    /// It does.
    Handled(Arc<Communicator<B>>),
    /// They are passed through, for a reason that all ranks share.
    PassedThrough(Reason),
    /// Not decided: the communicator has had this many calls.
    Pending(AtomicU32),
}

/// The entry of a communicator.
pub(crate) struct CommEntry<B: Backend> {
    pub(crate) handling: Handling<B>,
    /// How its calls are counted, if there is to be a report.
    pub(crate) counted: Option<CommCounters>,
}

impl<B: Backend> CommEntry<B> {
    /// Of a communicator that has had this many calls.
    pub(crate) fn pending(calls: u32, counted: Option<CommCounters>) -> CommEntry<B> {
        CommEntry { handling: Handling::Pending(AtomicU32::new(calls)), counted }
    }

    /// Of communicators that are being freed.
    pub(crate) fn being_freed() -> Arc<CommEntry<B>> {
        Arc::new(CommEntry { handling: Handling::PassedThrough(Reason::BeingFreed), counted: None })
    }

    pub(crate) fn is_pending(&self) -> bool {
        matches!(self.handling, Handling::Pending(_))
    }

    /// How many numbers of a list decide about a call: none where calls are passed through. Not known while that is undecided.
    #[inline]
    pub(crate) fn listed(&self) -> Option<u32> {
        match &self.handling {
            Handling::Handled(communicator) => Some(communicator.group.size),
            Handling::PassedThrough(_) => Some(0),
            Handling::Pending(_) => None,
        }
    }

    /// Its counters, on the rank that has them.
    pub(crate) fn counters(&self) -> Option<&Arc<Counters>> {
        self.counted.as_ref()?.counters.as_ref()
    }
}

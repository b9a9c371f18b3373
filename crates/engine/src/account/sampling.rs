//! The counters of a communicator, and the sampling of time that ranks wait for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bruckner_mpi::Function;
use bruckner_report::Counters;

use crate::call::{Amount, Call};

/// Of this many calls that synchronise all ranks, one begins with a barrier, which shows how long ranks wait for each other. A prime that few
/// programs' loops divide.
const SAMPLE_EVERY: u32 = 61;
/// The first sampled call, when a communicator's first calls are over.
const SAMPLE_OFFSET: u32 = 7;

/// How the calls of a communicator are counted for the report; on all of its ranks.
#[derive(Default)]
pub(crate) struct CommCounters {
    /// On its first rank.
    pub(crate) counters: Option<Arc<Counters>>,
    /// Whether all of its ranks are in `MPI_COMM_WORLD`, and so count as well.
    pub(crate) inside: bool,
    /// Calls that synchronise all ranks.
    calls: AtomicU32,
}

impl CommCounters {
    pub(crate) fn new(counters: Option<Arc<Counters>>, inside: bool) -> CommCounters {
        CommCounters { counters, inside, calls: AtomicU32::new(0) }
    }

    /// The same counters, with sampling begun anew.
    pub(crate) fn anew(&self) -> CommCounters {
        CommCounters::new(self.counters.clone(), self.inside)
    }

    /// Whether a call is to be sampled. Only calls that synchronise all ranks are, because all ranks count those alike.
    #[inline]
    pub(crate) fn is_sampled(&self, call: &Call) -> bool {
        synchronises(call) && self.calls.load(Ordering::Relaxed) % SAMPLE_EVERY == SAMPLE_OFFSET
    }

    /// Counts a call.
    #[inline]
    pub(crate) fn count(&self, call: &Call) {
        self.calls.fetch_add(u32::from(synchronises(call)), Ordering::Relaxed);
    }
}

/// Whether a call ends on no rank before it has begun on all, because each rank gives to all others.
#[inline]
fn synchronises(call: &Call) -> bool {
    use Function::{Allgather, Allreduce, Alltoall, ReduceScatterBlock};
    matches!(call.function, Allgather | Allreduce | Alltoall | ReduceScatterBlock)
        && !matches!(call.recv.amount, Amount::Each(0))
}

//! Counters of a communicator, and sampling of the time that ranks wait for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bruckner_mpi::Function;
use bruckner_report::Counters;

use crate::call::{Amount, Call};

/// Of the calls that synchronise all ranks, one in this many begins with a barrier, whose duration shows how long ranks wait for each
/// other. The number is prime, so that samples do not keep falling on the same call of a program's loop.
const SAMPLE_EVERY: u32 = 61;
/// Index of the first sampled call among a communicator's calls that synchronise all ranks. The first few calls are not sampled.
const SAMPLE_OFFSET: u32 = 7;

/// Counters of a communicator's calls. If there is to be a report, every rank of the communicator has them.
#[derive(Default)]
pub(crate) struct CommCounters {
    /// Counters for the report, on the communicator's first rank only.
    pub(crate) counters: Option<Arc<Counters>>,
    /// Whether all ranks of the communicator are in `MPI_COMM_WORLD`, so that all of them count its calls.
    pub(crate) inside: bool,
    /// Number of calls so far that synchronise all ranks.
    calls: AtomicU32,
}

impl CommCounters {
    pub(crate) fn new(counters: Option<Arc<Counters>>, inside: bool) -> CommCounters {
        CommCounters { counters, inside, calls: AtomicU32::new(0) }
    }

    /// Returns the same report counters with sampling restarted.
    pub(crate) fn anew(&self) -> CommCounters {
        CommCounters::new(self.counters.clone(), self.inside)
    }

    /// Whether a call is to be sampled: only calls that synchronise all ranks are, because all ranks count them alike.
    #[inline]
    pub(crate) fn is_sampled(&self, call: &Call) -> bool {
        synchronises(call) && self.calls.load(Ordering::Relaxed) % SAMPLE_EVERY == SAMPLE_OFFSET
    }

    /// Counts a call, if it synchronises all ranks.
    #[inline]
    pub(crate) fn count(&self, call: &Call) {
        self.calls.fetch_add(u32::from(synchronises(call)), Ordering::Relaxed);
    }
}

/// Whether no rank can leave the call before all ranks have entered it, because each rank sends data to all others.
#[inline]
fn synchronises(call: &Call) -> bool {
    use Function::{Allgather, Allreduce, Alltoall, ReduceScatterBlock};
    matches!(call.function, Allgather | Allreduce | Alltoall | ReduceScatterBlock)
        && !matches!(call.recv.amount, Amount::Each(0))
}

//! Counters of a persistent operation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bruckner_choose::Name;
use bruckner_report::{Counters, Event, Handler, Statistics};

use crate::reason::Reason;

/// Counts and times the executions of a persistent operation for the report.
pub(crate) struct OperationCounters {
    statistics: Arc<Statistics>,
    /// Counters of the communicator, on its first rank only.
    counters: Option<Arc<Counters>>,
    name: Name,
    /// Start of the execution that is under way.
    started: Mutex<Option<Instant>>,
}

impl OperationCounters {
    pub(crate) fn new(statistics: Arc<Statistics>, counters: Option<Arc<Counters>>, name: Name) -> OperationCounters {
        OperationCounters { statistics, counters, name, started: Mutex::default() }
    }

    fn started(&self) -> MutexGuard<'_, Option<Instant>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the start of an execution.
    pub(crate) fn begin(&self) {
        *self.started() = Some(Instant::now());
    }

    /// Whether an execution has begun and not ended.
    pub(crate) fn is_under_way(&self) -> bool {
        self.started().is_some()
    }

    /// Records the end of the execution that is under way, if there is one. If `inside`, the rank was in the collective all the time.
    /// Otherwise it may have computed meanwhile, and the time does not count as time in collectives.
    pub(crate) fn end(&self, algorithm: &str, why: &Reason, bytes: u64, inside: bool) {
        let Some(start) = self.started().take() else { return };
        let took = start.elapsed();
        if inside {
            self.statistics.add_time(took, None);
        }
        self.count(algorithm, why, bytes, took.as_secs_f64());
    }

    /// Counts an execution by its algorithm, reason, bytes and duration.
    pub(crate) fn count(&self, algorithm: &str, why: &Reason, bytes: u64, seconds: f64) {
        if let Some(counters) = &self.counters {
            let why = why.to_string();
            let by = Handler::Named(algorithm, &why);
            counters.add(&Event { name: self.name, persistent: true, by, bytes, seconds });
        }
    }
}

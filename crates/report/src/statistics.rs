//! Counters of a running program.
//!
//! The first rank of each communicator keeps its [`Counters`]. Every rank adds up the time that it spends in collectives. Counters of
//! freed communicators are merged by size and topology, so that thousands of freed communicators take no memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bruckner_choose::{Choice, Name};
use serde::{Deserialize, Serialize};

use crate::record::{Evidence, Record, Timings, merge_into};

/// The algorithm that handled a call, and the reason for it.
pub enum Handler<'a> {
    /// An algorithm that the library chose, with its reason.
    Choice(&'a Arc<Choice>),
    /// Any other handler: the algorithm and the reason as text.
    Named(&'a str, &'a str),
}

/// One call of a collective, as the counters record it.
pub struct Event<'a> {
    /// Collective that was called.
    pub name: Name,
    /// Whether the call starts a persistent operation.
    pub persistent: bool,
    /// Algorithm that handled the call, with the reason.
    pub by: Handler<'a>,
    /// Bytes of the largest block or of the vector; 0 if each rank knows only its own sizes (alltoallv).
    pub bytes: u64,
    /// Duration of the call on this rank, in seconds.
    pub seconds: f64,
}

/// A record, with the rows of recently used choices, so that a choice is not formatted as text again for every call.
struct CachedRows {
    record: Record,
    recent: Vec<(Name, Arc<Choice>, usize)>,
}

/// Maximum number of choices in [`CachedRows::recent`].
const RECENT: usize = 64;

impl CachedRows {
    fn add(&mut self, event: &Event<'_>) {
        let CachedRows { record, recent } = self;
        let row = match event.by {
            Handler::Choice(choice) => {
                let known = recent.iter().find(|(name, one, _)| *name == event.name && Arc::ptr_eq(one, choice));
                match known {
                    Some((.., row)) => *row,
                    None => {
                        let words = (choice.expression.to_string(), choice.reason.to_string());
                        let evidence = Evidence::of(&choice.reason);
                        let row = record.row(event.name, event.persistent, words, evidence);
                        if recent.len() >= RECENT {
                            recent.clear();
                        }
                        recent.push((event.name, choice.clone(), row));
                        row
                    }
                }
            }
            Handler::Named(algorithm, why) => {
                let words = (algorithm.to_owned(), why.to_owned());
                record.row(event.name, event.persistent, words, Evidence::Other)
            }
        };
        record.rows[row].count(event.bytes, event.seconds);
    }
}

/// The counters of a communicator.
pub struct Counters {
    statistics: Arc<Statistics>,
    rows: Mutex<CachedRows>,
}

impl Counters {
    fn rows(&self) -> MutexGuard<'_, CachedRows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call.
    pub fn add(&self, event: &Event<'_>) {
        self.rows().add(event);
    }

    /// Sets the communicator's topology and the text of its calibration.
    pub fn set_topology(&self, topology: &str, calibration: &str) {
        let record = &mut self.rows().record;
        topology.clone_into(&mut record.topology);
        calibration.clone_into(&mut record.calibration);
    }

    /// Stores the times of a trial: seconds per call of each algorithm that the trial compared. `equal` says whether all ranks had blocks
    /// of the same size.
    pub fn add_trial(&self, name: Name, bytes: u64, equal: bool, times: &[(Arc<Choice>, f64)]) {
        let times = times.iter().map(|(choice, time)| (choice.expression.to_string(), *time)).collect();
        let (collective, exact) = (name.text().to_owned(), if equal { bytes } else { 0 });
        let timings = Timings { collective, bytes: bytes.next_power_of_two(), exact, times };
        self.rows().record.set_timings(timings);
    }

    /// Counts a result that was compared with that of the MPI's own function.
    pub fn add_check(&self, same: bool) {
        let checks = &mut self.rows().record.checks;
        checks.compared += 1;
        checks.differed += u64::from(!same);
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        let record = self.rows().record.clone();
        self.statistics.lock().retire(record);
    }
}

/// The time that this rank spent in collectives, in nanoseconds.
#[derive(Default)]
struct TimeCounters {
    all: AtomicU64,
    /// Total time in the barriers of sampled calls. A sampled call begins with a barrier, which shows how long the rank waits for others.
    /// `shortest` is the time of the shortest of these barriers, `samples` the number of sampled calls, and `calls` the time in these
    /// calls without the barriers.
    barriers: AtomicU64,
    shortest: AtomicU64,
    samples: AtomicU64,
    calls: AtomicU64,
}

/// Time that one rank spent in collectives, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RankTime {
    pub(crate) seconds: f64,
    /// Times of sampled calls, from which the time spent waiting for other ranks is estimated; `None` if no call was sampled.
    pub(crate) waits: Option<Waiting>,
}

/// Times of sampled calls, each of which begins with a barrier: total seconds in the barriers (`waited`), seconds in the shortest barrier,
/// number of samples, and total seconds in the calls without the barriers (`worked`).
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Waiting {
    waited: f64,
    pub(crate) shortest: f64,
    number: f64,
    worked: f64,
}

impl Waiting {
    /// Returns the fraction of the time of sampled calls that the rank spent waiting, if a barrier takes `barrier` seconds when no rank is
    /// late.
    pub(crate) fn share(&self, barrier: f64) -> f64 {
        let waited = (self.waited - self.number * barrier).max(0.0);
        waited / (waited + self.worked).max(1e-9)
    }
}

impl TimeCounters {
    fn time(&self) -> RankTime {
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed) as f64;
        let seconds = |number: &AtomicU64| count(number) * 1e-9;
        let number = count(&self.samples);
        let waits = (number > 0.0).then(|| Waiting {
            waited: seconds(&self.barriers),
            shortest: seconds(&self.shortest),
            number,
            worked: seconds(&self.calls),
        });
        RankTime { seconds: seconds(&self.all), waits }
    }
}

/// Statistics of one process, in the form in which rank 0 receives them.
#[derive(Serialize, Deserialize)]
pub(crate) struct RankReport {
    pub(crate) spent: RankTime,
    pub(crate) records: Vec<Record>,
}

/// The statistics of a process: the counters of its communicators, and its time in collectives.
pub struct Statistics {
    communicators: Mutex<Communicators>,
    clock: TimeCounters,
    began: Instant,
}

impl Default for Statistics {
    fn default() -> Statistics {
        Statistics { communicators: Mutex::default(), clock: TimeCounters::default(), began: Instant::now() }
    }
}

#[derive(Default)]
struct Communicators {
    live: Vec<Weak<Counters>>,
    freed: Vec<Record>,
}

impl Communicators {
    fn retire(&mut self, mut record: Record) {
        self.live.retain(|counters| counters.strong_count() > 0);
        if record.communicator.is_empty() {
            record.communicator = "freed".into();
        }
        if !record.rows.is_empty() {
            merge_into(&mut self.freed, record, Record::merge);
        }
    }
}

impl Statistics {
    fn lock(&self) -> MutexGuard<'_, Communicators> {
        self.communicators.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the counters of a communicator.
    pub fn open(self: &Arc<Statistics>, communicator: &str, ranks: u32) -> Arc<Counters> {
        let rows = CachedRows { record: Record::new(communicator, ranks), recent: Vec::new() };
        let counters = Arc::new(Counters { statistics: self.clone(), rows: Mutex::new(rows) });
        self.lock().live.push(Arc::downgrade(&counters));
        counters
    }

    /// Returns the seconds since these statistics were created.
    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Adds the time of a call. `waited` is the time in the barrier before a sampled call, and is included in `all`.
    pub fn add_time(&self, all: Duration, waited: Option<Duration>) {
        let (all, clock) = (all.as_nanos() as u64, &self.clock);
        clock.all.fetch_add(all, Ordering::Relaxed);
        if let Some(waited) = waited.map(|waited| waited.as_nanos() as u64) {
            let first = clock.samples.fetch_add(1, Ordering::Relaxed) == 0;
            match first {
                true => clock.shortest.store(waited, Ordering::Relaxed),
                false => _ = clock.shortest.fetch_min(waited, Ordering::Relaxed),
            }
            clock.barriers.fetch_add(waited, Ordering::Relaxed);
            clock.calls.fetch_add(all.saturating_sub(waited), Ordering::Relaxed);
        }
    }

    /// Returns the statistics as JSON text, from which rank 0 assembles the [`Report`](crate::Report).
    pub fn text(&self) -> String {
        let live: Vec<Arc<Counters>> = self.lock().live.iter().filter_map(Weak::upgrade).collect();
        let mut records = Vec::new();
        for counters in &live {
            let record = counters.rows().record.clone();
            if !record.rows.is_empty() {
                merge_into(&mut records, record, Record::merge);
            }
        }
        drop(live);
        let freed = self.lock().freed.clone();
        freed.into_iter().for_each(|record| merge_into(&mut records, record, Record::merge));
        serde_json::to_string(&RankReport { spent: self.clock.time(), records }).unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn live_counters(&self) -> usize {
        self.lock().live.len()
    }
}

//! Where calls are noted while a program runs.
//!
//! Each communicator has a [`Ledger`]; the rank that is its first keeps it for all. Every rank adds up how long it was in collectives.
//! At finalize the books of all ranks come to rank 0, which writes the report. Communicators that were freed are added up by their size
//! and topology, so that thousands of them take no room.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bruckner_choose::{Choice, Name};
use serde::{Deserialize, Serialize};

use super::record::{Ground, Record, Seen, merge_into};

/// What served a call.
pub(crate) enum By<'a> {
    /// What was chosen.
    Choice(&'a Arc<Choice>),
    /// Something else: an algorithm, and why, in words.
    Words(&'a str, &'a str),
}

/// One call, as the ledger sees it.
pub(crate) struct Event<'a> {
    pub(crate) name: Name,
    pub(crate) persistent: bool,
    pub(crate) by: By<'a>,
    /// The largest block, or the vector; 0 where only ranks know their own.
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

/// A record, and the rows of choices that were met before: these need not be put into words again.
struct Page {
    record: Record,
    met: Vec<(Name, Arc<Choice>, usize)>,
}

/// So many choices are remembered.
const MET: usize = 64;

impl Page {
    fn add(&mut self, event: &Event<'_>) {
        let Page { record, met } = self;
        let row = match event.by {
            By::Choice(choice) => {
                let known = met.iter().find(|(name, one, _)| *name == event.name && Arc::ptr_eq(one, choice));
                match known {
                    Some((.., row)) => *row,
                    None => {
                        let words = (choice.expression.to_string(), choice.reason.to_string());
                        let ground = Ground::of(&choice.reason);
                        let row = record.row(event.name, event.persistent, words, ground);
                        if met.len() >= MET {
                            met.clear();
                        }
                        met.push((event.name, choice.clone(), row));
                        row
                    }
                }
            }
            By::Words(algorithm, why) => {
                let words = (algorithm.to_owned(), why.to_owned());
                record.row(event.name, event.persistent, words, Ground::Other)
            }
        };
        record.rows[row].count(event.bytes, event.seconds);
    }
}

/// The ledger of a communicator.
pub(crate) struct Ledger {
    books: Arc<Books>,
    page: Mutex<Page>,
}

impl Ledger {
    fn page(&self) -> MutexGuard<'_, Page> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, event: &Event<'_>) {
        self.page().add(event);
    }

    /// Where the communicator's ranks are, and what messages take there, once that is known.
    pub(crate) fn placed(&self, topology: &str, measured: &str) {
        let record = &mut self.page().record;
        topology.clone_into(&mut record.topology);
        measured.clone_into(&mut record.measured);
    }

    /// What was seen when algorithms were compared.
    pub(crate) fn seen(&self, name: Name, bytes: u64, equal: bool, times: &[(Arc<Choice>, f64)]) {
        let times = times.iter().map(|(choice, time)| (choice.expression.to_string(), *time)).collect();
        let (collective, exact) = (name.text().to_owned(), if equal { bytes } else { 0 });
        let seen = Seen { collective, bytes: bytes.next_power_of_two(), exact, times };
        self.page().record.saw(seen);
    }

    pub(crate) fn checked(&self, same: bool) {
        let checks = &mut self.page().record.checks;
        checks.compared += 1;
        checks.differed += u64::from(!same);
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let record = self.page().record.clone();
        self.books.lock().retire(record);
    }
}

/// How long this rank was in collectives, in nanoseconds; and of some of the calls, how long it waited for others before they began.
#[derive(Default)]
struct Tally {
    spent: AtomicU64,
    /// Of calls that began with a barrier: what the barriers took, the shortest of them, how many there were, and what the calls took.
    waited: AtomicU64,
    shortest: AtomicU64,
    waits: AtomicU64,
    worked: AtomicU64,
}

/// What a rank spent in collectives.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Spent {
    pub(super) seconds: f64,
    /// What was seen of waiting for others, where that was looked at.
    pub(super) waits: Option<Waits>,
}

/// Of calls that began with a barrier: what barriers took, the shortest of them, how many there were, and what the calls took. In seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Waits {
    waited: f64,
    pub(super) shortest: f64,
    number: f64,
    worked: f64,
}

impl Waits {
    /// Which part of the calls was waiting, if a barrier takes so long where nobody is late.
    pub(super) fn part(&self, barrier: f64) -> f64 {
        let waited = (self.waited - self.number * barrier).max(0.0);
        waited / (waited + self.worked).max(1e-9)
    }
}

impl Tally {
    fn spent(&self) -> Spent {
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed) as f64;
        let seconds = |number: &AtomicU64| count(number) * 1e-9;
        let number = count(&self.waits);
        let waits = (number > 0.0).then(|| Waits {
            waited: seconds(&self.waited),
            shortest: seconds(&self.shortest),
            number,
            worked: seconds(&self.worked),
        });
        Spent { seconds: seconds(&self.spent), waits }
    }
}

/// What a process has to tell the first.
#[derive(Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) spent: Spent,
    pub(super) records: Vec<Record>,
}

/// The ledgers of a process.
pub(crate) struct Books {
    shelf: Mutex<Shelf>,
    tally: Tally,
    began: Instant,
}

impl Default for Books {
    fn default() -> Books {
        Books { shelf: Mutex::default(), tally: Tally::default(), began: Instant::now() }
    }
}

#[derive(Default)]
struct Shelf {
    live: Vec<Weak<Ledger>>,
    retired: Vec<Record>,
}

impl Shelf {
    fn retire(&mut self, mut record: Record) {
        self.live.retain(|ledger| ledger.strong_count() > 0);
        if record.communicator.is_empty() {
            record.communicator = "freed".into();
        }
        if !record.rows.is_empty() {
            merge_into(&mut self.retired, record, Record::merge);
        }
    }
}

impl Books {
    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A ledger for a communicator.
    pub(crate) fn open(self: &Arc<Books>, communicator: &str, ranks: u32) -> Arc<Ledger> {
        let page = Page { record: Record::new(communicator, ranks), met: Vec::new() };
        let ledger = Arc::new(Ledger { books: self.clone(), page: Mutex::new(page) });
        self.lock().live.push(Arc::downgrade(&ledger));
        ledger
    }

    /// How long they have been kept, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Adds what this rank spent in a call; and which part of that was waiting for others, where that was looked at.
    pub(crate) fn spent(&self, all: Duration, waited: Option<Duration>) {
        let (all, tally) = (all.as_nanos() as u64, &self.tally);
        tally.spent.fetch_add(all, Ordering::Relaxed);
        if let Some(waited) = waited.map(|waited| waited.as_nanos() as u64) {
            let first = tally.waits.fetch_add(1, Ordering::Relaxed) == 0;
            match first {
                true => tally.shortest.store(waited, Ordering::Relaxed),
                false => _ = tally.shortest.fetch_min(waited, Ordering::Relaxed),
            }
            tally.waited.fetch_add(waited, Ordering::Relaxed);
            tally.worked.fetch_add(all.saturating_sub(waited), Ordering::Relaxed);
        }
    }

    /// All that they say as text for [`Report::join`](super::Report).
    pub(crate) fn text(&self) -> String {
        let live: Vec<Arc<Ledger>> = self.lock().live.iter().filter_map(Weak::upgrade).collect();
        let mut records = Vec::new();
        for ledger in &live {
            let record = ledger.page().record.clone();
            if !record.rows.is_empty() {
                merge_into(&mut records, record, Record::merge);
            }
        }
        drop(live);
        let retired = self.lock().retired.clone();
        retired.into_iter().for_each(|record| merge_into(&mut records, record, Record::merge));
        serde_json::to_string(&Told { spent: self.tally.spent(), records }).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn open_ledgers(&self) -> usize {
        self.lock().live.len()
    }
}

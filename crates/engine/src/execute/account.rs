//! What the report is told of an operation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bruckner_choose::Name;

use crate::observe::{Books, By, Event, Ledger};
use crate::reason::Reason;

/// Where the executions of an operation are counted.
pub(crate) struct Account {
    books: Arc<Books>,
    /// On the communicator's first rank.
    ledger: Option<Arc<Ledger>>,
    name: Name,
    /// Since when it is under way.
    started: Mutex<Option<Instant>>,
}

impl Account {
    pub(crate) fn new(books: Arc<Books>, ledger: Option<Arc<Ledger>>, name: Name) -> Account {
        Account { books, ledger, name, started: Mutex::default() }
    }

    fn started(&self) -> MutexGuard<'_, Option<Instant>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An execution begins.
    pub(super) fn begin(&self) {
        *self.started() = Some(Instant::now());
    }

    /// The one that began is over, if that was not told yet. Whether the rank was in the collective all the time; otherwise it may have
    /// worked meanwhile.
    pub(super) fn end(&self, algorithm: &str, why: &Reason, bytes: u64, inside: bool) {
        let Some(start) = self.started().take() else { return };
        let took = start.elapsed();
        if inside {
            self.books.spent(took, None);
        }
        if let Some(ledger) = &self.ledger {
            let (why, seconds) = (why.to_string(), took.as_secs_f64());
            let by = By::Words(algorithm, &why);
            ledger.add(&Event { name: self.name, persistent: true, by, bytes, seconds });
        }
    }
}

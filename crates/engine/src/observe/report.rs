//! The report: which algorithm ran, and why.
//!
//! Each communicator has a [`Ledger`]; the rank that is its first keeps it for all. At finalize the ledgers of all ranks
//! come to rank 0, which writes them. Communicators that were freed are added up by their size and topology, so that
//! thousands of them take no room.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use bruckner_choose::{Choice, Name, Reason};
use serde::{Deserialize, Serialize};

/// What a choice rests on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ground {
    /// A rule, a user's word, or that there is no other.
    #[default]
    Other,
    /// A race.
    Raced,
    /// The model.
    Predicted,
    /// What was seen in this run.
    Watched,
}

impl Ground {
    pub(crate) fn of(reason: &Reason) -> Ground {
        match reason {
            Reason::Raced { .. } => Ground::Raced,
            Reason::Predicted(_) | Reason::NotWorth { .. } => Ground::Predicted,
            Reason::Watched { .. } => Ground::Watched,
            _ => Ground::Other,
        }
    }
}

/// What one algorithm did for one collective on one communicator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(super) collective: String,
    /// Whether calls were starts of persistent requests.
    persistent: bool,
    algorithm: String,
    why: String,
    /// What the choice rests on.
    #[serde(default)]
    pub(super) ground: Ground,
    calls: u64,
    /// Of all calls: the largest block, or the vector.
    bytes: u64,
    /// Calls by size: `(bytes, calls)`, where bytes is the next power of two.
    sizes: Vec<(u64, u64)>,
    pub(super) seconds: f64,
    /// What native would have taken longer, as far as it was measured beside.
    #[serde(default)]
    saved: Option<f64>,
}

/// How many results were compared with native, and how many of them differed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Checks {
    pub(crate) compared: u64,
    pub(crate) differed: u64,
}

/// How long algorithms took for calls of about one size, measured one beside the other.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(super) collective: String,
    /// The next power of two.
    bytes: u64,
    /// What calls really had; 0 where ranks had different amounts.
    #[serde(default)]
    exact: u64,
    /// Algorithms, and seconds for a call.
    times: Vec<(String, f64)>,
}

/// One communicator, or several alike that were freed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    communicator: String,
    pub(super) communicators: u64,
    ranks: u32,
    pub(super) topology: String,
    /// What messages were found to take when it was first used.
    #[serde(default)]
    measured: String,
    checks: Checks,
    pub(super) rows: Vec<Row>,
    /// For each collective and size the last.
    #[serde(default)]
    pub(super) seen: Vec<Seen>,
}

/// One call, as the ledger sees it.
pub(crate) struct Event<'a> {
    pub(crate) name: Name,
    pub(crate) persistent: bool,
    pub(crate) algorithm: &'a str,
    pub(crate) why: &'a str,
    pub(crate) ground: Ground,
    /// The largest block, or the vector; 0 where only ranks know their own.
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

impl Record {
    fn add(&mut self, event: &Event<'_>) {
        let same = |row: &&mut Row| {
            row.collective == event.name.text()
                && row.persistent == event.persistent
                && row.algorithm == event.algorithm
                && row.why == event.why
        };
        let new = Row {
            collective: event.name.text().to_owned(),
            persistent: event.persistent,
            algorithm: event.algorithm.to_owned(),
            why: event.why.to_owned(),
            ground: event.ground,
            calls: 0,
            bytes: 0,
            sizes: Vec::new(),
            seconds: 0.0,
            saved: None,
        };
        let row = match self.rows.iter_mut().find(same) {
            Some(row) => row,
            None => {
                self.rows.push(new);
                self.rows.last_mut().expect("just put there")
            }
        };
        row.calls += 1;
        row.bytes += event.bytes;
        row.seconds += event.seconds;
        count(&mut row.sizes, event.bytes.next_power_of_two() * u64::from(event.bytes > 0), 1);
    }

    /// Keeps what was seen last of a collective and size.
    fn saw(&mut self, seen: Seen) {
        let same = |other: &Seen| other.collective == seen.collective && other.bytes == seen.bytes;
        self.seen.retain(|other| !same(other));
        self.seen.push(seen);
    }

    /// What native would have taken longer for all calls of a row, in seconds, as far as it was measured.
    fn saved(&self, row: &Row) -> Option<f64> {
        if row.algorithm == "native" || row.persistent {
            return None;
        }
        let of = |size: u64, algorithm: &str| {
            let seen =
                self.seen.iter().find(|seen| seen.collective == row.collective && seen.bytes == size)?;
            seen.times.iter().find(|(name, _)| name == algorithm).map(|(_, time)| *time)
        };
        let each = row.sizes.iter().filter_map(|(size, calls)| {
            Some(*calls as f64 * (of(*size, "native")? - of(*size, &row.algorithm)?))
        });
        each.reduce(|a, b| a + b)
    }

    /// Adds another record's rows.
    fn merge(&mut self, other: Record) {
        other.seen.into_iter().for_each(|seen| self.saw(seen));
        self.communicators += other.communicators;
        self.checks.compared += other.checks.compared;
        self.checks.differed += other.checks.differed;
        for row in other.rows {
            let same = |mine: &&mut Row| {
                (&mine.collective, mine.persistent, &mine.algorithm, &mine.why)
                    == (&row.collective, row.persistent, &row.algorithm, &row.why)
            };
            match self.rows.iter_mut().find(same) {
                Some(mine) => {
                    mine.calls += row.calls;
                    mine.bytes += row.bytes;
                    mine.seconds += row.seconds;
                    row.sizes.iter().for_each(|(size, calls)| count(&mut mine.sizes, *size, *calls));
                }
                None => self.rows.push(row),
            }
        }
    }

    fn is_like(&self, other: &Record) -> bool {
        (&self.communicator, self.ranks, &self.topology)
            == (&other.communicator, other.ranks, &other.topology)
    }
}

fn count(sizes: &mut Vec<(u64, u64)>, size: u64, calls: u64) {
    match sizes.binary_search_by_key(&size, |(size, _)| *size) {
        Ok(at) => sizes[at].1 += calls,
        Err(at) => sizes.insert(at, (size, calls)),
    }
}

fn merge_into(records: &mut Vec<Record>, record: Record) {
    match records.iter_mut().find(|other| other.is_like(&record)) {
        Some(other) => other.merge(record),
        None => records.push(record),
    }
}

/// The ledger of a communicator.
pub(crate) struct Ledger {
    books: Arc<Books>,
    record: Mutex<Record>,
}

impl Ledger {
    pub(crate) fn add(&self, event: &Event<'_>) {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).add(event);
    }

    /// Where the communicator's ranks are, and what messages take there, once that is known.
    pub(crate) fn placed(&self, topology: &str, measured: &str) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        topology.clone_into(&mut record.topology);
        measured.clone_into(&mut record.measured);
    }

    /// What was seen when algorithms were compared.
    pub(crate) fn seen(&self, name: Name, bytes: u64, equal: bool, times: &[(Arc<Choice>, f64)]) {
        let times = times.iter().map(|(choice, time)| (choice.expression.to_string(), *time)).collect();
        let (collective, exact) = (name.text().to_owned(), if equal { bytes } else { 0 });
        let seen = Seen { collective, bytes: bytes.next_power_of_two(), exact, times };
        self.record.lock().unwrap_or_else(PoisonError::into_inner).saw(seen);
    }

    pub(crate) fn checked(&self, same: bool) {
        let checks = &mut self.record.lock().unwrap_or_else(PoisonError::into_inner).checks;
        checks.compared += 1;
        checks.differed += u64::from(!same);
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let record = self.record.get_mut().unwrap_or_else(PoisonError::into_inner).clone();
        self.books.lock().retire(record);
    }
}

/// The ledgers of a process.
pub(crate) struct Books {
    shelf: Mutex<Shelf>,
    began: Instant,
}

impl Default for Books {
    fn default() -> Books {
        Books { shelf: Mutex::default(), began: Instant::now() }
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
            merge_into(&mut self.retired, record);
        }
    }
}

impl Books {
    fn lock(&self) -> std::sync::MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A ledger for a communicator.
    pub(crate) fn open(self: &Arc<Books>, communicator: &str, ranks: u32) -> Arc<Ledger> {
        let record = Record {
            communicator: communicator.to_owned(),
            communicators: 1,
            ranks,
            topology: String::new(),
            measured: String::new(),
            checks: Checks::default(),
            rows: Vec::new(),
            seen: Vec::new(),
        };
        let ledger = Arc::new(Ledger { books: self.clone(), record: Mutex::new(record) });
        self.lock().live.push(Arc::downgrade(&ledger));
        ledger
    }

    /// How long they have been kept, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// All records as text for [`join`].
    pub(crate) fn text(&self) -> String {
        let live: Vec<Arc<Ledger>> = self.lock().live.iter().filter_map(Weak::upgrade).collect();
        let mut records = Vec::new();
        for ledger in &live {
            let record = ledger.record.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if !record.rows.is_empty() {
                merge_into(&mut records, record);
            }
        }
        drop(live);
        let retired = self.lock().retired.clone();
        retired.into_iter().for_each(|record| merge_into(&mut records, record));
        serde_json::to_string(&records).unwrap_or_default()
    }
}

/// What the report says.
#[derive(Serialize)]
pub(crate) struct Whole {
    bruckner: &'static str,
    mpi: String,
    mode: String,
    calls: u64,
    served: u64,
    /// How long the program ran.
    pub(super) seconds: f64,
    /// What was saved of that, as far as native was measured beside.
    saved: Option<f64>,
    /// What might be done about it.
    pub(super) advice: Vec<String>,
    complaints: Vec<String>,
    pub(super) communicators: Vec<Record>,
}

/// The whole report, of the texts of all ranks.
pub(crate) fn join(texts: &[String], mpi: &str, mode: &str, seconds: f64, complaints: &[String]) -> Whole {
    let mut records: Vec<Record> = Vec::new();
    for text in texts {
        let some: Vec<Record> = serde_json::from_str(text).unwrap_or_default();
        some.into_iter().for_each(|record| merge_into(&mut records, record));
    }
    let rows = || records.iter().flat_map(|record| &record.rows);
    let calls = rows().map(|row| row.calls).sum();
    let served = rows().filter(|row| row.algorithm != "native").map(|row| row.calls).sum();
    // Of each row, too.
    for record in &mut records {
        let saved: Vec<Option<f64>> = record.rows.iter().map(|row| record.saved(row)).collect();
        record.rows.iter_mut().zip(saved).for_each(|(row, saved)| row.saved = saved);
    }
    let saved = records.iter().flat_map(|record| &record.rows).filter_map(|row| row.saved);
    Whole {
        bruckner: env!("CARGO_PKG_VERSION"),
        mpi: mpi.to_owned(),
        mode: mode.to_owned(),
        calls,
        served,
        seconds,
        saved: saved.reduce(|a, b| a + b),
        advice: Vec::new(),
        complaints: complaints.to_vec(),
        communicators: records,
    }
}

impl Whole {
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let share = 100.0 * self.served as f64 / (self.calls.max(1)) as f64;
        let _ = writeln!(
            text,
            "bruckner {}: {}, BRUCKNER={}: {} of {} calls served ({share:.1} %)",
            self.bruckner, self.mpi, self.mode, self.served, self.calls
        );
        if let Some(saved) = self.saved {
            let (what, much) = if saved < 0.0 { ("lost", -saved) } else { ("saved", saved) };
            let without = self.seconds + saved;
            let part = 100.0 * much / without.max(1e-9);
            let _ = writeln!(
                text,
                "{what} about {much:.3} s, {part:.1} % of the {without:.1} s that it would have taken without, as far as native was measured beside"
            );
        }
        for record in &self.communicators {
            let which = match (record.communicator.as_str(), record.communicators) {
                ("", 1) => "one communicator".to_owned(),
                ("", n) => format!("{n} communicators"),
                ("freed", n) => format!("{n} freed"),
                (name, _) => name.to_owned(),
            };
            let _ = writeln!(text, "{which}, {} ranks{}", record.ranks, and(&record.topology));
            if !record.measured.is_empty() {
                let _ = writeln!(text, "  measured at first use, {}", record.measured);
            }
            if record.checks.compared > 0 {
                let Checks { compared, differed } = record.checks;
                let _ = writeln!(text, "  {compared} results were compared with native, {differed} differed");
            }
            let head = ["collective", "calls", "bytes each", "seconds", "saved", "algorithm"];
            let _ = writeln!(
                text,
                "  {:<15} {:>9} {:>15} {:>10} {:>10}  {:<18} why",
                head[0], head[1], head[2], head[3], head[4], head[5]
            );
            for row in &record.rows {
                let name = format!("{}{}", row.collective, if row.persistent { "_init" } else { "" });
                let _ = writeln!(
                    text,
                    "  {name:<15} {:>9} {:>15} {:>10.6} {:>10}  {:<18} {}",
                    row.calls,
                    sizes(&row.sizes),
                    row.seconds,
                    row.saved.map_or_else(|| "-".to_owned(), |saved| format!("{saved:+.6}")),
                    row.algorithm,
                    row.why
                );
            }
        }
        for advice in &self.advice {
            let _ = writeln!(text, "advice: {advice}");
        }
        text
    }
}

fn and(topology: &str) -> String {
    if topology.is_empty() { String::new() } else { format!(" as {topology}") }
}

fn sizes(sizes: &[(u64, u64)]) -> String {
    let short = |bytes: u64| match bytes {
        0..1024 => format!("{bytes}"),
        1024..1_048_576 => format!("{}K", bytes >> 10),
        _ => format!("{}M", bytes >> 20),
    };
    match (sizes.first(), sizes.last()) {
        (Some(first), Some(last)) if first.0 != last.0 => format!("{} to {}", short(first.0), short(last.0)),
        (Some(only), _) => format!("up to {}", short(only.0)),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event<'a>(algorithm: &'a str, why: &'a str, bytes: u64) -> Event<'a> {
        let ground = Ground::Other;
        Event { name: Name::Allreduce, persistent: false, algorithm, why, ground, bytes, seconds: 0.5 }
    }

    #[test]
    fn freed_communicators_are_added_up_and_ranks_joined() {
        let books = Arc::new(Books::default());
        let open = |name: &str, ranks, topology: &str| {
            let ledger = books.open(name, ranks);
            ledger.placed(topology, "");
            ledger
        };
        let world = open("MPI_COMM_WORLD", 4, "1x4");
        world.add(&event("shm", "short", 8));
        world.add(&event("shm", "short", 100));
        world.add(&event("native", "long", 1 << 20));
        for _ in 0..1000 {
            open("", 2, "1x2").add(&event("native", "first calls", 0));
        }
        assert_eq!(books.lock().live.len(), 1, "only the world");
        let other = r#"[{"communicator":"freed","communicators":1,"ranks":2,"topology":"1x2",
            "checks":{"compared":1,"differed":0},"rows":[]}]"#;
        let whole = join(&[books.text(), other.into()], "MPICH 5", "on", 2.0, &[]);
        assert_eq!((whole.calls, whole.served), (1003, 2));
        assert_eq!(whole.communicators.len(), 2);
        let rows = &whole.communicators[0].rows;
        assert_eq!((rows[0].calls, rows[0].bytes, rows[0].seconds), (2, 108, 1.0));
        assert_eq!(rows[0].sizes, [(8, 1), (128, 1)]);
        assert_eq!(whole.communicators[1].communicators, 1001);
        let table = whole.table();
        assert!(table.contains("MPI_COMM_WORLD, 4 ranks as 1x4"), "{table}");
        assert!(table.contains("1001 freed, 2 ranks as 1x2"), "{table}");
        assert!(
            table.contains("allreduce               2        8 to 128   1.000000          -  shm"),
            "{table}"
        );
        assert!(serde_json::from_str::<serde_json::Value>(&whole.json()).is_ok());
    }
}

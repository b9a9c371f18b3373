//! Records of calls: for each communicator, rows by collective, algorithm and reason.

use bruckner_choose::{Name, Reason};
use serde::{Deserialize, Serialize};

/// The evidence for a choice.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    /// A rule, a user's word, or that there is no other.
    #[default]
    Other,
    /// A race.
    Raced,
    /// The model.
    Predicted,
    /// A measurement of this run.
    Watched,
}

impl Evidence {
    pub(crate) fn of(reason: &Reason) -> Evidence {
        match reason {
            Reason::Raced { .. } => Evidence::Raced,
            Reason::Predicted(_) | Reason::NotWorth { .. } => Evidence::Predicted,
            Reason::Watched { .. } => Evidence::Watched,
            _ => Evidence::Other,
        }
    }
}

/// The calls of one collective on one communicator that one algorithm handled for one reason.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The collective, by its name.
    pub collective: String,
    /// Whether calls were starts of persistent requests.
    pub persistent: bool,
    /// The algorithm: an expression, or `native`.
    pub algorithm: String,
    /// Why, in words.
    pub why: String,
    /// The evidence for the choice.
    #[serde(default)]
    #[serde(rename = "ground")]
    pub evidence: Evidence,
    /// How many calls there were.
    pub calls: u64,
    /// Of all calls: the largest block, or the vector.
    pub bytes: u64,
    /// Calls by size: `(bytes, calls)`, where bytes is the next power of two.
    pub sizes: Vec<(u64, u64)>,
    /// How long all of them took on the communicator's first rank.
    pub seconds: f64,
    /// Seconds that the MPI's own function would have taken longer, where that was measured.
    #[serde(default)]
    pub saved: Option<f64>,
}

impl Row {
    fn is_like(&self, other: &Row) -> bool {
        (&self.collective, self.persistent, &self.algorithm, &self.why)
            == (&other.collective, other.persistent, &other.algorithm, &other.why)
    }

    /// Whether the MPI's own function served.
    pub fn is_native(&self) -> bool {
        self.algorithm == "native"
    }

    pub(crate) fn count(&mut self, bytes: u64, seconds: f64) {
        self.calls += 1;
        self.bytes += bytes;
        self.seconds += seconds;
        count(&mut self.sizes, bytes.next_power_of_two() * u64::from(bytes > 0), 1);
    }
}

/// How many results were compared with native, and how many of them differed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Checks {
    /// So many were compared.
    pub compared: u64,
    /// And so many differed.
    pub differed: u64,
}

/// How long algorithms took for calls of about one size, measured one beside the other.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Timings {
    /// The collective, by its name.
    pub collective: String,
    /// The next power of two.
    pub bytes: u64,
    /// Bytes of the calls; 0 where ranks had different amounts.
    #[serde(default)]
    pub exact: u64,
    /// Algorithms, and seconds for a call.
    pub times: Vec<(String, f64)>,
}

impl Timings {
    /// The time of an algorithm in seconds, if it was among them.
    pub fn of(&self, algorithm: &str) -> Option<f64> {
        self.times.iter().find(|(name, _)| name == algorithm).map(|(_, time)| *time)
    }
}

/// One communicator, or several alike that were freed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Its name, if it is known; `freed` for those that were.
    pub communicator: String,
    /// How many there are.
    pub communicators: u64,
    /// How many ranks each has.
    pub ranks: u32,
    /// Where they are.
    pub topology: String,
    /// The calibration of messages at first use, as text.
    #[serde(default)]
    pub measured: String,
    /// Results that were compared with the MPI's own.
    pub checks: Checks,
    /// The calls, by collective, algorithm and reason.
    pub rows: Vec<Row>,
    /// For each collective and size the last.
    #[serde(default)]
    pub seen: Vec<Timings>,
}

impl Record {
    pub(crate) fn new(communicator: &str, ranks: u32) -> Record {
        Record {
            communicator: communicator.to_owned(),
            communicators: 1,
            ranks,
            topology: String::new(),
            measured: String::new(),
            checks: Checks::default(),
            rows: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// The number of the row for calls that are served so; a new one, if there is none.
    pub(crate) fn row(
        &mut self,
        name: Name,
        persistent: bool,
        (algorithm, why): (String, String),
        evidence: Evidence,
    ) -> usize {
        let collective = name.text().to_owned();
        let new = Row {
            collective,
            persistent,
            algorithm,
            why,
            evidence,
            calls: 0,
            bytes: 0,
            sizes: Vec::new(),
            seconds: 0.0,
            saved: None,
        };
        self.rows.iter().position(|row| row.is_like(&new)).unwrap_or_else(|| {
            self.rows.push(new);
            self.rows.len() - 1
        })
    }

    /// Keeps what was seen last of a collective and size.
    pub(crate) fn set_timings(&mut self, seen: Timings) {
        let same = |other: &Timings| other.collective == seen.collective && other.bytes == seen.bytes;
        self.seen.retain(|other| !same(other));
        self.seen.push(seen);
    }

    /// Finds out what native would have taken longer for all calls of each row, as far as it was measured.
    pub(crate) fn find_savings(&mut self) {
        for row in self.rows.iter_mut().filter(|row| !row.is_native() && !row.persistent) {
            let each = row.sizes.iter().filter_map(|(size, calls)| {
                let alike = |seen: &&Timings| seen.collective == row.collective && seen.bytes == *size;
                let seen = self.seen.iter().find(alike)?;
                Some(*calls as f64 * (seen.of("native")? - seen.of(&row.algorithm)?))
            });
            row.saved = each.reduce(|a, b| a + b);
        }
    }

    /// Adds another record's rows.
    pub(crate) fn merge(&mut self, other: Record) {
        other.seen.into_iter().for_each(|seen| self.set_timings(seen));
        self.communicators += other.communicators;
        self.add(other.checks, other.rows);
    }

    /// Adds what the same communicator did in another run.
    pub(crate) fn merge_again(&mut self, other: Record) {
        other.seen.into_iter().for_each(|seen| self.set_timings(seen));
        self.communicators = self.communicators.max(other.communicators);
        self.add(other.checks, other.rows);
    }

    fn add(&mut self, checks: Checks, rows: Vec<Row>) {
        self.checks.compared += checks.compared;
        self.checks.differed += checks.differed;
        for row in rows {
            match self.rows.iter_mut().find(|mine| mine.is_like(&row)) {
                Some(mine) => {
                    mine.calls += row.calls;
                    mine.bytes += row.bytes;
                    mine.seconds += row.seconds;
                    row.sizes.iter().for_each(|(size, calls)| count(&mut mine.sizes, *size, *calls));
                    mine.saved = match (mine.saved, row.saved) {
                        (Some(a), Some(b)) => Some(a + b),
                        (one, other) => one.or(other),
                    };
                }
                None => self.rows.push(row),
            }
        }
    }

    pub(crate) fn is_like(&self, other: &Record) -> bool {
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

/// Adds a record to those that it is like, or puts it beside them.
pub(crate) fn merge_into(records: &mut Vec<Record>, record: Record, merge: fn(&mut Record, Record)) {
    match records.iter_mut().find(|other| other.is_like(&record)) {
        Some(other) => merge(other, record),
        None => records.push(record),
    }
}

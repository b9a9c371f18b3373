//! Records of calls: for each communicator, rows by collective, algorithm and reason.

use bruckner_choose::{Name, Reason};
use serde::{Deserialize, Serialize};

/// The kind of evidence behind the choice of an algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// No measurement or prediction: a fixed rule of the library, an algorithm selected by the user, or a call without an alternative.
    #[default]
    Other,
    /// A measurement by a tuning run (`bruckner tune`).
    Measured,
    /// A prediction of the cost model.
    Predicted,
    /// A measurement by online tuning in this run.
    TunedOnline,
}

impl Evidence {
    pub(crate) fn of(reason: &Reason) -> Evidence {
        match reason {
            Reason::Measured { .. } => Evidence::Measured,
            Reason::Predicted(_) | Reason::BelowMargin { .. } => Evidence::Predicted,
            Reason::Replaced { .. } => Evidence::TunedOnline,
            _ => Evidence::Other,
        }
    }
}

/// The calls of one collective on one communicator that one algorithm handled for one reason.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Name of the collective.
    pub collective: String,
    /// Whether the calls were starts of persistent requests.
    pub persistent: bool,
    /// Algorithm that handled the calls: an expression, or `native` for the MPI's own function.
    pub algorithm: String,
    /// Reason for the choice, as text.
    pub reason: String,
    /// Kind of evidence for the choice of the algorithm.
    #[serde(default)]
    pub evidence: Evidence,
    /// Number of calls.
    pub calls: u64,
    /// Sum over all calls of the message size in bytes (largest block, or vector).
    pub bytes: u64,
    /// Number of calls by message size, in ascending order of size: `(bytes, calls)`, where `bytes` is rounded up to a power of two.
    pub sizes: Vec<(u64, u64)>,
    /// Total seconds in these calls on the communicator's first rank.
    pub seconds: f64,
    /// Seconds saved: the estimated time of the MPI's own function for these calls, minus the time taken; `None` if the MPI's own function
    /// was not measured in this run.
    #[serde(default)]
    pub saved: Option<f64>,
}

impl Row {
    fn is_like(&self, other: &Row) -> bool {
        (&self.collective, self.persistent, &self.algorithm, &self.reason)
            == (&other.collective, other.persistent, &other.algorithm, &other.reason)
    }

    /// Whether the calls were passed through to the MPI's own function.
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

/// Counts of results that were compared with those of the MPI's own function.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Checks {
    /// Number of results compared.
    pub compared: u64,
    /// Number of compared results that differed.
    pub differed: u64,
}

/// Times of several algorithms for calls of about the same size, compared in trials of online tuning.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Timings {
    /// Name of the collective.
    pub collective: String,
    /// Size of the calls in bytes, rounded up to a power of two.
    pub bytes: u64,
    /// Exact size of the calls in bytes; 0 if the blocks of ranks had different sizes.
    #[serde(default)]
    pub exact: u64,
    /// Name of each algorithm, with its time per call in seconds.
    pub times: Vec<(String, f64)>,
}

impl Timings {
    /// Returns the seconds per call of `algorithm`, or `None` if it was not measured.
    pub fn of(&self, algorithm: &str) -> Option<f64> {
        self.times.iter().find(|(name, _)| name == algorithm).map(|(_, time)| *time)
    }
}

/// Counters of one communicator, or of several with the same name, size and topology, added up.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Name of the communicator: empty if unknown, `freed` for nameless communicators that were freed.
    pub communicator: String,
    /// Number of communicators in this record.
    pub communicators: u64,
    /// Number of ranks of each communicator.
    pub ranks: u32,
    /// Topology of the communicator's ranks, as text.
    pub topology: String,
    /// Result of the calibration at first use of the communicator, as text; empty if there was none.
    #[serde(default)]
    pub calibration: String,
    /// Counts of results that were compared with those of the MPI's own function.
    pub checks: Checks,
    /// Rows of calls, one for each collective, algorithm and reason.
    pub rows: Vec<Row>,
    /// Latest trial of online tuning for each collective and size.
    #[serde(default)]
    pub trials: Vec<Timings>,
}

impl Record {
    pub(crate) fn new(communicator: &str, ranks: u32) -> Record {
        Record {
            communicator: communicator.to_owned(),
            communicators: 1,
            ranks,
            topology: String::new(),
            calibration: String::new(),
            checks: Checks::default(),
            rows: Vec::new(),
            trials: Vec::new(),
        }
    }

    /// Returns the index of the row with this collective, algorithm and reason; adds an empty row if there is none.
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
            reason: why,
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

    /// Stores the times of a trial in place of an earlier trial of the same collective and size.
    pub(crate) fn set_timings(&mut self, seen: Timings) {
        let same = |other: &Timings| other.collective == seen.collective && other.bytes == seen.bytes;
        self.trials.retain(|other| !same(other));
        self.trials.push(seen);
    }

    /// Sets [`Row::saved`] of each row, from the message sizes for which both the algorithm of the row and native were measured in trials.
    pub(crate) fn find_savings(&mut self) {
        for row in self.rows.iter_mut().filter(|row| !row.is_native() && !row.persistent) {
            let each = row.sizes.iter().filter_map(|(size, calls)| {
                let alike = |seen: &&Timings| seen.collective == row.collective && seen.bytes == *size;
                let seen = self.trials.iter().find(alike)?;
                Some(*calls as f64 * (seen.of("native")? - seen.of(&row.algorithm)?))
            });
            row.saved = each.reduce(|a, b| a + b);
        }
    }

    /// Adds the counts of another group of communicators of the same run.
    pub(crate) fn merge(&mut self, other: Record) {
        other.trials.into_iter().for_each(|seen| self.set_timings(seen));
        self.communicators += other.communicators;
        self.add(other.checks, other.rows);
    }

    /// Adds the counts of the same communicators in another run; the number of communicators is not added up.
    pub(crate) fn merge_run(&mut self, other: Record) {
        other.trials.into_iter().for_each(|seen| self.set_timings(seen));
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
        (&self.communicator, self.ranks, &self.topology) == (&other.communicator, other.ranks, &other.topology)
    }
}

fn count(sizes: &mut Vec<(u64, u64)>, size: u64, calls: u64) {
    match sizes.binary_search_by_key(&size, |(size, _)| *size) {
        Ok(at) => sizes[at].1 += calls,
        Err(at) => sizes.insert(at, (size, calls)),
    }
}

/// Merges a record into the record of `records` with the same name, size and topology, or appends it if there is none.
pub(crate) fn merge_into(records: &mut Vec<Record>, record: Record, merge: fn(&mut Record, Record)) {
    match records.iter_mut().find(|other| other.is_like(&record)) {
        Some(other) => merge(other, record),
        None => records.push(record),
    }
}

//! The report of a run: the algorithm of each call with the reason, the time taken, and the estimated time of the MPI's own function.

use std::fmt::Write as _;

use bruckner_algorithms::aliases::{Context, current};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::record::{Checks, Record, Row, merge_into};
use crate::statistics::{RankReport, RankTime};

/// Time that ranks spent in collectives, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct CollectiveTime {
    /// Minimum over ranks of the time spent in collectives.
    pub least: f64,
    /// Mean over ranks of the time spent in collectives.
    pub mean: f64,
    /// Maximum over ranks of the time spent in collectives.
    pub most: f64,
    /// Mean over ranks of the time spent waiting for late ranks, estimated from sampled calls; `None` if some rank has no samples.
    pub waiting: Option<f64>,
}

impl CollectiveTime {
    fn of(ranks: &[RankTime]) -> Option<CollectiveTime> {
        let number = ranks.len() as f64;
        let seconds = || ranks.iter().map(|rank| rank.seconds);
        // Time of a barrier without waiting. The shortest barrier on any rank is an estimate, because the last rank to arrive does not
        // wait.
        let waits = || ranks.iter().filter_map(|rank| rank.waits);
        let barrier = waits().map(|waits| waits.shortest).fold(f64::INFINITY, f64::min);
        let waiting = || ranks.iter().filter_map(|rank| Some(rank.seconds * rank.waits?.share(barrier)));
        (!ranks.is_empty()).then(|| CollectiveTime {
            least: seconds().fold(f64::INFINITY, f64::min),
            mean: seconds().sum::<f64>() / number,
            most: seconds().fold(0.0, f64::max),
            waiting: (waiting().count() == ranks.len()).then(|| waiting().sum::<f64>() / number),
        })
    }

    fn and(self, other: CollectiveTime) -> CollectiveTime {
        CollectiveTime {
            least: self.least + other.least,
            mean: self.mean + other.mean,
            most: self.most + other.most,
            waiting: self.waiting.zip(other.waiting).map(|(a, b)| a + b),
        }
    }
}

/// Placement of a job's ranks, as seen by the first rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobPlacement {
    /// Number of nodes with ranks of the job.
    pub nodes: u32,
    /// Whether a node has more ranks than cores (oversubscription).
    pub oversubscribed: bool,
    /// Whether the first rank is bound to a subset of its node's cores, or the node has a single core.
    pub pinned: bool,
}

/// The report of a run, or of several.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Version of the library.
    pub bruckner: String,
    /// Name and version of the MPI.
    pub mpi: String,
    /// Value of `BRUCKNER`: `on`, `off` or `always`.
    pub mode: String,
    /// Number of runs added up.
    #[serde(default = "one")]
    pub runs: u64,
    /// Number of calls in all rows.
    pub calls: u64,
    /// Number of calls handled by the library.
    pub handled: u64,
    /// Duration of the program in seconds.
    pub seconds: f64,
    /// Time that ranks spent in collectives.
    #[serde(default)]
    pub in_collectives: Option<CollectiveTime>,
    /// Seconds saved by the library, for calls for which the MPI's own function was measured; `None` if there are no such calls.
    pub saved: Option<f64>,
    /// Placement of the job's ranks on nodes and cores.
    #[serde(default)]
    pub machine: JobPlacement,
    /// Advice for the user.
    pub advice: Vec<String>,
    /// Errors in the settings.
    pub complaints: Vec<String>,
    /// Records of the calls of each communicator.
    pub communicators: Vec<Record>,
}

fn one() -> u64 {
    1
}

/// Error for a file that is not a report.
#[derive(Debug, thiserror::Error)]
#[error("not a report written by BRUCKNER_REPORT: {0}")]
pub struct InvalidReport(#[from] serde_json::Error);

/// Facts about a run that the report includes.
pub struct RunInfo<'a> {
    /// Name and version of the MPI.
    pub mpi: &'a str,
    /// Value of `BRUCKNER`: `on`, `off` or `always`.
    pub mode: &'a str,
    /// Duration of the program in seconds.
    pub seconds: f64,
    /// Placement of the job's ranks.
    pub machine: JobPlacement,
    /// Errors in the settings.
    pub complaints: &'a [String],
}

impl Report {
    /// Joins the statistics of all ranks into a report, without advice. A text that cannot be read is skipped.
    pub(crate) fn join(texts: &[String], run: &RunInfo<'_>) -> Report {
        let (mut communicators, mut spent) = (Vec::new(), Vec::new());
        for text in texts {
            let Ok(told) = serde_json::from_str::<RankReport>(text) else { continue };
            told.records.into_iter().for_each(|record| merge_into(&mut communicators, record, Record::merge));
            spent.push(told.spent);
        }
        communicators.iter_mut().for_each(Record::find_savings);
        let mut report = Report {
            bruckner: env!("CARGO_PKG_VERSION").to_owned(),
            mpi: run.mpi.to_owned(),
            mode: run.mode.to_owned(),
            runs: 1,
            calls: 0,
            handled: 0,
            seconds: run.seconds,
            in_collectives: CollectiveTime::of(&spent),
            saved: None,
            machine: run.machine,
            advice: Vec::new(),
            complaints: run.complaints.to_vec(),
            communicators,
        };
        report.add_up();
        report
    }

    /// Reads a report from the output of [`Report::json`].
    pub fn read(text: &str) -> Result<Report, InvalidReport> {
        let mut report = serde_json::from_str(text)?;
        rename_keys(&mut report);
        Ok(serde_json::from_value(report)?)
    }

    /// Adds the report of another run of the same program.
    pub fn add(&mut self, other: Report) {
        self.runs += other.runs;
        self.seconds += other.seconds;
        self.in_collectives = self.in_collectives.zip(other.in_collectives).map(|(a, b)| a.and(b));
        let records = other.communicators.into_iter();
        records.for_each(|record| merge_into(&mut self.communicators, record, Record::merge_run));
        for (mine, others) in [(&mut self.advice, other.advice), (&mut self.complaints, other.complaints)] {
            let new: Vec<String> = others.into_iter().filter(|line| !mine.contains(line)).collect();
            mine.extend(new);
        }
        self.add_up();
    }

    fn add_up(&mut self) {
        let rows = || self.communicators.iter().flat_map(|record| &record.rows);
        self.calls = rows().map(|row| row.calls).sum();
        self.handled = rows().filter(|row| !row.is_native()).map(|row| row.calls).sum();
        self.saved = rows().filter_map(|row| row.saved).reduce(|a, b| a + b);
    }

    /// Formats the report as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Formats the report as a table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let share = 100.0 * self.handled as f64 / (self.calls.max(1)) as f64;
        let runs = if self.runs > 1 { format!(", {} runs", self.runs) } else { String::new() };
        let _ = writeln!(
            text,
            "bruckner {}: {}, BRUCKNER={}{runs}: {} of {} calls handled by the library ({share:.1} %)",
            self.bruckner, self.mpi, self.mode, self.handled, self.calls
        );
        if let Some(spent) = self.in_collectives {
            // Several threads may be in collectives at the same time, so their sum can exceed the duration of the run.
            let part = match spent.mean <= self.seconds {
                true => format!("{:.0} %", 100.0 * spent.mean / self.seconds.max(1e-9)),
                false => "all threads added up".to_owned(),
            };
            let waiting = match spent.waiting {
                Some(waiting) => format!(", including about {waiting:.3} s waiting for late ranks"),
                None => String::new(),
            };
            let _ = writeln!(
                text,
                "time in collectives: {:.3} s of {:.3} s ({part}) on average over ranks{waiting}; minimum {:.3} s, maximum {:.3} s",
                spent.mean, self.seconds, spent.least, spent.most
            );
        }
        if let Some(saved) = self.saved {
            let seconds = self.seconds.max(1e-9);
            let beside = "counting only calls for which native was also measured";
            let _ = match saved < 0.0 {
                true => writeln!(
                    text,
                    "time lost: about {:.3} s, {:.1} % of {seconds:.3} s ({beside})",
                    -saved,
                    -100.0 * saved / seconds
                ),
                false => writeln!(
                    text,
                    "time saved: about {saved:.3} s, {:.1} % of {:.3} s without the library ({beside})",
                    100.0 * saved / (seconds + saved),
                    seconds + saved
                ),
            };
        }
        for record in &self.communicators {
            let _ = write!(text, "{}", record_text(record));
        }
        if !self.communicators.is_empty() {
            text.push_str(LEGEND);
        }
        for advice in &self.advice {
            let _ = writeln!(text, "advice: {advice}");
        }
        text
    }
}

/// Renames the keys of reports of earlier versions.
fn rename_keys(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, mut value) in std::mem::take(fields) {
                rename_keys(&mut value);
                let key = current(Context::Report, &key).to_owned();
                if key == "evidence"
                    && let Some(evidence) = value.as_str()
                {
                    value = current(Context::Evidence, evidence).into();
                }
                fields.insert(key, value);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(rename_keys),
        _ => {}
    }
}

/// Explanation of the table's columns.
const LEGEND: &str = "\
bytes each: size of one rank's block or vector, rounded up to a power of two. seconds: time in these
calls on the communicator's first rank. native (est.): estimated time of the MPI's own function for
the same calls, where this run measured that function.
";

fn record_text(record: &Record) -> String {
    let mut text = String::new();
    let which = match (record.communicator.as_str(), record.communicators) {
        ("", 1) => "one communicator".to_owned(),
        ("", n) => format!("{n} communicators"),
        ("freed", n) => format!("{n} freed communicators"),
        (name, _) => name.to_owned(),
    };
    let _ = writeln!(text, "{which}, {} ranks{}", record.ranks, and(&record.topology));
    if !record.calibration.is_empty() {
        let _ = writeln!(text, "  calibration {}", record.calibration);
    }
    if record.checks.compared > 0 {
        let Checks { compared, differed } = record.checks;
        let _ = writeln!(text, "  {compared} results compared with native, {differed} differed");
    }
    let head = ["collective", "calls", "bytes each", "seconds", "native (est.)", "algorithm"];
    let _ = writeln!(
        text,
        "  {:<15} {:>9} {:>15} {:>10} {:>13}  {:<18} reason",
        head[0], head[1], head[2], head[3], head[4], head[5]
    );
    for row in &record.rows {
        let name = format!("{}{}", row.collective, if row.persistent { "_init" } else { "" });
        let _ = writeln!(
            text,
            "  {name:<15} {:>9} {:>15} {:>10.6} {:>13}  {:<18} {}",
            row.calls,
            sizes(&row.sizes),
            row.seconds,
            by_native(row),
            row.algorithm,
            row.reason
        );
    }
    text
}

fn by_native(row: &Row) -> String {
    row.saved.map_or_else(|| "-".to_owned(), |saved| format!("{:.6}", (row.seconds + saved).max(0.0)))
}

fn and(and: &str) -> String {
    if and.is_empty() { String::new() } else { format!(", topology {and}") }
}

fn sizes(sizes: &[(u64, u64)]) -> String {
    let short = |bytes: u64| match bytes {
        0..1024 => format!("{bytes}"),
        1024..1_048_576 => format!("{}K", bytes >> 10),
        _ => format!("{}M", bytes >> 20),
    };
    match (sizes.first(), sizes.last()) {
        (Some(first), Some(last)) if first.0 != last.0 => format!("{} to {}", short(first.0), short(last.0)),
        (Some((0, _)), _) => "0".to_owned(),
        (Some(only), _) => format!("up to {}", short(only.0)),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bruckner_choose::Name;

    use super::*;
    use bruckner_algorithms::aliases::ALIASES;

    use crate::Evidence;
    use crate::statistics::{Event, Handler, Statistics};

    fn event<'a>(algorithm: &'a str, why: &'a str, bytes: u64) -> Event<'a> {
        let by = Handler::Named(algorithm, why);
        Event { name: Name::Allreduce, persistent: false, by, bytes, seconds: 0.5 }
    }

    fn run(seconds: f64) -> RunInfo<'static> {
        RunInfo { mpi: "MPICH 5", mode: "on", seconds, machine: JobPlacement::default(), complaints: &[] }
    }

    #[test]
    fn freed_communicators_are_added_up_and_ranks_joined() {
        let statistics = Arc::new(Statistics::default());
        let open = |name: &str, ranks, topology: &str| {
            let counters = statistics.open(name, ranks);
            counters.set_topology(topology, "");
            counters
        };
        let world = open("MPI_COMM_WORLD", 4, "1x4");
        world.add(&event("shm", "short", 8));
        world.add(&event("shm", "short", 100));
        world.add(&event("native", "long", 1 << 20));
        for _ in 0..1000 {
            open("", 2, "1x2").add(&event("native", "first calls", 0));
        }
        assert_eq!(statistics.live_counters(), 1, "only the world");
        let other = r#"{"spent":{"seconds":1.0,"waits":null},"records":[{"communicator":"freed",
            "communicators":1,"ranks":2,"topology":"1x2","checks":{"compared":1,"differed":0},"rows":[]}]}"#;
        let whole = Report::join(&[statistics.text(), other.into()], &run(2.0));
        assert_eq!((whole.calls, whole.handled), (1003, 2));
        assert_eq!(whole.communicators.len(), 2);
        let rows = &whole.communicators[0].rows;
        assert_eq!((rows[0].calls, rows[0].bytes, rows[0].seconds), (2, 108, 1.0));
        assert_eq!(rows[0].sizes, [(8, 1), (128, 1)]);
        assert_eq!(whole.communicators[1].communicators, 1001);
        let table = whole.table();
        assert!(table.contains("MPI_COMM_WORLD, 4 ranks, topology 1x4"), "{table}");
        assert!(table.contains("1001 freed communicators, 2 ranks, topology 1x2"), "{table}");
        assert!(table.contains("allreduce               2        8 to 128   1.000000             -  shm"), "{table}");
        // Reports of earlier versions have other names for some keys.
        let mut old = whole.json();
        for (context, before, now) in ALIASES {
            if context == Context::Report {
                old = old.replace(&format!("\"{now}\": "), &format!("\"{before}\": "));
            }
        }
        assert!(old.contains("\"served\": 2") && old.contains("\"ground\": \"other\""), "{old}");
        assert_eq!(Report::read(&old).unwrap().json(), whole.json());
        let old = old.replace("\"other\"", "\"watched\"");
        assert_eq!(Report::read(&old).unwrap().communicators[0].rows[0].evidence, Evidence::TunedOnline);
        // The written report is read again and added to itself: one report of two runs.
        let mut read = Report::read(&whole.json()).unwrap();
        read.add(whole.clone());
        assert_eq!((read.runs, read.calls, read.seconds), (2, 2006, 4.0));
        assert_eq!(read.communicators[0].communicators, 1);
        assert_eq!(read.communicators[0].rows[0].calls, 4);
    }

    /// One rank waits for another, which is late in two of three calls.
    #[test]
    fn waiting_is_told_apart() {
        let of = |waits: [u64; 3]| {
            let statistics = Arc::new(Statistics::default());
            for wait in waits {
                let waited = Duration::from_millis(wait);
                statistics.add_time(waited + Duration::from_millis(10), Some(waited));
            }
            statistics.add_time(Duration::from_millis(100), None);
            statistics.text()
        };
        // A rank that is late in every call is waited for in every call.
        let always = Report::join(&[of([31, 31, 31]), of([1, 1, 1])], &run(1.0)).in_collectives.unwrap();
        assert!((always.waiting.unwrap() - 0.223 * 90.0 / 120.0 / 2.0).abs() < 1e-9, "{always:?}");
        let whole = Report::join(&[of([1, 31, 31]), of([1, 1, 1])], &run(1.0));
        let spent = whole.in_collectives.unwrap();
        assert!((spent.least - 0.133).abs() < 1e-9 && (spent.most - 0.193).abs() < 1e-9, "{spent:?}");
        // The first of two ranks waited for 60 of its 90 ms of sampled time.
        assert!((spent.waiting.unwrap() - 0.193 * 60.0 / 90.0 / 2.0).abs() < 1e-9, "{spent:?}");
        assert!(whole.table().contains("about 0.064 s waiting for late ranks"), "{}", whole.table());
    }
}

//! Profile file of a machine in TOML: the machine parameters that `bruckner probe` writes, and the results of tuning runs on communicators
//! of some shapes.
//!
//! ```toml
//! name = "here"
//! …                                  # the machine, as docs/theory/model.md describes it
//!
//! [tune]
//! version = 2
//! mpi = "Open MPI 5.0.11"
//!
//! [[shape]]
//! topology = "4x4"
//! results = [
//!   { collective = "allreduce", bytes = 8, winner = "locality(node)", native = 1.99e-3, ratio = 0.41, low = 0.39, high = 0.44, launches = 2 },
//! ]
//!
//! [[native]]                       # the MPI's own algorithms, for `bruckner tune --export`
//! topology = "4x4"
//! settings = [
//!   { collective = "allreduce", bytes = 262144, setting = "tuned ring", ratio = 0.4, low = 0.38, high = 0.43 },
//! ]
//! ```
//!
//! Each result and each setting has a line of its own. A line that cannot be parsed is dropped and reported with its number and the
//! reason. With any other error, the whole profile is rejected.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bruckner_algorithms::Expression;
use bruckner_algorithms::aliases::{Context, current};
use bruckner_algorithms::expression::Plain;
use bruckner_model::machine::quoted;
use bruckner_model::{Machine, Shape};
use bruckner_schedule::Topology;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::knowledge::{Knowledge, Origin, ShapeResults, Source, TuningResult, Vendor};
use crate::name::Name;

/// Version of the profile format that this library writes. It also reads version 1, without results that name an algorithm whose meaning
/// has changed since.
pub const VERSION: u32 = 2;

/// Maximum length of a profile in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// Contents of a profile file.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Parameters of the machine.
    pub machine: Machine,
    /// Date, MPI, library version and processor of the measurement.
    pub provenance: Provenance,
    /// Results of tuning runs, by communicator shape.
    pub results: Vec<ShapeResults>,
    /// Fastest settings of the MPI's own collectives, by communicator shape.
    pub natives: Vec<NativeSettings>,
}

/// Fastest settings of the MPI's own collectives on communicators of one shape.
#[derive(Clone, PartialEq, Debug)]
pub struct NativeSettings {
    /// Shape of the communicators: nodes, and ranks on each.
    pub shape: Shape,
    /// Settings, at most one for each collective and size.
    pub settings: Vec<NativeSetting>,
}

/// The setting with which the MPI's own function is fastest for one collective and size.
#[derive(Clone, PartialEq, Debug)]
pub struct NativeSetting {
    /// Collective to which the setting applies.
    pub name: Name,
    /// Message size in bytes.
    pub bytes: u64,
    /// Name of the setting in `bruckner bench`, such as `tuned ring`; empty if the MPI's default is the fastest.
    pub setting: String,
    /// Time with the setting divided by the time with the MPI's default.
    pub ratio: f64,
    /// Lower and upper end of the confidence interval of `ratio`.
    pub interval: [f64; 2],
}

/// Origin of a profile: date, MPI, library version and processor.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// Version of the profile format.
    pub version: u32,
    /// Name and version of the MPI.
    pub mpi: String,
    /// Version of the library.
    #[serde(default)]
    pub bruckner: String,
    /// Model name of the processor.
    #[serde(default)]
    pub cpu: String,
    /// Time of the measurement, in seconds since 1970.
    #[serde(default)]
    pub when: u64,
}

/// An error in a profile: a line that was dropped, or the reason why the whole profile was rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidLine {
    /// Line number, counted from 1; 0 for an error that concerns the whole profile.
    pub line: usize,
    /// Description of the error.
    pub why: String,
}

impl std::fmt::Display for InvalidLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.why),
            line => write!(f, "line {line}: {}", self.why),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    collective: String,
    bytes: u64,
    winner: String,
    native: f64,
    ratio: f64,
    low: f64,
    high: f64,
    #[serde(default)]
    launches: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingLine {
    collective: String,
    bytes: u64,
    setting: String,
    ratio: f64,
    low: f64,
    high: f64,
}

fn positive(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

fn collective(name: &str) -> Result<Name, String> {
    Name::read(name).ok_or_else(|| format!("`{name}` is not one of {}", Name::list()))
}

/// Returns the interval from `low` to `high` if it contains the ratio.
fn interval(ratio: f64, [low, high]: [f64; 2]) -> Result<[f64; 2], String> {
    match [ratio, low, high].into_iter().all(positive) && low <= ratio && ratio <= high {
        true => Ok([low, high]),
        false => Err(format!("expected 0 < low <= ratio <= high, not {low}, {ratio}, {high}")),
    }
}

fn bytes(bytes: u64) -> Result<u64, String> {
    if bytes > i64::MAX as u64 { Err(format!("{bytes} bytes exceed the maximum of 2^63 - 1")) } else { Ok(bytes) }
}

/// An entry that has a line of its own in a list of the profile.
trait ListEntry: Sized {
    type Line: DeserializeOwned;
    /// Makes the entry from its line in a profile of this version.
    fn of(line: Self::Line, version: u32) -> Result<Self, String>;
    /// Returns the collective and message size of the entry. A list has at most one entry for each such pair.
    fn case(&self) -> (Name, u64);
    fn write(&self) -> String;

    /// Parses numbered lines. Lines that cannot be parsed are added to `dropped`.
    fn read(lines: &[(usize, &str)], version: u32, dropped: &mut Vec<InvalidLine>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for &(line, text) in lines {
            let text = text.strip_suffix(',').unwrap_or(text);
            let read = toml::from_str::<BTreeMap<String, Self::Line>>(&format!("line = {text}"))
                .map_err(|error| error.message().to_owned())
                .and_then(|mut one| match (one.remove("line"), one.is_empty()) {
                    (Some(line), true) => Self::of(line, version),
                    _ => Err("expected exactly one entry in the line".to_owned()),
                })
                .and_then(|new| match all.iter().any(|other| other.case() == new.case()) {
                    true => Err(format!("{} of {} B is listed twice", new.case().0, new.case().1)),
                    false => Ok(new),
                });
            match read {
                Ok(new) => all.push(new),
                Err(why) => dropped.push(InvalidLine { line, why }),
            }
        }
        all
    }
}

impl ListEntry for TuningResult {
    type Line = Line;

    fn of(line: Line, version: u32) -> Result<TuningResult, String> {
        if !positive(line.native) {
            return Err(format!("native time {} is not a positive number of seconds", line.native));
        }
        let name = collective(&line.collective)?;
        let expression = line.winner.parse().map_err(|why| format!("`{}`: {why}", line.winner))?;
        if is_void(name, &expression, version) {
            return Err(format!(
                "`{expression}` meant another order of messages before version 2 of profiles: run `bruckner tune` again"
            ));
        }
        Ok(TuningResult {
            name,
            bytes: bytes(line.bytes)?,
            expression,
            native_seconds: line.native,
            ratio: line.ratio,
            interval: interval(line.ratio, [line.low, line.high])?,
            launches: line.launches,
        })
    }

    fn case(&self) -> (Name, u64) {
        (self.name, self.bytes)
    }

    fn write(&self) -> String {
        let TuningResult { name, bytes, expression, native_seconds: native, ratio, interval: [low, high], launches } =
            self;
        let winner = quoted(&expression.to_string());
        format!(
            "collective = \"{name}\", bytes = {bytes}, winner = {winner}, native = {native:e}, ratio = {ratio}, low = {low}, high = {high}, launches = {launches}"
        )
    }
}

impl ListEntry for NativeSetting {
    type Line = SettingLine;

    fn of(line: SettingLine, _version: u32) -> Result<NativeSetting, String> {
        Ok(NativeSetting {
            name: collective(&line.collective)?,
            bytes: bytes(line.bytes)?,
            setting: line.setting,
            ratio: line.ratio,
            interval: interval(line.ratio, [line.low, line.high])?,
        })
    }

    fn case(&self) -> (Name, u64) {
        (self.name, self.bytes)
    }

    fn write(&self) -> String {
        let NativeSetting { name, bytes, setting, ratio, interval: [low, high] } = self;
        let setting = quoted(setting);
        format!(
            "collective = \"{name}\", bytes = {bytes}, setting = {setting}, ratio = {ratio}, low = {low}, high = {high}"
        )
    }
}

/// Whether a result in a profile of this version is void, because the algorithm that it names has another meaning now. Before version 2,
/// `rabenseifner` and, in a reduce_scatter, `recursive-doubling` exchanged data with the most distant partner first.
fn is_void(name: Name, expression: &Expression, version: u32) -> bool {
    let doubling_changed = matches!(name, Name::ReduceScatter | Name::Reduce);
    version < 2
        && (expression.mentions(Plain::Rabenseifner)
            || doubling_changed && expression.mentions(Plain::RecursiveDoubling))
}

/// Keys of the lists in which each entry has a line of its own.
const RESULTS: &str = "results";
const SETTINGS: &str = "settings";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultsTable {
    topology: String,
    results: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsTable {
    topology: String,
    settings: usize,
}

/// Returns the key of the list that a line opens, if it opens one.
fn begun(line: &str) -> Option<&'static str> {
    let (key, list) = line.split_once('=')?;
    let key = current(Context::Profile, key.trim());
    [RESULTS, SETTINGS].into_iter().find(|name| *name == key && list.trim() == "[")
}

/// Removes the array of tables `name` from `table` and returns it.
fn tables<T: DeserializeOwned>(table: &mut toml::Table, name: &str) -> Result<Vec<T>, String> {
    let found = table.remove(name).unwrap_or_else(|| toml::Value::Array(Vec::new()));
    found.try_into().map_err(|error| format!("[[{name}]]: {}", error.message()))
}

/// Returns the shape of a topology. If the topology is invalid, all `lines` of its list are added to `dropped`.
fn shape_or_drop(topology: &str, lines: &[(usize, &str)], dropped: &mut Vec<InvalidLine>) -> Option<Shape> {
    let drop = |why: String| {
        dropped.extend(lines.iter().map(|(line, _)| InvalidLine { line: *line, why: why.clone() }));
    };
    uniform_shape(topology).map_err(drop).ok()
}

/// Returns the line number, counted from 1, of byte offset `at` in a text.
fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// Returns the shape of a topology if all nodes have the same number of ranks.
fn uniform_shape(text: &str) -> Result<Shape, String> {
    let topology: Topology = text.parse().map_err(|why| format!("`{text}`: {why}"))?;
    let shape = Shape::of(&topology);
    match shape.ranks() == topology.ranks() {
        true => Ok(shape),
        false => Err(format!("`{text}`: all nodes must have the same number of ranks")),
    }
}

impl Profile {
    /// Returns the index in `results` of the tuning results for a shape. Adds an empty entry if there is none.
    pub fn of_shape(&mut self, shape: Shape) -> usize {
        self.results.iter().position(|tuned| tuned.shape == shape).unwrap_or_else(|| {
            self.results.push(ShapeResults { shape, results: Vec::new() });
            self.results.len() - 1
        })
    }

    /// Parses a profile. Returns it with the lines that were dropped.
    pub fn read(text: &str) -> Result<(Profile, Vec<InvalidLine>), InvalidLine> {
        let whole = |why: String| InvalidLine { line: 0, why };
        if text.len() > MAX_BYTES {
            return Err(whole(format!("the profile has {} bytes, and the maximum is {MAX_BYTES}", text.len())));
        }
        // Lists are removed from the text and parsed line by line; the rest must be valid TOML.
        let mut rest = String::with_capacity(text.len());
        let mut lists: Vec<Vec<(usize, &str)>> = Vec::new();
        let mut inside = false;
        for (number, line) in (1..).zip(text.lines()) {
            let trimmed = line.trim();
            match inside {
                true if trimmed == "]" => inside = false,
                true if trimmed.starts_with('[') => {
                    return Err(InvalidLine { line: number, why: "the preceding list has no closing `]`".to_owned() });
                }
                true => {
                    if !trimmed.is_empty() && !trimmed.starts_with('#') {
                        lists.last_mut().expect("a list was begun").push((number, trimmed));
                    }
                }
                false if let Some(key) = begun(trimmed) => {
                    inside = true;
                    // In the remaining text, the index of the list replaces the list.
                    let _ = write!(rest, "{key} = {}", lists.len());
                    lists.push(Vec::new());
                }
                false => rest.push_str(line),
            }
            rest.push('\n');
        }
        if inside {
            return Err(whole("the last list has no closing `]`".to_owned()));
        }
        let mut table: toml::Table = toml::from_str(&rest).map_err(|error| InvalidLine {
            line: error.span().map_or(0, |span| line_of(&rest, span.start)),
            why: error.message().to_owned(),
        })?;
        let missing = || whole("the section [tune] is missing: make a profile with `bruckner tune`".to_owned());
        let made = table.remove("tune").ok_or_else(missing)?;
        let made: Provenance = made.try_into().map_err(|error| whole(format!("[tune]: {}", error.message())))?;
        if !(1..=VERSION).contains(&made.version) {
            return Err(whole(format!(
                "the profile has format version {}, but this library reads versions 1 to {VERSION}: make a new one with `bruckner tune`",
                made.version
            )));
        }
        let shapes: Vec<ResultsTable> = tables(&mut table, "shape").map_err(whole)?;
        let native: Vec<SettingsTable> = tables(&mut table, "native").map_err(whole)?;
        let machine = Machine::of(table).map_err(|error| whole(error.to_string()))?;
        let mut dropped = Vec::new();
        let list = |which: usize| lists.get(which).map(Vec::as_slice).unwrap_or_default();
        let mut tuned = Vec::new();
        for ResultsTable { topology, results } in shapes {
            if let Some(shape) = shape_or_drop(&topology, list(results), &mut dropped) {
                tuned.push(ShapeResults {
                    shape,
                    results: TuningResult::read(list(results), made.version, &mut dropped),
                });
            }
        }
        let mut natives = Vec::new();
        for SettingsTable { topology, settings } in native {
            if let Some(shape) = shape_or_drop(&topology, list(settings), &mut dropped) {
                natives.push(NativeSettings {
                    shape,
                    settings: NativeSetting::read(list(settings), made.version, &mut dropped),
                });
            }
        }
        let provenance = Provenance { version: VERSION, ..made };
        Ok((Profile { machine, provenance, results: tuned, natives }, dropped))
    }

    /// Returns the profile as TOML.
    pub fn write(&self) -> String {
        let mut text = self.machine.write();
        let Provenance { version, mpi, bruckner, cpu, when } = &self.provenance;
        let (mpi, bruckner, cpu) = (quoted(mpi), quoted(bruckner), quoted(cpu));
        let _ = write!(
            text,
            "\n[tune]\nversion = {version}\nmpi = {mpi}\nbruckner = {bruckner}\ncpu = {cpu}\nwhen = {when}\n"
        );
        let mut list = |table: &str, shape: Shape, key: &str, lines: Vec<String>| {
            let _ = write!(text, "\n[[{table}]]\ntopology = \"{shape}\"\n{key} = [\n");
            lines.iter().for_each(|line| _ = writeln!(text, "  {{ {line} }},"));
            text.push_str("]\n");
        };
        for ShapeResults { shape, results } in &self.results {
            list("shape", *shape, RESULTS, results.iter().map(ListEntry::write).collect());
        }
        for NativeSettings { shape, settings } in &self.natives {
            list("native", *shape, SETTINGS, settings.iter().map(ListEntry::write).collect());
        }
        text
    }

    /// Returns the knowledge from the profile that applies to a library running on the MPI `mpi`. If the profile was measured with another
    /// MPI or version, the parts that do not apply are left out, and a message says so.
    pub fn knowledge(self, mpi: &str) -> (Knowledge, Option<String>) {
        let (vendor, mpi) = (Vendor::of(mpi), Vendor::short(mpi));
        let made = &self.provenance.mpi;
        if Vendor::of(made) != vendor {
            let why = format!("the profile was measured with {made}, but this MPI is {mpi}: the profile is not used");
            return (Knowledge::defaults(vendor), Some(why));
        }
        let steady = Source { machine: self.machine, origin: Origin::Profile };
        let between_nodes = self.results.iter().any(|tuned| tuned.shape.nodes > 1);
        let known =
            Knowledge { reproducible: steady, results: self.results, between_nodes, ..Knowledge::defaults(vendor) };
        if made != mpi {
            let why = format!(
                "the profile was measured with {made}, but this MPI is {mpi}: the profile's tuning results are not used"
            );
            return (Knowledge { results: Vec::new(), ..known }, Some(why));
        }
        (known, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let result = |name, bytes, algorithm: &str, ratio: f64| TuningResult {
            name,
            bytes,
            expression: algorithm.parse().unwrap(),
            native_seconds: 1.5e-6,
            ratio,
            interval: [ratio * 0.9, ratio * 1.1],
            launches: 2,
        };
        let results = vec![
            result(Name::Allreduce, 8, "lanes(node, between=8(-7 7))", 0.5),
            result(Name::Alltoall, 4096, "native", 1.0),
        ];
        let shape = |text: &str| uniform_shape(text).unwrap();
        let setting = NativeSetting {
            name: Name::Allgather,
            bytes: 64,
            setting: "tuned ring".into(),
            ratio: 0.5,
            interval: [0.4, 0.6],
        };
        Profile {
            machine: Machine::builtin("lassen").unwrap(),
            provenance: Provenance {
                version: VERSION,
                mpi: "Open MPI 5.0.11".into(),
                bruckner: "0.1.0".into(),
                cpu: "a \"fast\" one".into(),
                when: 5,
            },
            results: vec![
                ShapeResults { shape: shape("8x2"), results: results.clone() },
                ShapeResults { shape: shape("2x8:cyclic"), results },
            ],
            natives: vec![NativeSettings { shape: shape("4x4"), settings: vec![setting] }],
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let profile = profile();
        assert_eq!(Profile::read(&profile.write()), Ok((profile, Vec::new())));
    }

    #[test]
    fn names_of_earlier_versions_are_read() {
        let text = profile().write();
        let old = text.replace("\nresults = [", "\nraces = [");
        assert_ne!(old, text);
        assert_eq!(Profile::read(&old).unwrap(), (profile(), Vec::new()));
    }

    #[test]
    fn a_broken_line_is_dropped_with_its_number() {
        let text = profile().write();
        let number = |text: &str, part: &str| text.lines().position(|line| line.contains(part)).unwrap() + 1;
        for (from, to, why) in [
            ("\"alltoall\"", "\"alltonone\"", "`alltonone` is not one of allgather"),
            ("native = 1.5e-6", "native = nan", "NaN is not a positive number"),
            ("bytes = 4096", "bytes = -1", "invalid value"),
            ("winner = \"native\"", "winner = \"nativ\"", "`nativ`: "),
            ("launches = 2 },", "launches = 2, more = 1 },", "unknown field"),
            ("launches = 2 },", "launches = 2 ", ""),
            ("ratio = 1,", "ratio = 3,", "expected 0 < low <= ratio <= high, not "),
            ("\"tuned ring\"", "ring", ""),
        ] {
            let broken = text.replacen(from, to, 1);
            let (read, dropped) = Profile::read(&broken).unwrap();
            assert_eq!(dropped.len(), 1, "{to}: {dropped:?}");
            assert!(dropped[0].why.contains(why), "{dropped:?}");
            assert_eq!(dropped[0].line, number(&broken, to), "{to}");
            let of_settings = to == "ring";
            assert_eq!(read.results[0].results.len(), if of_settings { 2 } else { 1 });
            assert_eq!(read.results[1].results.len(), 2);
            assert_eq!(read.natives[0].settings.len(), usize::from(!of_settings));
        }
    }

    /// Results that name an algorithm by its meaning in version 1 are dropped from a profile of this version only.
    #[test]
    fn algorithms_with_a_new_meaning_are_dropped() {
        let text = profile().write().replace("8(-7 7)", "rsag(recursive-doubling)");
        let read = |version: &str, winner: &str| {
            let text = text.replace("rsag(recursive-doubling)", winner).replace("version = 2", version);
            let (read, dropped) = Profile::read(&text).unwrap();
            assert_eq!(read.provenance.version, VERSION);
            dropped.into_iter().map(|dropped| dropped.why).collect::<Vec<_>>()
        };
        assert_eq!(read("version = 1", "rsag(recursive-doubling)"), [] as [String; 0]);
        assert_eq!(read("version = 2", "rabenseifner"), [] as [String; 0]);
        let void = "`lanes(node, between=rabenseifner)` meant another order of messages before version 2 of profiles: \
                    run `bruckner tune` again";
        assert_eq!(read("version = 1", "rabenseifner"), [void, void]);
        let doubling: Expression = "recursive-doubling".parse().unwrap();
        assert!(is_void(Name::Reduce, &doubling, 1) && !is_void(Name::Allreduce, &doubling, 1));
    }

    #[test]
    fn what_is_wrong_elsewhere_is_told_with_its_line() {
        let text = profile().write();
        let wrong = |from: &str, to: &str| Profile::read(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(wrong("[tune]", "[tuna]").contains("[tune] is missing"));
        assert_eq!(
            wrong("version = 2", "version = 3"),
            "the profile has format version 3, but this library reads versions 1 to 2: make a new one with `bruckner tune`"
        );
        assert!(wrong("[network]", "[network").starts_with("line 4: "));
        assert!(wrong("\n]\n\n[[shape]]", "\n\n[[shape]]").contains("the preceding list has no closing `]`"));
        assert!(wrong("latency = ", "latency = -").contains("is not a valid time"));
        assert!(Profile::read(&"#".repeat(MAX_BYTES + 1)).unwrap_err().why.contains("the maximum is"));
    }

    #[test]
    fn another_mpi_takes_what_holds() {
        let (same, why) = profile().knowledge("Open MPI 5.0.11");
        assert_eq!((same.results.len(), same.reproducible.origin, why), (2, Origin::Profile, None));
        let (newer, why) = profile().knowledge("Open MPI 5.1.0");
        assert_eq!((newer.results.len(), newer.reproducible.origin), (0, Origin::Profile));
        assert!(why.unwrap().ends_with("the profile's tuning results are not used"));
        let (other, why) = profile().knowledge("MPICH 5.0.0");
        assert_eq!(other.reproducible.origin, Origin::Default);
        assert!(why.unwrap().ends_with("the profile is not used"));
    }
}

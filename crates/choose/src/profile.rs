//! The profile of a machine: its figures, as `bruckner probe` writes them, and what won races on communicators of some shapes. TOML,
//! for people and for the library.
//!
//! ```toml
//! name = "here"
//! …                                  # the machine, as docs/simulating.md describes it
//!
//! [tune]
//! version = 1
//! mpi = "Open MPI 5.0.11"
//!
//! [[shape]]
//! topology = "4x4"
//! races = [
//!   { collective = "allreduce", bytes = 8, winner = "locality(node)", native = 1.99e-3, ratio = 0.41, low = 0.39, high = 0.44, launches = 2 },
//! ]
//! ```
//!
//! Each race has a line of its own. One that cannot be read is dropped, with its number and the reason; whatever else is wrong, the
//! profile is not used at all.

use std::fmt::Write as _;

use bruckner_algorithms::Expression;
use bruckner_model::machine::quoted;
use bruckner_model::{Machine, Shape};
use bruckner_schedule::Topology;
use serde::Deserialize;

use crate::knowledge::{Knowledge, Origin, Raced, Source, Vendor, Verdict};
use crate::name::Name;

/// The version of the format that is read and written.
pub const VERSION: u32 = 1;

/// No profile is longer.
pub const LONGEST: usize = 1 << 20;

/// A profile.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// The figures of the machine.
    pub machine: Machine,
    /// How it came to be.
    pub made: Made,
    /// What was raced.
    pub raced: Vec<Raced>,
}

/// Where, when and by what a profile was made.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// The version of the format.
    pub version: u32,
    /// The MPI, with its version.
    pub mpi: String,
    /// The version of the library.
    #[serde(default)]
    pub bruckner: String,
    /// The processor.
    #[serde(default)]
    pub cpu: String,
    /// The time, in seconds since 1970.
    #[serde(default)]
    pub when: u64,
}

/// A line that is not used, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// Its number, from 1; 0 where it is the profile as a whole.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

impl std::fmt::Display for Dropped {
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

impl Line {
    fn verdict(self) -> Result<Verdict, String> {
        let name = Name::read(&self.collective)
            .ok_or_else(|| format!("`{}` is not one of {}", self.collective, Name::list()))?;
        let expression: Expression =
            self.winner.parse().map_err(|why| format!("`{}`: {why}", self.winner))?;
        let parts = [self.ratio, self.low, self.high];
        let positive = |number: f64| number.is_finite() && number > 0.0;
        if !parts.into_iter().all(positive) || self.low > self.ratio || self.ratio > self.high {
            return Err(format!(
                "{} ({} to {}) is no ratio with its interval",
                self.ratio, self.low, self.high
            ));
        }
        if !positive(self.native) {
            return Err(format!("{} is no time", self.native));
        }
        if self.bytes > i64::MAX as u64 {
            return Err(format!("{} is too many bytes", self.bytes));
        }
        Ok(Verdict {
            name,
            bytes: self.bytes,
            expression,
            native: self.native,
            ratio: self.ratio,
            interval: [self.low, self.high],
            launches: self.launches,
        })
    }
}

/// Which line of a text a place is on.
fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// The shape of a topology, if all nodes have as many ranks.
fn regular(text: &str) -> Result<Shape, String> {
    let topology: Topology = text.parse().map_err(|why| format!("`{text}`: {why}"))?;
    let shape = Shape::of(&topology);
    match shape.ranks() == topology.ranks() {
        true => Ok(shape),
        false => Err(format!("`{text}`: not all nodes have as many ranks")),
    }
}

impl Profile {
    /// Reads a profile; lines that are not used are told.
    pub fn read(text: &str) -> Result<(Profile, Vec<Dropped>), Dropped> {
        let whole = |why: String| Dropped { line: 0, why };
        if text.len() > LONGEST {
            return Err(whole(format!("it has {} bytes, more than {LONGEST}", text.len())));
        }
        // Races are taken out line by line; the rest must be right as it is.
        let mut rest = String::with_capacity(text.len());
        let mut races: Vec<Vec<(usize, &str)>> = Vec::new();
        let mut inside = false;
        for (number, line) in (1..).zip(text.lines()) {
            let trimmed = line.trim();
            match inside {
                true if trimmed == "]" => inside = false,
                true if trimmed.starts_with('[') => {
                    return Err(Dropped {
                        line: number,
                        why: "the list of races before it has no end".to_owned(),
                    });
                }
                true => {
                    if !trimmed.is_empty() && !trimmed.starts_with('#') {
                        races.last_mut().expect("a list was begun").push((number, trimmed));
                    }
                }
                false
                    if trimmed
                        .split_once('=')
                        .is_some_and(|(key, list)| key.trim() == "races" && list.trim() == "[") =>
                {
                    inside = true;
                    // A number in the place of the list says which it is.
                    let _ = write!(rest, "races = {}", races.len());
                    races.push(Vec::new());
                }
                false => rest.push_str(line),
            }
            rest.push('\n');
        }
        if inside {
            return Err(whole("a list of races does not end".to_owned()));
        }
        let mut table: toml::Table = toml::from_str(&rest).map_err(|error| Dropped {
            line: error.span().map_or(0, |span| line_of(&rest, span.start)),
            why: error.message().to_owned(),
        })?;
        let made = table.remove("tune").ok_or_else(|| whole("there is no [tune]".to_owned()))?;
        let made: Made = made.try_into().map_err(|error| whole(format!("[tune]: {}", error.message())))?;
        if made.version != VERSION {
            return Err(whole(format!("its format is version {}, and {VERSION} is known", made.version)));
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Shapes {
            topology: String,
            races: usize,
        }
        let shapes = table.remove("shape").unwrap_or_else(|| toml::Value::Array(Vec::new()));
        let shapes: Vec<Shapes> =
            shapes.try_into().map_err(|error| whole(format!("[[shape]]: {}", error.message())))?;
        let machine = Machine::of(table).map_err(|error| whole(error.to_string()))?;
        let (mut raced, mut dropped) = (Vec::new(), Vec::new());
        for Shapes { topology, races: which } in shapes {
            let lines = races.get(which).map(Vec::as_slice).unwrap_or_default();
            let shape = match regular(&topology) {
                Ok(shape) => shape,
                Err(why) => {
                    dropped.extend(lines.iter().map(|(line, _)| Dropped { line: *line, why: why.clone() }));
                    continue;
                }
            };
            let mut verdicts: Vec<Verdict> = Vec::new();
            for &(line, text) in lines {
                let text = text.strip_suffix(',').unwrap_or(text);
                let read =
                    toml::from_str::<std::collections::BTreeMap<String, Line>>(&format!("race = {text}"))
                        .map_err(|error| error.message().to_owned())
                        .and_then(|mut one| match (one.remove("race"), one.is_empty()) {
                            (Some(line), true) => line.verdict(),
                            _ => Err("one race on each line".to_owned()),
                        });
                match read {
                    Ok(verdict) => {
                        let same =
                            |other: &Verdict| other.name == verdict.name && other.bytes == verdict.bytes;
                        if verdicts.iter().any(same) {
                            let why = format!("{} of {} B was raced above", verdict.name, verdict.bytes);
                            dropped.push(Dropped { line, why });
                        } else {
                            verdicts.push(verdict);
                        }
                    }
                    Err(why) => dropped.push(Dropped { line, why }),
                }
            }
            raced.push(Raced { shape, verdicts });
        }
        Ok((Profile { machine, made, raced }, dropped))
    }

    /// The same as text.
    pub fn write(&self) -> String {
        let mut text = self.machine.write();
        let Made { version, mpi, bruckner, cpu, when } = &self.made;
        let (mpi, bruckner, cpu) = (quoted(mpi), quoted(bruckner), quoted(cpu));
        let _ = write!(
            text,
            "\n[tune]\nversion = {version}\nmpi = {mpi}\nbruckner = {bruckner}\ncpu = {cpu}\nwhen = {when}\n"
        );
        for Raced { shape, verdicts } in &self.raced {
            let _ = write!(text, "\n[[shape]]\ntopology = \"{shape}\"\nraces = [\n");
            for verdict in verdicts {
                let Verdict { name, bytes, expression, native, ratio, interval: [low, high], launches } =
                    verdict;
                let _ = writeln!(
                    text,
                    "  {{ collective = \"{name}\", bytes = {bytes}, winner = {}, native = {native:e}, ratio = {ratio}, low = {low}, high = {high}, launches = {launches} }},",
                    quoted(&expression.to_string())
                );
            }
            text.push_str("]\n");
        }
        text
    }

    /// What it says to a library that runs on an MPI of this name; and what of it does not hold there.
    pub fn knowledge(self, mpi: &str) -> (Knowledge, Option<String>) {
        let (vendor, mpi) = (Vendor::of(mpi), Vendor::short(mpi));
        let made = &self.made.mpi;
        if Vendor::of(made) != vendor {
            let why = format!("the profile is for {made}, and this is {mpi}: it is not used");
            return (Knowledge::nominal(vendor), Some(why));
        }
        let steady = Source { machine: self.machine, origin: Origin::Profile };
        let between_nodes = self.raced.iter().any(|raced| raced.shape.nodes > 1);
        let known = Knowledge { steady, here: None, raced: self.raced, between_nodes, vendor };
        if made != mpi {
            let why = format!("the profile is for {made}, and this is {mpi}: its races are not used");
            return (Knowledge { raced: Vec::new(), ..known }, Some(why));
        }
        (known, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let verdict = |name, bytes, algorithm: &str, ratio: f64| Verdict {
            name,
            bytes,
            expression: algorithm.parse().unwrap(),
            native: 1.5e-6,
            ratio,
            interval: [ratio * 0.9, ratio * 1.1],
            launches: 2,
        };
        let verdicts = vec![
            verdict(Name::Allreduce, 8, "lanes(node, between=8(-7 7))", 0.5),
            verdict(Name::Alltoall, 4096, "native", 1.0),
        ];
        let shape = |text: &str| regular(text).unwrap();
        Profile {
            machine: Machine::known("lassen").unwrap(),
            made: Made {
                version: VERSION,
                mpi: "Open MPI 5.0.11".into(),
                bruckner: "0.1.0".into(),
                cpu: "a \"fast\" one".into(),
                when: 5,
            },
            raced: vec![
                Raced { shape: shape("8x2"), verdicts: verdicts.clone() },
                Raced { shape: shape("2x8:cyclic"), verdicts },
            ],
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let profile = profile();
        assert_eq!(Profile::read(&profile.write()), Ok((profile, Vec::new())));
    }

    #[test]
    fn a_broken_line_is_dropped_with_its_number() {
        let text = profile().write();
        let number = |text: &str, part: &str| text.lines().position(|line| line.contains(part)).unwrap() + 1;
        for (from, to, why) in [
            ("\"alltoall\"", "\"alltonone\"", "`alltonone` is not one of allgather"),
            ("native = 1.5e-6", "native = nan", "NaN is no time"),
            ("bytes = 4096", "bytes = -1", "invalid value"),
            ("winner = \"native\"", "winner = \"nativ\"", "`nativ`: "),
            ("launches = 2 },", "launches = 2, more = 1 },", "unknown field"),
            ("launches = 2 },", "launches = 2 ", ""),
            ("ratio = 1,", "ratio = 3,", "3 (0.9 to 1.1) is no ratio"),
        ] {
            let broken = text.replacen(from, to, 1);
            let (read, dropped) = Profile::read(&broken).unwrap();
            assert_eq!(dropped.len(), 1, "{to}: {dropped:?}");
            assert!(dropped[0].why.contains(why), "{dropped:?}");
            assert_eq!(dropped[0].line, number(&broken, to), "{to}");
            assert_eq!(read.raced[0].verdicts.len(), 1);
            assert_eq!(read.raced[1].verdicts.len(), 2);
        }
    }

    #[test]
    fn what_is_wrong_elsewhere_is_told_with_its_line() {
        let text = profile().write();
        let wrong =
            |from: &str, to: &str| Profile::read(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(wrong("[tune]", "[tuna]").contains("no [tune]"));
        assert_eq!(wrong("version = 1", "version = 2"), "its format is version 2, and 1 is known");
        assert!(wrong("[network]", "[network").starts_with("line 4: "));
        assert!(wrong("\n]\n\n[[shape]]", "\n\n[[shape]]").contains("list of races before it has no end"));
        assert!(wrong("latency = ", "latency = -").contains("is no time"));
        assert!(Profile::read(&"#".repeat(LONGEST + 1)).unwrap_err().why.contains("more than"));
    }

    #[test]
    fn another_mpi_takes_what_holds() {
        let (same, why) = profile().knowledge("Open MPI 5.0.11");
        assert_eq!((same.raced.len(), same.steady.origin, why), (2, Origin::Profile, None));
        let (newer, why) = profile().knowledge("Open MPI 5.1.0");
        assert_eq!((newer.raced.len(), newer.steady.origin), (0, Origin::Profile));
        assert!(why.unwrap().ends_with("its races are not used"));
        let (other, why) = profile().knowledge("MPICH 5.0.0");
        assert_eq!(other.steady.origin, Origin::Nominal);
        assert!(why.unwrap().ends_with("it is not used"));
    }
}

//! The settings: their table, and the values that all ranks have.

use std::path::Path;

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_algorithms::written::without_files;
use bruckner_choose::{BadRule, Name, Policy, Rules};
use bruckner_mpi::variable;
use bruckner_schedule::Topology;

use crate::profile::ProfilePlace;

/// Whether the library serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// It does not.
    Off,
    /// Where that is known to be better.
    On,
    /// Whatever has a right algorithm: for tests.
    Always,
}

/// Where the report goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    /// Text on standard error.
    Stderr,
    /// JSON in a file; its name may have `%j`, `%h` and `%p`.
    File(String),
}

/// The settings, the same on all ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Whether the library handles calls.
    pub mode: Mode,
    /// The algorithms that the user named.
    pub rules: Rules,
    /// Collectives whose MPI functions are not taken over.
    pub left: Vec<Name>,
    /// The placement of ranks, if it is given.
    pub topology: Option<Topology>,
    /// Whether ranks of a node use shared memory.
    pub shared_memory: bool,
    /// Whether ranks of a node may read each other's buffers.
    pub reads: bool,
    /// Every so many calls one is compared with the MPI's own; 0 for none.
    pub check: u64,
    /// Where the report goes, if there is to be one.
    pub report: Option<Destination>,
    /// Calls on a communicator before it is served.
    pub after: u32,
    /// The most temporary memory of a plan.
    pub memory: u64,
    /// Whether ranks may get different roundings of one floating-point result.
    pub fast_math: bool,
    /// Whether messages may be measured where there is no profile.
    pub measure: bool,
    /// Whether what serves is compared with what else might, while a program runs.
    pub watch: bool,
    /// Where the profile of the machine is.
    pub profiles: ProfilePlace,
    /// Complaints about wrong values.
    pub complaints: Vec<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mode: Mode::On,
            rules: Rules::default(),
            left: Vec::new(),
            topology: None,
            shared_memory: true,
            reads: true,
            check: 0,
            report: None,
            after: 3,
            memory: 64 << 20,
            fast_math: false,
            measure: true,
            watch: true,
            profiles: ProfilePlace::Standard,
            complaints: Vec::new(),
        }
    }
}

/// A setting: its name, its usual value, what it is about, and how a value is taken in.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) usual: &'static str,
    pub(crate) about: &'static str,
    take: fn(&mut Settings, &str) -> Result<(), String>,
}

/// The setting that may name files.
pub(crate) const ALGORITHM: &str = "BRUCKNER_ALGORITHM";

pub(crate) const SETTINGS: [Setting; 14] = [
    Setting {
        name: "BRUCKNER",
        usual: "on",
        about: "on, off: nothing is served, or always: whatever has a right algorithm is, for tests",
        take: |to, value| {
            to.mode = match value {
                "off" | "0" => Mode::Off,
                "on" | "1" => Mode::On,
                "always" => Mode::Always,
                _ => return Err("expected off, on or always".into()),
            };
            Ok(())
        },
    },
    Setting {
        name: ALGORITHM,
        usual: "",
        about: "algorithms by collective, as allreduce=locality(node); allgather=sparbit",
        take: |to, value| {
            to.rules = value.parse().map_err(|error: BadRule| error.to_string())?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_LEAVE",
        usual: "",
        about: "collectives that are left to the MPI, as alltoall, bcast, or all",
        take: |to, value| {
            let names = value.split([',', ' ', ';']).filter(|name| !name.is_empty());
            let read = |name: &str| match name {
                "all" => Ok(Name::ALL.to_vec()),
                name => Name::read(name)
                    .map(|name| vec![name])
                    .ok_or_else(|| format!("`{name}` is not one of all, {}", Name::list())),
            };
            to.left = names.map(read).collect::<Result<Vec<_>, _>>()?.concat();
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_TOPOLOGY",
        usual: "",
        about: "takes ranks to be placed so, as 4,4,2; for tests",
        take: |to, value| {
            to.topology = Some(value.parse().map_err(|error| format!("{error}"))?);
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_SHM",
        usual: "on",
        about: "whether ranks of a node use shared memory",
        take: |to, value| {
            to.shared_memory = truth(value)?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_READ",
        usual: "on",
        about: "whether ranks of a node may read each other's buffers",
        take: |to, value| {
            to.reads = truth(value)?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_CHECK",
        usual: "0",
        about: "every so many calls one is compared with native",
        take: |to, value| {
            to.check = value.parse().map_err(|_| "expected a number of calls".to_owned())?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_REPORT",
        usual: "",
        about: "where the report goes: stderr, or a file as run-%j.json",
        take: |to, value| {
            to.report = Some(match value {
                "stderr" => Destination::Stderr,
                file if Path::new(file).extension().is_some_and(|e| e == "json") => {
                    // Where it is now: a program may go elsewhere.
                    let file = std::path::absolute(file).map_err(|why| why.to_string())?;
                    Destination::File(file.display().to_string())
                }
                _ => return Err("expected stderr or a file that ends in .json".into()),
            });
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_AFTER",
        usual: "3",
        about: "calls on a communicator before it is served",
        take: |to, value| {
            to.after = value.parse().map_err(|_| "expected a number of calls".to_owned())?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_MEMORY",
        usual: "64M",
        about: "the most temporary memory of a plan",
        take: |to, value| {
            to.memory = parse_bytes(value)?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_PROFILE",
        usual: "",
        about: "a profile of bruckner tune; off: none",
        take: |to, value| {
            to.profiles = match value {
                "off" | "0" => ProfilePlace::Off,
                file => ProfilePlace::File(file.into()),
            };
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_MEASURE",
        usual: "on",
        about: "whether messages may be measured at first use of several nodes",
        take: |to, value| {
            to.measure = truth(value)?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_WATCH",
        usual: "on",
        about: "whether what serves is compared with what else might",
        take: |to, value| {
            to.watch = truth(value)?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_FAST_MATH",
        usual: "off",
        about: "whether ranks may get different roundings of one result",
        take: |to, value| {
            to.fast_math = truth(value)?;
            Ok(())
        },
    },
];

fn truth(value: &str) -> Result<bool, String> {
    match value {
        "on" | "1" => Ok(true),
        "off" | "0" => Ok(false),
        _ => Err("expected on or off".into()),
    }
}

/// A number of bytes as people write it: 8, 64K, 1MiB.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let expected = || "expected bytes such as 8, 64K or 1MiB".to_owned();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim_start());
    let number: u64 = number.parse().map_err(|_| expected())?;
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "kb" | "mb" | "gb" => {
            let letter = &unit[..1];
            return Err(format!(
                "{unit} may be a power of ten or of two: write {number}{letter} for the power of two"
            ));
        }
        _ => return Err(expected()),
    };
    number
        .checked_shl(shift)
        .filter(|bytes| bytes >> shift == number)
        .ok_or_else(|| "too many bytes".to_owned())
}

/// Whether this process's environment alone says that nothing is to be served.
pub fn is_off_here() -> bool {
    variable("BRUCKNER").is_some_and(|value| value == "off" || value == "0")
}

/// Whether this process's environment alone asks for a report.
pub fn is_report_wanted_here() -> bool {
    variable("BRUCKNER_REPORT").is_some_and(|value| !value.is_empty())
}

impl Settings {
    /// The limits of what may be chosen.
    pub fn policy(&self) -> Policy {
        Policy { always: self.mode == Mode::Always, fast_math: self.fast_math }
    }

    /// The settings of a text that [`find_settings`] made, for a job of this many ranks.
    pub fn of(text: &str, ranks: u32) -> Settings {
        let mut settings = Settings::default();
        for line in text.lines() {
            if let Some(complaint) = line.strip_prefix('!') {
                settings.complaints.push(complaint.to_owned());
            } else if let Some((name, value)) = line.split_once('=')
                && let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name)
                && let Err(why) = (setting.take)(&mut settings, value)
            {
                settings.complaints.push(without_files(&format!("{name}={value}: {why}")));
            }
        }
        if let Some(topology) = &settings.topology
            && topology.ranks() != ranks
        {
            let has = topology.ranks();
            settings
                .complaints
                .push(format!("BRUCKNER_TOPOLOGY={topology} has {has} ranks, and there are {ranks}"));
            settings.topology = None;
        }
        settings
    }
}

impl Settings {
    /// Whether a collective is to be served as far as it can be.
    pub fn asks_for(&self, name: Name) -> bool {
        match self.rules.of(name) {
            Some(algorithm) => *algorithm != Expression::Plain(Plain::Native),
            None => self.mode == Mode::Always,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Settings {
        Settings::of(text, 4)
    }

    #[test]
    fn values_are_taken_in() {
        let s = of("BRUCKNER=always\nBRUCKNER_LEAVE=bcast, reduce\nBRUCKNER_CHECK=10\nBRUCKNER_MEMORY=1M\n");
        assert_eq!((s.mode, s.check, s.memory), (Mode::Always, 10, 1 << 20));
        assert_eq!(s.left, [Name::Bcast, Name::Reduce]);
        assert!(s.complaints.is_empty());
        assert_eq!(of("BRUCKNER_REPORT=/a/b.json").report, Some(Destination::File("/a/b.json".into())));
        assert_ne!(of("BRUCKNER_REPORT=a/b.json").report, Some(Destination::File("a/b.json".into())));
        assert_eq!(of(""), Settings::default());
    }

    #[test]
    fn wrong_values_are_explained_and_have_no_effect() {
        let complaint = |text: &str| {
            let s = of(text);
            assert_eq!(Settings { complaints: Vec::new(), ..s.clone() }, Settings::default());
            assert_eq!(s.complaints.len(), 1, "{:?}", s.complaints);
            s.complaints[0].clone()
        };
        assert_eq!(complaint("BRUCKNER=maybe"), "BRUCKNER=maybe: expected off, on or always");
        assert_eq!(complaint("BRUCKNER_TOPOLOGY=2x1"), "BRUCKNER_TOPOLOGY=2x1 has 2 ranks, and there are 4");
        assert_eq!(
            complaint("BRUCKNER_REPORT=x.txt"),
            "BRUCKNER_REPORT=x.txt: expected stderr or a file that ends in .json"
        );
        assert!(complaint("BRUCKNER_LEAVE=scan").contains("`scan` is not one of all, allgather"));
        assert!(
            complaint("BRUCKNER_ALGORITHM=allreduce=rnig").starts_with("BRUCKNER_ALGORITHM=allreduce=rnig: ")
        );
        assert!(complaint("BRUCKNER_MEMORY=64X").ends_with("expected bytes such as 8, 64K or 1MiB"));
    }

    /// The usual values are those that the library has.
    #[test]
    fn usual_values_change_nothing() {
        for setting in SETTINGS.iter().filter(|setting| !setting.usual.is_empty()) {
            assert_eq!(
                of(&format!("{}={}", setting.name, setting.usual)),
                Settings::default(),
                "{}",
                setting.name
            );
        }
    }
}

//! The table of settings, and their values. All ranks have the same values.

use std::path::Path;

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_algorithms::user_schedule::strip_files;
use bruckner_choose::{BadRule, Name, Policy, Rules};
use bruckner_mpi::variable;
use bruckner_schedule::Topology;

use crate::profile::ProfileSource;

/// Which calls the library handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The library handles no calls.
    Off,
    /// The library handles the calls for which it is expected to be faster than the MPI.
    On,
    /// The library handles every call for which it has a correct algorithm; for tests.
    Always,
}

/// Destination of the report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    /// Standard error, where the report is text.
    Stderr,
    /// A file, where the report is JSON. Its name may contain `%j`, `%h` and `%p`.
    File(String),
}

/// Values of all settings. All ranks have the same values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Which calls the library handles.
    pub mode: Mode,
    /// Algorithms that the user named, by collective.
    pub rules: Rules,
    /// Collectives whose MPI functions are not intercepted.
    pub not_intercepted: Vec<Name>,
    /// Topology that replaces the detected one, if set.
    pub topology: Option<Topology>,
    /// Whether ranks of a node use shared memory.
    pub shared_memory: bool,
    /// Whether ranks of a node may read each other's buffers.
    pub peer_reads: bool,
    /// Number of calls from one comparison with the MPI's own collective to the next; 0 disables the comparisons.
    pub check_interval: u64,
    /// Destination of the report; `None` if no report is written.
    pub report: Option<Destination>,
    /// Number of calls on a communicator before the library handles its calls.
    pub after: u32,
    /// Maximum temporary memory of a plan, in bytes.
    pub max_plan_bytes: u64,
    /// Whether ranks may get differently rounded results of one floating-point reduction.
    pub fast_math: bool,
    /// Whether the library may calibrate the machine model with a few messages if there is no profile.
    pub calibrate: bool,
    /// Whether online tuning compares the algorithms in use with alternatives while a program runs.
    pub online_tuning: bool,
    /// Places to search for the profile of the machine.
    pub profile_source: ProfileSource,
    /// Complaints about wrong values.
    pub complaints: Vec<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mode: Mode::On,
            rules: Rules::default(),
            not_intercepted: Vec::new(),
            topology: None,
            shared_memory: true,
            peer_reads: true,
            check_interval: 0,
            report: None,
            after: 3,
            max_plan_bytes: 64 << 20,
            fast_math: false,
            calibrate: true,
            online_tuning: true,
            profile_source: ProfileSource::Standard,
            complaints: Vec::new(),
        }
    }
}

/// A setting: name, default value, description, and the function that parses and stores a value.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) default: &'static str,
    pub(crate) about: &'static str,
    take: fn(&mut Settings, &str) -> Result<(), String>,
}

/// Name of the setting whose value may refer to files.
pub(crate) const ALGORITHM: &str = "BRUCKNER_ALGORITHM";

pub(crate) const SETTINGS: [Setting; 14] = [
    Setting {
        name: "BRUCKNER",
        default: "on",
        about: "on, off (pass all calls through to the MPI) or, for tests, always (handle every call that has a correct algorithm)",
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
        default: "",
        about: "algorithm for each collective, for example allreduce=locality(node); allgather=sparbit",
        take: |to, value| {
            to.rules = value.parse().map_err(|error: BadRule| error.to_string())?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_PASS_THROUGH",
        default: "",
        about: "collectives to pass through to the MPI, for example alltoall, bcast; all: every collective",
        take: |to, value| {
            let names = value.split([',', ' ', ';']).filter(|name| !name.is_empty());
            let read = |name: &str| match name {
                "all" => Ok(Name::ALL.to_vec()),
                name => Name::read(name)
                    .map(|name| vec![name])
                    .ok_or_else(|| format!("`{name}` is neither `all` nor one of {}", Name::list())),
            };
            to.not_intercepted = names.map(read).collect::<Result<Vec<_>, _>>()?.concat();
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_TOPOLOGY",
        default: "",
        about: "topology to assume instead of the detected one, for example 4,4,2 (the ranks of each node); for tests",
        take: |to, value| {
            to.topology = Some(value.parse().map_err(|error| format!("{error}"))?);
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_SHM",
        default: "on",
        about: "whether ranks of a node use shared memory",
        take: |to, value| {
            to.shared_memory = parse_switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_READ",
        default: "on",
        about: "whether ranks of a node may read each other's buffers",
        take: |to, value| {
            to.peer_reads = parse_switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_CHECK",
        default: "0",
        about: "compare the result of every N-th call with that of the MPI's own function; 0: never",
        take: |to, value| {
            to.check_interval = value.parse().map_err(|_| "expected a number of calls".to_owned())?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_REPORT",
        default: "off",
        about: "destination of the report: stderr, or a file such as run-%j.json; off: no report",
        take: |to, value| {
            to.report = Some(match value {
                "off" => {
                    to.report = None;
                    return Ok(());
                }
                "stderr" => Destination::Stderr,
                file if Path::new(file).extension().is_some_and(|e| e == "json") => {
                    // Made absolute now, because the program may change its working directory.
                    let file = std::path::absolute(file).map_err(|why| why.to_string())?;
                    Destination::File(file.display().to_string())
                }
                _ => return Err("expected stderr, off, or a file that ends in .json".into()),
            });
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_AFTER",
        default: "3",
        about: "number of first calls on a communicator that are passed through to the MPI",
        take: |to, value| {
            to.after = value.parse().map_err(|_| "expected a number of calls".to_owned())?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_MEMORY",
        default: "64M",
        about: "maximum temporary memory of a plan",
        take: |to, value| {
            to.max_plan_bytes = parse_bytes(value)?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_PROFILE",
        default: "",
        about: "path of a profile written by bruckner tune; off: use no profile",
        take: |to, value| {
            to.profile_source = match value {
                "off" | "0" => ProfileSource::Off,
                file => ProfileSource::File(file.into()),
            };
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_CALIBRATE",
        default: "on",
        about: "on or off: calibration with a few messages at first use of a communicator that spans nodes",
        take: |to, value| {
            to.calibrate = parse_switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_ONLINE_TUNING",
        default: "on",
        about: "online tuning: whether to compare the algorithms in use with alternatives while the program runs",
        take: |to, value| {
            to.online_tuning = parse_switch(value)?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_FAST_MATH",
        default: "off",
        about: "on or off: whether ranks may get differently rounded results of the same reduction",
        take: |to, value| {
            to.fast_math = parse_switch(value)?;
            Ok(())
        },
    },
];

fn parse_switch(value: &str) -> Result<bool, String> {
    match value {
        "on" | "1" => Ok(true),
        "off" | "0" => Ok(false),
        _ => Err("expected on or off".into()),
    }
}

/// Parses a number of bytes such as 8, 64K or 1MiB.
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
            return Err(format!("{unit} is ambiguous: write {number}{letter}, which means {number} {letter}iB"));
        }
        _ => return Err(expected()),
    };
    number.checked_shl(shift).filter(|bytes| bytes >> shift == number).ok_or_else(|| "too many bytes".to_owned())
}

/// Whether an environment variable of this process switches the library off. Settings files are not read.
pub fn is_off_here() -> bool {
    variable("BRUCKNER").is_some_and(|value| value == "off" || value == "0")
}

/// Whether an environment variable of this process requests a report. Settings files are not read.
pub fn is_report_wanted_here() -> bool {
    variable("BRUCKNER_REPORT").is_some_and(|value| !value.is_empty() && value != "off")
}

impl Settings {
    /// Returns the policy for choosing algorithms.
    pub fn policy(&self) -> Policy {
        Policy { always: self.mode == Mode::Always, fast_math: self.fast_math }
    }

    /// Parses the text that [`find_settings`](crate::find_settings) made, for a job of `ranks` ranks.
    pub fn of(text: &str, ranks: u32) -> Settings {
        let mut settings = Settings::default();
        for line in text.lines() {
            if let Some(complaint) = line.strip_prefix('!') {
                settings.complaints.push(complaint.to_owned());
            } else if let Some((name, value)) = line.split_once('=')
                && let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name)
                && let Err(why) = (setting.take)(&mut settings, value)
            {
                settings.complaints.push(strip_files(&format!("{name}={value} is ignored: {why}")));
            }
        }
        if let Some(topology) = &settings.topology
            && topology.ranks() != ranks
        {
            let has = topology.ranks();
            settings
                .complaints
                .push(format!("BRUCKNER_TOPOLOGY={topology} is ignored: it has {has} ranks, but the job has {ranks}"));
            settings.topology = None;
        }
        settings
    }
}

impl Settings {
    /// Whether the library handles every supported call of a collective. It does if the user named an algorithm other than `native` for
    /// the collective, or named no algorithm and the mode is [`Mode::Always`].
    pub fn handles_all(&self, name: Name) -> bool {
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
        let s = of("BRUCKNER=always\nBRUCKNER_PASS_THROUGH=bcast, reduce\nBRUCKNER_CHECK=10\nBRUCKNER_MEMORY=1M\n");
        assert_eq!((s.mode, s.check_interval, s.max_plan_bytes), (Mode::Always, 10, 1 << 20));
        assert_eq!(s.not_intercepted, [Name::Bcast, Name::Reduce]);
        assert!(s.complaints.is_empty());
        assert_eq!(of("BRUCKNER_REPORT=/a/b.json").report, Some(Destination::File("/a/b.json".into())));
        assert_ne!(of("BRUCKNER_REPORT=a/b.json").report, Some(Destination::File("a/b.json".into())));
        assert_eq!(of("BRUCKNER_REPORT=off").report, None);
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
        assert_eq!(complaint("BRUCKNER=maybe"), "BRUCKNER=maybe is ignored: expected off, on or always");
        assert_eq!(
            complaint("BRUCKNER_TOPOLOGY=2x1"),
            "BRUCKNER_TOPOLOGY=2x1 is ignored: it has 2 ranks, but the job has 4"
        );
        assert_eq!(
            complaint("BRUCKNER_REPORT=x.txt"),
            "BRUCKNER_REPORT=x.txt is ignored: expected stderr, off, or a file that ends in .json"
        );
        assert!(complaint("BRUCKNER_PASS_THROUGH=scan").contains("`scan` is neither `all` nor one of allgather"));
        assert!(
            complaint("BRUCKNER_ALGORITHM=allreduce=rnig")
                .starts_with("BRUCKNER_ALGORITHM=allreduce=rnig is ignored: ")
        );
        assert!(complaint("BRUCKNER_MEMORY=64X").ends_with("expected bytes such as 8, 64K or 1MiB"));
    }

    /// The default values in the table are those of `Settings::default()`.
    #[test]
    fn usual_values_change_nothing() {
        for setting in SETTINGS.iter().filter(|setting| !setting.default.is_empty()) {
            assert_eq!(of(&format!("{}={}", setting.name, setting.default)), Settings::default(), "{}", setting.name);
        }
    }
}

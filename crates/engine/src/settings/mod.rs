//! Settings: from the administrator's file, the environment and the user's file of rank 0, given to all ranks.
//!
//! What ranks would read for themselves may differ between them, so only rank 0 reads. Its findings travel as text, and
//! every rank, rank 0 too, makes its [`Settings`] of that text alone. A value that is wrong is explained and has no effect.

mod found;

use std::path::Path;

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_algorithms::written::without_files;
use bruckner_choose::{BadRule, Name, Policy, Profile, Rules};
use bruckner_mpi::{Function, variable};
use bruckner_schedule::Topology;

use crate::call::name;
use crate::profile::{self, Profiles};
pub(crate) use found::find;
pub use found::{Shown, show_settings};

/// Whether the library serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// It does not.
    Off,
    /// Where that is known to be better.
    On,
    /// Whatever has a right algorithm: for tests.
    Always,
}

/// Where the report goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    /// Text on standard error.
    Stderr,
    /// JSON in a file; its name may have `%j`, `%h` and `%p`.
    File(String),
}

/// The settings, the same on all ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    pub(crate) rules: Rules,
    /// Collectives whose MPI functions are not taken over.
    pub(crate) left: Vec<Name>,
    pub(crate) topology: Option<Topology>,
    pub(crate) shared_memory: bool,
    /// Whether ranks of a node may read each other's buffers.
    pub(crate) reads: bool,
    /// Every so many calls one is compared with the MPI's own; 0 for none.
    pub(crate) check: u64,
    pub(crate) report: Option<Destination>,
    /// Calls on a communicator before it is served.
    pub(crate) after: u32,
    /// The most temporary memory of a plan.
    pub(crate) memory: u64,
    /// Whether ranks may get different roundings of one floating-point result.
    pub(crate) fast_math: bool,
    /// Whether messages may be measured where there is no profile.
    pub(crate) measure: bool,
    /// Whether what serves is compared with what else might, while a program runs.
    pub(crate) watch: bool,
    /// Where the profile of the machine is.
    pub(crate) profiles: Profiles,
    /// What was wrong, in words.
    pub(crate) complaints: Vec<String>,
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
            profiles: Profiles::Usual,
            complaints: Vec::new(),
        }
    }
}

/// A setting: its name, its usual value, what it is about, and how a value is taken in.
struct Setting {
    name: &'static str,
    usual: &'static str,
    about: &'static str,
    take: fn(&mut Settings, &str) -> Result<(), String>,
}

/// The setting that may name files.
const ALGORITHM: &str = "BRUCKNER_ALGORITHM";

const SETTINGS: [Setting; 14] = [
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
            to.memory = size(value)?;
            Ok(())
        },
    },
    Setting {
        name: "BRUCKNER_PROFILE",
        usual: "",
        about: "a profile of bruckner tune; off: none",
        take: |to, value| {
            to.profiles = match value {
                "off" | "0" => Profiles::Off,
                file => Profiles::File(file.into()),
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
pub fn size(text: &str) -> Result<u64, String> {
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
pub(crate) fn is_off_here() -> bool {
    variable("BRUCKNER").is_some_and(|value| value == "off" || value == "0")
}

/// Whether this process's environment alone asks for a report.
pub(crate) fn is_reported_here() -> bool {
    variable("BRUCKNER_REPORT").is_some_and(|value| !value.is_empty())
}

/// The profile of the machine that this process finds where settings of this text say.
pub(crate) fn find_profile(text: &str) -> String {
    profile::find(&Settings::of(text, 0).profiles)
}

/// What the files and the environment of this process say about choosing, for a job of so many ranks.
pub fn settings_here(ranks: u32) -> Here {
    let settings = Settings::of(&find(), ranks);
    let policy = settings.policy();
    Here { profile: profile::find(&settings.profiles), rules: settings.rules, policy }
}

/// What this process finds that choices depend on.
pub struct Here {
    /// What the user named.
    pub rules: Rules,
    /// What else the settings say.
    pub policy: Policy,
    profile: String,
}

impl Here {
    /// The profile of this machine, if there is one, and what is wrong with it.
    pub fn profile(&self) -> (Option<Profile>, Vec<String>) {
        let mut complaints = Vec::new();
        (profile::read(&self.profile, &mut complaints), complaints)
    }
}

impl Settings {
    /// What is said about choosing.
    pub(crate) fn policy(&self) -> Policy {
        Policy { always: self.mode == Mode::Always, fast_math: self.fast_math }
    }

    /// The settings of a text that [`find`] made, for so many ranks.
    pub(crate) fn of(text: &str, ranks: u32) -> Settings {
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
    pub(crate) fn asks_for(&self, name: Name) -> bool {
        match self.rules.of(name) {
            Some(algorithm) => *algorithm != Expression::Plain(Plain::Native),
            None => self.mode == Mode::Always,
        }
    }

    /// Whether a function of the MPI's is left alone: because the settings say so, or because it is the MPI's own that would be chosen in any
    /// case (by [`bruckner_choose::Menus`]), and nobody counts.
    pub(crate) fn leaves(&self, function: Function) -> bool {
        let name = name(function);
        let is_native = name.is_rooted() || function == Function::Alltoallv;
        let is_unseen = self.report.is_none();
        let is_useless = self.mode == Mode::Off || (is_native && !self.asks_for(name));
        self.left.contains(&name) || (is_unseen && is_useless)
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

    /// What is the MPI's own in any case is not looked at, unless somebody counts.
    #[test]
    fn functions_that_are_never_served_are_left_alone() {
        let left = |text: &str| {
            let settings = of(text);
            Function::ALL.into_iter().filter(|function| settings.leaves(*function)).collect::<Vec<_>>()
        };
        let (bcast, reduce, alltoallv) = (Function::Bcast, Function::Reduce, Function::Alltoallv);
        assert_eq!(left(""), [alltoallv, bcast, reduce]);
        assert_eq!(left("BRUCKNER_ALGORITHM=bcast=shm"), [alltoallv, reduce]);
        assert_eq!(left("BRUCKNER=always\nBRUCKNER_ALGORITHM=bcast=native"), [bcast]);
        assert_eq!(left("BRUCKNER_ALGORITHM=alltoall=pairwise"), [bcast, reduce]);
        assert_eq!(left("BRUCKNER_LEAVE=alltoall"), [Function::Alltoall, alltoallv, bcast, reduce]);
        assert_eq!(left("BRUCKNER=always"), []);
        assert_eq!(left("BRUCKNER_REPORT=stderr"), []);
        assert_eq!(left("BRUCKNER=off"), Function::ALL);
        assert_eq!(left("BRUCKNER=off\nBRUCKNER_REPORT=stderr"), []);
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

//! Settings: from the administrator's file, the environment and the user's file of rank 0, given to all ranks.
//!
//! What ranks would read for themselves may differ between them, so only rank 0 reads. Its findings travel as text, and
//! every rank, rank 0 too, makes its [`Settings`] of that text alone. A value that is wrong is explained and has no effect.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bruckner_algorithms::written::{with_files, without_files};
use bruckner_choose::{BadRule, Name, Policy, Profile, Rules};
use bruckner_mpi::{has_raised_privileges, variable};
use bruckner_schedule::Topology;

use crate::files;
use crate::profile::{self, Profiles};

/// The administrator's file: defaults, which users may change, and what they cannot.
const ADMINISTRATORS: &str = "/etc/bruckner.conf";

/// No file of settings is longer.
const LONGEST: u64 = 1 << 20;

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
                    Destination::File(file.into())
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
            to.memory = bytes(value).ok_or("expected a size as 64M or 1G")?;
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

/// Variables that are read elsewhere.
const OTHERS: [&str; 4] = ["BRUCKNER_MPI", "BRUCKNER_CONFIG", "BRUCKNER_FAULT", "BRUCKNER_EXEC"];

fn truth(value: &str) -> Result<bool, String> {
    match value {
        "on" | "1" => Ok(true),
        "off" | "0" => Ok(false),
        _ => Err("expected on or off".into()),
    }
}

fn bytes(text: &str) -> Option<u64> {
    let shift = match text.chars().last()? {
        'K' | 'k' => 10,
        'M' | 'm' => 20,
        'G' | 'g' => 30,
        _ => 0,
    };
    let number: u64 = text.trim_end_matches(|c: char| shift > 0 && c.is_alphabetic()).parse().ok()?;
    number.checked_shl(shift).filter(|bytes| bytes >> shift == number)
}

/// A value, and where it was found.
struct Value {
    text: String,
    place: String,
}

/// What rank 0 found: values by name, each behind those that it replaces, and complaints about files. Lines of text, to be given to all.
#[derive(Default)]
struct Found {
    values: BTreeMap<String, Vec<Value>>,
    complaints: Vec<String>,
}

/// What the lines of a file are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// What others may change.
    Default,
    /// What nobody may.
    Fixed,
}

impl Found {
    fn put(&mut self, name: &str, value: &str, place: &str) {
        if SETTINGS.iter().any(|setting| setting.name == name) {
            let text = value.replace('\n', " ").trim().to_owned();
            self.values.entry(name.to_owned()).or_default().push(Value { text, place: place.to_owned() });
        } else if !OTHERS.contains(&name) {
            let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
            let place = if place == ENVIRONMENT { String::new() } else { format!("{place}: ") };
            self.complaints.push(format!("{place}`{name}` is no setting; there are {}", known.join(", ")));
        }
    }

    /// The lines `NAME = value` of a file, if it is there and belongs to whom it must: each with its number and its part.
    fn lines(&mut self, path: &Path, trusted: &[u32]) -> Vec<(usize, Part, String)> {
        let mut complain = |why: String| self.complaints.push(format!("{}: {why}", path.display()));
        let text = match files::read(path, trusted, LONGEST) {
            Ok(Some(text)) => text,
            Ok(None) => return Vec::new(),
            Err(why) => {
                complain(why);
                return Vec::new();
            }
        };
        let mut part = Part::Fixed;
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            match line {
                "" => {}
                "[default]" => part = Part::Default,
                "[fixed]" => part = Part::Fixed,
                line => lines.push((number, part, line.to_owned())),
            }
        }
        lines
    }

    /// Takes in lines of a file.
    fn take(&mut self, path: &Path, lines: &[(usize, Part, String)], kind: &str) {
        for (number, _, line) in lines {
            let place = format!("{}, line {number}{kind}", path.display());
            match line.split_once('=') {
                Some((name, value)) => self.put(name.trim(), value, &place),
                None => self.complaints.push(format!("{place}: expected NAME = value, [default] or [fixed]")),
            }
        }
    }

    /// Takes in all lines of a user's file, which nothing is fixed by.
    fn file(&mut self, path: &Path, trusted: &[u32]) {
        let lines = self.lines(path, trusted);
        self.take(path, &lines, "");
    }

    /// Puts what files of algorithms say in the place of their names: other ranks may not have them.
    fn read_algorithms(&mut self) {
        let me = user();
        let read = |name: &str| match files::read(Path::new(name), &[0, me], LONGEST) {
            Ok(Some(text)) => Ok(text),
            Ok(None) => Err("there is no such file".to_owned()),
            Err(why) => Err(why),
        };
        let Some(values) = self.values.get_mut(ALGORITHM) else { return };
        let Some(value) = values.last_mut() else { return };
        match with_files(&value.text, read) {
            Ok(text) => value.text = text,
            Err(why) => {
                self.complaints.push(format!("{ALGORITHM}: {why}"));
                self.values.remove(ALGORITHM);
            }
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, values) in &self.values {
            if let Some(value) = values.last() {
                let _ = writeln!(text, "{name}={}", value.text);
            }
        }
        for complaint in &self.complaints {
            let _ = writeln!(text, "!{}", complaint.replace('\n', " "));
        }
        text
    }
}

/// Whether this process's environment alone says that nothing is to be served.
pub(crate) fn is_off_here() -> bool {
    variable("BRUCKNER").is_some_and(|value| value == "off" || value == "0")
}

/// Whether this process's environment alone asks for a report.
pub(crate) fn is_reported_here() -> bool {
    variable("BRUCKNER_REPORT").is_some_and(|value| !value.is_empty())
}

/// Where a variable is found.
const ENVIRONMENT: &str = "environment";

/// What this process finds, as text for [`Settings::of`].
pub(crate) fn find() -> String {
    let mut found = found();
    found.read_algorithms();
    found.text()
}

/// The administrator's defaults, then the user's file, then the environment, then what the administrator fixed: what comes later counts.
fn found() -> Found {
    let me = user();
    let mut found = Found::default();
    let administrators = Path::new(ADMINISTRATORS);
    let lines = found.lines(administrators, &[0]);
    let (defaults, fixed): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|(_, part, _)| *part == Part::Default);
    found.take(administrators, &defaults, ", default");
    if let Some(file) = users_file() {
        found.file(&file, &[0, me]);
    }
    let all = if has_raised_privileges() { None } else { Some(std::env::vars_os()) };
    for (name, value) in all.into_iter().flatten() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        if (name == "BRUCKNER" || name.starts_with("BRUCKNER_")) && !value.trim().is_empty() {
            found.put(name, value, ENVIRONMENT);
        }
    }
    found.take(administrators, &fixed, ", fixed");
    found
}

/// The user that this process runs as.
fn user() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

/// The user's file, which need not be there.
fn users_file() -> Option<PathBuf> {
    variable("BRUCKNER_CONFIG").map(PathBuf::from).or_else(|| {
        let home = variable("HOME")?;
        Some(Path::new(&home).join(".config/bruckner.conf"))
    })
}

/// A setting as this process finds it, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// Its name.
    pub name: &'static str,
    /// Its value; nothing, where there is none.
    pub value: String,
    /// Where it was found.
    pub source: String,
    /// What it replaces: values, and where they were found.
    pub replaces: Vec<(String, String)>,
    /// What it is about.
    pub about: &'static str,
}

/// All settings as this process finds them, and what is wrong with them.
pub fn show_settings() -> (Vec<Shown>, Vec<String>) {
    let found = found();
    let shown = SETTINGS.iter().map(|setting| {
        let usual = (setting.usual.to_owned(), "usual".to_owned());
        let others = found.values.get(setting.name).into_iter().flatten();
        let mut all: Vec<(String, String)> = [usual]
            .into_iter()
            .chain(others.map(|value| (value.text.clone(), value.place.clone())))
            .collect();
        let (value, source) = all.pop().unwrap_or_default();
        // The usual value is no news.
        let replaces = all.into_iter().skip(1).collect();
        Shown { name: setting.name, value, source, replaces, about: setting.about }
    });
    let shown = shown.collect();
    let mut complaints = Settings::of(&found.text(), 0).complaints;
    complaints.retain(|complaint| !complaint.ends_with("and there are 0"));
    if let Some(file) = variable("BRUCKNER_CONFIG").map(PathBuf::from).filter(|file| !file.exists()) {
        complaints.push(format!("BRUCKNER_CONFIG={}: there is no such file", file.display()));
    }
    (shown, complaints)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{create_new, numbered};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt};

    fn of(text: &str) -> Settings {
        Settings::of(text, 4)
    }

    #[test]
    fn values_are_taken_in() {
        let s = of("BRUCKNER=always\nBRUCKNER_LEAVE=bcast, reduce\nBRUCKNER_CHECK=10\nBRUCKNER_MEMORY=1M\n");
        assert_eq!((s.mode, s.check, s.memory), (Mode::Always, 10, 1 << 20));
        assert_eq!(s.left, [Name::Bcast, Name::Reduce]);
        assert!(s.complaints.is_empty());
        assert_eq!(of("BRUCKNER_REPORT=a/b.json").report, Some(Destination::File("a/b.json".into())));
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
        assert!(complaint("BRUCKNER_MEMORY=64X").ends_with("expected a size as 64M or 1G"));
    }

    #[test]
    fn files_are_read_only_if_they_can_be_trusted() {
        let path = std::env::temp_dir().join(format!("bruckner-settings-{}", std::process::id()));
        std::fs::write(&path, "# a comment\nBRUCKNER_CHECK = 7 # every seventh\nBRUCKNER_CHEK = 1\nBRUCK")
            .unwrap();
        let me = std::fs::metadata(&path).unwrap().uid();
        let read = |trusted: u32| {
            let mut found = Found::default();
            found.file(&path, &[trusted]);
            of(&found.text())
        };
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let settings = read(me);
        assert_eq!(settings.check, 7);
        assert!(
            settings.complaints[0].contains("line 3: `BRUCKNER_CHEK` is no setting; there are BRUCKNER, ")
        );
        assert!(settings.complaints[1].ends_with("line 4: expected NAME = value, [default] or [fixed]"));
        assert!(read(me + 1).complaints[0].contains("it belongs to user"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o622)).unwrap();
        assert!(read(me).complaints[0].ends_with("others may write to it"));
        std::fs::remove_file(&path).unwrap();
    }

    /// What the administrator fixes beats the environment, which beats what is only a default.
    #[test]
    fn defaults_and_what_is_fixed_are_told_apart() {
        let path = std::env::temp_dir().join(format!("bruckner-parts-{}", std::process::id()));
        std::fs::write(
            &path,
            "BRUCKNER_CHECK = 7\n[default]\nBRUCKNER_AFTER = 5\n[fixed]\nBRUCKNER_SHM = off\n",
        )
        .unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let me = std::fs::metadata(&path).unwrap().uid();
        let mut found = Found::default();
        let lines = found.lines(&path, &[me]);
        std::fs::remove_file(&path).unwrap();
        let parts: Vec<(usize, bool)> =
            lines.iter().map(|(number, part, _)| (*number, *part == Part::Fixed)).collect();
        assert_eq!(parts, [(1, true), (3, false), (5, true)]);
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

    #[test]
    fn links_are_not_followed() {
        let place = std::env::temp_dir().join(format!("bruckner-links-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let (file, link) = (place.join("file"), place.join("link"));
        std::fs::write(&file, "BRUCKNER_CHECK = 7").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let me = std::fs::metadata(&file).unwrap().uid();
        let read = |path: &Path| {
            let mut found = Found::default();
            found.file(path, &[me]);
            of(&found.text())
        };
        assert_eq!(read(&file).check, 7);
        let settings = read(&link);
        assert_eq!(settings.check, 0);
        assert!(settings.complaints[0].ends_with("link: is not read: it is a symbolic link"));
        assert!(read(&place).complaints[0].ends_with("is not read: it is no file"));
        assert!(read(&place.join("nothing")).complaints.is_empty());
        // Nor where a report is written to, and what is there is left alone.
        let (new, taken) = (place.join("new.json"), |path: &Path| create_new(path).unwrap().1);
        assert_eq!(taken(&link), Some(numbered(&link, 1)));
        assert_eq!(taken(&file), Some(numbered(&file, 1)));
        assert_eq!(
            (taken(&new), taken(&new), taken(&new)),
            (None, Some(place.join("new-1.json")), Some(place.join("new-2.json")))
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "BRUCKNER_CHECK = 7");
        std::fs::remove_dir_all(&place).unwrap();
    }
}

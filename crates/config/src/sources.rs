//! Sources of settings: trusted files and the environment. Later sources override earlier ones.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bruckner_algorithms::aliases::{Context, current};
use bruckner_algorithms::user_schedule::embed_files;
use bruckner_mpi::{has_raised_privileges, variable};

use crate::files;
use crate::settings::{ALGORITHM, SETTINGS, Settings};

/// Path of the administrator's file: defaults, which users may change, and fixed values, which they cannot.
const ADMINISTRATORS: &str = "/etc/bruckner.conf";

/// Maximum size of a settings file or algorithm file, in bytes.
const LONGEST: u64 = 1 << 20;

/// Environment variables named `BRUCKNER_…` that are not settings; other code reads them. `BRUCKNER_ROOT` is the installation directory,
/// which environment modules set.
const OTHERS: [&str; 5] = ["BRUCKNER_MPI", "BRUCKNER_CONFIG", "BRUCKNER_FAULT", "BRUCKNER_EXEC", "BRUCKNER_ROOT"];

/// Value of a setting, and the file or environment where it was found.
struct Value {
    text: String,
    place: String,
}

/// Settings that a process found: values by name, highest precedence last, and complaints about files.
#[derive(Default)]
struct FoundSettings {
    values: BTreeMap<String, Vec<Value>>,
    complaints: Vec<String>,
}

/// Section of the administrator's file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Defaults, which users may change.
    Default,
    /// Values that users cannot change.
    Fixed,
}

impl FoundSettings {
    fn add(&mut self, name: &str, value: &str, place: &str) {
        let name = current(Context::Setting, name);
        if SETTINGS.iter().any(|setting| setting.name == name) {
            let text = value.replace('\n', " ").trim().to_owned();
            self.values.entry(name.to_owned()).or_default().push(Value { text, place: place.to_owned() });
        } else if !OTHERS.contains(&name) {
            let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
            let place = if place == ENVIRONMENT { String::new() } else { format!("{place}: ") };
            self.complaints.push(format!("{place}`{name}` is not a setting; the settings are {}", known.join(", ")));
        }
    }

    /// Returns the lines `NAME = value` of a file, each with line number and section. Returns no lines if the file is missing or not
    /// trusted.
    fn lines(&mut self, path: &Path, trusted: &[u32]) -> Vec<(usize, Part, String)> {
        let mut complain = |why: String| self.complaints.push(format!("{} {why}", path.display()));
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

    /// Adds the values in `lines`, which come from the file `path`.
    fn add_lines(&mut self, path: &Path, lines: &[(usize, Part, String)], kind: &str) {
        for (number, _, line) in lines {
            let place = format!("{}, line {number}{kind}", path.display());
            match line.split_once('=') {
                Some((name, value)) => self.add(name.trim(), value, &place),
                None => self.complaints.push(format!("{place}: expected NAME = value, [default] or [fixed]")),
            }
        }
    }

    /// Adds the values in all lines of a user's file. Its sections have no effect.
    fn add_user_file(&mut self, path: &Path, trusted: &[u32]) {
        let lines = self.lines(path, trusted);
        self.add_lines(path, &lines, "");
    }

    /// Adds the value of an environment variable, if its name is `BRUCKNER` or begins with `BRUCKNER_`.
    fn variable(&mut self, name: &OsStr, value: &OsStr) {
        let Some(name) = name.to_str().filter(|name| *name == "BRUCKNER" || name.starts_with("BRUCKNER_")) else {
            return;
        };
        match value.to_str().map(str::trim) {
            Some("") => {}
            Some(value) => self.add(name, value, ENVIRONMENT),
            None => self.complaints.push(format!("{name}: {value:?} is not valid UTF-8 and is ignored")),
        }
    }

    /// Replaces the names of algorithm files in the value of `BRUCKNER_ALGORITHM` by the contents of the files, because other ranks may
    /// not have the files.
    fn read_algorithms(&mut self) {
        let me = user();
        let read = |name: &str| match files::read(Path::new(name), &[0, me], LONGEST) {
            Ok(Some(text)) => Ok(text),
            Ok(None) => Err("there is no such file".to_owned()),
            Err(why) => Err(why),
        };
        let Some(values) = self.values.get_mut(ALGORITHM) else { return };
        let Some(value) = values.last_mut() else { return };
        match embed_files(&value.text, read) {
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

/// Name of the environment as the source of a value, as shown in messages.
const ENVIRONMENT: &str = "environment";

/// Returns the settings that this process finds, as text for [`Settings::of`].
pub fn find_settings() -> String {
    let mut found = found();
    found.read_algorithms();
    found.text()
}

/// Collects values in order of precedence, lowest first: administrator's defaults, user's file, environment, administrator's fixed values.
fn found() -> FoundSettings {
    let me = user();
    let mut found = FoundSettings::default();
    let administrators = Path::new(ADMINISTRATORS);
    let lines = found.lines(administrators, &[0]);
    let (defaults, fixed): (Vec<_>, Vec<_>) = lines.into_iter().partition(|(_, part, _)| *part == Part::Default);
    found.add_lines(administrators, &defaults, ", default");
    if let Some(file) = users_file() {
        found.add_user_file(&file, &[0, me]);
    }
    let all = if has_raised_privileges() { None } else { Some(std::env::vars_os()) };
    // Names of earlier versions come first: a new name beside the old one takes precedence.
    let is_current = |name: &OsStr| name.to_str().is_none_or(|name| current(Context::Setting, name) == name);
    let (new, old): (Vec<_>, Vec<_>) = all.into_iter().flatten().partition(|(name, _)| is_current(name));
    old.iter().chain(&new).for_each(|(name, value)| found.variable(name, value));
    found.add_lines(administrators, &fixed, ", fixed");
    found
}

/// Returns the effective user ID of this process.
fn user() -> u32 {
    // SAFETY: `geteuid` always succeeds.
    unsafe { libc::geteuid() }
}

/// Returns the path of the user's settings file, which may not exist.
fn users_file() -> Option<PathBuf> {
    variable("BRUCKNER_CONFIG").map(PathBuf::from).or_else(|| {
        let home = variable("HOME")?;
        Some(Path::new(&home).join(".config/bruckner.conf"))
    })
}

/// A setting with the value that this process finds, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownSetting {
    /// Name of the setting.
    pub name: &'static str,
    /// Value of the setting; empty if it has none.
    pub value: String,
    /// Place where the value was found.
    pub source: String,
    /// Values of lower precedence that are overridden, each with the place where it was found.
    pub replaces: Vec<(String, String)>,
    /// Description of the setting.
    pub about: &'static str,
}

/// Returns all settings as this process finds them, and complaints about wrong values.
pub fn show_settings() -> (Vec<ShownSetting>, Vec<String>) {
    let mut found = found();
    let shown = SETTINGS.iter().map(|setting| {
        let usual = (setting.default.to_owned(), "default".to_owned());
        let others = found.values.get(setting.name).into_iter().flatten();
        let mut all: Vec<(String, String)> =
            [usual].into_iter().chain(others.map(|value| (value.text.clone(), value.place.clone()))).collect();
        let (value, source) = all.pop().unwrap_or_default();
        // The default value is not listed among those replaced.
        let replaces = all.into_iter().skip(1).collect();
        ShownSetting { name: setting.name, value, source, replaces, about: setting.about }
    });
    let shown = shown.collect();
    found.read_algorithms();
    let mut complaints = Settings::of(&found.text(), 0).complaints;
    complaints.retain(|complaint| !complaint.ends_with("but the job has 0"));
    if let Some(file) = variable("BRUCKNER_CONFIG").map(PathBuf::from).filter(|file| !file.exists()) {
        complaints.push(format!("BRUCKNER_CONFIG={}: there is no such file", file.display()));
    }
    (shown, complaints)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{create_new, with_number};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt};

    fn of(text: &str) -> Settings {
        Settings::of(text, 4)
    }

    #[test]
    fn files_are_read_only_if_they_can_be_trusted() {
        let path = std::env::temp_dir().join(format!("bruckner-settings-{}", std::process::id()));
        std::fs::write(&path, "# a comment\nBRUCKNER_CHECK = 7 # every seventh\nBRUCKNER_CHEK = 1\nBRUCK").unwrap();
        let me = std::fs::metadata(&path).unwrap().uid();
        let read = |trusted: u32| {
            let mut found = FoundSettings::default();
            found.add_user_file(&path, &[trusted]);
            of(&found.text())
        };
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let settings = read(me);
        assert_eq!(settings.check_interval, 7);
        assert!(
            settings.complaints[0].contains("line 3: `BRUCKNER_CHEK` is not a setting; the settings are BRUCKNER, ")
        );
        assert!(settings.complaints[1].ends_with("line 4: expected NAME = value, [default] or [fixed]"));
        assert!(read(me + 1).complaints[0].contains("it belongs to user"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o622)).unwrap();
        assert!(read(me).complaints[0].ends_with("other users may write to it (chmod go-w)"));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn variables_that_are_no_text_are_told() {
        use std::os::unix::ffi::OsStrExt as _;
        let mut found = FoundSettings::default();
        for (name, value) in [
            ("BRUCKNER_ALGORITHM", b"allreduce=ring\xff"),
            ("BRUCKNER_CHECK", b"              5"),
            ("BRUCKNER_AFTER", b"               "),
            ("BRUCKNERS", b"            \xff\xff\xff"),
        ] {
            found.variable(name.as_ref(), OsStr::from_bytes(value));
        }
        let settings = of(&found.text());
        assert_eq!(settings.check_interval, 5);
        assert_eq!(
            settings.complaints,
            [r#"BRUCKNER_ALGORITHM: "allreduce=ring\xFF" is not valid UTF-8 and is ignored"#]
        );
    }

    /// Settings may still have the names that they had in earlier versions.
    #[test]
    fn names_of_earlier_versions_are_read() {
        let mut found = FoundSettings::default();
        let old = ["BRUCKNER_LEAVE=bcast", "BRUCKNER_MEASURE=off", "BRUCKNER_WATCH=off"];
        for (name, value) in old.iter().filter_map(|line| line.split_once('=')) {
            found.variable(name.as_ref(), value.as_ref());
        }
        let new = "BRUCKNER_PASS_THROUGH=bcast\nBRUCKNER_CALIBRATE=off\nBRUCKNER_ONLINE_TUNING=off\n";
        assert_eq!(of(&found.text()), of(new));
        assert_eq!(of(&found.text()).complaints, [""; 0]);
    }

    #[test]
    fn defaults_and_what_is_fixed_are_told_apart() {
        let path = std::env::temp_dir().join(format!("bruckner-parts-{}", std::process::id()));
        std::fs::write(&path, "BRUCKNER_CHECK = 7\n[default]\nBRUCKNER_AFTER = 5\n[fixed]\nBRUCKNER_SHM = off\n")
            .unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let me = std::fs::metadata(&path).unwrap().uid();
        let mut found = FoundSettings::default();
        let lines = found.lines(&path, &[me]);
        std::fs::remove_file(&path).unwrap();
        let parts: Vec<(usize, bool)> = lines.iter().map(|(number, part, _)| (*number, *part == Part::Fixed)).collect();
        assert_eq!(parts, [(1, true), (3, false), (5, true)]);
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
            let mut found = FoundSettings::default();
            found.add_user_file(path, &[me]);
            of(&found.text())
        };
        assert_eq!(read(&file).check_interval, 7);
        let settings = read(&link);
        assert_eq!(settings.check_interval, 0);
        assert!(settings.complaints[0].ends_with("link is not read: it is a symbolic link"));
        assert!(read(&place).complaints[0].ends_with("is not read: it is not a regular file"));
        assert!(read(&place.join("nothing")).complaints.is_empty());
        // Reports are not written through links either, and existing files are left alone.
        let (new, taken) = (place.join("new.json"), |path: &Path| create_new(path).unwrap().1);
        assert_eq!(taken(&link), Some(with_number(&link, 1)));
        assert_eq!(taken(&file), Some(with_number(&file, 1)));
        assert_eq!(
            (taken(&new), taken(&new), taken(&new)),
            (None, Some(place.join("new-1.json")), Some(place.join("new-2.json")))
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "BRUCKNER_CHECK = 7");
        std::fs::remove_dir_all(&place).unwrap();
    }
}

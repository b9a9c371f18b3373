//! Where settings are found: files that can be trusted, and the environment; what comes later counts.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bruckner_algorithms::written::with_files;
use bruckner_mpi::{has_raised_privileges, variable};

use crate::files;
use crate::settings::{ALGORITHM, SETTINGS, Settings};

/// The administrator's file: defaults, which users may change, and what they cannot.
const ADMINISTRATORS: &str = "/etc/bruckner.conf";

/// No file of settings is longer.
const LONGEST: u64 = 1 << 20;

/// Variables that are read elsewhere; the last is what module files say where things are by.
const OTHERS: [&str; 5] =
    ["BRUCKNER_MPI", "BRUCKNER_CONFIG", "BRUCKNER_FAULT", "BRUCKNER_EXEC", "BRUCKNER_ROOT"];

/// A value, and where it was found.
struct Value {
    text: String,
    place: String,
}

/// The settings that rank 0 found: values by name, each behind those that it replaces, and complaints about files.
#[derive(Default)]
struct Found {
    values: BTreeMap<String, Vec<Value>>,
    complaints: Vec<String>,
}

/// The part of the administrator's file that a line is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Defaults, which users may change.
    Default,
    /// Values that users cannot change.
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

    /// Takes in a variable of the environment, if it is one of ours.
    fn variable(&mut self, name: &OsStr, value: &OsStr) {
        let Some(name) = name.to_str().filter(|name| *name == "BRUCKNER" || name.starts_with("BRUCKNER_"))
        else {
            return;
        };
        match value.to_str().map(str::trim) {
            Some("") => {}
            Some(value) => self.put(name, value, ENVIRONMENT),
            None => self.complaints.push(format!("{name}: {value:?} is no UTF-8: not used")),
        }
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

/// Where a variable is found.
const ENVIRONMENT: &str = "environment";

/// The settings that this process finds, as text for [`Settings::of`].
pub fn find_settings() -> String {
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
        found.variable(&name, &value);
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
pub struct SettingShown {
    /// Its name.
    pub name: &'static str,
    /// Its value; nothing, where there is none.
    pub value: String,
    /// Where it was found.
    pub source: String,
    /// The values that it replaces, with their places.
    pub replaces: Vec<(String, String)>,
    /// Its description.
    pub about: &'static str,
}

/// All settings as this process finds them, and what is wrong with them.
pub fn show_settings() -> (Vec<SettingShown>, Vec<String>) {
    let mut found = found();
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
        SettingShown { name: setting.name, value, source, replaces, about: setting.about }
    });
    let shown = shown.collect();
    found.read_algorithms();
    let mut complaints = Settings::of(&found.text(), 0).complaints;
    complaints.retain(|complaint| !complaint.ends_with("and there are 0"));
    if let Some(file) = variable("BRUCKNER_CONFIG").map(PathBuf::from).filter(|file| !file.exists()) {
        complaints.push(format!("BRUCKNER_CONFIG={}: there is no such file", file.display()));
    }
    (shown, complaints)
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

    #[test]
    fn variables_that_are_no_text_are_told() {
        use std::os::unix::ffi::OsStrExt as _;
        let mut found = Found::default();
        for (name, value) in [
            ("BRUCKNER_ALGORITHM", b"allreduce=ring\xff"),
            ("BRUCKNER_CHECK", b"              5"),
            ("BRUCKNER_AFTER", b"               "),
            ("BRUCKNERS", b"            \xff\xff\xff"),
        ] {
            found.variable(name.as_ref(), OsStr::from_bytes(value));
        }
        let settings = of(&found.text());
        assert_eq!(settings.check, 5);
        assert_eq!(
            settings.complaints,
            [r#"BRUCKNER_ALGORITHM: "allreduce=ring\xFF" is no UTF-8: not used"#]
        );
    }

    /// A fixed value replaces the environment's, which replaces a default.
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

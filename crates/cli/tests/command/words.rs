//! Checks the words of the source: one type name has one meaning, and comments say what a thing is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Public type names that two crates define, with the reason.
const SHARED_NAMES: [(&str, &str); 1] =
    [("Collective", "in the Rust API: a collective with its buffers; in schedule: the kind of collective")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Appends the Rust files below a directory to `found`.
fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() && !path.ends_with("target") {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the Rust files of the repository with their texts.
fn sources() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for part in ["crates", "testbed", "fuzz"] {
        rust_files(&root().join(part), &mut files);
    }
    files.sort();
    files.into_iter().map(|file| (file.clone(), std::fs::read_to_string(file).expect("readable"))).collect()
}

/// Returns the public type that a line defines, if any.
fn public_type(line: &str) -> Option<&str> {
    let words = line.strip_prefix("pub ")?;
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let name = kinds.iter().find_map(|kind| words.strip_prefix(kind))?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[test]
fn a_type_name_has_one_meaning() {
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, text) in sources() {
        let parts: Vec<_> = file.components().map(|part| part.as_os_str().to_string_lossy()).collect();
        let Some(at) = parts.iter().rposition(|part| *part == "src").filter(|at| *at > 0) else { continue };
        for name in text.lines().filter_map(public_type) {
            crates.entry(name.to_owned()).or_default().insert(parts[at - 1].to_string());
        }
    }
    assert!(crates.len() > 200, "only {} types were found", crates.len());
    let twice: BTreeMap<_, _> = crates.iter().filter(|(_, crates)| crates.len() > 1).collect();
    for (name, crates) in &twice {
        assert!(SHARED_NAMES.iter().any(|(shared, _)| shared == name), "{name} is defined in {crates:?}");
    }
    for (name, _) in SHARED_NAMES {
        assert!(twice.keys().any(|found| *found == name), "{name} has one meaning again: take it off the list");
    }
}

#[test]
fn comments_say_what_a_thing_is() {
    for (file, text) in sources() {
        let mut before = "";
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim_start();
            let place = || format!("{}:{number}: {line}", file.display());
            let is_comment = line.starts_with("//");
            if let Some(doc) = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! ")) {
                let begins = !before.starts_with("//");
                assert!(!(begins && doc.starts_with("What ")), "{}: the subject first", place());
            }
            if is_comment {
                assert!(!line.contains("so many "), "{}: name the number", place());
            }
            before = line;
        }
    }
}

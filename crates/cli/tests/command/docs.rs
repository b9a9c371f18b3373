//! Checks README.md and docs/: commands print the listed output, texts verify, links lead somewhere, and every setting and subcommand has
//! its entry.
//!
//! In a block marked `console`, each line `$ bruckner …` is run and the lines after it must be its output; a line `…` stands for any
//! lines. A block marked `bruckner` is a complete text: it must parse, print unchanged, and verify.

use std::path::{Path, PathBuf};
use std::process::Command;

use bruckner_schedule::read;
use bruckner_schedule::verify::verify;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the Markdown files of the project: those in its root, in `docs` and in its folders.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![root().join("docs")];
    let mut entries = |folder: PathBuf| -> Vec<PathBuf> {
        let entries =
            std::fs::read_dir(folder).expect("there is a folder").map(|entry| entry.expect("readable").path());
        let (inner, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
        pages.extend(files.into_iter().filter(|page| page.extension().is_some_and(|e| e == "md")));
        inner
    };
    entries(root());
    while let Some(folder) = folders.pop() {
        folders.extend(entries(folder));
    }
    pages.sort();
    pages
}

/// Returns the targets of a page's links to other files of the project, as pairs of a path, which may be empty, and an anchor.
fn links(text: &str) -> Vec<(String, Option<String>)> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    let inner = targets.filter(|target| !target.contains("://") && !target.contains(' '));
    let parts = inner.map(|target| match target.split_once('#') {
        Some((path, anchor)) => (path.to_owned(), Some(anchor.to_owned())),
        None => (target.to_owned(), None),
    });
    parts.collect()
}

/// Returns the anchors of a page's headings.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut checked = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("readable");
        for (path, anchor) in links(&text) {
            let target = match path.as_str() {
                "" => page.clone(),
                path => page.parent().expect("a folder").join(path),
            };
            assert!(target.exists(), "{}: there is no {path}", page.display());
            if let Some(anchor) = anchor {
                let other = std::fs::read_to_string(&target).expect("readable");
                assert!(anchors(&other).contains(&anchor), "{}: {path} has no heading #{anchor}", page.display());
            }
            checked += 1;
        }
    }
    assert!(checked >= 50, "only {checked} links were found");
}

#[test]
fn every_page_names_its_readers() {
    let of_docs =
        pages().into_iter().filter(|page| page.starts_with(root().join("docs")) && !page.ends_with("glossary.md"));
    for page in of_docs {
        let text = std::fs::read_to_string(&page).expect("readable");
        let line = text.lines().nth(2).unwrap_or_default();
        assert!(line.starts_with("*For "), "{}: {line}", page.display());
    }
}

/// Every setting that `bruckner settings` prints has a row in the table of settings.
#[test]
fn every_setting_has_a_row() {
    let output = Command::new(env!("CARGO_BIN_EXE_bruckner")).args(["settings", "--json"]).output().expect("it runs");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = std::fs::read_to_string(root().join("docs/using/settings.md")).expect("readable");
    let names: Vec<&str> =
        found["settings"].as_array().expect("a list").iter().filter_map(|s| s["name"].as_str()).collect();
    assert!(names.len() >= 14, "{names:?}");
    for name in names {
        assert!(text.contains(&format!("| `{name}` |")), "docs/using/settings.md has no row for {name}");
    }
}

/// Some page of docs names every subcommand.
#[test]
fn every_subcommand_is_described() {
    let output = Command::new(env!("CARGO_BIN_EXE_bruckner")).arg("--help").output().expect("it runs");
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, commands) = help.split_once("Commands:").expect("a list of commands");
    let (commands, _) = commands.split_once("Options:").expect("a list of options");
    let names = commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<&str> =
        names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
    assert!(names.len() >= 13, "{names:?}");
    let all: String = pages()
        .iter()
        .filter(|page| page.starts_with(root().join("docs")))
        .map(|page| std::fs::read_to_string(page).expect("readable"))
        .collect();
    for name in names {
        assert!(all.contains(&format!("bruckner {name}")), "no page of docs describes `bruckner {name}`");
    }
}

/// Returns the fenced blocks of a page as pairs of language mark and text.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(mark)) => open = Some((mark.trim().to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some((_, body)), None) => {
                body.push_str(line);
                body.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is never closed");
    blocks
}

/// Splits a command line into words; supports single quotes only.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in command.split('\'').enumerate() {
        if i % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

fn matches(found: &[&str], listed: &[&str]) -> bool {
    match listed.split_first() {
        None => found.is_empty(),
        Some((&"…", rest)) => (0..=found.len()).any(|skip| matches(&found[skip..], rest)),
        Some((line, rest)) => found.first().is_some_and(|f| f.trim_end() == *line) && matches(&found[1..], rest),
    }
}

#[test]
fn commands_print_what_is_listed() {
    let mut run = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("readable");
        for (_, body) in blocks(&text).into_iter().filter(|(mark, _)| mark == "console") {
            for session in body.split("$ ").filter(|s| s.starts_with("bruckner ")) {
                let (command, listed) = session.split_once('\n').expect("a line");
                let output = Command::new(env!("CARGO_BIN_EXE_bruckner"))
                    .args(&words(command)[1..])
                    .current_dir(root())
                    .output()
                    .expect("the command runs");
                let found =
                    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
                let (found, listed): (Vec<&str>, Vec<&str>) = (found.lines().collect(), listed.lines().collect());
                let shown = listed.iter().rposition(|l| !l.is_empty()).map_or(0, |at| at + 1);
                assert!(
                    matches(&found, &listed[..shown]),
                    "{}: `{command}` prints\n{}",
                    page.display(),
                    found.join("\n")
                );
                run += 1;
            }
        }
    }
    assert!(run >= 10, "only {run} commands were found");
}

#[test]
fn texts_hold() {
    let mut read_texts = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("readable");
        for (_, body) in blocks(&text).into_iter().filter(|(mark, _)| mark == "bruckner") {
            let document = read(&body).unwrap_or_else(|e| panic!("{}: {e}\n{body}", page.display())).document;
            assert_eq!(document.to_string(), body, "{}", page.display());
            let report = verify(&document.to_program());
            assert!(report.is_correct(), "{}: {}\n{body}", page.display(), report.violations[0]);
            read_texts += 1;
        }
    }
    assert!(read_texts >= 1, "no text was found");
}

/// The listing in the guide equals the example program, which is compiled and run.
#[test]
fn the_guide_lists_the_example() {
    let page = std::fs::read_to_string(root().join("docs/contributing/adding-an-algorithm.md")).expect("readable");
    let example = root().join("crates/algorithms/examples/two_way_ring.rs");
    let example = std::fs::read_to_string(example).expect("readable");
    let listed = blocks(&page).into_iter().find(|(mark, _)| mark == "rust").expect("a listing");
    assert_eq!(listed.1, example);
    assert!(example.lines().count() <= 80, "small enough to read");
}

/// The language reference lists every construct, each with the name of an existing reference case.
#[test]
fn every_construct_names_its_probe() {
    let text = std::fs::read_to_string(root().join("docs/theory/language.md")).expect("readable");
    let names: Vec<&str> = bruckner_algorithms::reference_cases::reference_cases().iter().map(|p| p.name).collect();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    for row in &rows {
        let last = row.trim_end_matches('|').rsplit('|').next().unwrap_or("").trim();
        assert!(names.contains(&last), "`{row}` names no probe");
    }
    for word in [
        "schedule",
        "program",
        "problem",
        "equal",
        "root",
        "listed",
        "vector",
        "local",
        "ordered",
        "topology",
        "claim consistent",
        "claim ordered",
        "claim messages",
        "claim sent",
        "claim memory",
        "rank",
        "round",
        "send",
        "recv",
        "sizes",
        "tag",
        "copy",
        "reduce",
        "signal",
        "wait",
        "barrier",
        "place",
        "alternate",
        "finish",
        "in[",
        "out[",
        "t0[",
        "node.0[",
    ] {
        assert!(rows.iter().any(|row| row.contains(word)), "the reference does not have `{word}`");
    }
}

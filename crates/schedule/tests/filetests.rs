//! Runs the test files in `filetests/`: the first line of a file names the test, and `; error: …` marks each line in which an error is
//! expected.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bruckner_schedule::verify::verify;
use bruckner_schedule::{Rank, read};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let mut files = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests"), &mut files);
    assert!(files.len() > 30, "the corpus is there");
    let trials = files.into_iter().map(|file| {
        let name = format!("{}", file.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(&file).display());
        Trial::test(name, move || test(&file))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the corpus is there") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
    files.sort();
}

fn test(file: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(file)?;
    match text.lines().next() {
        Some("; test verify") => test_verify(&text),
        Some("; test read") => test_read(&text),
        other => Err(format!("unknown test {other:?}").into()),
    }
}

/// Returns the errors that a file expects, as (line, text after `error:`).
fn expected(text: &str) -> BTreeSet<(u32, String)> {
    let mut marks = BTreeSet::new();
    for (line, number) in text.lines().zip(1..) {
        for mark in line.split("error: ").skip(1) {
            marks.insert((number, mark.trim().to_owned()));
        }
    }
    marks
}

fn compare(found: &BTreeSet<(u32, String)>, expected: &BTreeSet<(u32, String)>) -> Result<(), Failed> {
    if found == expected {
        return Ok(());
    }
    let missing: Vec<_> = expected.difference(found).collect();
    let surplus: Vec<_> = found.difference(expected).collect();
    Err(format!("not found: {missing:?}; found and not expected: {surplus:?}").into())
}

fn test_verify(text: &str) -> Result<(), Failed> {
    let read = read(text)?;
    let heading = |rank: Rank| {
        let is_heading = |line: &str| line.split(';').next().is_some_and(|l| l.trim() == format!("rank {rank}"));
        text.lines().position(is_heading).map(|at| at as u32 + 1)
    };
    let first = text.lines().position(|l| !l.starts_with(';')).unwrap_or(0) as u32 + 1;
    let report = verify(&read.document.to_program());
    let found = report.violations.iter().map(|violation| {
        let line = violation.site.and_then(|site| match site.instr {
            Some(at) => read.lines[&site.rank].get(at as usize).copied(),
            None => heading(site.rank),
        });
        (line.unwrap_or(first), violation.invariant.to_string())
    });
    let found: BTreeSet<_> = found.collect();
    compare(&found, &expected(text)).map_err(|failed| {
        let all: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
        format!("{}\n{}", failed.message().unwrap_or_default(), all.join("\n")).into()
    })
}

fn test_read(text: &str) -> Result<(), Failed> {
    let mut found = BTreeSet::new();
    match read(text) {
        Err(error) => {
            found.insert((error.line, format!("column {}: {}", error.column, error.message)));
        }
        Ok(read) => {
            let printed = read.document.to_string();
            let body: String = text.lines().skip(1).map(|l| format!("{l}\n")).collect();
            if printed != body {
                return Err(format!("prints as\n{printed}").into());
            }
        }
    }
    compare(&found, &expected(text))
}

//! Runs the text corpus in `filetests/`: a schedule or program, a line `; becomes`, and the expected output of a pass. The verifier must
//! accept input and output. `BLESS=1` writes the actual output of the pass into the files.

use std::path::{Path, PathBuf};

use bruckner_algorithms::lower::{
    LineMemory, MessagePurpose, alternate, coalesce, empty, forward, overlap, pack, place, unshare,
};
use bruckner_schedule::verify::verify;
use bruckner_schedule::{Document, Program, interpret, read};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests/lower");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("the corpus is there").map(|e| e.expect("readable").path()).collect();
    files.sort();
    assert!(files.len() >= 7, "there is a file for each pass");
    let trials = files.into_iter().map(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Trial::test(name, move || test(&file))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn test(file: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(file)?;
    let pass = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("; test lower "))
        .ok_or("the first line is `; test lower PASS`")?;
    let (before, after) = text.split_once("\n; becomes\n").ok_or("a line `; becomes` is missing")?;
    let before_document = read(before)?.document;
    holds(&before_document.to_program(), "before")?;
    let document = run(pass, &before_document)?;
    holds(&document.to_program(), "after")?;
    let printed = document.to_string();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(file, format!("{before}\n; becomes\n{printed}"))?;
        return Ok(());
    }
    if printed == after { Ok(()) } else { Err(format!("becomes\n{printed}").into()) }
}

fn run(pass: &str, before: &Document) -> Result<Document, Failed> {
    Ok(match (pass, before) {
        ("empty", Document::Schedule(s)) => Document::Schedule(empty::run(s.clone(), MessagePurpose::of(s))),
        ("coalesce", Document::Schedule(s)) => Document::Schedule(coalesce::run(s.clone())),
        ("forward", Document::Schedule(s)) => Document::Schedule(forward::run(s.clone())),
        ("place", Document::Schedule(s)) => Document::Program(place::run(s.clone(), LineMemory::Shared)),
        ("pack", Document::Program(p)) => Document::Program(pack::run(p.clone(), LineMemory::Shared)),
        ("overlap", Document::Program(p)) => Document::Program(overlap::run(p.clone())),
        ("alternate", Document::Program(p)) => Document::Program(alternate::run(p.clone())),
        ("unshare", Document::Program(p)) => Document::Program(unshare::run(p.clone())),
        _ => return Err(format!("there is no pass `{pass}` for this").into()),
    })
}

/// Checks that verifier and interpreter both accept a program.
fn holds(program: &Program, when: &str) -> Result<(), Failed> {
    if let Some(violation) = verify(program).violations.first() {
        return Err(format!("{when}: {violation}").into());
    }
    for seed in 0..10 {
        interpret::check(&[program, program, program], seed).map_err(|e| format!("{when}: {e}"))?;
    }
    Ok(())
}

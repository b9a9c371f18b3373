//! `cargo testbed instructions`: counts with valgrind the instructions that planning and repeated calls take, and compares them with the
//! counts recorded in `testbed/instructions.toml`. Counts do not depend on how busy a machine is.

mod work;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::mpis::{home, root};

pub(crate) use work::run_in_process;

/// Fraction by which a count may exceed the recorded one. A count that is lower by more than this fraction is marked, too, so that
/// somebody records it and the limit becomes lower.
const TOLERANCE: f64 = 0.05;

/// Counts instructions and compares them with the recorded figures, or records them.
pub(crate) fn run(record: bool) -> Result<()> {
    let place = home().join("instructions");
    std::fs::create_dir_all(&place)?;
    let counted = std::thread::scope(|scope| {
        let parts: Vec<_> = work::PARTS.map(|part| scope.spawn(|| count(part, &place))).into_iter().collect();
        let mut all = Vec::new();
        for part in parts {
            all.extend(part.join().expect("counting does not panic")?);
        }
        anyhow::Ok(all)
    })?;
    let file = root().join("testbed/instructions.toml");
    if record {
        return Ok(std::fs::write(&file, recorded_text(&counted))?);
    }
    let text = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    let recorded: BTreeMap<String, u64> = toml::from_str(&text)?;
    println!("{:<64} {:>12} {:>12} {:>8}", "instructions", "counted", "recorded", "change");
    let mut above = 0;
    for (name, count) in &counted {
        let before = *recorded.get(name).with_context(|| format!("`{name}` is not in {}", file.display()))?;
        let change = *count as f64 / before as f64 - 1.0;
        let remark = match change {
            change if change > TOLERANCE => "  too many",
            change if change < -TOLERANCE => "  fewer: record the new count",
            _ => "",
        };
        above += usize::from(change > TOLERANCE);
        println!("{name:<64} {count:>12} {before:>12} {:>+7.1} %{remark}", 100.0 * change);
    }
    ensure!(recorded.len() == counted.len(), "{} contains figures that are not counted any more", file.display());
    if above > 0 {
        bail!(
            "{above} figures are more than {} % above those of {}: mend what became slower, or record them by \
             `cargo testbed instructions --record` and say in the commit why",
            100.0 * TOLERANCE,
            file.display()
        );
    }
    Ok(())
}

fn recorded_text(counted: &[(String, u64)]) -> String {
    let mut text = String::from(
        "# Instructions (of eight repetitions each in planning, compiling and binding), as `cargo testbed instructions --record` wrote them. CI fails where a count is more than 5 % higher.\n",
    );
    for (name, count) in counted {
        let _ = writeln!(text, "\"{name}\" = {count}");
    }
    text
}

/// Runs a part of the work under valgrind and returns its figures.
fn count(part: &str, place: &Path) -> Result<Vec<(String, u64)>> {
    let out = place.join(part.replace(' ', "-"));
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir_all(&out)?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--collect-atstart=no"]);
    valgrind.args(["--toggle-collect=*counted_by_valgrind*", "--toggle-collect=*left_the_engine*"]);
    valgrind.args(["--dump-before=*end_of_figure*"]);
    valgrind.arg(format!("--callgrind-out-file={}", out.join("count").display()));
    // The processor determines which variants of libc functions are used: these are available on every processor.
    valgrind.env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM");
    let said = valgrind.arg(std::env::current_exe()?).args(["work", part]).output()?;
    let errors = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "{part}: {errors}");
    let names = String::from_utf8_lossy(&said.stdout);
    let names: Vec<String> = names.lines().map(str::to_owned).collect();
    let counts = totals(&out)?;
    ensure!(counts.len() == names.len(), "{part}: {} counts of {} figures: {errors}", counts.len(), names.len());
    Ok(names.into_iter().zip(counts).collect())
}

/// Returns valgrind's counts in the order of its files: one for each call of `end_of_figure`, and one for the end of the process, which is
/// dropped if nothing was counted after the last figure.
fn totals(place: &Path) -> Result<Vec<u64>> {
    let number = |path: &PathBuf| {
        path.extension().and_then(|text| text.to_str()).and_then(|text| text.parse().ok()).unwrap_or(u32::MAX)
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(place)?.flatten().map(|file| file.path()).collect();
    files.sort_by_key(number);
    let mut counts = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        counts.push(total.map_or(Ok(0), |total| total.trim().parse())?);
    }
    counts.retain(|count| *count > 0);
    Ok(counts)
}

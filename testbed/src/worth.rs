//! `cargo testbed worth`: tests whether the verdicts of `bruckner compare` are right.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::mpis::{Mpi, home, root};

/// A program with its settings, and the verdict that `bruckner compare` must reach.
struct Case {
    what: &'static str,
    mpi: Mpi,
    words: Vec<String>,
    set: Option<(&'static str, &'static str)>,
    verdict: &'static str,
    /// Factor by which the number of launches is multiplied: the smaller the gain, the more launches are needed to detect it.
    backoff: u32,
}

fn cases() -> Result<Vec<Case>> {
    let mpi = Mpi::Openmpi5;
    let program = mpi.compile_plain("worth")?.display().to_string();
    let worth = |text: &str| [program.as_str()].into_iter().chain(text.split(' ')).map(str::to_owned).collect();
    let input = root().join("testbed/inputs/chatty.lmp").display().to_string();
    let lammps = ["lmp", "-in", &input, "-log", "none", "-screen", "none"].map(str::to_owned).to_vec();
    Ok(vec![
        Case {
            what: "allreduces that the library speeds up",
            mpi,
            words: worth("allreduce 8 1500000 0"),
            set: None,
            verdict: "faster",
            backoff: 1,
        },
        Case {
            what: "broadcasts that are passed through",
            mpi,
            words: worth("bcast 8 300000 2000"),
            set: None,
            verdict: "no-difference",
            backoff: 1,
        },
        Case {
            what: "allreduces slowed down by a forced algorithm",
            mpi,
            words: worth("allreduce 4096 100000 0"),
            set: Some(("BRUCKNER_ALGORITHM", "allreduce=pipeline(64, recursive-doubling)")),
            verdict: "slower",
            backoff: 1,
        },
        Case { what: "LAMMPS", mpi: Mpi::Openmpi4, words: lammps, set: None, verdict: "faster", backoff: 2 },
    ])
}

/// Compares each program `times` times; returns an error if more than one in ten verdicts is wrong.
pub(crate) fn run(times: u32, launches: u32, only: Option<&str>) -> Result<()> {
    let mut wrong = Vec::new();
    for case in cases()?.into_iter().filter(|case| only.is_none_or(|only| case.what.contains(only))) {
        let mut right = 0;
        let mut said = Vec::new();
        for _ in 0..times {
            let (verdict, ratio) = compare(&case, case.backoff * launches)?;
            right += u32::from(verdict == case.verdict);
            said.push(format!("{ratio:.3}"));
        }
        println!("{:<26} {:<14} {right} of {times}: {}", case.what, case.verdict, said.join(" "));
        if 10 * right < 9 * times {
            wrong.push(case.what);
        }
    }
    if !wrong.is_empty() {
        bail!("not said often enough of {}", wrong.join(", "));
    }
    Ok(())
}

fn compare(case: &Case, launches: u32) -> Result<(String, f64)> {
    let launch = case.mpi.launch(2, false);
    let mut command = Command::new(root().join("target/release/bruckner"));
    command.args(["compare", "--json", "--launches", &launches.to_string(), "--"]);
    command.arg(launch.get_program()).args(launch.get_args()).args(&case.words).current_dir(home());
    for (name, value) in launch.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command.envs(case.set);
    let said = command.output()?;
    let text = String::from_utf8_lossy(&said.stdout);
    let found: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{text}{}", String::from_utf8_lossy(&said.stderr)))?;
    let spent = |side: &str| found[side]["collectives"]["mean"].as_f64().is_some();
    if !spent("with") || !spent("without") {
        bail!("{}: the result has no time in collectives: {text}", case.what);
    }
    let verdict = found["verdict"].as_str().context("a verdict")?.to_owned();
    // The exit status must agree with the verdict.
    if said.status.success() != (verdict != "slower") {
        bail!("{}: {verdict}, and {}", case.what, said.status);
    }
    Ok((verdict, found["ratio"].as_f64().context("a ratio")?))
}

//! `cargo testbed apps`: unmodified applications of Debian's on Open MPI 4.1, with the library preloaded and without.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::launch::Launch;
use crate::mpis::{Mpi, home, root};
use crate::readme;

/// An application: how it is run, and which lines of what it says are results.
struct App {
    name: &'static str,
    program: &'static str,
    input: &'static str,
    arguments: &'static [&'static str],
    /// A file that it writes its results to, if not to standard output.
    results: Option<&'static str>,
    result: fn(&str) -> Option<String>,
    /// What must be among the results.
    must: &'static [&'static str],
}

const APPS: [App; 3] = [
    App {
        name: "LAMMPS",
        program: "/usr/bin/lmp",
        input: "melt.lmp",
        arguments: &["-in", "melt.lmp", "-log", "none"],
        results: None,
        result: |line| {
            let mut words = line.split_whitespace();
            let step = words.next().is_some_and(|word| word.parse::<u32>().is_ok());
            (step && words.clone().count() == 5).then(|| line.trim().to_owned())
        },
        must: &["100 "],
    },
    App {
        name: "pw.x",
        program: "/usr/bin/pw.x",
        input: "silicon.in",
        arguments: &["-in", "silicon.in"],
        results: None,
        result: |line| {
            let wanted =
                ["total energy", "estimated scf accuracy", "highest occupied", "convergence has been"];
            wanted.iter().any(|text| line.contains(text)).then(|| line.trim().to_owned())
        },
        must: &["!    total energy              =     -15.65877504 Ry", "convergence has been achieved"],
    },
    App {
        name: "HPCC",
        program: "/usr/bin/hpcc",
        input: "hpccinf.txt",
        arguments: &[],
        results: Some("hpccoutf.txt"),
        result: |line| {
            let line = line.trim();
            let residual = line.starts_with("||Ax-b||_oo/(eps") || line.contains("residual checks");
            let errors =
                line.contains("errors in") || line.contains("Errors=") || line.contains("with error");
            (residual || errors || line.starts_with("Success=") || line.contains("Validates"))
                .then(|| line.to_owned())
        },
        must: &[
            "Success=1",
            "0 tests completed and failed residual checks,",
            "0 tests completed and failed residual checks.",
            "MPIRandomAccess_Errors=0",
            "Solution Validates",
        ],
    },
];

/// Runs them and prints a table; an error if results differ.
pub(crate) fn run() -> Result<()> {
    println!(
        "{:<8} {:>7} {:>8} {:>8} {:>7}  against the same run without",
        "program", "results", "calls", "served", "share"
    );
    let mut failed = 0;
    for app in &APPS {
        let without = app.run("without", &[])?;
        let report = home().join(format!("apps/{}.json", app.name));
        let settings = [("BRUCKNER_REPORT", report.display().to_string())];
        let first = app.run("first", &settings)?;
        let second = app.run("second", &settings)?;
        let text = std::fs::read_to_string(&report).context("there is no report")?;
        let report: serde_json::Value = serde_json::from_str(&text)?;
        let (calls, served) = (report["calls"].as_u64().unwrap_or(0), report["served"].as_u64().unwrap_or(0));
        let verdict = match () {
            () if first != without => "differs",
            () if second != first => "differs between two runs",
            () if served == 0 => "nothing was served",
            () => "the same, twice",
        };
        failed += usize::from(verdict != "the same, twice");
        let share = 100.0 * served as f64 / calls.max(1) as f64;
        println!("{:<8} {:>7} {calls:>8} {served:>8} {share:>6.1}%  {verdict}", app.name, first.len());
        if first != without {
            for (a, b) in without.iter().zip(&first).filter(|(a, b)| a != b).take(5) {
                eprintln!("without: {a}\nwith:    {b}");
            }
        }
    }
    if failed > 0 {
        bail!("{failed} applications have other results");
    }
    listing()
}

/// The README's first use of the library.
fn listing() -> Result<()> {
    let launch = Launch::preloaded(Mpi::Openmpi4, 4, Path::new("/usr/bin/lmp")).within(&home().join("apps"));
    let launch =
        launch.argument("-in").argument(root().join("testbed/inputs/melt.lmp").display().to_string());
    let said = launch.argument("-log").argument("none").set("BRUCKNER_REPORT", "stderr").run()?;
    let report = said.err.lines().skip_while(|line| !line.starts_with("bruckner "));
    let report: Vec<&str> = report.collect();
    readme::compare("lmp -in testbed/inputs/melt.lmp", &report.join("\n"), |line| {
        // Times differ: they are what has six decimals.
        let is_time = |word: &&str| word.split_once('.').is_some_and(|(_, decimals)| decimals.len() == 6);
        Some(line.split_whitespace().filter(|word| !is_time(word)).collect::<Vec<_>>().join(" "))
    })
}

impl App {
    /// The results of a run in a directory of its own.
    fn run(&self, name: &str, settings: &[(&'static str, String)]) -> Result<Vec<String>> {
        let place: PathBuf = home().join("apps").join(format!("{}-{name}", self.name));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(&place)?;
        std::fs::copy(root().join("testbed/inputs").join(self.input), place.join(self.input))?;
        let program = Path::new(self.program);
        let mut launch = match name {
            "without" => Launch::plain(Mpi::Openmpi4, 4, program),
            _ => Launch::preloaded(Mpi::Openmpi4, 4, program),
        };
        launch = launch.set("OMP_NUM_THREADS", "1").within(&place).limit(300);
        for argument in self.arguments {
            launch = launch.argument(*argument);
        }
        for (name, value) in settings {
            launch = launch.set(name, value);
        }
        let said = launch.run()?;
        if !said.succeeded {
            bail!("{} {name}: {}{}", self.name, said.out, said.err);
        }
        let text = match self.results {
            Some(file) => std::fs::read_to_string(place.join(file))?,
            None => said.out,
        };
        let results: Vec<String> = text.lines().filter_map(self.result).collect();
        for must in self.must {
            if !results.iter().any(|line| line.contains(must)) {
                bail!("{} {name}: `{must}` is not among its results:\n{}", self.name, results.join("\n"));
            }
        }
        Ok(results)
    }
}

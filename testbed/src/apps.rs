//! `cargo testbed apps`: unmodified applications from Debian on Open MPI 4.1, with the library preloaded and without.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cluster::{Cluster, Shape};
use crate::launch::Launch;
use crate::mpis::{Mpi, home, root};
use crate::{listing, setup, speed};

/// An application: how to run it, and which lines of its output are results.
struct App {
    name: &'static str,
    /// Debian package; `quick` is set if a quick run includes the application.
    package: &'static str,
    quick: bool,
    program: &'static str,
    inputs: &'static [&'static str],
    /// Command that is run once before the application.
    prepare: &'static [&'static str],
    arguments: &'static [&'static str],
    /// File to which the application writes its results, if not standard output.
    results: Option<&'static str>,
    result: fn(&str) -> Option<String>,
    /// Texts that must occur among the results.
    must: &'static [&'static str],
}

/// Defaults for an application that prints its results.
const PRINTING: App = App {
    name: "",
    package: "",
    quick: false,
    program: "",
    inputs: &[],
    prepare: &[],
    arguments: &[],
    results: None,
    result: |_| None,
    must: &[],
};

/// Defaults for ScaLAPACK's tests, whose results are the description of a test and its verdict, without times.
const SCALAPACK: App = App {
    package: "scalapack-mpi-test",
    inputs: &["/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests/*.dat"],
    result: |line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let verdict = words.last().is_some_and(|word| *word == "PASSED" || *word == "FAILED");
        let what = || words.iter().filter(|word| !word.contains('.')).copied().collect::<Vec<_>>().join(" ");
        (verdict && words.len() > 6 || line.contains("residual checks")).then(what)
    },
    must: &["PASSED", "0 tests completed and failed residual"],
    ..PRINTING
};

/// Returns the result in a line that a script of the testbed marks by `result `.
fn marked(line: &str) -> Option<String> {
    line.strip_prefix("result ").map(str::to_owned)
}

/// Rounds the number at the end of a line to `decimals` decimals, because sums in another order differ in the last digits.
fn rounded(line: &str, decimals: usize) -> Option<String> {
    let (words, number) = line.trim().rsplit_once(' ')?;
    Some(format!("{} {:.decimals$}", words.trim(), number.parse::<f64>().ok()?))
}

const APPS: [App; 13] = [
    App {
        name: "LAMMPS",
        package: "lammps",
        quick: true,
        program: "/usr/bin/lmp",
        inputs: &["melt.lmp"],
        arguments: &["-in", "melt.lmp", "-log", "none"],
        result: |line| {
            let mut words = line.split_whitespace();
            let step = words.next().is_some_and(|word| word.parse::<u32>().is_ok());
            (step && words.clone().count() == 5).then(|| line.trim().to_owned())
        },
        must: &["100 "],
        ..PRINTING
    },
    App {
        name: "pw.x",
        package: "quantum-espresso",
        quick: true,
        program: "/usr/bin/pw.x",
        inputs: &["silicon.in"],
        arguments: &["-in", "silicon.in"],
        result: |line| {
            let wanted = ["total energy", "estimated scf accuracy", "highest occupied", "convergence has been"];
            wanted.iter().any(|text| line.contains(text)).then(|| line.trim().to_owned())
        },
        must: &["!    total energy              =     -15.65877504 Ry", "convergence has been achieved"],
        ..PRINTING
    },
    App {
        name: "HPCC",
        package: "hpcc",
        quick: true,
        program: "/usr/bin/hpcc",
        inputs: &["hpccinf.txt"],
        results: Some("hpccoutf.txt"),
        result: |line| {
            let line = line.trim();
            let residual = line.starts_with("||Ax-b||_oo/(eps") || line.contains("residual checks");
            let errors = line.contains("errors in") || line.contains("Errors=") || line.contains("with error");
            (residual || errors || line.starts_with("Success=") || line.contains("Validates")).then(|| line.to_owned())
        },
        must: &[
            "Success=1",
            "0 tests completed and failed residual checks,",
            "0 tests completed and failed residual checks.",
            "MPIRandomAccess_Errors=0",
            "Solution Validates",
        ],
        ..PRINTING
    },
    App {
        name: "GROMACS",
        package: "gromacs",
        quick: true,
        program: "/usr/bin/gmx_mpi",
        inputs: &["argon.gro", "argon.mdp", "argon.top"],
        prepare: &["gmx_mpi", "grompp", "-f", "argon.mdp", "-c", "argon.gro", "-p", "argon.top", "-o", "argon.tpr"],
        arguments: &["mdrun", "-s", "argon.tpr", "-ntomp", "1", "-reprod", "-dlb", "no", "-pin", "off"],
        results: Some("md.log"),
        result: |line| {
            // Lines with energies consist of numbers with exponents only.
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |word: &&str| word.contains('e') && word.parse::<f64>().is_ok();
            (words.len() > 1 && words.iter().all(number)).then(|| words.join(" "))
        },
        must: &["e+0"],
    },
    App {
        name: "h5py",
        package: "python3-h5py-mpi",
        quick: true,
        program: "/usr/bin/python3",
        inputs: &["parallel.py"],
        arguments: &["parallel.py"],
        result: marked,
        must: &["sum 127996000.0, last 31999.0, 4 ranks"],
        ..PRINTING
    },
    App {
        name: "petsc4py",
        package: "python3-petsc4py",
        program: "/usr/bin/python3",
        inputs: &["laplace.py"],
        arguments: &["laplace.py"],
        result: marked,
        must: &["cg 1", "norm 1.136944716e+04"],
        ..PRINTING
    },
    App {
        name: "CP2K",
        package: "cp2k",
        program: "/usr/bin/cp2k.psmp",
        inputs: &["h2.inp"],
        arguments: &["-i", "h2.inp"],
        result: |line| line.contains("ENERGY|").then(|| rounded(line, 9))?,
        must: &["-1.12579652"],
        ..PRINTING
    },
    App {
        name: "NWChem",
        package: "nwchem-openmpi",
        program: "/usr/bin/nwchem.openmpi",
        inputs: &["h2.nw"],
        arguments: &["h2.nw"],
        result: |line| line.contains("Total SCF energy").then(|| rounded(line, 9))?,
        must: &["-2.19160352"],
        ..PRINTING
    },
    App { name: "xdlu", program: "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests/xdlu", ..SCALAPACK },
    App { name: "xdqr", program: "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests/xdqr", ..SCALAPACK },
    App { name: "xdinv", program: "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests/xdinv", ..SCALAPACK },
    App { name: "xzllt", program: "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests/xzllt", ..SCALAPACK },
    App { name: "xdtrd", program: "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests/xdtrd", ..SCALAPACK },
];

/// Runs the applications and prints a table; returns an error if results differ or if the library handles no call.
pub(crate) fn run(quick: bool) -> Result<()> {
    let apps: Vec<&App> = APPS.iter().filter(|app| app.quick || !quick).collect();
    let missing = apps.iter().filter(|app| !Path::new(app.program).exists() || app.program.contains("python"));
    setup::install(&missing.map(|app| app.package).collect::<Vec<_>>())?;
    println!(
        "{:<8} {:>7} {:>8} {:>8} {:>7}  against the same run without",
        "program", "results", "calls", "handled", "share"
    );
    let mut failed = 0;
    for app in apps {
        let without = app.run("without", &[])?;
        let report = home().join(format!("apps/{}.json", app.name));
        let settings = [("BRUCKNER_REPORT", report.display().to_string())];
        let first = app.run("first", &settings)?;
        let second = app.run("second", &settings)?;
        let text = std::fs::read_to_string(&report).context("there is no report")?;
        let report: serde_json::Value = serde_json::from_str(&text)?;
        let (calls, handled) = (report["calls"].as_u64().unwrap_or(0), report["handled"].as_u64().unwrap_or(0));
        let verdict = match () {
            () if first != without => "results differ",
            () if second != first => "results differ between two runs",
            () if handled == 0 => "no call was handled",
            () => "same results in both runs",
        };
        failed += usize::from(verdict != "same results in both runs");
        let share = 100.0 * handled as f64 / calls.max(1) as f64;
        println!("{:<8} {:>7} {calls:>8} {handled:>8} {share:>6.1}%  {verdict}", app.name, first.len());
        if first != without {
            for (a, b) in without.iter().zip(&first).filter(|(a, b)| a != b).take(5) {
                eprintln!("without: {a}\nwith:    {b}");
            }
        }
    }
    if failed > 0 {
        bail!("{failed} applications failed: results differ, or no call was handled");
    }
    listing()
}

/// Runs three of the applications on emulated nodes and prints their time in collectives, native and with the library; returns an error if
/// results differ.
pub(crate) fn on_nodes(shape: &Shape) -> Result<()> {
    let nodes = Cluster::up(shape)?;
    let ranks = nodes.ranks();
    println!(
        "{:<8} {:>5} {:>7} {:>8} {:>8} {:>12} {:>12}  against the same run without",
        "program", "ranks", "results", "calls", "handled", "native", "with"
    );
    let mut failed = 0;
    for app in APPS.iter().filter(|app| ["LAMMPS", "pw.x", "HPCC"].contains(&app.name)) {
        let without = app.run_on("without", &[], Some(&nodes))?;
        let natives = Vec::from(NAMES.map(|name| format!("{name}=native"))).join("; ");
        let report = home().join(format!("apps/{}-nodes.json", app.name));
        let of = |name: &str, more: &[(&'static str, String)]| -> Result<(Vec<String>, serde_json::Value)> {
            let mut settings = vec![("BRUCKNER_REPORT", report.display().to_string())];
            settings.extend_from_slice(more);
            let results = app.run_on(name, &settings, Some(&nodes))?;
            let text = std::fs::read_to_string(&report).context("there is no report")?;
            Ok((results, serde_json::from_str(&text)?))
        };
        // Runs alternate between native and the library, because the speed of a busy machine varies over time.
        let (mut times, mut verdict, mut results) = ([Vec::new(), Vec::new()], "the same", 0);
        let mut ours = serde_json::Value::Null;
        for _ in 0..3 {
            let (_, native) = of("native", &[("BRUCKNER_ALGORITHM", natives.clone())])?;
            let (with, report) = of("with", &[])?;
            times[0].push(in_collectives(&native));
            times[1].push(in_collectives(&report));
            (results, ours) = (with.len(), report);
            if with != without {
                verdict = "results differ";
                for (a, b) in without.iter().zip(&with).filter(|(a, b)| a != b).take(5) {
                    eprintln!("without: {a}\nwith:    {b}");
                }
            }
        }
        failed += usize::from(verdict != "the same");
        let [native, with] = times.map(speed::median);
        let (calls, handled) = (ours["calls"].as_u64().unwrap_or(0), ours["handled"].as_u64().unwrap_or(0));
        println!(
            "{:<8} {ranks:>5} {:>7} {calls:>8} {handled:>8} {:>10.3} s {:>10.3} s  {verdict}",
            app.name, results, native, with,
        );
    }
    if failed > 0 {
        bail!("{failed} applications failed: results differ, or no call was handled");
    }
    Ok(())
}

/// All collectives for which `BRUCKNER_ALGORITHM` can name an algorithm.
const NAMES: [&str; 7] = ["allgather", "allreduce", "reduce_scatter", "alltoall", "bcast", "reduce", "barrier"];

/// Returns the total time in collectives in a report, in seconds.
fn in_collectives(report: &serde_json::Value) -> f64 {
    let communicators = report["communicators"].as_array().into_iter().flatten();
    let rows = communicators.flat_map(|one| one["rows"].as_array().into_iter().flatten());
    rows.filter_map(|row| row["seconds"].as_f64()).sum()
}

/// Runs the example of docs/using/report.md and compares its report with the listing there.
fn listing() -> Result<()> {
    let bruckner = root().join("target/release/bruckner");
    let launch = Launch::plain(Mpi::Openmpi4, 4, &bruckner).within(&home().join("apps"));
    let input = root().join("testbed/inputs/melt.lmp").display().to_string();
    let launch = launch.argument("exec").argument("lmp").argument("-in").argument(input);
    let said = launch.argument("-log").argument("none").set("BRUCKNER_REPORT", "stderr").run()?;
    let report = said.err.lines().skip_while(|line| !line.starts_with("bruckner "));
    let report: Vec<&str> = report.collect();
    listing::compare("docs/using/report.md", "lmp -in testbed/inputs/melt.lmp", &report.join("\n"), |line| {
        // Left out because they vary: numbers with six decimals, all numbers in the line of time in collectives, and advice.
        let is_time = |word: &&str| word.split_once('.').is_some_and(|(_, decimals)| decimals.len() == 6);
        let is_figure = |word: &&str| word.trim_start_matches('(').starts_with(|first: char| first.is_ascii_digit());
        let spent = line.starts_with("time in collectives");
        let words = line.split_whitespace().filter(|word| !is_time(word) && (!spent || !is_figure(word)));
        (!line.starts_with("advice: ")).then(|| words.collect::<Vec<_>>().join(" "))
    })
}

impl App {
    /// Runs the application in a new directory and returns its results.
    fn run(&self, name: &str, settings: &[(&'static str, String)]) -> Result<Vec<String>> {
        self.run_on(name, settings, None)
    }

    /// Runs the application in a new directory, across `nodes` if given, and returns its results.
    fn run_on(&self, name: &str, settings: &[(&'static str, String)], nodes: Option<&Cluster>) -> Result<Vec<String>> {
        let place: PathBuf = home().join("apps").join(format!("{}-{name}", self.name));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(&place)?;
        for input in self.inputs {
            match input.strip_suffix("/*.dat") {
                Some(folder) => {
                    for file in std::fs::read_dir(folder)?.flatten().map(|file| file.path()) {
                        if file.extension().is_some_and(|extension| extension == "dat") {
                            std::fs::copy(&file, place.join(file.file_name().unwrap_or_default()))?;
                        }
                    }
                }
                None => {
                    let mut text = std::fs::read_to_string(root().join("testbed/inputs").join(input))?;
                    if nodes.is_some_and(|nodes| nodes.ranks() == 16) {
                        // Adapts HPCC's process grid to 16 ranks.
                        text = text
                            .replace("2            Ps", "4            Ps")
                            .replace("2            Qs", "4            Qs");
                    }
                    std::fs::write(place.join(input), text)?;
                }
            }
        }
        if let Some((program, arguments)) = self.prepare.split_first() {
            let run = std::process::Command::new(program).args(arguments).current_dir(&place).output()?;
            if !run.status.success() {
                bail!("{program}: {}", String::from_utf8_lossy(&run.stderr));
            }
        }
        let (program, bruckner) = (Path::new(self.program), root().join("target/release/bruckner"));
        let mut launch = match (nodes, name) {
            (Some(nodes), "without") => Launch::plain(Mpi::Openmpi4, nodes.ranks(), program).across(nodes),
            (Some(nodes), _) => {
                let launch = Launch::plain(Mpi::Openmpi4, nodes.ranks(), &bruckner).across(nodes);
                launch.argument("exec").argument(self.program)
            }
            (None, "without") => Launch::plain(Mpi::Openmpi4, 4, program),
            (None, _) => Launch::preloaded(Mpi::Openmpi4, 4, program),
        };
        if nodes.is_some() {
            // Other nodes do not inherit the environment, and the number of threads would default to the number of cores.
            launch = launch.option("-x").option("OMP_NUM_THREADS").option("-wdir");
            launch = launch.option(&place.display().to_string());
        }
        launch = launch.set("OMP_NUM_THREADS", "1").within(&place);
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
        let mut results: Vec<String> = text.lines().filter_map(self.result).collect();
        let mut must = self.must.to_vec();
        if nodes.is_some() {
            // Between nodes, updates of MPIRandomAccess overtake one another even without the library, and some are lost. The benchmark
            // allows for that, so only its verdict is compared.
            let random = |line: &str| line.starts_with("MPIRandomAccess") && line.contains("Errors=");
            results.retain(|line| !random(line));
            must.retain(|line| !random(line));
            for line in results.iter_mut().filter(|line| line.starts_with("Found ")) {
                *line = line.split(' ').next_back().unwrap_or_default().to_owned();
            }
        }
        for must in must {
            if !results.iter().any(|line| line.contains(must)) {
                bail!("{} {name}: expected result `{must}` is missing:\n{}", self.name, results.join("\n"));
            }
        }
        Ok(results)
    }
}

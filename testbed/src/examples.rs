//! `cargo testbed examples`: the examples in C, Fortran and Rust, and the command itself, as a user would run them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::launch::Launch;
use crate::listing;
use crate::mpis::{Mpi, home, root};

/// Runs all examples; returns an error at the first one that does not work.
pub(crate) fn run() -> Result<()> {
    for &mpi in Mpi::ALL {
        let program = c(mpi)?;
        expect(mpi, 3, &program, "3 ranks: the sum is 6, the greatest is 11")?;
    }
    for mpi in [Mpi::Openmpi4, Mpi::Mpich4] {
        let program = fortran(mpi)?;
        expect(mpi, 3, &program, "3 ranks: the sum is 6.0")?;
    }
    for &mpi in Mpi::CURRENT {
        same_bits(mpi)?;
    }
    for (file, mpis) in UNMODIFIED {
        for &mpi in mpis {
            unmodified(mpi, file)?;
        }
    }
    documentation()?;
    let program = rust()?;
    expect(Mpi::Openmpi4, 3, &program, "3 ranks: the sum is 6")?;
    let off = Launch::new(Mpi::Openmpi4, 3, &program).set("BRUCKNER", "off").run()?;
    if !off.succeeded || !off.out.contains("3 ranks: the sum is 6") {
        bail!("rsmpi with BRUCKNER=off: {}{}", off.out, off.err);
    }
    let command = root().join("target/release/bruckner");
    for &mpi in Mpi::ALL.iter().filter(|mpi| !matches!(mpi, Mpi::MpichAbi | Mpi::IntelAbi)) {
        let said = Launch::new(mpi, 3, &command).argument("doctor").run()?;
        if !said.succeeded || !said.out.contains("no problems found") {
            bail!("bruckner doctor on {}: {}{}", mpi.name(), said.out, said.err);
        }
        println!("{:<10} bruckner doctor: {}", mpi.name(), said.out.lines().next().unwrap_or_default());
    }
    let said = Launch::new(Mpi::Mpich5, 2, &command).argument("doctor").run()?;
    // The path of the library, and whether ranks are pinned, differ between machines.
    listing::compare("docs/using/troubleshooting.md", "mpirun -n 2 bruckner doctor", &said.out, |line| {
        (!line.starts_with("MPI library") && !line.starts_with("note")).then(|| line.to_owned())
    })
}

/// Unmodified programs, and the MPIs that they run on. Only Debian's MPIs support Fortran.
const UNMODIFIED: [(&str, &[Mpi]); 5] = [
    ("fft.c", &[Mpi::Openmpi5, Mpi::Mpich5]),
    ("filter.c", &[Mpi::Openmpi5, Mpi::Mpich5]),
    ("histogram.cpp", &[Mpi::Openmpi5, Mpi::Mpich5]),
    ("heat.f90", &[Mpi::Openmpi4, Mpi::Mpich4]),
    ("means.py", &[Mpi::Openmpi5, Mpi::Mpich5]),
];

/// Runs a program without the library and with it: both must succeed with the same output, and the library must handle calls.
fn unmodified(mpi: Mpi, file: &str) -> Result<()> {
    let words = built(mpi, file)?;
    let bruckner = root().join("target/release/bruckner");
    let first = PathBuf::from(&words[0]);
    let without = words[1..].iter().fold(Launch::plain(mpi, 4, &first).oversubscribed(), Launch::argument).run()?;
    let with = Launch::plain(mpi, 4, &bruckner).oversubscribed().argument("exec").set("BRUCKNER_REPORT", "stderr");
    let with = words.iter().fold(with, Launch::argument).run()?;
    let handled = with.err.lines().find(|line| line.ends_with("%)") && line.contains(" calls handled "));
    let handled = handled.and_then(|line| line.rsplit(": ").next()).unwrap_or_default();
    if !without.succeeded
        || !with.succeeded
        || without.out != with.out
        || handled.is_empty()
        || handled.starts_with("0 ")
    {
        bail!("{file} on {}: {}{}{}{}", mpi.name(), without.out, without.err, with.out, with.err);
    }
    println!("{:<10} {file}, without and with: {} ({handled})", mpi.name(), with.out.trim());
    Ok(())
}

/// Builds an example if needed, and returns the command that starts it, without a launcher.
fn built(mpi: Mpi, file: &str) -> Result<Vec<String>> {
    let source = root().join("examples").join(file).display().to_string();
    let (name, ending) = file.rsplit_once('.').context("an ending")?;
    if ending == "py" {
        return Ok(vec![mpi.python().display().to_string(), source]);
    }
    let output = place(mpi, &format!("example-{name}"))?;
    let fortran = if mpi.is_open_mpi() { "mpif90.openmpi" } else { "mpif90.mpich" };
    let (compiler, flags): (PathBuf, &[&str]) = match ending {
        "cpp" => (mpi.compiler().with_file_name("mpicxx"), &["-Wall"]),
        "f90" => (fortran.into(), &["-Wall"]),
        _ => (mpi.compiler(), &["-Wall", "-Werror"]),
    };
    let mut command = mpi.command(compiler);
    command.arg("-O2").args(flags).arg(&source).arg("-o").arg(&output).arg("-lm");
    compile(command)?;
    Ok(vec![output.display().to_string()])
}

/// Runs conjugate gradients, an unmodified program, twice with online tuning: results must have the same bits in both runs, on all ranks.
fn same_bits(mpi: Mpi) -> Result<()> {
    let program = place(mpi, "cg")?;
    let mut command = mpi.command(mpi.compiler());
    command.args(["-O2", "-Wall", "-Werror", "cg.c", "-o"]).arg(&program).arg("-lm");
    compile(command)?;
    let bruckner = root().join("target/release/bruckner");
    let run = || {
        let launch = Launch::plain(mpi, 4, &bruckner).oversubscribed().argument("exec");
        launch.argument(program.display().to_string()).set("BRUCKNER_REPORT", "stderr").run()
    };
    let (first, second) = (run()?, run()?);
    let right = first.succeeded && first.out.contains(" 0 differences between ranks");
    // Integer calls are tuned online, floating-point calls are not.
    if !right || first.out != second.out || !first.err.contains("in a trial") {
        bail!("cg on {}: {}{}{}", mpi.name(), first.out, second.out, first.err);
    }
    println!("{:<10} cg, twice: {}", mpi.name(), first.out.trim());
    Ok(())
}

fn expect(mpi: Mpi, ranks: u32, program: &Path, line: &str) -> Result<()> {
    let said = Launch::new(mpi, ranks, program).run()?;
    if !said.succeeded || !said.out.lines().any(|said| said.trim() == line) {
        bail!("{} on {}: {}{}", program.display(), mpi.name(), said.out, said.err);
    }
    println!("{:<10} {}: {line}", mpi.name(), program.file_name().unwrap_or_default().to_string_lossy());
    Ok(())
}

fn place(mpi: Mpi, name: &str) -> Result<PathBuf> {
    let directory = home().join("programs").join(mpi.name());
    std::fs::create_dir_all(&directory)?;
    Ok(directory.join(name))
}

fn compile(mut command: Command) -> Result<()> {
    command.arg("-I").arg(root().join("crates/preload/include"));
    command.current_dir(root().join("examples"));
    let run = command.output().with_context(|| format!("{command:?} does not start"))?;
    if !run.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&run.stderr));
    }
    Ok(())
}

fn c(mpi: Mpi) -> Result<PathBuf> {
    if mpi == Mpi::IntelAbi {
        return c(Mpi::MpichAbi);
    }
    let output = place(mpi, "sum-c")?;
    let mut command = mpi.command(mpi.compiler());
    command.args(["-Wall", "-Werror", "sum.c", "-o"]).arg(&output);
    command.arg("-L").arg(root().join("target/release")).arg("-lbruckner");
    compile(command)?;
    Ok(output)
}

/// Builds the Fortran example. Only Debian's MPIs support Fortran.
fn fortran(mpi: Mpi) -> Result<PathBuf> {
    let (object, output) = (place(mpi, "sum_handles.o")?, place(mpi, "sum-fortran")?);
    let mut command = mpi.command(mpi.compiler());
    command.args(["-c", "sum_handles.c", "-o"]).arg(&object);
    compile(command)?;
    let compiler = if mpi.is_open_mpi() { "mpif90.openmpi" } else { "mpif90.mpich" };
    let mut command = mpi.command(compiler);
    command.arg("-J").arg(output.parent().expect("a directory"));
    command.arg("sum.f90").arg(&object).arg("-o").arg(&output);
    command.arg("-L").arg(root().join("target/release")).arg("-lbruckner");
    compile(command)?;
    Ok(output)
}

/// Runs cargo on the crate of the Rust API, with an MPI for rsmpi. Development builds have no flags, as those of `.ci/run fast`, so that
/// dependencies are not built again.
fn cargo(words: &[&str]) -> Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).args(["--quiet", "--locked", "--package", "bruckner"]).current_dir(root());
    command.env("MPICC", Mpi::Openmpi4.compiler()).env("RUSTDOCFLAGS", "-D warnings");
    if !words.contains(&"--release") {
        command.env_remove("RUSTFLAGS");
    }
    // An example that cannot start this MPI fails.
    command.env("BRUCKNER_MPI", Mpi::library_of_openmpi4()?);
    if !command.status()?.success() {
        bail!("cargo {} does not succeed", words.join(" "));
    }
    Ok(())
}

fn rust() -> Result<PathBuf> {
    cargo(&["build", "--release", "--features", "rsmpi", "--example", "rsmpi"])?;
    Ok(root().join("target/release/examples/rsmpi"))
}

/// Builds the documentation with all features, and runs its examples, each as a job of one rank.
fn documentation() -> Result<()> {
    cargo(&["doc", "--no-deps", "--features", "rsmpi"])?;
    cargo(&["test", "--doc"])?;
    println!("{:<10} the documentation of the Rust API, and its examples", Mpi::Openmpi4.name());
    Ok(())
}

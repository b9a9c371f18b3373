//! `cargo testbed examples`: the examples in C, Fortran and Rust, and the command itself, as a user would run them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::launch::Launch;
use crate::mpis::{Mpi, home, root};
use crate::readme;

/// Runs all examples; an error at the first that does not work.
pub(crate) fn run() -> Result<()> {
    for &mpi in Mpi::ALL {
        let program = c(mpi)?;
        expect(mpi, 3, &program, "3 ranks: the sum is 6, the greatest is 11")?;
    }
    for mpi in [Mpi::Openmpi4, Mpi::Mpich4] {
        let program = fortran(mpi)?;
        expect(mpi, 3, &program, "3 ranks: the sum is 6.0")?;
    }
    for &mpi in Mpi::TODAY {
        same_bits(mpi)?;
    }
    let program = rust()?;
    expect(Mpi::Openmpi4, 3, &program, "3 ranks: the sum is 6")?;
    let command = root().join("target/release/bruckner");
    for &mpi in Mpi::ALL.iter().filter(|mpi| !matches!(mpi, Mpi::MpichAbi | Mpi::IntelAbi)) {
        let said = Launch::new(mpi, 3, &command).argument("doctor").run()?;
        if !said.succeeded || !said.out.contains("nothing is wrong") {
            bail!("bruckner doctor on {}: {}{}", mpi.name(), said.out, said.err);
        }
        println!("{:<10} bruckner doctor: {}", mpi.name(), said.out.lines().next().unwrap_or_default());
    }
    let said = Launch::new(Mpi::Mpich5, 2, &command).argument("doctor").run()?;
    // Where the library is differs.
    readme::compare("mpirun -n 2 bruckner doctor", &said.out, |line| {
        (!line.starts_with("library")).then(|| line.to_owned())
    })
}

/// Conjugate gradients, an unmodified program: two runs with the library, in which calls are watched, have the same bits, on all ranks.
fn same_bits(mpi: Mpi) -> Result<()> {
    let program = place(mpi, "cg")?;
    let mut command = mpi.command(mpi.compiler());
    command.args(["-O2", "-Wall", "-Werror", "cg.c", "-o"]).arg(&program).arg("-lm");
    compile(command)?;
    let bruckner = root().join("target/release/bruckner");
    let run = || {
        let launch = Launch::plain(mpi, 4, &bruckner).patiently().argument("exec");
        launch.argument(program.display().to_string()).set("BRUCKNER_REPORT", "stderr").run()
    };
    let (first, second) = (run()?, run()?);
    let right = first.succeeded && first.out.contains(" 0 differences between ranks");
    // Integers are watched, and floating point is not.
    if !right || first.out != second.out || !first.err.contains("tried beside") {
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

/// Only Debian's MPIs have Fortran.
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

fn rust() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "build",
        "--release",
        "--quiet",
        "--package",
        "bruckner",
        "--features",
        "rsmpi",
        "--example",
        "rsmpi",
    ]);
    command.env("MPICC", Mpi::Openmpi4.compiler()).current_dir(root());
    if !command.status()?.success() {
        bail!("the example for rsmpi does not build");
    }
    Ok(root().join("target/release/examples/rsmpi"))
}

//! Installs what the testbed needs: Debian packages, and Python packages in virtual environments of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::mpis::{DEBIAN, MPI4PY, Mpi, WHEELS, home, root};

pub(crate) fn run() -> Result<()> {
    let missing: Vec<&str> =
        DEBIAN.iter().filter(|(_, file)| !Path::new(file).exists()).map(|(package, _)| *package).collect();
    install(&missing)?;
    std::fs::create_dir_all(home())?;
    for (name, packages) in WHEELS {
        let place = home().join(name);
        let stamp = place.join("bruckner-testbed.txt");
        let wanted = packages.join(" ");
        if std::fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
            continue;
        }
        eprintln!("fetching {wanted}");
        run_checked(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
        download(
            Command::new(place.join("bin/pip"))
                .args(["install", "--quiet", "--disable-pip-version-check"])
                .args(packages),
        )?;
        std::fs::write(&stamp, wanted)?;
    }
    fetch_mpi4py()?;
    fetch_mpich()?;
    run_checked(
        Command::new("gcc")
            .args(["-O2", "-shared", "-fPIC", "-o"])
            .arg(patient())
            .arg(root().join("testbed/programs/patient.c"))
            .arg("-ldl"),
    )?;
    for mpi in Mpi::ALL {
        let missing = mpi.missing();
        if !missing.is_empty() {
            bail!("{}: {} is missing", mpi.name(), missing[0].display());
        }
    }
    eprintln!("all MPIs are installed, in {} and from Debian", home().display());
    Ok(())
}

/// Installs those of the given Debian packages that are missing.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let is_there = |package: &&&str| {
        let ask = Command::new("dpkg-query").args(["-W", "-f", "${db:Status-Abbrev}", package]).output();
        ask.is_ok_and(|said| said.stdout.starts_with(b"ii"))
    };
    let missing = || -> Vec<&str> { packages.iter().filter(|package| !is_there(package)).copied().collect() };
    if missing().is_empty() {
        return Ok(());
    }
    // Another command of testbed may be installing, too; apt-get itself does not wait in all of its steps.
    let lock = std::fs::File::create(std::env::temp_dir().join("bruckner-testbed-apt.lock"))?;
    lock.lock()?;
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("installing {}", missing.join(" "));
    download(Command::new("apt-get").args(["update", "-qq"]))?;
    let mut install = Command::new("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive").args(["install", "-y", "-qq"]).args(&missing);
    // Packages are downloaded first, because an installation must not be interrupted.
    download(Command::new("apt-get").args(["install", "-y", "-qq", "--download-only"]).args(&missing))?;
    run_checked(&mut install)
}

/// Returns the directory of mpi4py's tests.
pub(crate) fn mpi4py_tests() -> PathBuf {
    home().join("mpi4py/test")
}

/// Returns the path of a library that, when preloaded, makes idle ranks of Debian's MPICH sleep, and its MPI_Finalize make progress.
pub(crate) fn patient() -> PathBuf {
    home().join("libpatient.so")
}

/// Returns the directory in which MPICH's tests are built for an MPI.
pub(crate) fn mpich_suite(mpi: Mpi) -> PathBuf {
    home().join("mpich-tests").join(mpi.name())
}

/// Fetches mpi4py's tests, which only its source package contains.
fn fetch_mpi4py() -> Result<()> {
    if mpi4py_tests().exists() {
        return Ok(());
    }
    eprintln!("fetching the source of {MPI4PY}");
    let place = home().join("mpi4py-source");
    let pip = home().join("mpich/bin/pip");
    download(
        Command::new(pip)
            .args(["download", "--quiet", "--disable-pip-version-check", "--no-deps"])
            .args(["--no-binary", "mpi4py", MPI4PY, "-d"])
            .arg(&place),
    )?;
    let archive = std::fs::read_dir(&place)?.flatten().next().context("nothing was fetched")?.path();
    unpack(&archive, &home().join("mpi4py"))
}

fn unpack(archive: &Path, into: &Path) -> Result<()> {
    std::fs::create_dir_all(into)?;
    run_checked(Command::new("tar").arg("xf").arg(archive).args(["--strip-components", "1", "-C"]).arg(into))
}

/// Fetches MPICH's tests from Debian's source package, and builds them for MPICH and for Open MPI.
fn fetch_mpich() -> Result<()> {
    let place = home().join("mpich-tests");
    let source = place.join("source");
    if !source.join("test/mpi/configure").exists() {
        eprintln!("fetching the source of MPICH");
        let lists = place.join("apt");
        std::fs::create_dir_all(lists.join("lists/partial"))?;
        let sources = std::fs::read_to_string("/etc/apt/sources.list.d/debian.sources")?;
        std::fs::write(lists.join("source.sources"), sources.replace("Types: deb\n", "Types: deb-src\n"))?;
        let apt = |arguments: &[&str]| {
            let mut command = Command::new("apt-get");
            command.args(["-qq", "-o", "Dir::Etc::sourcelist=/dev/null", "-o"]);
            command.arg(format!("Dir::Etc::sourceparts={}", lists.display())).arg("-o");
            command.arg(format!("Dir::State::lists={}", lists.join("lists").display()));
            download(command.args(arguments).current_dir(&place))
        };
        apt(&["update"])?;
        apt(&["source", "--download-only", "mpich"])?;
        let files = std::fs::read_dir(&place)?.flatten().map(|file| file.path());
        let archive = files.into_iter().find(|path| path.to_string_lossy().contains(".orig.tar"));
        unpack(&archive.context("no source of MPICH was fetched")?, &source)?;
    }
    for mpi in [Mpi::Mpich4, Mpi::Openmpi4] {
        let build = mpich_suite(mpi);
        if build.join("built").exists() {
            continue;
        }
        eprintln!("building MPICH's tests for {}", mpi.name());
        std::fs::create_dir_all(&build)?;
        let compiler = mpi.compiler();
        let mut configure = Command::new(source.join("test/mpi/configure"));
        configure.args(["--disable-dtpools", "--disable-fortran", "--disable-cxx"]);
        configure.arg(format!("CC={}", compiler.display())).arg(format!("MPICC={}", compiler.display()));
        let mut flags = "-O1 -w".to_owned();
        if mpi == Mpi::Openmpi4 {
            // In Open MPI 4, persistent collectives are extensions.
            let names = root().join("testbed/programs/extensions.h");
            flags += &format!(" -DOMPI_OMIT_MPI1_COMPAT_DECLS=0 -include {}", names.display());
        }
        configure.arg(format!("CFLAGS={flags}")).arg(format!("CPPFLAGS={flags}"));
        run_checked(configure.current_dir(&build))?;
        run_checked(Command::new("make").args(["-C", "util"]).current_dir(&build))?;
        // Some tests do not compile, because they use features that an MPI lacks.
        let log = std::fs::File::create(build.join("make.log"))?;
        let both = (log.try_clone()?, log);
        Command::new("make")
            .args(["-C", "coll", "-k", "-j2"])
            .current_dir(&build)
            .stdout(both.0)
            .stderr(both.1)
            .status()?;
        std::fs::write(build.join("built"), "")?;
    }
    Ok(())
}

/// Time limits of attempts to download, in seconds: a transfer may stall for good, and a slow network needs time.
const ATTEMPTS: [u32; 3] = [180, 360, 720];

/// Runs a command that downloads, again if it fails or stalls. The command must be safe to end at any time.
fn download(command: &mut Command) -> Result<()> {
    let mut attempts = ATTEMPTS.into_iter().map(|seconds| {
        let mut within = Command::new("timeout");
        within.arg("--kill-after=10").arg(seconds.to_string());
        within.arg(command.get_program()).args(command.get_args());
        if let Some(place) = command.get_current_dir() {
            within.current_dir(place);
        }
        run_checked(&mut within).inspect_err(|error| eprintln!("{error:#}"))
    });
    attempts.find(Result::is_ok).with_context(|| format!("{command:?} failed {} times", ATTEMPTS.len()))?
}

/// Runs a command; its output is shown only if it fails.
pub(crate) fn run_checked(command: &mut Command) -> Result<()> {
    let run = command.output().with_context(|| format!("{command:?} does not start"))?;
    if !run.status.success() {
        let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        bail!("{command:?} failed, {}:\n{out}{err}", run.status);
    }
    Ok(())
}

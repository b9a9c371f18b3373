//! Brings the parts: Debian packages, and Python packages into virtual environments of their own.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::mpis::{DEBIAN, Mpi, WHEELS, home};

pub(crate) fn run() -> Result<()> {
    let missing: Vec<&str> =
        DEBIAN.iter().filter(|(_, file)| !Path::new(file).exists()).map(|(package, _)| *package).collect();
    if !missing.is_empty() {
        eprintln!("installing {}", missing.join(" "));
        must(Command::new("apt-get").args(["update", "-qq"]))?;
        let mut install = Command::new("apt-get");
        install.env("DEBIAN_FRONTEND", "noninteractive").args(["install", "-y", "-qq"]).args(&missing);
        must(&mut install)?;
    }
    std::fs::create_dir_all(home())?;
    for (name, packages) in WHEELS {
        let place = home().join(name);
        let stamp = place.join("bruckner-testbed.txt");
        let wanted = packages.join(" ");
        if std::fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
            continue;
        }
        eprintln!("fetching {wanted}");
        must(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
        must(
            Command::new(place.join("bin/pip"))
                .args(["install", "--quiet", "--disable-pip-version-check"])
                .args(packages),
        )?;
        std::fs::write(&stamp, wanted)?;
    }
    for mpi in Mpi::ALL {
        let missing = mpi.missing();
        if !missing.is_empty() {
            bail!("{} lacks {}", mpi.name(), missing[0].display());
        }
    }
    eprintln!("all MPIs are there, in {} and from Debian", home().display());
    Ok(())
}

/// Runs a command; what it prints is shown only if it fails.
fn must(command: &mut Command) -> Result<()> {
    let run = command.output().with_context(|| format!("{command:?} does not start"))?;
    if !run.status.success() {
        let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        bail!("{command:?} failed, {}:\n{out}{err}", run.status);
    }
    Ok(())
}

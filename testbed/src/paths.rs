//! `cargo testbed paths`: the first steps of five kinds of users, as scripts, with the time of each.
//!
//! Scripts run on a clean root file system, which debootstrap makes; with `--quick`, in an empty directory and environment of this system.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::mpis::{home, root};
use crate::setup;

const PATHS: [&str; 5] = ["user", "python", "administrator", "developer", "researcher"];
/// Packages of the clean system: an MPI and a compiler, which users have, and tools that the scripts use.
const PACKAGES: [&str; 14] = [
    "binutils",
    "ca-certificates",
    "gcc",
    "libc6-dev",
    "libopenmpi-dev",
    "lmod",
    "make",
    "man-db",
    "openmpi-bin",
    "openssh-client",
    "pkg-config",
    "procps",
    "python3-mpi4py",
    "python3-venv",
];
/// Environment in which Open MPI runs as root and with more ranks than cores.
const SETTINGS: [(&str, &str); 4] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("OMPI_MCA_btl_base_warn_component_unused", "0"),
];

/// Place where scripts run.
enum Place {
    /// A clean root file system.
    Clean(PathBuf),
    /// A directory of this system.
    Here(PathBuf),
}

/// Runs all scripts; returns an error at the first one that fails.
pub(crate) fn run(quick: bool) -> Result<()> {
    let packages = [("TARBALL", packed("tarball")?), ("WHEEL", packed("wheel")?)];
    let place = match quick {
        true => {
            setup::install(&["environment-modules", "pkg-config", "man-db", "python3-mpi4py", "python3-venv"])?;
            // Outside this checkout, because cargo would count packages made inside it as members of its workspace.
            Place::Here(std::env::temp_dir().join(format!("bruckner-paths-{}", std::process::id())))
        }
        false => Place::Clean(clean()?),
    };
    for path in PATHS {
        let start = Instant::now();
        let (succeeded, said) = place.run(path, &packages)?;
        ensure!(succeeded, "{path}:\n{said}");
        println!("{path:<14} {:>6.1} s", start.elapsed().as_secs_f64());
    }
    if let Place::Here(place) = place {
        std::fs::remove_dir_all(place)?;
    }
    Ok(())
}

/// Runs the script that starts a Slurm, runs programs under it, and stops it.
pub(crate) fn slurm() -> Result<()> {
    setup::install(&["slurmctld", "slurmd", "slurm-client", "munge"])?;
    let place = std::env::temp_dir().join(format!("bruckner-slurm-{}", std::process::id()));
    std::fs::create_dir_all(&place)?;
    let script = root().join("testbed/paths/slurm.sh");
    let status = Command::new("sh").arg("-eu").arg(script).arg(root()).current_dir(&place).status();
    std::fs::remove_dir_all(&place)?;
    ensure!(status?.success(), "the programs under srun failed");
    Ok(())
}

/// Packs the current sources by `make KIND` and returns the path of the package.
fn packed(kind: &str) -> Result<PathBuf> {
    let made = Command::new("make").args(["-s", kind]).current_dir(root()).output()?;
    ensure!(made.status.success(), "make {kind}: {}", String::from_utf8_lossy(&made.stderr));
    let said = String::from_utf8_lossy(&made.stdout);
    let name = said.lines().last().context("make says where it is")?;
    Ok(root().join(name))
}

/// Makes a new root file system and returns its path.
fn clean() -> Result<PathBuf> {
    setup::install(&["debootstrap"])?;
    let place = home().join("root");
    let _ = std::fs::remove_dir_all(&place);
    let asked =
        Command::new("apt-get").args(["indextargets", "--format", "$(SITE)", "Created-By: Packages"]).output()?;
    let sites = String::from_utf8_lossy(&asked.stdout).into_owned();
    let site = sites.lines().next().context("apt-get knows a mirror")?;
    let about = std::fs::read_to_string("/etc/os-release")?;
    let name = about.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).context("a name of the system")?;
    setup::run_checked(Command::new("debootstrap").args(["--variant=minbase", name]).arg(&place).arg(site))?;
    // The new system needs the same network configuration, package sources and certificates as this one.
    let script = format!(
        "cp /etc/resolv.conf /etc/hosts '{0}/etc/'; cp -r /etc/apt/apt.conf.d '{0}/etc/apt/'; \
         chroot '{0}' apt-get update -qq && DEBIAN_FRONTEND=noninteractive chroot '{0}' \
         apt-get install -y -qq --no-install-recommends {1} && cp -L /etc/ssl/certs/ca-certificates.crt '{0}/etc/ssl/certs/'",
        place.display(),
        PACKAGES.join(" ")
    );
    setup::run_checked(Command::new("sh").args(["-c", &script]))?;
    Ok(place)
}

impl Place {
    /// Runs a script from an empty directory; returns whether it succeeded, and its output.
    fn run(&self, path: &str, packages: &[(&str, PathBuf)]) -> Result<(bool, String)> {
        let script = root().join("testbed/paths").join(path).with_extension("sh");
        let variable = |name: &str| std::env::var(name).ok();
        let of_home = |name: &str| format!("{}/{name}", variable("HOME").unwrap_or_default());
        let cargo = variable("CARGO_HOME").unwrap_or_else(|| of_home(".cargo"));
        let rustup = variable("RUSTUP_HOME").unwrap_or_else(|| of_home(".rustup"));
        let mut command = match self {
            Place::Here(place) => {
                let place = place.join(path);
                let _ = std::fs::remove_dir_all(&place);
                let tools = place.join("tools");
                std::fs::create_dir_all(&tools)?;
                // Two MPIs are installed; the script uses Open MPI.
                for name in ["mpicc", "mpirun"] {
                    std::os::unix::fs::symlink(format!("/usr/bin/{name}.openmpi"), tools.join(name))?;
                }
                let mut command = Command::new("sh");
                command.args(["-ex"]).arg(&script).current_dir(&place).env_clear();
                command.env("PATH", format!("{}:{cargo}/bin:/usr/local/bin:/usr/bin:/bin", tools.display()));
                command.env("HOME", &place);
                command
            }
            Place::Clean(system) => {
                let inside = "/root/work";
                let _ = std::fs::remove_dir_all(system.join("root/work"));
                std::fs::create_dir_all(system.join("root/work"))?;
                // Mounts disappear with the namespace in which they are made.
                let mut enter = String::from("set -e\n");
                for shared in ["/proc", "/dev", "/dev/shm", "/sys", &root().display().to_string(), &cargo, &rustup] {
                    let at = format!("{}{shared}", system.display());
                    enter += &format!("mkdir -p '{at}'; mount --bind '{shared}' '{at}'\n");
                }
                enter += &format!(
                    "exec chroot '{}' sh -c 'cd {inside}; exec sh -ex \"$0\"' '{}'\n",
                    system.display(),
                    script.display()
                );
                let mut command = Command::new("unshare");
                command.args(["--mount", "sh", "-c", &enter]).env_clear().env("HOME", "/root");
                command.env("PATH", format!("{cargo}/bin:/usr/sbin:/usr/bin:/sbin:/bin"));
                command
            }
        };
        let version = env!("CARGO_PKG_VERSION");
        command.env("CARGO_HOME", &cargo).env("RUSTUP_HOME", &rustup).envs(SETTINGS);
        // Packages are made from the files of the build under test.
        for name in ["RUSTFLAGS", "TARGET_DIR"] {
            command.envs(variable(name).map(|value| (name, value)));
        }
        command.env("SOURCE", root()).env("VERSION", version).envs(packages.iter().cloned());
        let said = command.stdin(Stdio::null()).output()?;
        let text = [said.stdout, said.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        Ok((said.status.success(), text))
    }
}

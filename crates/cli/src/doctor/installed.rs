//! Search for installed MPIs, used when no MPI is loaded.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Usual directories of MPIs that are not in `PATH`.
const PLACES: [&str; 6] = [
    "/usr/lib64/openmpi",
    "/usr/lib64/mpich",
    "/opt/intel/oneapi/mpi/latest",
    "/opt/cray/pe/mpich",
    "/opt/openmpi",
    "/opt/mpich",
];

/// Returns the advice for a process without an MPI.
pub(super) fn where_to_look() -> String {
    let found = installed();
    match found.is_empty() {
        true => {
            "no MPI was found in PATH, LD_LIBRARY_PATH or the usual directories: load the module of an MPI, or install an MPI \
                 (Debian: apt install openmpi-bin, or mpich)"
                .to_owned()
        }
        false => {
            let all: Vec<String> = found.iter().map(|path| path.display().to_string()).collect();
            format!(
                "start doctor with an MPI's launcher (mpirun -n 2 bruckner doctor), or set BRUCKNER_MPI to an MPI library; installed: {}",
                all.join(", ")
            )
        }
    }
}

/// Returns the MPI launchers in `PATH`, and the MPI libraries in [`PLACES`] and `LD_LIBRARY_PATH`.
fn installed() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let path = std::env::var_os("PATH").unwrap_or_default();
    for place in std::env::split_paths(&path) {
        for name in ["mpirun", "mpiexec", "mpirun.openmpi", "mpirun.mpich"] {
            if let Ok(real) = std::fs::canonicalize(place.join(name)) {
                found.insert(real);
            }
        }
    }
    let is_mpi = |name: &str| ["libmpi.so", "libmpich.so", "libmpi_abi.so"].iter().any(|start| name.starts_with(start));
    let mut places: Vec<PathBuf> = PLACES.iter().map(|place| Path::new(place).join("lib")).collect();
    let library_path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    places.extend(std::env::split_paths(&library_path));
    for file in places.iter().filter_map(|place| place.read_dir().ok()).flatten().flatten() {
        if file.file_name().to_str().is_some_and(is_mpi)
            && let Ok(real) = std::fs::canonicalize(file.path())
        {
            found.insert(real);
        }
    }
    found
}

//! Description of the MPI and the machine of a launch.

use std::collections::BTreeMap;

use anyhow::Result;
use bruckner_choose::Vendor;
use bruckner_engine::Mpi;
use bruckner_measure::{Host, MpiInfo};

/// Prefixes of environment variables that configure an MPI, its transports or this library.
const CONFIG_PREFIXES: [&str; 9] =
    ["OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "MPIR_", "MPICH_", "I_MPI_", "UCX_", "FI_", "BRUCKNER"];

/// Describes the MPI of this process, with the environment variables that configure it.
pub(crate) fn mpi(mpi: &Mpi) -> MpiInfo {
    let settings: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| CONFIG_PREFIXES.iter().any(|beginning| name.starts_with(beginning)))
        .collect();
    let name = Vendor::short(mpi.name()).to_owned();
    MpiInfo { name, library: mpi.library.path.display().to_string(), settings }
}

fn line(file: &str, beginning: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(beginning))?;
    Some(line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
}

/// Returns the load of this host: processes running or ready to run, averaged over the last minute.
pub(crate) fn load() -> f64 {
    let first = line("/proc/loadavg", "").and_then(|text| text.split(' ').next()?.parse().ok());
    first.unwrap_or(f64::NAN)
}

/// Returns the model name of this host's processor.
pub(crate) fn processor() -> String {
    line("/proc/cpuinfo", "model name").unwrap_or_default()
}

/// Describes the machine: host name and pinning of every rank, and processor, kernel and load of this rank's host. Collective.
pub(crate) fn machine(mpi: &Mpi) -> Result<Host> {
    let file = |path: &str| line(path, "").unwrap_or_default();
    let own = |name: &str| line("/proc/self/status", name).unwrap_or_default();
    let hosts = texts(mpi, &file("/proc/sys/kernel/hostname"))?;
    let pinning = texts(mpi, &own("Cpus_allowed_list"))?;
    Ok(Host {
        hosts,
        pinning,
        processor: processor(),
        cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u32),
        kernel: file("/proc/sys/kernel/osrelease"),
        load: [load(), 0.0],
    })
}

/// Gathers a short text from each rank; a text longer than 64 bytes is cut.
fn texts(mpi: &Mpi, mine: &str) -> Result<Vec<String>> {
    const WORDS: usize = 8;
    let mut bytes = mine.as_bytes().to_vec();
    bytes.resize(WORDS * 8, 0);
    let words: Vec<u64> = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
    let all = mpi.gather(mpi.comm_world(), &words)?;
    let text = |words: &[u64]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Ok(all.chunks(WORDS).map(text).collect())
}

//! Who shares a node, and a socket of it.

use crate::functions::Word;
use crate::{Mpi, MpiError};

/// Where a process runs: a number of its node and one of its socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// Its node, by the lowest rank on it.
    pub node: u64,
    /// Its socket on that node; 0 for all where any process may run on several.
    pub socket: u64,
}

/// Where the processes of a communicator run, by rank. Collective.
pub fn places(mpi: &Mpi, comm: Word) -> Result<Vec<Place>, MpiError> {
    let node = mpi.node(comm)?;
    let mut lowest = [u64::from(mpi.rank(comm)?)];
    mpi.agree(node, crate::Agree::Min, &mut lowest)?;
    mpi.free(node);
    let socket = socket(&cores()).unwrap_or(u64::MAX);
    let all = mpi.gather(comm, &[lowest[0], socket])?;
    let known = all.chunks(2).all(|pair| pair[1] != u64::MAX);
    Ok(all.chunks(2).map(|pair| Place { node: pair[0], socket: if known { pair[1] } else { 0 } }).collect())
}

/// The cores that this process may run on.
fn cores() -> Vec<usize> {
    // SAFETY: all zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes a set of this size.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: within the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

/// The socket that all these cores are on.
fn socket(cores: &[usize]) -> Option<u64> {
    let of = |core: &usize| -> Option<u64> {
        let file = format!("/sys/devices/system/cpu/cpu{core}/topology/physical_package_id");
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    };
    let first = of(cores.first()?)?;
    cores.iter().all(|core| of(core) == Some(first)).then_some(first)
}

/// How many processes of a node there are for each core that they may use: `(processes, cores)`. Collective over the
/// node.
pub fn sharers(mpi: &Mpi, node: Word) -> Result<(u32, u32), MpiError> {
    let mut bits = vec![u64::MAX; 16];
    for core in cores().into_iter().filter(|&core| core < 1024) {
        bits[core / 64] &= !(1 << (core % 64));
    }
    mpi.agree(node, crate::Agree::And, &mut bits)?;
    let cores = bits.iter().map(|word| word.count_zeros()).sum();
    Ok((mpi.size(node)?, cores))
}

//! Who shares a machine, a node, and a socket of it.

use std::collections::HashMap;

use crate::functions::Handle;
use crate::{Mpi, MpiError};

/// Where a process runs: a number of its machine, one of its node and one of its socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// Its node, by the lowest rank on it.
    pub node: u64,
    /// Its socket on that node; 0 for all where any process may run on several.
    pub socket: u64,
    /// Its machine, by the lowest rank on it. Mostly that is the node; but containers of one machine are nodes that share its
    /// cores and no memory.
    pub machine: u64,
}

/// Where the processes of a communicator run, by rank; `node` is those that share memory with this one. Collective.
pub fn places(mpi: &Mpi, comm: Handle, node: Handle) -> Result<Vec<Place>, MpiError> {
    let mut lowest = [u64::from(mpi.rank(comm)?)];
    mpi.agree(node, crate::Agree::Min, &mut lowest)?;
    let socket = socket(&cores()).unwrap_or(u64::MAX);
    Ok(numbered(&mpi.gather(comm, &[lowest[0], socket, boot()])?))
}

/// Places of ranks that each gave its node, its socket and what its machine has alone.
fn numbered(all: &[u64]) -> Vec<Place> {
    let known = all.chunks(3).all(|of| of[1] != u64::MAX);
    let mut machines: HashMap<u64, u64> = HashMap::new();
    let place = |(rank, of): (usize, &[u64])| Place {
        node: of[0],
        socket: if known { of[1] } else { 0 },
        machine: if of[2] == 0 { of[0] } else { *machines.entry(of[2]).or_insert(rank as u64) },
    };
    all.chunks(3).enumerate().map(place).collect()
}

/// A number that the running system of a machine has alone, whatever namespaces this process is in; 0 if that is unknown.
fn boot() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
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

/// Whether this process has its own part of the machine's cores, or there is but one.
pub fn is_pinned() -> bool {
    // SAFETY: always succeeds.
    let all = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    all == 1 || (cores().len() as libc::c_long) < all
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

/// How many processes there are on this machine, and how many cores they may use: `(processes, cores)`. Collective.
pub fn sharers(mpi: &Mpi, comm: Handle, places: &[Place]) -> Result<(u32, u32), MpiError> {
    let mut bits = vec![u64::MAX; 16];
    for core in cores().into_iter().filter(|&core| core < 1024) {
        bits[core / 64] &= !(1 << (core % 64));
    }
    let machine = mpi.split(comm, places[mpi.rank(comm)? as usize].machine as u32)?;
    let agreed = mpi.agree(machine, crate::Agree::And, &mut bits);
    let processes = mpi.size(machine);
    mpi.free(machine);
    agreed?;
    Ok((processes?, bits.iter().map(|word| word.count_zeros()).sum()))
}

#[cfg(test)]
mod tests {
    use super::numbered;

    #[test]
    fn containers_of_one_machine_are_nodes_that_share_it() {
        let machines = |all: &[u64]| numbered(all).iter().map(|place| place.machine).collect::<Vec<_>>();
        // Four nodes on two machines.
        assert_eq!(machines(&[0, 0, 7, 0, 0, 7, 2, 0, 9, 3, 0, 7, 4, 0, 9]), [0, 0, 2, 0, 2]);
        // Where machines cannot be told apart, each node is one.
        assert_eq!(machines(&[0, 0, 0, 0, 0, 0, 2, 0, 0]), [0, 0, 2]);
    }

    #[test]
    fn sockets_count_only_where_all_know_theirs() {
        let sockets = |all: &[u64]| numbered(all).iter().map(|place| place.socket).collect::<Vec<_>>();
        assert_eq!(sockets(&[0, 0, 7, 0, 1, 7]), [0, 1]);
        assert_eq!(sockets(&[0, u64::MAX, 7, 0, 1, 7]), [0, 0]);
    }
}

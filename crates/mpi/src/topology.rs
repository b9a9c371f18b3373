//! Determines which ranks share a machine, a node and a socket.

use std::collections::HashMap;

use crate::functions::Handle;
use crate::{Mpi, MpiError};

/// Where a rank runs: its machine, node and socket, as numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// Node, identified by the lowest rank on it.
    pub node: u64,
    /// Number of the socket on the node; 0 for all ranks if the socket of any rank is unknown, or if any rank may run on several sockets.
    pub socket: u64,
    /// Machine, identified by the lowest rank on it. Usually machine and node are the same; but containers on one machine are separate
    /// nodes, which share cores but no memory.
    pub machine: u64,
}

/// Returns where each rank of `comm` runs. The communicator `node` contains the ranks that share memory with this one. Collective.
pub fn locations(mpi: &Mpi, comm: Handle, node: Handle) -> Result<Vec<Location>, MpiError> {
    let mut lowest = [u64::from(mpi.rank(comm)?)];
    mpi.agree(node, crate::AgreeOp::Min, &mut lowest)?;
    let socket = socket(&cores()).unwrap_or(u64::MAX);
    Ok(numbered(&mpi.gather(comm, &[lowest[0], socket, boot()])?))
}

/// Converts three numbers of each rank (node, socket, identifier of the machine) to locations.
fn numbered(all: &[u64]) -> Vec<Location> {
    let known = all.chunks(3).all(|of| of[1] != u64::MAX);
    let mut machines: HashMap<u64, u64> = HashMap::new();
    let place = |(rank, of): (usize, &[u64])| Location {
        node: of[0],
        socket: if known { of[1] } else { 0 },
        machine: if of[2] == 0 { of[0] } else { *machines.entry(of[2]).or_insert(rank as u64) },
    };
    all.chunks(3).enumerate().map(place).collect()
}

/// Returns an identifier of the machine since its last boot, which is the same in all containers of the machine; 0 if it is unknown.
fn boot() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

/// Returns the cores that this process may run on.
fn cores() -> Vec<usize> {
    // SAFETY: all zero is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the function writes a set of the given size.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: `core` is within the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

/// Returns whether this process is bound to only some of the machine's cores, or the machine has only one core.
pub fn is_pinned() -> bool {
    // SAFETY: this call has no preconditions.
    let all = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    all == 1 || (cores().len() as libc::c_long) < all
}

/// Returns the socket to which all of `cores` belong, if there is one.
fn socket(cores: &[usize]) -> Option<u64> {
    let of = |core: &usize| -> Option<u64> {
        let file = format!("/sys/devices/system/cpu/cpu{core}/topology/physical_package_id");
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    };
    let first = of(cores.first()?)?;
    cores.iter().all(|core| of(core) == Some(first)).then_some(first)
}

/// Returns the number of ranks of `comm` on this machine, and the number of cores that they may use: `(processes, cores)`. Collective.
pub fn processes_and_cores(mpi: &Mpi, comm: Handle, places: &[Location]) -> Result<(u32, u32), MpiError> {
    let mut bits = vec![u64::MAX; 16];
    for core in cores().into_iter().filter(|&core| core < 1024) {
        bits[core / 64] &= !(1 << (core % 64));
    }
    let machine = mpi.split(comm, places[mpi.rank(comm)? as usize].machine as u32)?;
    let agreed = mpi.agree(machine, crate::AgreeOp::And, &mut bits);
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
        // Four nodes on two machines; the third number of each rank identifies its machine.
        assert_eq!(machines(&[0, 0, 7, 0, 0, 7, 2, 0, 9, 3, 0, 7, 4, 0, 9]), [0, 0, 2, 0, 2]);
        // If machines have no identifier, each node counts as a machine.
        assert_eq!(machines(&[0, 0, 0, 0, 0, 0, 2, 0, 0]), [0, 0, 2]);
    }

    #[test]
    fn sockets_count_only_where_all_know_theirs() {
        let sockets = |all: &[u64]| numbered(all).iter().map(|place| place.socket).collect::<Vec<_>>();
        assert_eq!(sockets(&[0, 0, 7, 0, 1, 7]), [0, 1]);
        assert_eq!(sockets(&[0, u64::MAX, 7, 0, 1, 7]), [0, 0]);
    }
}

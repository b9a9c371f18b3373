//! Lower bounds on rounds, messages and data volume, for any algorithm.

use crate::{Collective, Counts, Level, Problem, Topology};

/// Unit to which a lower bound applies: a rank, or a node as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A single rank.
    Rank,
    /// A node as a whole: its ranks share memory, and divide the receives from other nodes among themselves.
    Node,
}

/// Lower bounds for the busiest *party*, a rank or a node as a whole (see [`Unit`]), and for each rank of a node if its ranks share the
/// work evenly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// Minimum number of communication rounds.
    pub rounds: u32,
    /// Minimum number of messages that the busiest party receives.
    pub messages: u64,
    /// Minimum number of elements that the busiest party receives; `None` if sizes are known only locally.
    pub elements: Option<u64>,
    /// Number of ranks in a party: 1, or the number of ranks of the largest node.
    pub members: u64,
}

impl Bound {
    /// Returns the minimum number of messages that the busiest rank receives.
    pub fn messages_of_rank(&self) -> u64 {
        self.messages.div_ceil(self.members)
    }

    /// Returns the minimum number of elements that the busiest rank receives; `None` if sizes are known only locally.
    pub fn elements_of_rank(&self) -> Option<u64> {
        self.elements.map(|n| n.div_ceil(self.members))
    }
}

/// Computes the lower bounds for a problem in which each rank can receive `ports` messages at a time.
///
/// In one round, the number of parties whose data has reached a given party grows at most by a factor of one plus the number of messages
/// that the party receives. Each single message at most doubles it. A party must receive all data that it lacks: in an allgather or
/// alltoall, all blocks but its own. In a reduce_scatter each party must send a contribution to every block but its own, so the busiest
/// party receives as much as in an allgather. In an allreduce of n parties, each receives 2(n−1)/n of the vector if the work is shared
/// evenly.
pub fn bound(problem: &Problem, topology: &Topology, party: Unit, ports: u32) -> Bound {
    let (parties, members) = match party {
        Unit::Rank => (u64::from(problem.ranks), 1),
        Unit::Node => (topology.regions(Level::NODE).into(), topology.largest(Level::NODE).into()),
    };
    let blocks = Problem { pieces: 1, ..problem.clone() };
    let sizes = || (0..blocks.chunks()).map(|b| blocks.elements(b).unwrap_or(1));
    let nothing =
        problem.counts == Counts::Equal(0) || !matches!(problem.counts, Counts::Equal(_)) && sizes().all(|n| n == 0);
    let (mut rounds, mut messages, mut known) = (0, 0, 1);
    while known < parties && !nothing {
        known *= u64::from(ports.max(1)) * members + 1;
        rounds += 1;
    }
    // A party needs messages only from the parties that have data.
    let filled = match problem.counts {
        Counts::Equal(_) | Counts::Local => parties,
        _ => (sizes().filter(|&n| n > 0).count() as u64).div_ceil(members),
    };
    if parties > 1 && !nothing {
        messages = u64::from(filled.next_power_of_two().trailing_zeros()).max(1);
    }
    let others = u64::from(problem.ranks) - members.min(problem.ranks.into());
    let elements = match (problem.collective, &problem.counts) {
        (_, Counts::Local) => None,
        _ if parties == 1 => Some(0),
        // A reduce_scatter is an allgather reversed in time, with the same volume.
        (Collective::Allgather | Collective::ReduceScatter, Counts::Equal(n)) => Some(n * others),
        (Collective::Alltoall, Counts::Equal(n)) => Some(n * others * members),
        (Collective::Alltoall, _) => None,
        (Collective::Allgather | Collective::ReduceScatter, Counts::Root { count, .. }) => Some(*count),
        (Collective::Allgather | Collective::ReduceScatter, _) => {
            // In the best case the party itself has the largest blocks and receives the others.
            let mut sizes: Vec<u64> = sizes().collect();
            sizes.sort_unstable();
            Some(sizes[..others as usize].iter().sum())
        }
        (Collective::Allreduce, _) => Some((2 * sizes().sum::<u64>() * (parties - 1)).div_ceil(parties)),
    };
    Bound { rounds, messages, elements, members }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_small_problems() {
        let of = |collective, counts, ports| {
            bound(&Problem::new(collective, 5, counts, 8).unwrap(), &Topology::flat(5), Unit::Rank, ports)
        };
        let allgather = of(Collective::Allgather, Counts::Equal(3), 1);
        assert_eq!((allgather.rounds, allgather.elements), (3, Some(12)));
        assert_eq!(of(Collective::Allgather, Counts::Equal(3), 4).rounds, 1);
        let ragged = of(Collective::Allgather, Counts::Listed(vec![7, 1, 0, 2, 1]), 1);
        assert_eq!(ragged.elements, Some(4));
        let bcast = of(Collective::Allgather, Counts::Root { root: crate::Rank(0), count: 3 }, 1);
        assert_eq!((bcast.rounds, bcast.messages, bcast.elements), (3, 1, Some(3)));
        let allreduce = of(Collective::Allreduce, Counts::Equal(10), 1);
        assert_eq!(allreduce.elements, Some(16));
        assert_eq!(of(Collective::Alltoall, Counts::Local, 1).elements, None);
    }

    #[test]
    fn a_node_hears_with_all_its_ranks() {
        let topology: Topology = "65536x16".parse().unwrap();
        let problem = Problem::new(Collective::Allgather, topology.ranks(), Counts::Equal(1), 8).unwrap();
        let least = bound(&problem, &topology, Unit::Node, 1);
        assert_eq!((least.rounds, least.messages, least.messages_of_rank()), (4, 16, 1));
        assert_eq!(least.elements_of_rank(), Some(65535));
    }
}

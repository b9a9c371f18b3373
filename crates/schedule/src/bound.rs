//! What no algorithm can do without.

use crate::{Collective, Counts, Level, Problem, Topology};

/// Who learns as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Party {
    /// Every rank by itself.
    Rank,
    /// The ranks of a node, which share memory and the work of hearing from others.
    Node,
}

/// The least that a party can do, and each of its ranks if they share the work evenly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// Rounds of messages.
    pub rounds: u32,
    /// Messages that the busiest party receives.
    pub messages: u64,
    /// Elements that it receives; `None` where sizes are not shared knowledge.
    pub elements: Option<u64>,
    /// The ranks of a party.
    pub members: u64,
}

impl Bound {
    /// Messages that the busiest rank receives.
    pub fn messages_of_rank(&self) -> u64 {
        self.messages.div_ceil(self.members)
    }

    /// Elements that the busiest rank receives.
    pub fn elements_of_rank(&self) -> Option<u64> {
        self.elements.map(|n| n.div_ceil(self.members))
    }
}

/// The least that a problem takes with `ports` messages of each rank at once.
///
/// What a party knows grows by a factor of at most one more than the messages that it receives in a round, and at most
/// doubles with each message. It must receive what it has not: all blocks but its own in an allgather or alltoall. In a
/// reduce_scatter each party must send something for every block but its own, so the busiest receives as much. In an
/// allreduce of n parties it is 2(n−1)/n of the vector, if each does its share.
pub fn bound(problem: &Problem, topology: &Topology, party: Party, ports: u32) -> Bound {
    let (parties, members) = match party {
        Party::Rank => (u64::from(problem.ranks), 1),
        Party::Node => (topology.regions(Level::NODE).into(), topology.largest(Level::NODE).into()),
    };
    let blocks = Problem { pieces: 1, ..problem.clone() };
    let sizes = || (0..blocks.chunks()).map(|b| blocks.elements(b).unwrap_or(1));
    let nothing = problem.counts == Counts::Equal(0)
        || !matches!(problem.counts, Counts::Equal(_)) && sizes().all(|n| n == 0);
    let (mut rounds, mut messages, mut known) = (0, 0, 1);
    while known < parties && !nothing {
        known *= u64::from(ports.max(1)) * members + 1;
        rounds += 1;
    }
    // Only parties that have something must be heard from.
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
        // What a reduce_scatter needs is what an allgather needs, backwards.
        (Collective::Allgather | Collective::ReduceScatter, Counts::Equal(n)) => Some(n * others),
        (Collective::Alltoall, Counts::Equal(n)) => Some(n * others * members),
        (Collective::Alltoall, _) => None,
        (Collective::Allgather | Collective::ReduceScatter, Counts::Root { count, .. }) => Some(*count),
        (Collective::Allgather | Collective::ReduceScatter, _) => {
            // At best a party has the largest blocks itself.
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
            bound(&Problem::new(collective, 5, counts, 8).unwrap(), &Topology::flat(5), Party::Rank, ports)
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
        let least = bound(&problem, &topology, Party::Node, 1);
        assert_eq!((least.rounds, least.messages, least.messages_of_rank()), (4, 16, 1));
        assert_eq!(least.elements_of_rank(), Some(65535));
    }
}

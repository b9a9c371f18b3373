//! Reorders the members of a pattern to balance blocks of unequal sizes (Jocksch et al. 2021, section 2.2.3).
//!
//! A pattern that is balanced for equal blocks is not balanced for unequal ones. So members with small blocks are paired with members with
//! large blocks, then pairs with pairs, and so on, as in a tournament. The pattern runs on the members in the order in which they stand in
//! the final group.
//!
//! ```text
//! sizes 1 2 6 9 10 11 14      2+14  6+11  9+10 │ 1 waits      1+(9 10)  (2 14)+(6 11)      1 9 10 2 14 6 11
//! ```
//!
//! If a round of the tournament has an odd number of groups, the smallest group waits and joins at the next odd round. Cost: the steps of
//! the pattern, but no member sends far more than the other members at any step.

use bruckner_schedule::Set;

use super::{Parcel, Pattern, PatternStep};

/// Pattern that runs on members in another order.
pub struct Reordered {
    /// Member at each place of the order.
    order: Vec<u32>,
    /// Place of each member in the order.
    place: Vec<u32>,
    pattern: Box<dyn Pattern>,
}

impl Reordered {
    /// Creates the pattern for members whose blocks have the given sizes.
    pub fn new(sizes: &[u64], pattern: Box<dyn Pattern>) -> Reordered {
        let order = order(sizes);
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, &member)| place[member as usize] = at as u32);
        Reordered { order, place, pattern }
    }
}

impl Pattern for Reordered {
    /// In an allreduce all pieces are equal, so the order is unchanged.
    fn owners(&self, n: u32) -> u32 {
        self.pattern.owners(n)
    }

    fn steps(&self, n: u32, me: u32) -> Vec<PatternStep> {
        assert_eq!(n as usize, self.order.len(), "made for other members");
        let member = |at: u64| u64::from(self.order[at as usize]);
        let named = |parcels: Vec<Parcel>| -> Vec<Parcel> {
            let parcels = parcels.into_iter();
            let name = |p: Parcel| Parcel {
                peer: member(p.peer.into()) as u32,
                blocks: p.blocks.iter().map(member).collect::<Set>(),
            };
            parcels.map(name).collect()
        };
        let steps = self.pattern.steps(n, self.place[me as usize]).into_iter();
        steps.map(|step| PatternStep { sends: named(step.sends), recvs: named(step.recvs) }).collect()
    }
}

/// Returns the order in which members with blocks of these sizes are paired. If all sizes are equal, the order is unchanged.
pub fn order(sizes: &[u64]) -> Vec<u32> {
    if sizes.windows(2).all(|w| w[0] == w[1]) {
        return (0..sizes.len() as u32).collect();
    }
    let mut groups: Vec<(u64, Vec<u32>)> = sizes.iter().zip(0..).map(|(&size, member)| (size, vec![member])).collect();
    let mut waiting = None;
    while groups.len() > 1 || waiting.is_some() {
        if groups.len() % 2 == 1 {
            match waiting.take() {
                Some(group) => groups.push(group),
                None => {
                    groups.sort_by_key(|(size, _)| *size);
                    waiting = Some(groups.remove(0));
                }
            }
        }
        groups.sort_by_key(|(size, _)| *size);
        let large = groups.split_off(groups.len() / 2);
        groups = groups
            .into_iter()
            .zip(large.into_iter().rev())
            .map(|((small, mut members), (big, others))| {
                members.extend(others);
                (small + big, members)
            })
            .collect();
    }
    groups.pop().map_or(Vec::new(), |(_, members)| members)
}

#[cfg(test)]
mod tests {
    use super::super::{Bruck, RecursiveDoubling};
    use super::*;

    #[test]
    fn the_papers_figure_6() {
        assert_eq!(order(&[1, 2, 6, 9, 10, 11, 14]), [0, 3, 4, 1, 6, 2, 5]);
    }

    #[test]
    fn everyone_stands_somewhere() {
        for n in 0..40u64 {
            let sizes: Vec<u64> = (0..n).map(|i| i * 7919 % 13).collect();
            let mut members = order(&sizes);
            members.sort_unstable();
            assert!(members.into_iter().eq(0..n as u32));
        }
    }

    /// Returns the time without latency: the largest amount that any member sends at a step, summed over the steps.
    fn time(sizes: &[u64], pattern: &dyn Pattern) -> u64 {
        let n = sizes.len() as u32;
        let all: Vec<Vec<PatternStep>> = (0..n).map(|me| pattern.steps(n, me)).collect();
        let sent =
            |step: &PatternStep| step.sends.iter().flat_map(|p| p.blocks.iter()).map(|b| sizes[b as usize]).sum();
        (0..all[0].len()).map(|s| all.iter().map(|steps| sent(&steps[s])).max().unwrap_or(0u64)).sum()
    }

    /// Sizes 1, 1, 0, 2: recursive doubling takes time 4 in the right order and 5 in any other; the cyclic shift always takes 5.
    #[test]
    fn the_papers_figure_7() {
        let sizes = [1, 1, 0, 2];
        assert_eq!(time(&sizes, &Reordered::new(&sizes, Box::new(RecursiveDoubling))), 4);
        assert_eq!(time(&[0, 1, 1, 2], &RecursiveDoubling), 5);
        assert_eq!(time(&sizes, &Reordered::new(&sizes, Box::new(Bruck(2)))), 5);
    }

    /// Block sizes 0 and 1: paired with each other they balance at the first step, in sorted order they do not.
    #[test]
    fn the_papers_zeros_and_ones() {
        let sorted = [0, 0, 0, 0, 1, 1, 1, 1];
        let reordered = Reordered::new(&sorted, Box::new(RecursiveDoubling));
        assert_eq!(time(&sorted, &reordered), 1 + 1 + 2);
        assert_eq!(time(&sorted, &RecursiveDoubling), 1 + 2 + 4);
    }
}

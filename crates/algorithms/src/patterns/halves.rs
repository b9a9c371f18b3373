//! Parts of a range of members by halving: the range is halved at ⌊n/2⌋ again and again, ⌊log2 n⌋ times.
//!
//! Each part then has one or two members. The first member of a part is its host, the second its guest.
//!
//! ```text
//! 5 members      0 1 │ 2 3 4      0 │ 1 │ 2 │ 3 4      hosts 0, 1, 2, 3; guest 4
//! ```
//!
//! Hosts are numbered by the reversed bits of their part's number, from the last part down, and guests follow the hosts. With these
//! numbers, recursive doubling pairs the members that are farthest apart first, and the members that differ only in the last halving last;
//! its blocks are ranges of numbers; and [`Fold`](super::Fold) pairs each guest with the host of its own part, because the parts with two
//! members are those with the largest reversed numbers.

use bruckner_schedule::{Run, Set};

/// Numbers of members by halving, for a given number of members.
#[derive(Clone, Copy)]
pub struct Halves {
    members: u32,
    /// Number of times that the range is halved.
    depth: u32,
}

impl Halves {
    /// Creates the numbering of `members` members.
    pub fn of(members: u32) -> Halves {
        Halves { members, depth: members.max(1).ilog2() }
    }

    fn hosts(self) -> u32 {
        1 << self.depth
    }

    /// Converts the number of a host to the number of its part, or back.
    fn flip(self, number: u32) -> u32 {
        let reversed = if self.depth == 0 { 0 } else { number.reverse_bits() >> (32 - self.depth) };
        self.hosts() - 1 - reversed
    }

    /// Returns the first member of a part, and how many members the part has.
    fn part(self, part: u32) -> (u32, u32) {
        let (mut start, mut len) = (0, self.members);
        for bit in (0..self.depth).rev() {
            let left = len / 2;
            match part >> bit & 1 {
                0 => len = left,
                _ => (start, len) = (start + left, len - left),
            }
        }
        (start, len)
    }

    /// Returns the number of the member at `at` in the range.
    pub fn number(self, at: u32) -> u32 {
        let (mut start, mut len, mut part) = (0, self.members, 0);
        for _ in 0..self.depth {
            let left = len / 2;
            let is_right = at >= start + left;
            part = 2 * part + u32::from(is_right);
            match is_right {
                false => len = left,
                true => (start, len) = (start + left, len - left),
            }
        }
        self.flip(part) + if at == start { 0 } else { self.hosts() }
    }

    /// Returns the place in the range of the member with this number.
    pub fn place(self, number: u32) -> u32 {
        let (start, _) = self.part(self.flip(number % self.hosts()));
        start + number / self.hosts()
    }

    /// Returns the places of the members with these numbers.
    pub fn places(self, numbers: &Set) -> Set {
        let mut places = Set::new();
        for run in numbers.runs() {
            let len = run.len();
            // With a power of two members, an aligned range of numbers is a strided run of places.
            let is_aligned = run.count() == 1 && len.is_power_of_two() && run.start().is_multiple_of(len);
            if is_aligned && self.members == self.hosts() {
                let stride = u64::from(self.members) / len;
                let last = self.place((run.start() + len - 1) as u32);
                places.push(Run::new(u64::from(last) % stride, 1, stride as i64, len));
            } else {
                places.extend(&run.iter().map(|number| u64::from(self.place(number as u32))).collect());
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Pattern, RecursiveDoubling};
    use super::*;

    #[test]
    fn numbers_and_places_are_inverse() {
        for n in 1..600 {
            let halves = Halves::of(n);
            for at in 0..n {
                assert!(halves.number(at) < n, "{at} of {n}");
                assert_eq!(halves.place(halves.number(at)), at, "{at} of {n}");
            }
        }
    }

    /// A guest is the right neighbour of its host.
    #[test]
    fn neighbours_fold() {
        for n in 2..600 {
            let halves = Halves::of(n);
            for guest in halves.hosts()..n {
                assert_eq!(halves.place(guest), halves.place(guest - halves.hosts()) + 1, "{guest} of {n}");
            }
        }
    }

    /// Distances between partners of recursive doubling, by places: half of the members, then a quarter, and so on.
    #[test]
    fn partners_are_far_first() {
        let halves = Halves::of(16);
        let distances = |at: u32| -> Vec<u32> {
            let steps = RecursiveDoubling.steps(16, halves.number(at));
            steps.iter().map(|step| halves.place(step.sends[0].peer).abs_diff(at)).collect()
        };
        (0..16).for_each(|at| assert_eq!(distances(at), [8, 4, 2, 1]));
    }

    #[test]
    fn places_of_ranges_are_the_same_set() {
        for n in 1..70u32 {
            let halves = Halves::of(n);
            for (from, to) in (0..n).flat_map(|from| (from + 1..=n).map(move |to| (from, to))) {
                let mut found: Vec<u64> = halves.places(&Set::from(u64::from(from)..u64::from(to))).iter().collect();
                let mut expected: Vec<u64> = (from..to).map(|number| halves.place(number).into()).collect();
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(found, expected, "{from}..{to} of {n}");
            }
        }
    }

    /// The sets of 2^20 members are single runs.
    #[test]
    fn large_sets_are_short() {
        let halves = Halves::of(1 << 20);
        let steps = RecursiveDoubling.steps(1 << 20, halves.number(123_456));
        for blocks in steps.iter().map(|step| &step.sends[0].blocks) {
            assert_eq!(halves.places(blocks).runs().len(), 1);
        }
    }
}

//! Allocates ranges of tags on an internal communicator.
//!
//! Several communicators share one internal communicator, so their messages are distinguished by tags. A range of tags is free for a new
//! communicator if it is free on each of its processes. The processes first try to agree on the lowest range above all ranges that any of
//! them uses, which takes a single number. Only if there is no such range, they combine the bit sets of their free ranges. Communicators
//! that have no process in common may use the same range.

/// A range of consecutive tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagRange {
    number: usize,
    /// First tag of the range.
    pub first: u32,
    /// Number of tags in the range.
    pub count: u32,
}

/// Record of the tag ranges that are free on one process.
#[derive(Clone, Debug)]
pub struct Tags {
    free: Vec<u64>,
    per_range: u32,
}

impl Tags {
    /// Maximum number of ranges.
    const RANGES: u32 = 8192;
    /// Minimum number of tags in a range.
    const LEAST: u32 = 16;

    /// Divides the tags up to `limit` into ranges, all of them free.
    pub fn new(limit: u32) -> Tags {
        let ranges = (limit / Tags::LEAST).min(Tags::RANGES) / 64 * 64;
        Tags { free: vec![u64::MAX; ranges as usize / 64], per_range: limit / ranges }
    }

    /// Returns the number of the lowest range above all ranges that are in use on this process.
    pub fn first_above_taken(&self) -> u64 {
        let top = self.free.iter().rposition(|bits| *bits != u64::MAX);
        top.map_or(0, |word| 64 * word as u64 + 64 - u64::from((!self.free[word]).leading_zeros()))
    }

    /// Returns the range with number `number`, if it exists.
    pub fn numbered(&self, number: u64) -> Option<TagRange> {
        let number = usize::try_from(number).ok().filter(|number| *number < 64 * self.free.len())?;
        Some(TagRange { number, first: number as u32 * self.per_range, count: self.per_range })
    }

    /// Returns the ranges that are free on this process, as a bit set.
    pub fn free(&self) -> &[u64] {
        &self.free
    }

    /// Returns one of the ranges that are free on all processes, given as the bit set `everywhere`: the range at index `skip`, counted
    /// cyclically.
    pub fn nth_free(&self, everywhere: &[u64], skip: u64) -> Option<TagRange> {
        let count: u64 = everywhere.iter().map(|bits| u64::from(bits.count_ones())).sum();
        let is_free = |number: &usize| everywhere[number / 64] >> (number % 64) & 1 == 1;
        let mut free = (0..64 * everywhere.len()).filter(is_free);
        self.numbered(free.nth(skip.checked_rem(count)? as usize)? as u64)
    }

    /// Marks a range as used. Returns whether it was free on this process.
    pub fn take(&mut self, range: TagRange) -> bool {
        let (word, bit) = (&mut self.free[range.number / 64], 1 << (range.number % 64));
        let free = *word & bit != 0;
        *word &= !bit;
        free
    }

    /// Marks a range as free. No message with its tags may be pending.
    pub fn give_back(&mut self, range: TagRange) {
        self.free[range.number / 64] |= 1 << (range.number % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_once_and_come_back() {
        let mut tags = Tags::new(32767);
        let first = tags.nth_free(tags.free(), 0).unwrap();
        assert_eq!((first.first, first.count), (0, 16));
        assert!(tags.take(first) && !tags.take(first));
        assert_eq!(tags.nth_free(&[0b1011], 4).unwrap().number, 1);
        let second = tags.nth_free(tags.free(), 0).unwrap();
        assert_eq!(second.first, 16);
        tags.give_back(first);
        assert_eq!(tags.nth_free(tags.free(), 0), Some(first));
    }

    #[test]
    fn the_first_range_above_all_that_are_taken() {
        let mut tags = Tags::new(32767);
        assert_eq!(tags.first_above_taken(), 0);
        let range = |tags: &Tags, number| tags.numbered(number).unwrap();
        for number in [0, 5, 63, 64, 130] {
            let range = range(&tags, number);
            assert!(tags.take(range));
            assert_eq!(tags.first_above_taken(), number + 1);
        }
        tags.give_back(range(&tags, 130));
        assert_eq!(tags.first_above_taken(), 65);
        tags.give_back(range(&tags, 5));
        assert_eq!(tags.first_above_taken(), 65);
        assert_eq!(tags.numbered(1 << 20), None);
    }

    #[test]
    fn all_ranges_are_within_the_limit() {
        for limit in [32767, 65535, 1 << 20, (1 << 28) - 1, i32::MAX as u32] {
            let mut tags = Tags::new(limit);
            let (mut ranges, mut end) = (0, 0);
            while let Some(range) = tags.nth_free(tags.free(), 0) {
                assert!(range.first >= end && range.first + range.count <= limit);
                end = range.first + range.count;
                ranges += 1;
                tags.take(range);
            }
            assert!(ranges >= 1984, "{ranges} ranges for tags up to {limit}");
        }
    }

    #[test]
    fn what_is_taken_anywhere_is_not_agreed_on() {
        let (mut here, mut there) = (Tags::new(1 << 20), Tags::new(1 << 20));
        here.take(here.nth_free(here.free(), 0).unwrap());
        let two = there.nth_free(&[0b10; 1], 0).unwrap();
        there.take(two);
        let both: Vec<u64> = here.free().iter().zip(there.free()).map(|(a, b)| a & b).collect();
        assert_eq!(here.nth_free(&both, 0).unwrap().number, 2);
    }
}

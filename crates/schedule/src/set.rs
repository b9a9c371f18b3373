//! Sets of chunks, stored as *runs*: blocks of consecutive numbers at equal distances. `4..8/16*3` is the block 4–7 and the same block
//! shifted by 16 and by 32.
//!
//! A set is a *sequence*: its order is the order in which a message carries the chunks and in which a copy pairs them. Only sets without a
//! pattern are stored number by number, so one rank's schedule stays small at 2^20 ranks.
//!
//! ```
//! use bruckner_schedule::{Run, Set};
//! let set = Set::from(Run::new(4, 4, 16, 3));
//! assert_eq!(set.to_string(), "4..8/16*3");
//! assert_eq!(set.iter().collect::<Vec<_>>(), [4, 5, 6, 7, 20, 21, 22, 23, 36, 37, 38, 39]);
//! assert_eq!(set.position(21), Some(5));
//! ```

use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;

/// A run: `count` blocks of `block` consecutive numbers, the first at `start`, each `stride` after the previous block.
///
/// Runs are kept in one normal form (see [`Run::new`]), so that equal runs print equally.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    start: u64,
    block: u64,
    stride: i64,
    count: u64,
}

impl Run {
    /// Exclusive upper bound of the numbers in a run, small enough that sums of offsets cannot overflow.
    pub const LIMIT: u64 = 1 << 48;

    /// Creates a run in normal form: a single block has stride 0, and adjacent blocks are merged into one.
    ///
    /// # Panics
    /// If the run is empty or leaves 0..[`Run::LIMIT`]; [`Run::checked`] returns `None` instead.
    pub fn new(start: u64, block: u64, stride: i64, count: u64) -> Run {
        Run::checked(start, block, stride, count).expect("a run is not empty and within bounds")
    }

    /// Creates a run as [`Run::new`] does, or returns `None` if it would be empty or out of bounds.
    pub fn checked(start: u64, block: u64, stride: i64, count: u64) -> Option<Run> {
        if block == 0 || count == 0 || start > Self::LIMIT || block > Self::LIMIT || count > Self::LIMIT {
            return None;
        }
        let last = i128::from(start) + i128::from(stride) * i128::from(count - 1);
        if last < 0 || last.max(i128::from(start)) + i128::from(block) > i128::from(Self::LIMIT) {
            return None;
        }
        if block.checked_mul(count).is_none_or(|len| len > Self::LIMIT) {
            return None;
        }
        Some(if count == 1 {
            Run { start, block, stride: 0, count: 1 }
        } else if stride == block as i64 {
            Run { start, block: block * count, stride: 0, count: 1 }
        } else {
            Run { start, block, stride, count }
        })
    }

    /// Returns how many numbers the run contains.
    pub fn len(&self) -> u64 {
        self.block * self.count
    }

    /// Returns `false`: a run is never empty.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the first number of the run.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the length of one block.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// Returns the distance from one block to the next; 0 for a single block.
    pub fn stride(&self) -> i64 {
        self.stride
    }

    /// Returns the number of blocks.
    pub fn count(&self) -> u64 {
        self.count
    }

    fn block_start(&self, k: u64) -> u64 {
        self.start.wrapping_add_signed(self.stride.wrapping_mul(k as i64))
    }

    /// Whether `other` consists of whole consecutive blocks of this run.
    pub fn has_part(&self, other: &Run) -> bool {
        let aligned = |start: u64| self.position(start).is_some_and(|position| position.is_multiple_of(self.block));
        let alike = self.block == other.block && (other.count == 1 || self.stride == other.stride);
        alike && aligned(other.start) && aligned(other.nth(other.len() - other.block))
    }

    /// Whether two runs have a number in common. Takes constant time if their strides have equal absolute values or one run is a single
    /// block.
    pub fn intersects(&self, other: &Run) -> bool {
        let (a, b) = (self.bounds(), other.bounds());
        if a.end <= b.start || b.end <= a.start {
            return false;
        }
        let stride = match (self.stride.abs(), other.stride.abs()) {
            (0, 0) => return true,
            (s, 0) | (0, s) => s,
            (s, t) if s == t => s,
            _ => {
                let (few, many) = if self.len() < other.len() { (self, other) } else { (other, self) };
                return few.iter().any(|number| many.position(number).is_some());
            }
        };
        // Block i of the first run and block j of the second, counted from the lowest, overlap if the distance of their starts is less
        // than the length of the one that starts first. This holds for `least <= i - j <= most`.
        let from_one_to_other = b.start as i64 - a.start as i64;
        let least = (from_one_to_other - self.block as i64).div_euclid(stride) + 1;
        let most = (from_one_to_other + other.block as i64 - 1).div_euclid(stride);
        least.max(1 - other.count as i64) <= most.min(self.count as i64 - 1)
    }

    /// Returns the number at a position, counted from 0.
    pub fn nth(&self, position: u64) -> u64 {
        self.block_start(position / self.block) + position % self.block
    }

    /// Returns the numbers in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<> {
        self.blocks().flatten()
    }

    /// Returns the blocks in order.
    pub fn blocks(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let run = *self;
        (0..run.count).map(move |k| run.block_start(k)..run.block_start(k) + run.block)
    }

    /// Returns the range from the smallest number to one past the largest.
    pub fn bounds(&self) -> Range<u64> {
        let last = self.block_start(self.count - 1);
        self.start.min(last)..self.start.max(last) + self.block
    }

    /// Returns the first position of `number` in the run.
    pub fn position(&self, number: u64) -> Option<u64> {
        if self.count == 1 || self.stride == 0 {
            let offset = number.checked_sub(self.start)?;
            return (offset < self.block).then_some(offset);
        }
        // The first block k with start + k·stride <= number < start + k·stride + block.
        let (distance, step) = (i128::from(number) - i128::from(self.start), i128::from(self.stride));
        let block = i128::from(self.block);
        let first = if step > 0 {
            // number < block end: k > (distance − block) / step
            (distance - block).div_euclid(step) + 1
        } else {
            // block start <= number: k >= −distance / −step, rounded up
            (-distance + (-step) - 1).div_euclid(-step)
        };
        let k = first.max(0);
        let offset = distance - k * step;
        (k < i128::from(self.count) && (0..block).contains(&offset)).then(|| k as u64 * self.block + offset as u64)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.start)?;
        if self.block > 1 {
            write!(f, "..{}", self.start + self.block)?;
        }
        if self.count > 1 {
            write!(f, "/{}*{}", self.stride, self.count)?;
        }
        Ok(())
    }
}

/// A sequence of chunk numbers, as runs.
#[derive(PartialEq, Eq, Hash, Debug, Default)]
pub struct Set {
    /// Runs in order, nearly always a single run.
    runs: SmallVec<[Run; 1]>,
}

// Sets are cloned very often. Runs are `Copy`, so the list is copied as a whole, which is faster than run by run.
impl Clone for Set {
    fn clone(&self) -> Set {
        Set { runs: SmallVec::from_slice(&self.runs) }
    }
}

impl Set {
    /// Returns the empty set.
    pub fn new() -> Set {
        Set::default()
    }

    /// Returns a set with one number.
    pub fn one(number: u64) -> Set {
        Set::from(number..number + 1)
    }

    /// Returns the `len` numbers from `start` on, modulo `modulus`.
    pub fn cyclic(start: u64, len: u64, modulus: u64) -> Set {
        Set::cyclic_run(start, len, 0, 1, modulus)
    }

    /// Returns `count` blocks of `block` numbers, `stride` apart, modulo `modulus`. Runs are split where they wrap around.
    pub fn cyclic_run(start: u64, block: u64, stride: i64, count: u64, modulus: u64) -> Set {
        let mut set = Set::new();
        if block == 0 {
            return set;
        }
        let (mut k, step) = (0, stride.unsigned_abs());
        while k < count {
            let at = (i128::from(start) + i128::from(stride) * i128::from(k)).rem_euclid(modulus.into()) as u64;
            // Number of blocks, from block k on, that can be one run because none of them crosses the modulus.
            let fits = if at + block > modulus {
                0
            } else if step == 0 {
                count - k
            } else if stride > 0 {
                ((modulus - block - at) / step + 1).min(count - k)
            } else {
                (at / step + 1).min(count - k)
            };
            if fits == 0 {
                set.push(Run::new(at, modulus - at, 0, 1));
                set.push(Run::new(0, block - (modulus - at), 0, 1));
                k += 1;
            } else {
                set.push(Run::new(at, block, stride, fits));
                k += fits;
            }
        }
        set
    }

    /// Appends a run. If it and the last run are single blocks and adjacent, the two are merged.
    pub fn push(&mut self, run: Run) {
        if let Some(last) = self.runs.last_mut()
            && last.count == 1
            && run.count == 1
            && last.start + last.block == run.start
        {
            last.block += run.block;
            return;
        }
        self.runs.push(run);
    }

    /// Appends all runs of `other`.
    pub fn extend(&mut self, other: &Set) {
        for &run in &other.runs {
            self.push(run);
        }
    }

    /// Builds a set from blocks; equal blocks at equal distances become one run.
    fn from_blocks(blocks: &[Range<u64>]) -> Set {
        let mut set = Set::new();
        let mut i = 0;
        while i < blocks.len() {
            let len = |k: usize| blocks[k].end - blocks[k].start;
            let stride = |k: usize| blocks[k + 1].start as i64 - blocks[k].start as i64;
            let mut j = i;
            while j + 1 < blocks.len() && len(j + 1) == len(i) && stride(j) == stride(i) {
                j += 1;
            }
            let step = if j > i { stride(i) } else { 0 };
            set.push(Run::new(blocks[i].start, len(i), step, (j - i + 1) as u64));
            i = j + 1;
        }
        set
    }

    /// Returns the union of sets, in ascending order. If they have more than `most` blocks in total, returns the whole range from the
    /// smallest to the largest number instead, because the exact union would take too long with very many ranks.
    pub fn union(sets: &[&Set], most: u64) -> Set {
        let runs = || sets.iter().flat_map(|set| set.runs.iter());
        if runs().map(Run::count).sum::<u64>() > most {
            let all = runs().map(Run::bounds).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
            return all.map_or(Set::new(), Set::from);
        }
        let mut blocks: Vec<Range<u64>> = runs().flat_map(Run::blocks).collect();
        merge(&mut blocks);
        Set::from_blocks(&blocks)
    }

    /// Whether two sets have a number in common.
    pub fn meets(&self, other: &Set) -> bool {
        let (Some(a), Some(b)) = (self.bounds(), other.bounds()) else { return false };
        if a.end <= b.start || b.end <= a.start {
            return false;
        }
        let whole = |set: &Set| set.runs.len() == 1 && set.runs[0].count == 1;
        if whole(self) && whole(other) {
            return true;
        }
        let (few, many) = if self.len() < other.len() { (self, other) } else { (other, self) };
        few.iter().any(|number| many.position(number).is_some())
    }

    /// Returns the numbers below `limit`, in the same order.
    pub fn below(&self, limit: u64) -> Set {
        let mut set = Set::new();
        for run in &self.runs {
            let bounds = run.bounds();
            if bounds.end <= limit {
                set.push(*run);
            } else if bounds.start < limit {
                let cut = run.blocks().map(|block| block.start..block.end.min(limit));
                let blocks: Vec<Range<u64>> = cut.filter(|block| !block.is_empty()).collect();
                set.extend(&Set::from_blocks(&blocks));
            }
        }
        set
    }

    /// Adds `by` to every number.
    pub fn shifted(&self, by: u64) -> Set {
        let shift = |run: &Run| Run { start: run.start + by, ..*run };
        Set { runs: self.runs.iter().map(shift).collect() }
    }

    /// Replaces every number n by `by`·n + `plus`.
    ///
    /// # Panics
    /// If `by` is 0, or a number would leave 0..[`Run::LIMIT`].
    pub fn scaled(&self, by: u64, plus: u64) -> Set {
        let mut set = Set::new();
        for run in &self.runs {
            let scaled = |start: u64, stride: i64, count| Run::new(start * by + plus, 1, stride * by as i64, count);
            if run.block == 1 {
                set.push(scaled(run.start, run.stride, run.count));
            } else {
                for block in run.blocks() {
                    set.push(scaled(block.start, 1, run.block));
                }
            }
        }
        set
    }

    /// Returns the runs in order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns how many numbers the set has, repeated numbers included.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(Run::len).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the numbers in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs.iter().flat_map(|run| run.blocks().flatten())
    }

    /// Whether no number occurs twice.
    pub fn is_distinct(&self) -> bool {
        let apart = |run: &Run| run.count == 1 || run.stride.unsigned_abs() >= run.block;
        match self.runs.as_slice() {
            [] => true,
            [run] => apart(run),
            runs => {
                // Only runs whose bounds overlap can share a number.
                let mut bounds: Vec<Range<u64>> = runs.iter().map(Run::bounds).collect();
                bounds.sort_by_key(|b| b.start);
                if runs.iter().all(apart) && bounds.windows(2).all(|w| w[0].end <= w[1].start) {
                    return true;
                }
                let mut seen = std::collections::HashSet::new();
                self.iter().all(|number| seen.insert(number))
            }
        }
    }

    /// Returns the first position of `number` in the sequence.
    pub fn position(&self, number: u64) -> Option<u64> {
        let mut before = 0;
        for run in &self.runs {
            if let Some(position) = run.position(number) {
                return Some(before + position);
            }
            before += run.len();
        }
        None
    }

    /// Returns the range from the smallest number to one past the largest; `None` for the empty set.
    pub fn bounds(&self) -> Option<Range<u64>> {
        self.runs.iter().map(Run::bounds).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
    }
}

/// Sorts ranges, and merges those that touch or overlap.
pub fn merge(ranges: &mut Vec<Range<u64>>) {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let touches = next.start <= last.end;
        if touches {
            last.end = last.end.max(next.end);
        }
        touches
    });
}

impl From<Run> for Set {
    fn from(run: Run) -> Set {
        Set { runs: SmallVec::from_buf([run]) }
    }
}

impl From<Range<u64>> for Set {
    fn from(range: Range<u64>) -> Set {
        if range.is_empty() { Set::new() } else { Run::new(range.start, range.end - range.start, 0, 1).into() }
    }
}

impl FromIterator<u64> for Set {
    /// Makes consecutive numbers into blocks, and then equal blocks at equal distances into runs.
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Set {
        let mut blocks: Vec<Range<u64>> = Vec::new();
        for n in numbers {
            match blocks.last_mut() {
                Some(last) if last.end == n => last.end += 1,
                _ => blocks.push(n..n + 1),
            }
        }
        Set::from_blocks(&blocks)
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, run) in self.runs.iter().enumerate() {
            write!(f, "{}{run}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn normal_form_is_one_text() {
        assert_eq!(Run::new(3, 1, 9, 1).to_string(), "3");
        assert_eq!(Run::new(0, 2, 2, 4).to_string(), "0..8");
        assert_eq!(Run::new(5, 1, -1, 5).to_string(), "5/-1*5");
        assert_eq!(Run::checked(3, 1, -1, 5), None, "would pass below 0");
    }

    proptest! {
        #[test]
        fn a_cyclic_run_is_what_it_says(
            m in 1u64..40, start in 0u64..40, block in 1u64..9, stride in -30i64..30, count in 1u64..9
        ) {
            let block = block.min(m);
            let want: Vec<u64> = (0..count as i64)
                .flat_map(|k| (0..block as i64).map(move |b| (k, b)))
                .map(|(k, b)| (start as i64 + k * stride + b).rem_euclid(m as i64) as u64)
                .collect();
            let got = Set::cyclic_run(start, block, stride, count, m);
            prop_assert_eq!(got.iter().collect::<Vec<_>>(), want);
        }

        #[test]
        fn position_finds_the_first(
            start in 0u64..200, block in 1u64..9, stride in -20i64..20, count in 1u64..9, n in 0u64..300
        ) {
            let run = Run::checked(start, block, stride, count);
            prop_assume!(run.is_some());
            let set = Set::from(run.unwrap());
            prop_assert_eq!(set.position(n), set.iter().position(|x| x == n).map(|p| p as u64));
        }

        #[test]
        fn distinct_sets_are_those_without_repeats(
            runs in prop::collection::vec((0u64..30, 1u64..4, -6i64..6, 1u64..4), 1..3)
        ) {
            let mut set = Set::new();
            for (start, block, stride, count) in runs {
                if let Some(run) = Run::checked(start, block, stride, count) {
                    set.push(run);
                }
            }
            let all: Vec<u64> = set.iter().collect();
            let distinct: std::collections::BTreeSet<u64> = all.iter().copied().collect();
            prop_assert_eq!(set.is_distinct(), all.len() == distinct.len());
        }

        #[test]
        fn unions_and_meetings(
            a in prop::collection::vec(0u64..30, 0..12), b in prop::collection::vec(0u64..30, 0..12)
        ) {
            let sets: [Set; 2] = [a.iter().copied().collect(), b.iter().copied().collect()];
            let all: std::collections::BTreeSet<u64> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(Set::union(&[&sets[0], &sets[1]], 100).iter().collect::<Vec<_>>(), all.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(sets[0].meets(&sets[1]), a.iter().any(|n| b.contains(n)));
        }

        #[test]
        fn scaling_keeps_the_sequence(
            start in 0u64..50, block in 1u64..5, stride in -9i64..9, count in 1u64..5, by in 1u64..6, plus in 0u64..6
        ) {
            let run = Run::checked(start, block, stride, count);
            prop_assume!(run.is_some());
            let set = Set::from(run.unwrap());
            let want: Vec<u64> = set.iter().map(|n| n * by + plus).collect();
            prop_assert_eq!(set.scaled(by, plus).iter().collect::<Vec<_>>(), want);
        }

        #[test]
        fn collecting_keeps_the_sequence(numbers in prop::collection::vec(0u64..30, 0..40)) {
            let set: Set = numbers.iter().copied().collect();
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), numbers);
        }
    }

    #[test]
    fn runs_meet_where_they_have_a_number_in_common() {
        let mut random = crate::random::Random::new(7);
        let mut met = 0;
        for _ in 0..20_000 {
            let mut run = || {
                let (block, count) = (1 + random.below(4), 1 + random.below(5));
                let stride = (block + random.below(4)) as i64;
                let stride = if random.below(3) == 0 { -stride } else { stride };
                Run::new(40 + random.below(20), block, stride, count)
            };
            let (a, b) = (run(), run());
            let meet = a.iter().any(|n| b.iter().any(|m| n == m));
            assert_eq!(a.intersects(&b), meet, "{a:?} and {b:?}");
            met += u32::from(meet);
        }
        assert!((5_000..15_000).contains(&met), "{met}");
    }
}

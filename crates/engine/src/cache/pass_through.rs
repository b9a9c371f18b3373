//! The cache of calls that are passed through.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use bruckner_mpi::Handle;

use super::key::{CallKey, bucket};

/// Key of calls that are passed through: their communicator, the generation of handles, and the arguments except the count.
type Key = [u64; 6];

/// A cache entry, on one cache line. It is a sequence lock: a writer makes the version odd, writes, and makes it even again; a reader that
/// finds it odd, or changed after reading, ignores the entry.
#[repr(align(64))]
struct Cell {
    version: AtomicU64,
    words: [AtomicU64; 6],
    /// Least and greatest count of the calls, in 32 bits each.
    counts: AtomicU64,
}

impl Cell {
    const fn empty() -> Cell {
        Cell { version: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; 6], counts: AtomicU64::new(0) }
    }

    #[inline(always)]
    fn holds(&self, key: &Key, count: u64) -> bool {
        let version = self.version.load(Ordering::Acquire);
        let differ = |word: &AtomicU64, key: &u64| word.load(Ordering::Relaxed) ^ key;
        let different = self.words.iter().zip(key).fold(0, |bits, (word, key)| bits | differ(word, key));
        let counts = self.counts.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        different == 0
            && count >= counts & u64::from(u32::MAX)
            && count <= counts >> 32
            && version.is_multiple_of(2)
            && self.version.load(Ordering::Relaxed) == version
    }

    fn put(&self, key: &Key, counts: RangeInclusive<u64>) {
        let version = self.version.load(Ordering::Relaxed);
        let odd = version | 1;
        // If another thread is writing this entry, this write is dropped.
        if version == odd || self.version.compare_exchange(version, odd, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        fence(Ordering::Release);
        for (word, key) in self.words.iter().zip(key) {
            word.store(*key, Ordering::Relaxed);
        }
        let most = (*counts.end()).min(u32::MAX.into());
        self.counts.store(most << 32 | (*counts.start()).min(u32::MAX.into()), Ordering::Relaxed);
        self.version.store(odd + 1, Ordering::Release);
    }
}

/// Cache of this process's calls that are passed through.
pub(crate) struct PassThroughCache([Cell; 16]);

impl PassThroughCache {
    pub(crate) const fn new() -> PassThroughCache {
        PassThroughCache([const { Cell::empty() }; 16])
    }

    #[inline(always)]
    fn key(comm: Handle, generation: u64, words: &[u64; 4]) -> Key {
        // An empty entry is all zeros; adding 1 to the generation makes every key differ from it.
        [comm, generation + 1, words[0], words[1], words[2], words[3]]
    }

    /// Whether a call is known to be passed through.
    #[inline(always)]
    pub(crate) fn has(&self, comm: Handle, generation: u64, key: &CallKey) -> bool {
        let cell = bucket(&key.words, self.0.len());
        let (key, count) = (PassThroughCache::key(comm, generation, &key.words), key.count);
        self.0[cell].holds(&key, count)
    }

    /// Adds calls with counts in this range. Counts of more than 32 bits are not cached.
    pub(crate) fn put(&self, comm: Handle, generation: u64, words: &[u64; 4], counts: RangeInclusive<u64>) {
        if *counts.start() < u32::MAX.into() {
            self.0[bucket(words, self.0.len())].put(&PassThroughCache::key(comm, generation, words), counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_to_native_is_found_again_and_nothing_else() {
        let natives = PassThroughCache::new();
        let words = [1, 5, 6, 0];
        let call = |count| CallKey { words, count, listed: None };
        assert!(!natives.has(0, 0, &CallKey { words: [0; 4], ..call(0) }));
        natives.put(7, 3, &words, 8..=20);
        assert!([8, 9, 20].iter().all(|count| natives.has(7, 3, &call(*count))));
        assert!(![0, 7, 21, u64::MAX].iter().any(|count| natives.has(7, 3, &call(*count))));
        assert!(!natives.has(8, 3, &call(8)) && !natives.has(7, 4, &call(8)));
        assert!(!natives.has(7, 3, &CallKey { words: [1, 5, 6, 1], ..call(8) }));
        natives.put(7, 3, &words, 8..=u64::MAX);
        assert!(natives.has(7, 3, &call(1 << 31)) && !natives.has(7, 3, &call(1 << 32)));
    }

    /// Two threads write keys whose words are all equal; no reader finds a mixture of two keys.
    #[test]
    fn a_reader_never_finds_halves_of_two_calls() {
        let cell = Cell::empty();
        let of = |n: u64| [n; 6];
        std::thread::scope(|scope| {
            for start in [1, 2] {
                let cell = &cell;
                scope.spawn(move || {
                    (0..200_000u64).map(|i| start + 2 * (i % 4)).for_each(|n| cell.put(&of(n), n..=n));
                });
            }
            for _ in 0..200_000 {
                for (a, b) in [(1, 2), (3, 4), (5, 6)] {
                    assert!(!cell.holds(&[a, a, a, b, b, b], a) && !cell.holds(&[b, b, b, b, a, a], b));
                    assert!(!cell.holds(&of(a), b) && !cell.holds(&of(b), a));
                }
            }
        });
        assert!((1..=8).any(|n| cell.holds(&of(n), n)));
    }
}

//! Calls that come again, if with other counts, recognised by their arguments alone: all that decides about them is in these.
//!
//! There are two kinds of memory. A communicator has [`Memos`] of calls that plans serve; they are looked at while the
//! communicator is taken. Calls that go to native are remembered by the process, in [`Natives`], which any thread may look
//! at without taking anything: nothing must be slower than native by more than a look.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use bruckner_choose::{Choice, KindId};
use bruckner_mpi::{Function, Handle};
use bruckner_schedule::{Counts, Problem};

use super::plans::VersionId;
use crate::backend::Backend;
use crate::call::{Amount, Call, Count, List};
use crate::normalize::Combine;

/// The arguments of a call that decide about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arguments {
    /// All but the count, and but for what is listed.
    pub(crate) words: [u64; 4],
    /// The largest, where it is listed.
    pub(crate) count: u64,
    /// What a plan is bound to beyond it.
    pub(crate) listed: Option<Listed>,
}

/// How much each rank has, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Listed {
    pub(crate) counts: List,
    pub(crate) displacements: List,
    /// How much this rank gives, if that is said.
    pub(crate) given: Option<Count>,
}

impl Arguments {
    /// Whether calls that differ in nothing but their count are alike: what is given is as much as what is received.
    pub(crate) fn is_one_count(&self) -> bool {
        let [function, .., difference] = self.words;
        let two_counts = [Function::Allgather, Function::Alltoall].map(|function| function as u64);
        !two_counts.contains(&function) || difference == 0
    }
}

/// The arguments that decide about a call of so many ranks, if they alone do.
#[inline(always)]
pub(crate) fn arguments(
    backend: &impl Backend,
    call: &Call,
    size: impl FnOnce() -> Option<u32>,
) -> Option<Arguments> {
    let (function, datatype, root) = (call.function as u64, call.recv.datatype, call.root as u64);
    let mut count = call.recv.amount.each();
    let mut listed = None;
    if let Amount::Listed { counts, displacements } = call.recv.amount {
        let is_given = matches!(call.send.amount, Amount::Each(_)) && !backend.is_in_place(call.send.data);
        listed = Some(Listed { counts, displacements, given: is_given.then(|| call.send.amount.each()) });
        // SAFETY: MPI asks for one number for each rank.
        count = unsafe { counts.largest(size()?) };
    }
    let (mut words, count) = match call.function {
        Function::Allreduce | Function::ReduceScatter | Function::ReduceScatterBlock | Function::Reduce => {
            ([function, datatype, call.op, root], count)
        }
        Function::Bcast => ([function, datatype, 0, root], count),
        Function::Allgather | Function::Allgatherv if backend.is_in_place(call.send.data) => {
            ([function, datatype, datatype, 0], count)
        }
        Function::Allgatherv => ([function, datatype, call.send.datatype, 0], count),
        Function::Alltoall if backend.is_in_place(call.send.data) => return None,
        Function::Allgather | Function::Alltoall => {
            let difference = (call.send.amount.each() ^ count) as u64;
            ([function, datatype, call.send.datatype, difference], count)
        }
        Function::Barrier => ([function, 0, 0, 0], 1),
        Function::Alltoallv => return None,
    };
    // What is wrong is looked at more closely.
    if count < 0 {
        return None;
    }
    // Calls of nothing go another way than others, and do not take their place.
    words[3] ^= u64::from(count == 0) << 63;
    Some(Arguments { words, count: count as u64, listed })
}

/// Whether the types and the operation of a call are built in and dense: their handles never mean anything else.
pub(crate) fn is_built_in(backend: &impl Backend, call: &Call) -> bool {
    let is = |datatype: Handle| backend.is_built_in(datatype);
    match call.function {
        Function::Barrier => true,
        Function::Allgather | Function::Allgatherv | Function::Alltoall => {
            is(call.recv.datatype) && (backend.is_in_place(call.send.data) || is(call.send.datatype))
        }
        _ => is(call.recv.datatype) && (call.op == 0 || backend.operation(call.op).is_some()),
    }
}

/// The hash bucket for these arguments.
#[inline(always)]
fn bucket(words: &[u64; 4], buckets: usize) -> usize {
    // Handles are addresses, or small numbers with the same upper half; two of them may be the same.
    let second = words[2].rotate_left(3);
    let mixed = words[0] ^ words[1] ^ (words[1] >> 6) ^ second ^ (second >> 6) ^ words[3];
    (mixed ^ (mixed >> 4)) as usize % buckets
}

/// Calls that a plan serves.
pub(crate) struct Memo {
    pub(crate) words: [u64; 4],
    /// Counts for which it does.
    pub(crate) counts: RangeInclusive<u64>,
    /// What they are counted by.
    pub(crate) kind_id: KindId,
    /// Its plan; whatever changes plans clears the memos.
    pub(crate) version: VersionId,
    /// What the plan is to be bound to, but for the count; of lists, those that came last.
    pub(crate) problem: Problem,
    /// Elements of the problem for each of the call.
    pub(crate) elements: u64,
    /// Into how many pieces equal blocks are cut, and whether these are equal: another plan serves where that is otherwise.
    pub(crate) cut: (u64, bool),
    /// The count that the plan was last bound to for this, and its number of bindings then.
    pub(crate) bound: (u64, u64),
    /// Bytes for each, of the largest block or of the vector.
    pub(crate) each: usize,
    /// And of this rank's buffers, where nothing is listed.
    pub(crate) bytes: Bytes,
    /// Bytes for each that this rank gives, where that has a count of its own.
    pub(crate) given: usize,
    pub(crate) combine: Combine,
    /// Whether outputs are of pairs with padding, which stays as it is.
    pub(crate) padded: bool,
    /// What serves, and why, if that is counted.
    pub(crate) why: Option<Arc<Choice>>,
}

/// Bytes of this rank's buffers.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Bytes {
    pub(crate) input: usize,
    pub(crate) output: usize,
    /// Of the blocks before this rank's.
    pub(crate) before: usize,
}

impl Memo {
    /// The bytes of a call's buffers, to whose lists the problem is set, if there are any. None if the data does not lie as a plan wants
    /// it, or this rank gives more or less than is received from it.
    #[inline]
    pub(crate) fn bytes_of(&mut self, arguments: &Arguments, rank: u32) -> Option<Bytes> {
        if let Some(listed) = &arguments.listed {
            return self.list(listed, rank as usize);
        }
        let (Bytes { input, output, before }, count) = (self.bytes, arguments.count as usize);
        Some(Bytes { input: input * count, output: output * count, before: before * count })
    }

    fn list(&mut self, listed: &Listed, rank: usize) -> Option<Bytes> {
        let Counts::Listed(known) = &mut self.problem.counts else { return None };
        let reduces = self.problem.collective.reduces();
        let (mut next, mut own, mut before, mut follow, mut others) = (0u64, 0, 0, true, false);
        for (at, known) in known.iter_mut().enumerate() {
            // SAFETY: MPI asks for one number for each rank.
            let (count, place) = unsafe { (listed.counts.get(at), listed.displacements.get(at)) };
            let count = count as u64;
            follow &= count == 0 || reduces || place as u64 == next;
            if at == rank {
                (own, before) = (count, next);
            }
            let after = next.checked_add(count);
            follow &= after.is_some();
            next = after.unwrap_or(0);
            others |= *known != count * self.elements;
            *known = count * self.elements;
        }
        if others {
            self.bound = (0, 0);
        }
        let [own, before, all] = [own, before, next].map(|count| count as usize * self.each);
        let given = |count: Count| usize::try_from(count).ok()?.checked_mul(self.given);
        let fits = listed.given.is_none_or(|count| given(count) == Some(own));
        let (input, output) = if reduces { (all, own) } else { (own, all) };
        (follow && fits).then_some(Bytes { input, output, before })
    }

    /// Whether so many elements are cut as the plan wants it.
    #[inline]
    fn cuts(&self, count: u64) -> bool {
        let (pieces, equal) = self.cut;
        pieces == 1 || (count * self.elements).is_multiple_of(pieces) == equal
    }
}

/// Memos of a communicator, in buckets of several: calls of one kind may be served by one plan for some sizes, by another for others. There
/// are no buckets before the first memo, and they lie in memory of their own: a thread's stack may be small.
#[derive(Default)]
pub(crate) struct Memos(Vec<[Option<Memo>; 4]>);

const BUCKETS: usize = 8;

impl Memos {
    #[inline]
    pub(crate) fn get(&mut self, arguments: &Arguments) -> Option<&mut Memo> {
        let bucket = self.0.get_mut(bucket(&arguments.words, BUCKETS))?;
        let Arguments { words, count, .. } = arguments;
        let fits =
            |memo: &&mut Memo| memo.words == *words && memo.counts.contains(count) && memo.cuts(*count);
        bucket.iter_mut().map_while(Option::as_mut).find(fits)
    }

    /// Remembers calls, together with those that were known of the same plan, which was put here last; the oldest may have to leave.
    pub(crate) fn put(&mut self, mut memo: Memo) {
        if self.0.is_empty() {
            self.0.resize_with(BUCKETS, Default::default);
        }
        let bucket = &mut self.0[bucket(&memo.words, BUCKETS)];
        let less = |known: &Memo| {
            let same = known.words == memo.words && known.version == memo.version;
            same && memo.counts.contains(known.counts.end())
        };
        let place = bucket.iter().position(|known| known.as_ref().is_some_and(less));
        if let Some(known) = place.and_then(|place| bucket[place].as_ref()) {
            memo.counts = *memo.counts.start().min(known.counts.start())..=*memo.counts.end();
        }
        let last = place.unwrap_or(bucket.len() - 1);
        bucket[..=last].rotate_right(1);
        bucket[0] = Some(memo);
    }

    pub(crate) fn clear(&mut self) {
        self.0.iter_mut().for_each(|bucket| *bucket = Default::default());
    }
}

/// Calls that go to native: their communicator, the generation of handles, and their arguments but for the count.
type Key = [u64; 6];

/// One such call. A writer makes the version odd, writes, and makes it even again; a reader who finds it odd, or changed
/// when it has read, has read nothing. All of it lies on one cache line.
#[repr(align(64))]
struct Cell {
    version: AtomicU64,
    words: [AtomicU64; 6],
    /// The least and the greatest count, as 32 bits each.
    counts: AtomicU64,
}

impl Cell {
    const fn empty() -> Cell {
        Cell {
            version: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; 6],
            counts: AtomicU64::new(0),
        }
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
        // Another thread writes: one of the two is enough.
        if version == odd
            || self.version.compare_exchange(version, odd, Ordering::Relaxed, Ordering::Relaxed).is_err()
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

/// Calls of this process that go to native.
pub(crate) struct Natives([Cell; 16]);

impl Natives {
    pub(crate) const fn new() -> Natives {
        Natives([const { Cell::empty() }; 16])
    }

    #[inline(always)]
    fn key(comm: Handle, generation: u64, words: &[u64; 4]) -> Key {
        // A generation is at least one more than nothing.
        [comm, generation + 1, words[0], words[1], words[2], words[3]]
    }

    /// Whether a call is known to go to native.
    #[inline(always)]
    pub(crate) fn has(&self, comm: Handle, generation: u64, arguments: &Arguments) -> bool {
        let key = Natives::key(comm, generation, &arguments.words);
        self.0[bucket(&arguments.words, self.0.len())].holds(&key, arguments.count)
    }

    /// Remembers calls with some counts. Counts of more than 32 bits are not remembered.
    pub(crate) fn put(&self, comm: Handle, generation: u64, words: &[u64; 4], counts: RangeInclusive<u64>) {
        if *counts.start() < u32::MAX.into() {
            self.0[bucket(words, self.0.len())].put(&Natives::key(comm, generation, words), counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_to_native_is_found_again_and_nothing_else() {
        let natives = Natives::new();
        let words = [1, 5, 6, 0];
        let call = |count| Arguments { words, count, listed: None };
        assert!(!natives.has(0, 0, &Arguments { words: [0; 4], ..call(0) }));
        natives.put(7, 3, &words, 8..=20);
        assert!([8, 9, 20].iter().all(|count| natives.has(7, 3, &call(*count))));
        assert!(![0, 7, 21, u64::MAX].iter().any(|count| natives.has(7, 3, &call(*count))));
        assert!(!natives.has(8, 3, &call(8)) && !natives.has(7, 4, &call(8)));
        assert!(!natives.has(7, 3, &Arguments { words: [1, 5, 6, 1], ..call(8) }));
        natives.put(7, 3, &words, 8..=u64::MAX);
        assert!(natives.has(7, 3, &call(1 << 31)) && !natives.has(7, 3, &call(1 << 32)));
    }

    /// Two threads write keys that agree with themselves; no reader finds a mixture.
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

//! The cache of a communicator's calls, with the plans that run them.

use std::ops::RangeInclusive;
use std::sync::Arc;

use bruckner_choose::{Choice, KindId};
use bruckner_schedule::{Counts, Problem};

use super::key::{CallKey, ListedCounts, PlanId, bucket};
use crate::call::Count;
use crate::normalize::Combine;

/// How a plan cuts equal blocks into pieces. Blocks that are cut in another way need another plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cut {
    pieces: u64,
    /// Whether all pieces have the same size.
    equal: bool,
}

impl Cut {
    pub(crate) const NONE: Cut = Cut { pieces: 1, equal: true };

    pub(crate) fn of(problem: &Problem) -> Cut {
        let pieces = if matches!(problem.counts, Counts::Equal(_)) { problem.pieces } else { 1 };
        Cut { pieces, equal: problem.chunk_elements().is_some() }
    }

    /// Whether a block of `elements` elements is cut in this way.
    #[inline]
    fn fits(self, elements: u64) -> bool {
        self.pieces == 1 || elements.is_multiple_of(self.pieces) == self.equal
    }
}

/// The count to which a cached call last bound its plan, and how often the plan had been bound by then. If another call has bound the plan
/// since, the plan's number of bindings is larger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Binding {
    pub(crate) count: u64,
    pub(crate) bindings: u64,
}

/// Sizes of a call with count 1. Multiplied by the count, they are the sizes of any call of a cache entry.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Blocks {
    /// Elements of the problem's largest block.
    pub(crate) elements: u64,
    /// Bytes of the largest block or of the vector.
    pub(crate) bytes: usize,
    /// Bytes of this rank's buffers, for calls without lists of counts.
    pub(crate) buffers: Bytes,
    /// Bytes of one element of the send buffer of an allgatherv, whose send buffer has a count of its own; 0 for other calls.
    pub(crate) given: usize,
}

/// A cache entry: calls that have the same arguments except for the count and are all handled by one plan.
pub(crate) struct CachedCall {
    pub(crate) words: [u64; 4],
    pub(crate) counts: RangeInclusive<u64>,
    pub(crate) kind_id: KindId,
    /// The plan. Any change of the communicator's plans clears the cache.
    pub(crate) plan: PlanId,
    /// The problem to bind the plan to. Its count is replaced in each call; its list of counts, if it has one, is that of the last call.
    pub(crate) problem: Problem,
    pub(crate) cut: Cut,
    pub(crate) bound: Option<Binding>,
    pub(crate) blocks: Blocks,
    pub(crate) combine: Combine,
    /// Whether the output consists of value-index pairs with padding, which must not be overwritten.
    pub(crate) padded: bool,
    /// The algorithm and the reason for it; `None` if calls are not counted for a report.
    pub(crate) why: Option<Arc<Choice>>,
}

/// Sizes of this rank's buffers in bytes.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Bytes {
    pub(crate) input: usize,
    pub(crate) output: usize,
    /// Bytes of the blocks before this rank's own.
    pub(crate) before: usize,
}

impl CachedCall {
    /// Returns the bytes of a call's buffers. If the call has a list of counts, also copies the counts to the problem. `None` if blocks
    /// are not contiguous, or if this rank sends more or fewer bytes than others receive from it.
    #[inline]
    pub(crate) fn bytes_of(&mut self, key: &CallKey, rank: u32) -> Option<Bytes> {
        if let Some(listed) = &key.listed {
            return self.list(listed, rank as usize);
        }
        let (Bytes { input, output, before }, count) = (self.blocks.buffers, key.count as usize);
        Some(Bytes { input: input * count, output: output * count, before: before * count })
    }

    fn list(&mut self, listed: &ListedCounts, rank: usize) -> Option<Bytes> {
        let Counts::Listed(known) = &mut self.problem.counts else { return None };
        let reduces = self.problem.collective.reduces();
        let (mut next, mut own, mut before, mut follow, mut others) = (0u64, 0, 0, true, false);
        for (at, known) in known.iter_mut().enumerate() {
            // SAFETY: MPI requires a list to have one number for each rank.
            let (count, place) = unsafe { (listed.counts.get(at), listed.displacements.get(at)) };
            let count = count as u64;
            follow &= count == 0 || reduces || place as u64 == next;
            if at == rank {
                (own, before) = (count, next);
            }
            let after = next.checked_add(count);
            follow &= after.is_some();
            next = after.unwrap_or(0);
            others |= *known != count * self.blocks.elements;
            *known = count * self.blocks.elements;
        }
        if others {
            self.bound = None;
        }
        let [own, before, all] = [own, before, next].map(|count| count as usize * self.blocks.bytes);
        let given = |count: Count| usize::try_from(count).ok()?.checked_mul(self.blocks.given);
        let fits = listed.given.is_none_or(|count| given(count) == Some(own));
        let (input, output) = if reduces { (all, own) } else { (own, all) };
        (follow && fits).then_some(Bytes { input, output, before })
    }
}

/// The call cache of a communicator, in hash buckets of several entries, because different plans may handle calls that differ only in the
/// count. Buckets are created at the first entry, and on the heap because a thread's stack may be small.
#[derive(Default)]
pub(crate) struct CallCache(Vec<[Option<CachedCall>; 4]>);

const BUCKETS: usize = 8;

impl CallCache {
    #[inline]
    pub(crate) fn get(&mut self, key: &CallKey) -> Option<&mut CachedCall> {
        let bucket = self.0.get_mut(bucket(&key.words, BUCKETS))?;
        let CallKey { words, count, .. } = key;
        let fits = |cached: &&mut CachedCall| {
            cached.words == *words && cached.counts.contains(count) && cached.cut.fits(count * cached.blocks.elements)
        };
        bucket.iter_mut().map_while(Option::as_mut).find(fits)
    }

    /// Adds an entry at the front of its bucket. It replaces an entry of the same plan whose largest count is among the new counts, and
    /// takes over that entry's smaller counts; if there is no such entry, the last entry of the bucket is dropped.
    pub(crate) fn put(&mut self, mut cached: CachedCall) {
        if self.0.is_empty() {
            self.0.resize_with(BUCKETS, Default::default);
        }
        let bucket = &mut self.0[bucket(&cached.words, BUCKETS)];
        let less = |known: &CachedCall| {
            let same = known.words == cached.words && known.plan == cached.plan;
            same && cached.counts.contains(known.counts.end())
        };
        let place = bucket.iter().position(|known| known.as_ref().is_some_and(less));
        if let Some(known) = place.and_then(|place| bucket[place].as_ref()) {
            cached.counts = *cached.counts.start().min(known.counts.start())..=*cached.counts.end();
        }
        let last = place.unwrap_or(bucket.len() - 1);
        bucket[..=last].rotate_right(1);
        bucket[0] = Some(cached);
    }

    pub(crate) fn clear(&mut self) {
        self.0.iter_mut().for_each(|bucket| *bucket = Default::default());
    }
}

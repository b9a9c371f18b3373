//! The agreement of all ranks about a plan, before they run it.

use std::hash::{BuildHasher, Hash};

use bruckner_runtime::{Compiled, Extent, Shared, Turns, sized};
use rustc_hash::FxBuildHasher;

use super::workspace::LEVELS;

/// A number that must be equal on all ranks. It is sent with its complement, so that the maximum over ranks shows both the greatest and
/// the least.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Equal {
    greatest: u64,
    complement: u64,
}

impl Equal {
    fn of(number: u64) -> Equal {
        Equal { greatest: number, complement: !number }
    }

    fn holds(self) -> bool {
        self.greatest == !self.complement
    }
}

/// How a plan uses the segment of a level: number of members (0 if there is no segment), number of lines, and how successive executions
/// alternate on the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SegmentUse {
    members: u64,
    lines: u64,
    turns: Equal,
}

const RING: u64 = 2;

impl SegmentUse {
    const NONE: SegmentUse = SegmentUse { members: 0, lines: 0, turns: Equal { greatest: 0, complement: 0 } };

    fn of(shared: Shared, turns: Turns) -> SegmentUse {
        let turns = match turns {
            Turns::None => 0,
            Turns::HalfSegments => 1,
            Turns::Ring => RING,
        };
        SegmentUse { members: shared.members.into(), lines: shared.lines.into(), turns: Equal::of(turns) }
    }
}

/// Values on which ranks agree before they run a plan. After the agreement, each value is the maximum over all ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Agreement {
    failed: u64,
    device: u64,
    /// One more than the largest tag of the plan; 0 if the plan has no tags.
    pub(super) tags: u64,
    temporary: u64,
    call: Equal,
    size: Equal,
    segments: [SegmentUse; LEVELS],
}

const WORDS: usize = 8 + 4 * LEVELS;

impl Agreement {
    /// Creates a rank's contribution from its call and algorithm, which are compared by a hash, and from the bytes of the call.
    pub(super) fn about(call: impl Hash, bytes: u64, device: bool) -> Agreement {
        Agreement {
            failed: 0,
            device: device.into(),
            tags: 0,
            temporary: 0,
            call: Equal::of(FxBuildHasher.hash_one(call)),
            size: Equal::of(bytes),
            segments: [SegmentUse::NONE; LEVELS],
        }
    }

    /// Records that this rank has no plan.
    pub(super) fn fail(&mut self) {
        self.failed = 1;
    }

    /// Adds this rank's plan for an alltoallv, in which each rank knows only its own sizes.
    pub(super) fn add_sized<R: bruckner_runtime::Transport>(&mut self, plan: &sized::SizedExecutable<R>) {
        self.tags = u64::from(plan.tags) + 1;
    }

    /// Adds the needs of this rank's compiled program.
    pub(super) fn add_compiled(&mut self, compiled: &Compiled) {
        self.tags = u64::from(compiled.tags) + 1;
        self.temporary = compiled.extent.temporary;
        let (here, beyond) = compiled.extent.shared.split_at(LEVELS);
        for (level, shared) in here.iter().enumerate() {
            if let Some(shared) = *shared {
                self.segments[level] = SegmentUse::of(shared, compiled.turns[level]);
            }
        }
        if beyond.iter().any(Option::is_some) {
            self.fail();
        }
    }

    /// Converts the values to words, of which ranks take the maximum.
    pub(super) fn to_words(&self) -> [u64; WORDS] {
        let Agreement { failed, device, tags, temporary, call, size, segments } = self;
        let equal = |equal: &Equal| [equal.greatest, equal.complement];
        let ([call, other_call], [size, other_size]) = (equal(call), equal(size));
        let mut words = [0; WORDS];
        words[..8].copy_from_slice(&[*failed, *device, *tags, *temporary, call, other_call, size, other_size]);
        for (SegmentUse { members, lines, turns }, words) in segments.iter().zip(words[8..].as_chunks_mut().0) {
            *words = [*members, *lines, turns.greatest, turns.complement];
        }
        words
    }

    /// Converts the words of [`Agreement::to_words`] back to values.
    pub(super) fn of_words(words: &[u64; WORDS]) -> Agreement {
        let [failed, device, tags, temporary, call, other_call, size, other_size] =
            *words.first_chunk().expect("there are more");
        let equal = |greatest, complement| Equal { greatest, complement };
        let mut segments = [SegmentUse::NONE; LEVELS];
        for (segment, words) in segments.iter_mut().zip(words[8..].as_chunks().0) {
            let [members, lines, turns, other_turns] = *words;
            *segment = SegmentUse { members, lines, turns: equal(turns, other_turns) };
        }
        let (call, size) = (equal(call, other_call), equal(size, other_size));
        Agreement { failed, device, tags, temporary, call, size, segments }
    }

    /// Whether any rank has no plan, or executions alternate on a segment in different ways on different ranks.
    pub(super) fn has_failed(&self) -> bool {
        let is_mixed = |segment: &SegmentUse| segment.members > 0 && !segment.turns.holds();
        self.failed != 0 || self.segments.iter().any(is_mixed)
    }

    /// Whether any rank may have buffers in device memory.
    pub(super) fn has_device(&self) -> bool {
        self.device != 0
    }

    /// Whether all ranks make the same call and have chosen the same algorithm.
    pub(super) fn is_one_call(&self) -> bool {
        self.call.holds()
    }

    /// Whether the call has the same number of bytes on all ranks.
    pub(super) fn is_one_size(&self) -> bool {
        self.size.holds()
    }

    /// Returns the most memory that the plan needs on any rank.
    pub(super) fn extent(&self) -> Extent {
        let mut extent = Extent { temporary: self.temporary, ..Extent::default() };
        for (shared, segment) in extent.shared.iter_mut().zip(&self.segments) {
            let (members, lines) = (segment.members as u32, segment.lines as u32);
            let ring = segment.turns.greatest == RING;
            *shared = (members > 0).then_some(Shared { members, lines, ring });
        }
        extent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(a: &Agreement, b: &Agreement) -> Agreement {
        let mut words = a.to_words();
        words.iter_mut().zip(b.to_words()).for_each(|(word, other)| *word = other.max(*word));
        Agreement::of_words(&words)
    }

    #[test]
    fn ranks_agree_on_the_greatest_and_find_differences() {
        let shared = |lines| Shared { members: 4, lines, ring: false };
        let of = |call: u32, bytes, turns| {
            let mut agreement = Agreement::about(call, bytes, false);
            agreement.segments[0] = SegmentUse::of(shared(bytes as u32), turns);
            agreement
        };
        let one = of(1, 8, Turns::Ring);
        assert_eq!(Agreement::of_words(&one.to_words()), one);
        let same = joined(&one, &of(1, 8, Turns::Ring));
        assert!(same.is_one_call() && same.is_one_size() && !same.has_failed() && !same.has_device());
        assert_eq!(same.extent().shared[0], Some(Shared { members: 4, lines: 8, ring: true }));
        let larger = joined(&one, &of(1, 9, Turns::Ring));
        assert!(larger.is_one_call() && !larger.is_one_size());
        assert_eq!(larger.extent().shared[0].map(|shared| shared.lines), Some(9));
        assert!(!joined(&one, &of(2, 8, Turns::Ring)).is_one_call());
        assert!(joined(&one, &of(1, 8, Turns::HalfSegments)).has_failed());
        let mut failed = of(1, 8, Turns::Ring);
        failed.fail();
        assert!(joined(&one, &failed).has_failed());
    }
}

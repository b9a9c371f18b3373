//! On-node shared memory: flags, barriers and parts of a segment. `README.md` in this directory argues why it is correct.
#![allow(unsafe_code)]

mod backoff;
mod flag;
mod mail;
mod open;
mod pool;

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};

pub use backoff::Backoff;
pub(crate) use flag::{Flag, barrier_rounds};
pub use open::ReadProbe;
pub(crate) use open::{ANSWER, PeerAddress, read as read_other};
pub use pool::{Lease, Pool, PoolError};

/// Distance of flags in bytes: two cache lines of 64 bytes, because hardware often fetches neighbouring lines together.
const LINE: usize = 128;

/// Number of flags of each member that a program may use.
pub(crate) const FLAGS: u32 = bruckner_schedule::Flag::COUNT;
/// Maximum number of rounds of a barrier: enough for 4096 members.
pub(crate) const ROUNDS: u32 = 4;

/// Number of bytes on a flag's cache line that can hold data.
pub const FLAG_DATA_BYTES: usize = 48;

/// Returns the offset of a member's flag within a part. Up to [`FLAG_DATA_BYTES`] bytes of data may lie on its cache line.
pub(crate) fn flag_at(member: u32, flag: u32) -> usize {
    (member * FLAGS + flag) as usize * LINE
}

/// Returns the offset of the data on a flag's cache line, aligned for elements of any type.
pub(crate) fn flag_data_at(member: u32, flag: u32) -> usize {
    flag_at(member, flag) + 16
}

/// Returns the offset of the lines within a part: they follow the flags.
pub(crate) fn lines_at(members: u32) -> usize {
    flag_at(members, 0)
}

/// Number of lines of each member in the header: barrier flags, leave flag, addresses of open buffers, question, and answer.
const OWN_LINES: u32 = ROUNDS + 3 + open::ANSWER as u32 / LINE as u32;

/// Returns the offset within the header of a member's flag for a round of a barrier.
pub(crate) fn round_at(member: u32, round: u32) -> usize {
    LINE + (member * OWN_LINES + round) as usize * LINE
}

/// Returns the offset within the header of the flag that holds the last ring execution a member has left.
fn left_at(member: u32) -> usize {
    round_at(member, ROUNDS)
}

/// Sizes of the parts of a segment, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentSize {
    /// Size of the common part, and of each of the two halves.
    pub part: usize,
    /// Size of a slot of the ring.
    pub slot: usize,
    /// Number of slots of the ring, a power of two or 0: a rank can be at most this many calls ahead of the others.
    pub slots: usize,
}

impl SegmentSize {
    /// Maximum number of slots of a ring.
    const MOST_SLOTS: usize = 64;

    /// Returns these sizes with a ring of about `bytes` bytes, but of at least two slots; without a ring if slots are empty.
    pub fn with_ring(self, bytes: usize) -> SegmentSize {
        let slots = match self.slot {
            0 => 0,
            slot => 1 << (bytes / slot).clamp(2, SegmentSize::MOST_SLOTS).ilog2(),
        };
        SegmentSize { slots, ..self }
    }

    /// Returns whether each of these sizes is at least that of `other`.
    pub fn has(self, other: SegmentSize) -> bool {
        self.part >= other.part && self.slot >= other.slot && self.slots >= other.slots
    }

    fn rounded(self) -> SegmentSize {
        SegmentSize { part: self.part.next_multiple_of(LINE), slot: self.slot.next_multiple_of(LINE), ..self }
    }

    /// Returns offset and length of the areas behind the header; each member is the first to touch its share of each area.
    fn stretches(self) -> impl Iterator<Item = (usize, usize)> {
        let parts = (0..3).map(move |i| (i * self.part, self.part));
        // The ring is one area, because any member may be the first to write to a slot.
        parts.chain([(3 * self.part, self.slots * self.slot)])
    }

    fn bytes(self) -> usize {
        3 * self.part + self.slots * self.slot
    }
}

/// How successive executions of a program alternate on a segment; the same on all members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Turns {
    /// All executions use the common part.
    #[default]
    None,
    /// Executions use the two halves alternately.
    HalfSegments,
    /// Executions use the slots of the ring one after the other, and each member records which execution it has left.
    Ring,
}

/// An execution that has begun on a segment.
pub(crate) struct Begun {
    /// Number of the execution on its segment.
    pub(crate) execution: u64,
    /// Number of the execution among those that use the ring.
    pub(crate) round: u64,
    /// Start of the part of the segment that the execution uses.
    pub(crate) part: *mut u8,
    pub(crate) header: *mut u8,
}

/// A region's segment, as one of its members has mapped it.
///
/// ```text
/// | leavers, flags for barriers and leaving | part: flags, lines | half | half | slot | slot | … |
/// ```
///
/// Halves and slots have the same layout as the part. All members run the same plans on a segment in the same order, so their execution
/// numbers agree.
pub struct Segment {
    start: *mut u8,
    members: u32,
    me: u32,
    size: SegmentSize,
    /// Number of executions so far; `turns` counts those on the halves, `rounds` those on the ring.
    executions: AtomicU64,
    turns: AtomicU64,
    rounds: AtomicU64,
    /// Number of the last ring execution that all members have left, as far as this member has seen.
    left: AtomicU64,
    /// Owner of the memory, which keeps it mapped.
    _memory: Box<dyn Any + Send + Sync>,
}

// SAFETY: the memory is shared between processes anyway: flags are atomic, and programs were proven free of races.
unsafe impl Send for Segment {}
// SAFETY: the memory is shared between processes anyway: flags are atomic, and programs were proven free of races.
unsafe impl Sync for Segment {}

impl Segment {
    /// Returns the size in bytes of a segment with parts of the given sizes.
    pub fn bytes(members: u32, size: SegmentSize) -> usize {
        Segment::header(members) + size.rounded().bytes()
    }

    fn header(members: u32) -> usize {
        round_at(members, 0).next_multiple_of(4096)
    }

    /// Creates a member's handle of a segment, on zeroed memory that all members share.
    ///
    /// # Safety
    /// `start` is aligned to a cache line, and [`Segment::bytes`] bytes from there are valid as long as `memory` exists. Each member has a
    /// number of its own, and all run the same plans on the segment in the same order.
    pub unsafe fn new(
        start: *mut u8,
        members: u32,
        me: u32,
        size: SegmentSize,
        memory: Box<dyn Any + Send + Sync>,
    ) -> Segment {
        assert!(me < members && (start as usize).is_multiple_of(64), "a member of the segment, on a cache line");
        let (size, zero) = (size.rounded(), || AtomicU64::new(0));
        Segment {
            start,
            members,
            me,
            size,
            executions: zero(),
            turns: zero(),
            rounds: zero(),
            left: zero(),
            _memory: memory,
        }
    }

    /// Returns the sizes of the parts, in bytes.
    pub fn size(&self) -> SegmentSize {
        self.size
    }

    /// Returns offset and length of the shares that member `me` touches first, so that they are allocated in memory near it.
    pub fn shares(members: u32, size: SegmentSize, me: u32) -> impl Iterator<Item = (usize, usize)> {
        let header = Segment::header(members);
        let cut = move |bytes: usize, at: u32| bytes * at as usize / members as usize;
        size.rounded()
            .stretches()
            .map(move |(at, bytes)| (header + at + cut(bytes, me), cut(bytes, me + 1) - cut(bytes, me)))
            .chain((me == 0).then_some((0, header)))
            .filter(|(_, len)| *len > 0)
    }

    /// Begins an execution, and returns its numbers and addresses.
    #[inline]
    pub(crate) fn begin(&self, turns: Turns) -> Begun {
        let next = |counter: &AtomicU64| {
            let number = counter.load(Ordering::Relaxed) + 1;
            counter.store(number, Ordering::Relaxed);
            number
        };
        let (execution, mut round) = (next(&self.executions), 0);
        let SegmentSize { part, slot, slots } = self.size;
        let offset = match turns {
            Turns::None => 0,
            Turns::HalfSegments => part + next(&self.turns) as usize % 2 * part,
            Turns::Ring => {
                round = next(&self.rounds);
                3 * part + (round as usize & (slots - 1)) * slot
            }
        };
        // SAFETY: the header, three parts and the slots are contiguous, so the offset lies within the segment.
        let part = unsafe { self.start.add(Segment::header(self.members) + offset) };
        Begun { execution, round, part, header: self.start }
    }

    fn left(&self, member: u32) -> &Flag {
        // SAFETY: a flag in the header; flags are aligned to cache lines, and their memory is used only for flags.
        unsafe { &*self.start.add(left_at(member)).cast::<Flag>() }
    }

    /// Returns whether all members have left the execution that used the ring slot of execution `round` before.
    #[inline]
    pub(crate) fn is_free(&self, round: u64) -> bool {
        let before = round.saturating_sub(self.size.slots as u64);
        before <= self.left.load(Ordering::Relaxed) || self.have_all_left(before)
    }

    #[cold]
    fn have_all_left(&self, round: u64) -> bool {
        let left = (0..self.members).map(|member| self.left(member).reached()).min().unwrap_or(0);
        self.left.store(left, Ordering::Relaxed);
        left >= round
    }

    /// Records that this member no longer touches the ring slot of execution `round`.
    #[inline]
    pub(crate) fn leave(&self, round: u64) {
        self.left(self.me).raise(round);
    }
}

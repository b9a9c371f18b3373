//! Segments: memory that the ranks of a region share, with flags and barriers. `README.md` in this directory argues why it is correct.
//!
//! A *member* is a rank of the region, by its number in the region. A segment begins with a *header* (flags of barriers, and data for
//! reads of other members' buffers). It continues with the *common part*, two *halves* that executions use alternately, and a *ring* of
//! slots that executions use one after the other. Each of these has the flags and the lines (rows of slots) of a program.
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

/// Distance between flags in bytes: two cache lines of 64 bytes, because hardware often fetches neighbouring cache lines together.
const LINE: usize = 128;

/// Number of flags that a program may use on each member.
pub(crate) const FLAGS: u32 = bruckner_schedule::Flag::COUNT;
/// Maximum number of rounds of a barrier: enough for 4096 members.
pub(crate) const ROUNDS: u32 = 4;

/// Number of bytes on a flag's cache line that can hold data.
pub const FLAG_DATA_BYTES: usize = 48;

/// Returns the offset of a member's flag, from the start of the part, half or ring slot. Up to [`FLAG_DATA_BYTES`] bytes of data may lie
/// on the flag's cache line.
pub(crate) fn flag_at(member: u32, flag: u32) -> usize {
    (member * FLAGS + flag) as usize * LINE
}

/// Returns the offset of the data on a flag's cache line, aligned for elements of any type.
pub(crate) fn flag_data_at(member: u32, flag: u32) -> usize {
    flag_at(member, flag) + 16
}

/// Returns the offset of the lines, from the start of the part, half or ring slot. They follow the flags of all members.
pub(crate) fn lines_at(members: u32) -> usize {
    flag_at(members, 0)
}

/// Size of a member's share of the header, in units of `LINE` bytes: barrier flags, the flag for leaving ring slots, the addresses of open
/// buffers, a read request, and the answer to a read request.
const OWN_LINES: u32 = ROUNDS + 3 + open::ANSWER as u32 / LINE as u32;

/// Returns the offset in the header of a member's flag for a round of a barrier.
pub(crate) fn round_at(member: u32, round: u32) -> usize {
    LINE + (member * OWN_LINES + round) as usize * LINE
}

/// Returns the offset in the header of the flag whose value is the number of the last execution on the ring that a member has left.
fn left_at(member: u32) -> usize {
    round_at(member, ROUNDS)
}

/// Sizes of the parts of a segment behind its header, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentSize {
    /// Size in bytes of the common part, and of each of the two halves.
    pub part: usize,
    /// Size in bytes of a slot of the ring.
    pub slot: usize,
    /// Number of slots of the ring, a power of two or 0. A rank can be at most this many executions ahead of the others.
    pub slots: usize,
}

impl SegmentSize {
    /// Maximum number of slots of a ring.
    const MOST_SLOTS: usize = 64;

    /// Returns these sizes with as many ring slots as fit in `bytes` bytes, rounded down to a power of two, but at least two and at most
    /// 64; without a ring if slots have no size.
    pub fn with_ring(self, bytes: usize) -> SegmentSize {
        let slots = match self.slot {
            0 => 0,
            slot => 1 << (bytes / slot).clamp(2, SegmentSize::MOST_SLOTS).ilog2(),
        };
        SegmentSize { slots, ..self }
    }

    /// Returns whether each of these sizes is at least the same size in `other`.
    pub fn has(self, other: SegmentSize) -> bool {
        self.part >= other.part && self.slot >= other.slot && self.slots >= other.slots
    }

    fn rounded(self) -> SegmentSize {
        SegmentSize { part: self.part.next_multiple_of(LINE), slot: self.slot.next_multiple_of(LINE), ..self }
    }

    /// Returns offset and length of the common part, of both halves and of the ring, relative to the end of the header. Each member
    /// allocates an equal share of each of them.
    fn stretches(self) -> impl Iterator<Item = (usize, usize)> {
        let parts = (0..3).map(move |i| (i * self.part, self.part));
        // The whole ring is divided among the members, and not each of its slots, because any member may be the first to write to a slot.
        parts.chain([(3 * self.part, self.slots * self.slot)])
    }

    fn bytes(self) -> usize {
        3 * self.part + self.slots * self.slot
    }
}

/// How successive executions of a program alternate on a segment; the same on all members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Turns {
    /// All executions use the common part of the segment.
    #[default]
    None,
    /// Executions use the two halves of the segment alternately.
    HalfSegments,
    /// Executions use the slots of the ring one after the other. Each member records which execution it has left.
    Ring,
}

/// Numbers and addresses for an execution that has begun on a segment.
pub(crate) struct Begun {
    /// Number of this execution, counted over all executions on the segment.
    pub(crate) execution: u64,
    /// Number of this execution, counted over those executions on the segment that use the ring.
    pub(crate) round: u64,
    /// Start of the common part, half or ring slot that the execution uses.
    pub(crate) part: *mut u8,
    pub(crate) header: *mut u8,
}

/// The shared memory of a region, as one member (rank of the region) has mapped it.
///
/// ```text
/// | header | common part: flags, lines | half | half | ring slot | ring slot | … |
/// ```
///
/// Halves and ring slots have the same layout as the common part. All members run the same plans on a segment in the same order, so the
/// numbers that they give to executions agree.
pub struct Segment {
    start: *mut u8,
    members: u32,
    me: u32,
    size: SegmentSize,
    /// Number of executions so far; `turns` counts the executions that use the halves, and `rounds` those that use the ring.
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
    /// Returns the size in bytes of a segment for `members` members with parts of the given sizes, header included.
    pub fn bytes(members: u32, size: SegmentSize) -> usize {
        Segment::header(members) + size.rounded().bytes()
    }

    fn header(members: u32) -> usize {
        round_at(members, 0).next_multiple_of(4096)
    }

    /// Creates a member's handle of a segment. The memory must be zero at first, and all members share it.
    ///
    /// # Safety
    /// `start` is aligned to a cache line, and [`Segment::bytes`] bytes from there are valid as long as `memory` exists. Each member has a
    /// different number `me`, and all run the same plans on the segment in the same order.
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

    /// Returns the sizes of the parts of this segment, in bytes.
    pub fn size(&self) -> SegmentSize {
        self.size
    }

    /// Returns offset and length of the ranges of a segment that member `me` must allocate, so that they lie in memory near its core.
    pub fn shares(members: u32, size: SegmentSize, me: u32) -> impl Iterator<Item = (usize, usize)> {
        let header = Segment::header(members);
        let cut = move |bytes: usize, at: u32| bytes * at as usize / members as usize;
        size.rounded()
            .stretches()
            .map(move |(at, bytes)| (header + at + cut(bytes, me), cut(bytes, me + 1) - cut(bytes, me)))
            .chain((me == 0).then_some((0, header)))
            .filter(|(_, len)| *len > 0)
    }

    /// Begins an execution. Returns its numbers, and the addresses that it uses.
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

    /// Returns whether the ring slot of execution `round` is free: all members have left the execution that used the slot before.
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

    /// Records that this member no longer accesses the ring slot of execution `round`.
    #[inline]
    pub(crate) fn leave(&self, round: u64) {
        self.left(self.me).raise(round);
    }
}

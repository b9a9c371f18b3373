//! On-node shared memory: flags, barriers and parts of a segment. `README.md` beside this file argues why it is right.
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
pub use open::OpenWord;
pub(crate) use open::{ANSWER, Other, read as read_other};
pub use pool::{Lease, Pool, PoolError};

/// A cache line, and a little more than one: neighbouring lines are often fetched together.
const LINE: usize = 128;

/// Flags of a member that a program may use.
pub(crate) const FLAGS: u32 = bruckner_schedule::Flag::COUNT;
/// Rounds of a barrier: enough for 4096 members.
pub(crate) const ROUNDS: u32 = 4;

/// How much of a flag's cache line is left for data.
pub const BESIDE: usize = 48;

/// Where a member's flag lies within a part; up to [`BESIDE`] bytes of data may lie on its cache line.
pub(crate) fn flag_at(member: u32, flag: u32) -> usize {
    (member * FLAGS + flag) as usize * LINE
}

/// Where such data lies: as elements of any type may want to lie.
pub(crate) fn beside(member: u32, flag: u32) -> usize {
    flag_at(member, flag) + 16
}

/// Where lines begin within a part: behind the flags.
pub(crate) fn lines_at(members: u32) -> usize {
    flag_at(members, 0)
}

/// Lines of a member in the header: flags for the rounds of a barrier and for leaving, its book, its mail, and room for answers.
const OWN_LINES: u32 = ROUNDS + 3 + open::ANSWER as u32 / LINE as u32;

/// Where a member's flag for a round of a barrier lies within the header.
pub(crate) fn round_at(member: u32, round: u32) -> usize {
    LINE + (member * OWN_LINES + round) as usize * LINE
}

/// Where its flag lies that says which execution it has left last, of those on the ring.
fn left_at(member: u32) -> usize {
    round_at(member, ROUNDS)
}

/// How large a segment's parts are, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Size {
    /// The part that programs share, and each of the halves.
    pub part: usize,
    /// A slot of the ring.
    pub slot: usize,
    /// How many there are, a power of two, or none: by so many calls may a rank be ahead.
    pub slots: usize,
}

impl Size {
    /// The most slots of a ring.
    const MOST_SLOTS: usize = 64;

    /// The same with a ring that takes about so many bytes; but it has at least two slots.
    pub fn with_ring(self, bytes: usize) -> Size {
        let slots = match self.slot {
            0 => 0,
            slot => 1 << (bytes / slot).clamp(2, Size::MOST_SLOTS).ilog2(),
        };
        Size { slots, ..self }
    }

    /// Whether all is as large and as many.
    pub fn has(self, other: Size) -> bool {
        self.part >= other.part && self.slot >= other.slot && self.slots >= other.slots
    }

    fn rounded(self) -> Size {
        Size { part: self.part.next_multiple_of(LINE), slot: self.slot.next_multiple_of(LINE), ..self }
    }

    /// The stretches behind the header of which each member touches a share first.
    fn stretches(self) -> impl Iterator<Item = (usize, usize)> {
        let parts = (0..3).map(move |i| (i * self.part, self.part));
        // The ring as a whole: anybody may be the first to write to a slot.
        parts.chain([(3 * self.part, self.slots * self.slot)])
    }

    fn bytes(self) -> usize {
        3 * self.part + self.slots * self.slot
    }
}

/// How the executions of a program take turns on a segment; the same on all members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Turns {
    /// All use the one part.
    #[default]
    None,
    /// They use the two halves.
    Halves,
    /// They use the slots of the ring, and count who has left.
    Ring,
}

/// An execution that has begun.
pub(crate) struct Begun {
    /// Its number.
    pub(crate) execution: u64,
    /// Its number among those on the ring.
    pub(crate) round: u64,
    /// Where its part starts.
    pub(crate) part: *mut u8,
    pub(crate) header: *mut u8,
}

/// A region's segment, as one of its members sees it.
///
/// ```text
/// | leavers, flags for barriers and leaving | part: flags, lines | half | half | slot | slot | … |
/// ```
///
/// A half and a slot look like the part. All members run the same plans on a segment in the same order, so they count
/// executions alike.
pub struct Segment {
    start: *mut u8,
    members: u32,
    me: u32,
    size: Size,
    /// Executions so far, those on the halves, and those on the ring.
    executions: AtomicU64,
    turns: AtomicU64,
    rounds: AtomicU64,
    /// All members have left the ring's executions up to this one, as far as this member has seen.
    left: AtomicU64,
    /// Whatever keeps the memory there.
    _memory: Box<dyn Any + Send + Sync>,
}

// SAFETY: the memory is shared between processes anyway: flags are atomic, and programs were proven free of races.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// The bytes of a segment whose parts have so many.
    pub fn bytes(members: u32, size: Size) -> usize {
        Segment::header(members) + size.rounded().bytes()
    }

    fn header(members: u32) -> usize {
        round_at(members, 0).next_multiple_of(4096)
    }

    /// A segment on memory that is all zero and that all members see.
    ///
    /// # Safety
    /// `start` lies on a cache line, and [`Segment::bytes`] bytes from there are there as long as `memory` is. Members
    /// have numbers of their own, and run the same plans on the segment in the same order.
    pub unsafe fn new(
        start: *mut u8,
        members: u32,
        me: u32,
        size: Size,
        memory: Box<dyn Any + Send + Sync>,
    ) -> Segment {
        assert!(
            me < members && (start as usize).is_multiple_of(64),
            "a member of the segment, on a cache line"
        );
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

    /// How many bytes its parts have.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The shares of the segment that a member touches first, as offset and length: so they lie near it.
    pub fn shares(members: u32, size: Size, me: u32) -> impl Iterator<Item = (usize, usize)> {
        let header = Segment::header(members);
        let cut = move |bytes: usize, at: u32| bytes * at as usize / members as usize;
        size.rounded()
            .stretches()
            .map(move |(at, bytes)| (header + at + cut(bytes, me), cut(bytes, me + 1) - cut(bytes, me)))
            .chain((me == 0).then_some((0, header)))
            .filter(|(_, len)| *len > 0)
    }

    /// Begins an execution.
    #[inline]
    pub(crate) fn begin(&self, turns: Turns) -> Begun {
        let next = |counter: &AtomicU64| {
            let number = counter.load(Ordering::Relaxed) + 1;
            counter.store(number, Ordering::Relaxed);
            number
        };
        let (execution, mut round) = (next(&self.executions), 0);
        let Size { part, slot, slots } = self.size;
        let offset = match turns {
            Turns::None => 0,
            Turns::Halves => part + next(&self.turns) as usize % 2 * part,
            Turns::Ring => {
                round = next(&self.rounds);
                3 * part + (round as usize & (slots - 1)) * slot
            }
        };
        // SAFETY: the header, three parts and the slots lie one behind the other.
        let part = unsafe { self.start.add(Segment::header(self.members) + offset) };
        Begun { execution, round, part, header: self.start }
    }

    fn left(&self, member: u32) -> &Flag {
        // SAFETY: a flag in the header; flags lie on cache lines, and are only ever used as such.
        unsafe { &*self.start.add(left_at(member)).cast::<Flag>() }
    }

    /// Whether all members have left the execution that used the slot of this one before.
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

    /// This member touches the slot of an execution no more.
    #[inline]
    pub(crate) fn leave(&self, round: u64) {
        self.left(self.me).raise(round);
    }
}

//! On-node shared memory: flags, barriers and parts of a segment. `README.md` beside this file argues why it is right.
#![allow(unsafe_code)]

mod flag;
mod patience;
mod pool;

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use flag::{Flag, barrier_rounds};
pub use patience::Patience;
pub use pool::{Lease, Pool, PoolError};

/// A cache line, and a little more than one: neighbouring lines are often fetched together.
const LINE: usize = 128;

/// Flags of a member that a program may use.
pub(crate) const FLAGS: u32 = 4;
/// Rounds of a barrier: enough for 4096 members.
pub(crate) const ROUNDS: u32 = 12;

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

/// Where a member's flag for a round of a barrier lies within the header.
pub(crate) fn round_at(member: u32, round: u32) -> usize {
    LINE + (member * ROUNDS + round) as usize * LINE
}

/// A region's segment, as one of its members sees it.
///
/// ```text
/// | leavers, flags for barriers | part: flags, lines | half: flags, lines | half: flags, lines |
/// ```
///
/// Programs that do not alternate use the part; those that do use the halves in turn. All members run the same plans on
/// a segment in the same order, so they count executions alike.
pub struct Segment {
    start: *mut u8,
    members: u32,
    part: usize,
    /// Executions so far, and those that alternated.
    executions: AtomicU64,
    turns: AtomicU64,
    /// Whatever keeps the memory there.
    _memory: Box<dyn Any + Send + Sync>,
}

// SAFETY: the memory is shared between processes anyway: flags are atomic, and programs were proven free of races.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// The bytes of a segment whose parts have so many.
    pub fn bytes(members: u32, part: usize) -> usize {
        Segment::header(members) + 3 * part.next_multiple_of(LINE)
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
        part: usize,
        memory: Box<dyn Any + Send + Sync>,
    ) -> Segment {
        assert!(
            me < members && (start as usize).is_multiple_of(64),
            "a member of the segment, on a cache line"
        );
        let part = part.next_multiple_of(LINE);
        let (executions, turns) = (AtomicU64::new(0), AtomicU64::new(0));
        Segment { start, members, part, executions, turns, _memory: memory }
    }

    /// How many bytes a part has.
    pub fn part(&self) -> usize {
        self.part
    }

    /// The shares of the segment that a member touches first, as offset and length: so they lie near it.
    pub fn shares(members: u32, part: usize, me: u32) -> impl Iterator<Item = (usize, usize)> {
        let part = part.next_multiple_of(LINE);
        let header = Segment::header(members);
        let cut = move |bytes: usize, at: u32| bytes * at as usize / members as usize;
        (0..3usize)
            .map(move |i| (header + i * part + cut(part, me), cut(part, me + 1) - cut(part, me)))
            .chain((me == 0).then_some((0, header)))
            .filter(|(_, len)| *len > 0)
    }

    /// Begins an execution: its number, where its part starts, where the header does, and how far the other half is.
    #[inline]
    pub(crate) fn begin(&self, alternates: bool) -> (u64, *mut u8, *mut u8, isize) {
        let execution = self.executions.load(Ordering::Relaxed) + 1;
        self.executions.store(execution, Ordering::Relaxed);
        let (part, other_half) = if alternates {
            let turn = self.turns.load(Ordering::Relaxed);
            self.turns.store(turn + 1, Ordering::Relaxed);
            let half = (turn % 2) as usize;
            (1 + half, if half == 0 { self.part as isize } else { -(self.part as isize) })
        } else {
            (0, 0)
        };
        // SAFETY: three parts lie behind the header.
        let part = unsafe { self.start.add(Segment::header(self.members) + part * self.part) };
        (execution, part, self.start, other_half)
    }
}

//! Reads what other ranks of the node have opened: by asking the kernel, and the owner if the kernel refuses.
#![allow(unsafe_code)]

use crate::memory::Scratch;
use crate::reduce::Reduction;
use crate::segment::{ANSWER, Other, Segment, read_other};

/// How much is read at a time where it is then combined: it stays in a core's own cache.
const BLOCK: usize = 64 << 10;

/// How a plan reads. What it is asked for may take several attempts: then it goes on where it was.
pub(crate) struct Reader {
    /// Where data waits to be combined.
    room: Scratch,
    /// Whether the kernel has refused once: it is not asked again.
    refused: bool,
    /// Bytes that the owner has answered, and whether it was asked for those that follow.
    answered: usize,
    asked: bool,
    /// Elements that are combined.
    combined: usize,
}

impl Reader {
    pub(crate) fn new() -> Reader {
        Reader { room: Scratch::new(0), refused: false, answered: 0, asked: false, combined: 0 }
    }

    /// Does without the kernel.
    pub(crate) fn refuse(&mut self) {
        self.refused = true;
    }

    /// Copies bytes from another rank's buffer; whether all are there.
    ///
    /// # Safety
    /// So many bytes may be written at `to`, and that rank has them there.
    pub(crate) unsafe fn copy(&mut self, segment: &Segment, other: Other, to: *mut u8, bytes: usize) -> bool {
        // SAFETY: as asked for above.
        if !self.refused && unsafe { read_other(other, to, bytes) } {
            return true;
        }
        self.refused = true;
        while self.answered < bytes {
            let part = (bytes - self.answered).min(ANSWER);
            if !self.asked {
                segment.ask(other.moved(self.answered), part);
                self.asked = true;
            }
            let Some(answer) = segment.answered() else { return false };
            // SAFETY: within what may be written, and an answer of so many bytes.
            unsafe { std::ptr::copy_nonoverlapping(answer, to.add(self.answered), part) };
            self.answered += part;
            self.asked = false;
        }
        self.answered = 0;
        true
    }

    /// Combines elements of some bytes with those in another rank's buffer; whether all are.
    ///
    /// # Safety
    /// Both have so many elements of the type that the reduction is for.
    pub(crate) unsafe fn reduce(
        &mut self,
        segment: &Segment,
        other: Other,
        into: *mut u8,
        (elements, element): (usize, usize),
        reduction: &Reduction,
    ) -> bool {
        let most = (BLOCK / element.max(1)).max(1);
        self.room.grow(most.min(elements) * element);
        while self.combined < elements {
            let (count, at) = (most.min(elements - self.combined), self.combined * element);
            let room = self.room.start();
            // SAFETY: there is room for so many, and they are at both places.
            unsafe {
                if !self.copy(segment, other.moved(at), room, count * element) {
                    return false;
                }
                reduction.apply(room, into.add(at), count);
            }
            self.combined += count;
        }
        self.combined = 0;
        true
    }
}

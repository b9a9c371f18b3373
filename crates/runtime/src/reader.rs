//! Reads buffers that other ranks of the node have opened. The kernel copies the data (`process_vm_readv`); if it refuses, the rank that
//! owns the buffer does.
#![allow(unsafe_code)]

use crate::memory::Scratch;
use crate::reduce::Reduction;
use crate::segment::{ANSWER, PeerAddress, Segment, read_other};

/// Number of bytes that are read before they are reduced; they fit in a core's private cache.
const BLOCK: usize = 64 << 10;

/// State of a plan's reads from other ranks. A read may take several attempts; each continues where the last one stopped.
pub(crate) struct PeerReader {
    /// Buffer for data that was read and is still to be reduced.
    room: Scratch,
    /// Whether the kernel has refused a read. All later reads then ask the owner of the data.
    refused: bool,
    /// Number of bytes of the current read that the owner has delivered; `asked` is whether the next bytes have been requested.
    answered: usize,
    asked: bool,
    /// Number of elements of the current reduction that are already reduced.
    combined: usize,
}

impl PeerReader {
    pub(crate) fn new() -> PeerReader {
        PeerReader { room: Scratch::new(0), refused: false, answered: 0, asked: false, combined: 0 }
    }

    /// Makes all later reads request the data from its owner instead of the kernel.
    pub(crate) fn refuse(&mut self) {
        self.refused = true;
    }

    /// Copies bytes from another rank's buffer. Returns whether all bytes have arrived. If not, the caller must call again.
    ///
    /// # Safety
    /// `to` is writable for `bytes` bytes, and the other rank has `bytes` bytes at `other`.
    pub(crate) unsafe fn copy(&mut self, segment: &Segment, other: PeerAddress, to: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller guarantees that `to` is writable for `bytes` bytes.
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
            // SAFETY: the range lies within the `bytes` writable bytes, and the answer has `part` bytes.
            unsafe { std::ptr::copy_nonoverlapping(answer, to.add(self.answered), part) };
            self.answered += part;
            self.asked = false;
        }
        self.answered = 0;
        true
    }

    /// Reduces elements of another rank's buffer into `into`; `element` is the size of an element in bytes. Returns whether all are
    /// reduced. If not, the caller must call again.
    ///
    /// # Safety
    /// Both buffers have `elements` elements of the type of the reduction.
    pub(crate) unsafe fn reduce(
        &mut self,
        segment: &Segment,
        other: PeerAddress,
        into: *mut u8,
        (elements, element): (usize, usize),
        reduction: &Reduction,
    ) -> bool {
        let most = (BLOCK / element.max(1)).max(1);
        self.room.grow(most.min(elements) * element);
        while self.combined < elements {
            let (count, at) = (most.min(elements - self.combined), self.combined * element);
            let room = self.room.start();
            // SAFETY: `room` has space for `count` elements, and both buffers have `count` elements from offset `at` on.
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

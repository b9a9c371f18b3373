//! Addresses of buffers. Every access of the executor to a buffer goes through this module.
//!
//! The verifier has proven that the memory accesses of a program are in bounds and free of races. The caller that provides the buffers
//! must only ensure that they are as large as the problem and [`Needs`] require. The SAFETY comments on accesses through this module rely
//! on these two facts.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

use crate::segment::{Flag, SegmentSize};

/// An address relative to the start of one of a plan's buffers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct BufferOffset {
    /// Buffer, as an index into [`Bases`].
    pub(crate) base: u8,
    /// Offset from the start of the buffer, in bytes.
    pub(crate) offset: usize,
}

impl BufferOffset {
    /// Returns the address that lies `by` bytes after this one, or before it if `by` is negative.
    #[inline]
    pub(crate) fn moved(self, by: isize) -> BufferOffset {
        BufferOffset { offset: self.offset.wrapping_add_signed(by), ..self }
    }
}

/// Base addresses of the buffers of an execution, in this order: input, output, temporary memory, the part of each level's segment that
/// the execution uses, and the header of each level's segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bases(pub(crate) [*mut u8; Bases::COUNT]);

impl Bases {
    pub(crate) const IN: u8 = 0;
    pub(crate) const OUT: u8 = 1;
    pub(crate) const TEMPORARY: u8 = 2;
    pub(crate) const SEGMENT: u8 = 3;
    /// Number of levels that can have segments.
    pub(crate) const LEVELS: usize = 4;
    pub(crate) const HEADER: u8 = Bases::SEGMENT + Bases::LEVELS as u8;
    /// Number for a buffer in another rank's process. It has no address in this process. It is only read, with the help of the kernel or
    /// of its owner.
    pub(crate) const PEER: u8 = Bases::HEADER + Bases::LEVELS as u8;
    /// Power of two, larger than the number of buffers. An index modulo this number is never out of bounds.
    const COUNT: usize = 16;

    pub(crate) fn new() -> Bases {
        Bases([std::ptr::null_mut(); Bases::COUNT])
    }

    #[inline]
    pub(crate) fn address(&self, at: BufferOffset) -> *mut u8 {
        self.0[usize::from(at.base) % Bases::COUNT].wrapping_add(at.offset)
    }

    /// Returns the flag at an address.
    ///
    /// # Safety
    /// `at` is the address of a flag in a segment of this execution.
    #[inline]
    pub(crate) unsafe fn flag(&self, at: BufferOffset) -> &Flag {
        // SAFETY: the caller guarantees that a flag is there; flags are aligned to cache lines, and their memory is used only for flags.
        unsafe { &*self.address(at).cast::<Flag>() }
    }

    /// Copies `bytes` bytes. Copying a range to itself does nothing; ranges that overlap otherwise are copied as by `memmove`.
    ///
    /// # Safety
    /// Both ranges of `bytes` bytes lie in buffers of this execution, which nobody else changes during the copy.
    #[inline]
    pub(crate) unsafe fn copy(&self, to: BufferOffset, from: BufferOffset, bytes: usize) {
        let (to, from) = (self.address(to), self.address(from));
        if to == from {
            return;
        }
        // SAFETY: BUFFERS (crate documentation); `ptr::copy` allows overlap. Eight bytes, the most common length, are copied by one
        // instruction.
        unsafe {
            if bytes == 8 {
                to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
            } else {
                std::ptr::copy(from, to, bytes);
            }
        }
    }
}

/// Memory that a plan needs for the sizes of a problem, in bytes; the same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    /// Bytes of temporary memory.
    pub temporary: usize,
    /// Size of each level's segment; `None` for a level whose segment is not used.
    pub parts: [Option<SegmentSize>; Bases::LEVELS],
}

impl Needs {
    /// Returns the largest of all sizes, in bytes: of temporary memory, and of each segment's part and ring slot.
    pub fn most(&self) -> usize {
        self.parts.iter().flatten().fold(self.temporary, |most, size| most.max(size.part).max(size.slot))
    }
}

/// Memory of one rank that is not shared, aligned to cache lines.
pub struct Scratch {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: `Scratch` owns its memory, which is not bound to a thread.
unsafe impl Send for Scratch {}
// SAFETY: through a shared reference only the address can be read, not the memory.
unsafe impl Sync for Scratch {}

impl Scratch {
    /// Allocates at least `bytes` bytes, which are not initialised.
    pub fn new(bytes: usize) -> Scratch {
        Scratch::try_new(bytes).unwrap_or_else(|layout| handle_alloc_error(layout))
    }

    fn try_new(bytes: usize) -> Result<Scratch, Layout> {
        let layout = Layout::from_size_align(bytes.max(64), 64).expect("a size that fits");
        // SAFETY: the size of the layout is not zero.
        let start = unsafe { alloc(layout) };
        if start.is_null() { Err(layout) } else { Ok(Scratch { start, layout }) }
    }

    /// Returns the address of the first byte of this memory.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Returns the size of this memory in bytes.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Replaces the memory by at least `bytes` bytes if it is smaller; then its contents are lost.
    pub fn grow(&mut self, bytes: usize) {
        if bytes > self.bytes() {
            *self = Scratch::new(bytes.next_power_of_two());
        }
    }

    /// Replaces the memory by at least `bytes` bytes if it is smaller; then its contents are lost. Returns false if the system has not
    /// enough memory.
    #[must_use]
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes() {
            match Scratch::try_new(bytes.next_power_of_two()) {
                Ok(larger) => *self = larger,
                Err(_) => return false,
            }
        }
        true
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: `start` was allocated with this layout.
        unsafe { dealloc(self.start, self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_any_length_between_any_buffers() {
        for bytes in [0usize, 1, 7, 8, 9, 64, 1000] {
            let mut from: Vec<u8> = (0..bytes + 3).map(|i| i as u8).collect();
            let mut to = vec![0u8; bytes + 5];
            let mut bases = Bases::new();
            bases.0[0] = from.as_mut_ptr();
            bases.0[1] = to.as_mut_ptr();
            // SAFETY: the vectors have `bytes` bytes after the offsets 3 and 5.
            unsafe {
                bases.copy(BufferOffset { base: 1, offset: 5 }, BufferOffset { base: 0, offset: 3 }, bytes);
            };
            assert_eq!(to[5..], from[3..]);
            assert_eq!(to[..5], [0; 5]);
        }
    }

    #[test]
    fn scratch_lies_on_a_cache_line_and_grows() {
        let mut scratch = Scratch::new(0);
        assert_eq!(scratch.start() as usize % 64, 0);
        scratch.grow(1000);
        assert!(scratch.bytes() >= 1000);
        assert_eq!(scratch.start() as usize % 64, 0);
    }
}

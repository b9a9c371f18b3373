//! Buffers by address. Everything that the executor does to bytes is here.
//!
//! A program's places were proven to be in bounds and free of races; what is left to whoever binds buffers is that they
//! are as large as the problem and [`Needs`] say. That is the whole safety argument of this module's callers.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

use crate::segment::{Flag, Size};

/// A place in one of a plan's buffers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct At {
    /// Which buffer: an index into [`Bases`].
    pub(crate) base: u8,
    /// Bytes from its start.
    pub(crate) offset: usize,
}

impl At {
    /// So many bytes from here.
    #[inline]
    pub(crate) fn moved(self, by: isize) -> At {
        At { offset: self.offset.wrapping_add_signed(by), ..self }
    }
}

/// The buffers of an execution by number: input, output, temporary, then for each level the part of its segment, and the
/// header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bases(pub(crate) [*mut u8; Bases::COUNT]);

impl Bases {
    pub(crate) const IN: u8 = 0;
    pub(crate) const OUT: u8 = 1;
    pub(crate) const TEMPORARY: u8 = 2;
    pub(crate) const SEGMENT: u8 = 3;
    /// Levels that can have segments.
    pub(crate) const LEVELS: usize = 4;
    pub(crate) const HEADER: u8 = Bases::SEGMENT + Bases::LEVELS as u8;
    /// A buffer of another rank, in that rank's memory: only ever read, and by asking the kernel.
    pub(crate) const OTHER: u8 = Bases::HEADER + Bases::LEVELS as u8;
    /// A power of two, so that no index is out of bounds; more than there are.
    const COUNT: usize = 16;

    pub(crate) fn new() -> Bases {
        Bases([std::ptr::null_mut(); Bases::COUNT])
    }

    #[inline]
    pub(crate) fn address(&self, at: At) -> *mut u8 {
        self.0[usize::from(at.base) % Bases::COUNT].wrapping_add(at.offset)
    }

    /// A flag.
    ///
    /// # Safety
    /// The place is one of the flags of a segment of this execution.
    #[inline]
    pub(crate) unsafe fn flag(&self, at: At) -> &Flag {
        // SAFETY: a flag of this execution's, as asked for above; flags lie on cache lines, and are only ever used as such.
        unsafe { &*self.address(at).cast::<Flag>() }
    }

    /// Copies bytes. Copying a place to itself is nothing; places that overlap otherwise are copied as if they did not.
    ///
    /// # Safety
    /// Both places have so many bytes in buffers of this execution, which nobody else changes meanwhile.
    #[inline]
    pub(crate) unsafe fn copy(&self, to: At, from: At, bytes: usize) {
        let (to, from) = (self.address(to), self.address(from));
        if to == from {
            return;
        }
        // SAFETY: BUFFERS; `copy` allows overlap. Eight bytes, the commonest case, are one move.
        unsafe {
            if bytes == 8 {
                to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
            } else {
                std::ptr::copy(from, to, bytes);
            }
        }
    }
}

/// How large the memory of a plan must be for some sizes, in bytes; the same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    /// Temporary memory.
    pub temporary: usize,
    /// What is used of each level's segment; `None` for levels that are not used.
    pub parts: [Option<Size>; Bases::LEVELS],
}

impl Needs {
    /// The most of any of it.
    pub fn most(&self) -> usize {
        self.parts.iter().flatten().fold(self.temporary, |most, size| most.max(size.part).max(size.slot))
    }
}

/// Memory of a rank's own, on whole cache lines.
pub struct Scratch {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: plain memory, owned.
unsafe impl Send for Scratch {}
// SAFETY: only its address is handed out.
unsafe impl Sync for Scratch {}

impl Scratch {
    /// So many bytes, contents arbitrary.
    pub fn new(bytes: usize) -> Scratch {
        Scratch::try_new(bytes).unwrap_or_else(|layout| handle_alloc_error(layout))
    }

    fn try_new(bytes: usize) -> Result<Scratch, Layout> {
        let layout = Layout::from_size_align(bytes.max(64), 64).expect("a size that fits");
        // SAFETY: the layout has a size.
        let start = unsafe { alloc(layout) };
        if start.is_null() { Err(layout) } else { Ok(Scratch { start, layout }) }
    }

    /// The first byte.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Makes it at least so large; contents are lost.
    pub fn grow(&mut self, bytes: usize) {
        if bytes > self.bytes() {
            *self = Scratch::new(bytes.next_power_of_two());
        }
    }

    /// The same where there may not be so much memory; whether there is.
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
        // SAFETY: made by `new` with this layout.
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
            // SAFETY: three and five bytes of room before.
            unsafe { bases.copy(At { base: 1, offset: 5 }, At { base: 0, offset: 3 }, bytes) };
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

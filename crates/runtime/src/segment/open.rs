//! Buffers that a rank has opened to its node, and what happens if they cannot be read.
//!
//! A member writes where its buffers are into its *book* before it raises a flag; whoever has seen the flag reads there, and asks the
//! kernel for the data. The kernel may refuse in the middle of a call. Then the reader asks the owner by *mail*, as often as
//! there is more, and the owner, which waits for its readers anyway, puts the data where the reader finds it.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use super::mail::{Bell, Mail};
use super::{ROUNDS, Segment, round_at};

/// Bytes of an answer.
pub(crate) const ANSWER: usize = 1024;

/// Where a member's buffers are, in its own memory.
#[repr(C)]
struct Book {
    process: AtomicU64,
    buffers: [AtomicU64; 2],
    /// What it takes the sizes of the call to be.
    sizes: AtomicU64,
    /// Not 0 if somebody may have asked this member for something.
    bell: Bell,
}

/// A process and an address in its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Other {
    pub(crate) member: u32,
    pub(crate) process: u64,
    pub(crate) address: u64,
}

impl Other {
    /// Nobody's.
    pub(crate) const NOBODY: Other = Other { member: 0, process: 0, address: 0 };

    /// So many bytes on.
    pub(crate) fn moved(self, bytes: usize) -> Other {
        Other { address: self.address + bytes as u64, ..self }
    }
}

impl Segment {
    fn own<T>(&self, member: u32, line: u32) -> &T {
        debug_assert!(size_of::<T>() <= super::LINE);
        // SAFETY: lines of the header that hold numbers which are only ever used as atomic ones; all zero is a value of each.
        unsafe { &*self.start.add(round_at(member, line)).cast::<T>() }
    }

    fn book(&self, member: u32) -> &Book {
        self.own(member, ROUNDS + 1)
    }

    fn mail(&self, member: u32) -> &Mail {
        self.own(member, ROUNDS + 2)
    }

    fn answer(&self, member: u32) -> *mut u8 {
        // SAFETY: within the header.
        unsafe { self.start.add(round_at(member, ROUNDS + 3)) }
    }

    /// Says where this member's buffers are, for whoever sees a flag that it raises afterwards.
    pub(crate) fn open(&self, buffers: [*const u8; 2], sizes: u64) {
        let book = self.book(self.me);
        book.sizes.store(sizes, Ordering::Relaxed);
        book.process.store(std::process::id().into(), Ordering::Relaxed);
        for (at, buffer) in book.buffers.iter().zip(buffers) {
            at.store(buffer as u64, Ordering::Relaxed);
        }
    }

    /// A buffer of a member that has opened it, if it is in a call of these sizes: its input is the first, its output the second.
    pub(crate) fn other(&self, member: u32, buffer: usize, sizes: u64) -> Option<Other> {
        let book = self.book(member);
        let address = book.buffers[buffer % 2].load(Ordering::Relaxed);
        let other = Other { member, process: book.process.load(Ordering::Relaxed), address };
        (book.sizes.load(Ordering::Relaxed) == sizes).then_some(other)
    }

    /// Answers whoever has asked this member for something.
    pub(crate) fn serve(&self) {
        if !self.book(self.me).bell.has_rung() {
            return;
        }
        for member in (0..self.members).filter(|member| *member != self.me) {
            let mail = self.mail(member);
            let Some(question) = mail.question(self.me) else { continue };
            let bytes = (question.bytes as usize).min(ANSWER);
            // SAFETY: what is asked for lies in a buffer that this member has opened, and it waits for its readers; whoever asked
            // does not touch the answer until it is told.
            unsafe {
                std::ptr::copy_nonoverlapping(question.address as *const u8, self.answer(member), bytes);
            }
            mail.answer(question);
        }
    }

    /// Asks another member for so many bytes at an address of its, at most [`ANSWER`].
    pub(crate) fn ask(&self, other: Other, bytes: usize) {
        self.mail(self.me).ask(other.member, other.address, bytes as u64);
        self.book(other.member).bell.ring();
    }

    /// Where the answer lies, once it is there.
    pub(crate) fn answered(&self) -> Option<*const u8> {
        self.mail(self.me).is_answered().then(|| self.answer(self.me).cast_const())
    }
}

/// A word that others on the node try to read, to find out whether they can.
pub struct OpenWord(Box<u64>);

impl OpenWord {
    /// How many numbers say where it is.
    pub const PLACE: usize = 3;

    /// One that nobody can guess.
    pub fn random() -> OpenWord {
        OpenWord(Box::new(RandomState::new().hash_one(std::process::id())))
    }

    /// Its process, its address and itself.
    pub fn place(&self) -> [u64; OpenWord::PLACE] {
        [std::process::id().into(), &raw const *self.0 as u64, *self.0]
    }

    /// Whether this process can read a word of another. That may have another number here, or the number be somebody else's:
    /// then something else is read, or nothing.
    pub fn can_read(place: &[u64]) -> bool {
        let (other, mut word) = (Other { member: 0, process: place[0], address: place[1] }, 0u64);
        // SAFETY: a word may be written there.
        unsafe { read(other, (&raw mut word).cast(), size_of::<u64>()) && word == place[2] }
    }
}

/// Reads another process's memory; whether the kernel let it.
///
/// # Safety
/// So many bytes may be written at `to`.
pub(crate) unsafe fn read(other: Other, to: *mut u8, bytes: usize) -> bool {
    let mut done = 0;
    while done < bytes {
        let local = libc::iovec { iov_base: to.wrapping_add(done).cast(), iov_len: bytes - done };
        let remote =
            libc::iovec { iov_base: (other.address as usize + done) as *mut _, iov_len: bytes - done };
        // SAFETY: one stretch here, which may be written, and one there, which the kernel checks.
        match unsafe { libc::process_vm_readv(other.process as libc::pid_t, &local, 1, &remote, 1, 0) } {
            n if n > 0 => done += n as usize,
            _ => return false,
        }
    }
    true
}

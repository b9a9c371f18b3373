//! Buffers that a rank has opened to its node, and the fallback if the kernel refuses to read them.
//!
//! A member writes the addresses of its buffers to its *book*, a line of the header, and then raises a flag. A member that has seen the
//! flag reads the addresses there and asks the kernel for the data. The kernel may refuse in the middle of a call. Then the reader asks
//! the owner by *mail*, one block at a time, and the owner, which waits for its readers anyway, copies the data to where the reader finds
//! it.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use super::mail::{RequestFlag, RequestSlot};
use super::{ROUNDS, Segment, round_at};

/// Maximum number of bytes of an answer.
pub(crate) const ANSWER: usize = 1024;

/// Process number of a member, and the addresses of its buffers in that process.
#[repr(C)]
struct OpenBuffers {
    process: AtomicU64,
    buffers: [AtomicU64; 2],
    /// Hash of the call's sizes on this member.
    sizes: AtomicU64,
    /// Set if another member may have sent a question to this member.
    bell: RequestFlag,
}

/// An address in the memory of another member's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerAddress {
    pub(crate) member: u32,
    pub(crate) process: u64,
    pub(crate) address: u64,
}

impl PeerAddress {
    /// Placeholder that refers to no process.
    pub(crate) const NOBODY: PeerAddress = PeerAddress { member: 0, process: 0, address: 0 };

    /// Returns the address `bytes` bytes further on.
    pub(crate) fn moved(self, bytes: usize) -> PeerAddress {
        PeerAddress { address: self.address + bytes as u64, ..self }
    }
}

impl Segment {
    fn own<T>(&self, member: u32, line: u32) -> &T {
        debug_assert!(size_of::<T>() <= super::LINE);
        // SAFETY: a line of the header whose integers are only used as atomics; all-zero is a valid value of each type.
        unsafe { &*self.start.add(round_at(member, line)).cast::<T>() }
    }

    fn book(&self, member: u32) -> &OpenBuffers {
        self.own(member, ROUNDS + 1)
    }

    fn mail(&self, member: u32) -> &RequestSlot {
        self.own(member, ROUNDS + 2)
    }

    fn answer(&self, member: u32) -> *mut u8 {
        // SAFETY: the offset lies within the header.
        unsafe { self.start.add(round_at(member, ROUNDS + 3)) }
    }

    /// Publishes the addresses of this member's buffers to members that see a flag which it raises afterwards.
    pub(crate) fn open(&self, buffers: [*const u8; 2], sizes: u64) {
        let book = self.book(self.me);
        book.sizes.store(sizes, Ordering::Relaxed);
        book.process.store(std::process::id().into(), Ordering::Relaxed);
        for (at, buffer) in book.buffers.iter().zip(buffers) {
            at.store(buffer as u64, Ordering::Relaxed);
        }
    }

    /// Returns the address of a buffer that `member` has opened (0: input, 1: output), or `None` if its call has other sizes.
    pub(crate) fn other(&self, member: u32, buffer: usize, sizes: u64) -> Option<PeerAddress> {
        let book = self.book(member);
        let address = book.buffers[buffer % 2].load(Ordering::Relaxed);
        let other = PeerAddress { member, process: book.process.load(Ordering::Relaxed), address };
        (book.sizes.load(Ordering::Relaxed) == sizes).then_some(other)
    }

    /// Answers all questions to this member.
    pub(crate) fn serve(&self) {
        if !self.book(self.me).bell.take() {
            return;
        }
        for member in (0..self.members).filter(|member| *member != self.me) {
            let mail = self.mail(member);
            let Some(question) = mail.question(self.me) else { continue };
            let bytes = (question.bytes as usize).min(ANSWER);
            // SAFETY: the data lies in a buffer that this member has opened and keeps until its readers are done. The member that asked
            // does not touch the answer before it is marked as answered.
            unsafe {
                std::ptr::copy_nonoverlapping(question.address as *const u8, self.answer(member), bytes);
            }
            mail.answer(question);
        }
    }

    /// Asks another member for `bytes` bytes, at most [`ANSWER`], at an address in its memory.
    pub(crate) fn ask(&self, other: PeerAddress, bytes: usize) {
        self.mail(self.me).ask(other.member, other.address, bytes as u64);
        self.book(other.member).bell.set();
    }

    /// Returns the address of the answer once it has arrived.
    pub(crate) fn answered(&self) -> Option<*const u8> {
        self.mail(self.me).is_answered().then(|| self.answer(self.me).cast_const())
    }
}

/// A word of memory that other processes of the node try to read, to find out whether they can.
pub struct ReadProbe(Box<u64>);

impl ReadProbe {
    /// Number of integers in the result of [`ReadProbe::place`].
    pub const PLACE: usize = 3;

    /// Creates a word with a value that nobody can guess.
    pub fn random() -> ReadProbe {
        ReadProbe(Box::new(RandomState::new().hash_one(std::process::id())))
    }

    /// Returns process number, address and value of the word.
    pub fn place(&self) -> [u64; ReadProbe::PLACE] {
        [std::process::id().into(), &raw const *self.0 as u64, *self.0]
    }

    /// Returns whether this process can read another's word. The process number may be unknown here or belong to a different process; then
    /// the read fails or returns a different value.
    pub fn can_read(place: &[u64]) -> bool {
        let (other, mut word) = (PeerAddress { member: 0, process: place[0], address: place[1] }, 0u64);
        // SAFETY: `word` is writable for eight bytes.
        unsafe { read(other, (&raw mut word).cast(), size_of::<u64>()) && word == place[2] }
    }
}

/// Reads another process's memory. Returns whether the kernel allowed it.
///
/// # Safety
/// `to` is writable for `bytes` bytes.
pub(crate) unsafe fn read(other: PeerAddress, to: *mut u8, bytes: usize) -> bool {
    let mut done = 0;
    while done < bytes {
        let local = libc::iovec { iov_base: to.wrapping_add(done).cast(), iov_len: bytes - done };
        let remote = libc::iovec { iov_base: (other.address as usize + done) as *mut _, iov_len: bytes - done };
        // SAFETY: the local range is writable, and the kernel checks the remote range.
        match unsafe { libc::process_vm_readv(other.process as libc::pid_t, &local, 1, &remote, 1, 0) } {
            n if n > 0 => done += n as usize,
            _ => return false,
        }
    }
    true
}

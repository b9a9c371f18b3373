//! Buffers that a rank has opened to the other ranks of its node, and read requests for the case that the kernel refuses to read them.
//!
//! A member (rank of the node) writes the addresses of its buffers to the header of the segment, and then raises a flag. A member that has
//! seen the flag reads the addresses there, and asks the kernel for the data. The kernel may refuse, even in the middle of a call. Then
//! the reader sends read requests to the owner of the buffer, for one block at a time. The owner, which waits for its readers anyway,
//! copies each block to the reader's share of the header.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use super::mail::{RequestFlag, RequestSlot};
use super::{ROUNDS, Segment, round_at};

/// Maximum number of bytes in the answer to a read request.
pub(crate) const ANSWER: usize = 1024;

/// Process number of a member, and the addresses of its input and output buffers in that process.
#[repr(C)]
struct OpenBuffers {
    process: AtomicU64,
    buffers: [AtomicU64; 2],
    /// Hash of the sizes of this member's call.
    sizes: AtomicU64,
    /// Flag that is set if another member may have sent a read request to this member.
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
    /// Placeholder for an address in no process.
    pub(crate) const NOBODY: PeerAddress = PeerAddress { member: 0, process: 0, address: 0 };

    /// Returns the address that lies `bytes` bytes after this one.
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

    /// Writes the addresses of this member's buffers to the header. They are visible to members that see a flag which this member raises
    /// afterwards.
    pub(crate) fn open(&self, buffers: [*const u8; 2], sizes: u64) {
        let book = self.book(self.me);
        book.sizes.store(sizes, Ordering::Relaxed);
        book.process.store(std::process::id().into(), Ordering::Relaxed);
        for (at, buffer) in book.buffers.iter().zip(buffers) {
            at.store(buffer as u64, Ordering::Relaxed);
        }
    }

    /// Returns the address of a buffer that `member` has opened (0: input, 1: output), or `None` if the call of `member` has other sizes.
    pub(crate) fn other(&self, member: u32, buffer: usize, sizes: u64) -> Option<PeerAddress> {
        let book = self.book(member);
        let address = book.buffers[buffer % 2].load(Ordering::Relaxed);
        let other = PeerAddress { member, process: book.process.load(Ordering::Relaxed), address };
        (book.sizes.load(Ordering::Relaxed) == sizes).then_some(other)
    }

    /// Answers all read requests to this member.
    pub(crate) fn serve(&self) {
        if !self.book(self.me).bell.take() {
            return;
        }
        for member in (0..self.members).filter(|member| *member != self.me) {
            let mail = self.mail(member);
            let Some(question) = mail.question(self.me) else { continue };
            let bytes = (question.bytes as usize).min(ANSWER);
            // SAFETY: the data lies in a buffer that this member has opened and keeps until its readers are done. The member that sent the
            // request does not read the answer before the request is marked as answered.
            unsafe {
                std::ptr::copy_nonoverlapping(question.address as *const u8, self.answer(member), bytes);
            }
            mail.answer(question);
        }
    }

    /// Sends a read request for `bytes` bytes, at most [`ANSWER`], at an address in another member's memory.
    pub(crate) fn ask(&self, other: PeerAddress, bytes: usize) {
        self.mail(self.me).ask(other.member, other.address, bytes as u64);
        self.book(other.member).bell.set();
    }

    /// Returns the address of the answer to this member's read request, once it has arrived.
    pub(crate) fn answered(&self) -> Option<*const u8> {
        self.mail(self.me).is_answered().then(|| self.answer(self.me).cast_const())
    }
}

/// A word of memory that other processes of the node try to read, to determine whether the kernel allows it.
pub struct ReadProbe(Box<u64>);

impl ReadProbe {
    /// Number of integers in the result of [`ReadProbe::place`].
    pub const PLACE: usize = 3;

    /// Creates a word with a random value, so that a read of any other memory is detected.
    pub fn random() -> ReadProbe {
        ReadProbe(Box::new(RandomState::new().hash_one(std::process::id())))
    }

    /// Returns the process number, and the address and the value of the word.
    pub fn place(&self) -> [u64; ReadProbe::PLACE] {
        [std::process::id().into(), &raw const *self.0 as u64, *self.0]
    }

    /// Returns whether this process can read the word that another process described by [`ReadProbe::place`]. If the process number is
    /// unknown here or belongs to a different process, the read fails or returns a different value.
    pub fn can_read(place: &[u64]) -> bool {
        let (other, mut word) = (PeerAddress { member: 0, process: place[0], address: place[1] }, 0u64);
        // SAFETY: `word` is writable for eight bytes.
        unsafe { read(other, (&raw mut word).cast(), size_of::<u64>()) && word == place[2] }
    }
}

/// Reads memory of another process. Returns whether the kernel allowed the read.
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

//! What a program needs of whatever carries its messages.

use std::ops::Range;

/// Why a transport could not do what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{call} failed with code {code}")]
pub struct Failure {
    /// What was called.
    pub call: &'static str,
    /// What it returned.
    pub code: i32,
}

/// Carries messages between ranks, in order between two ranks with one tag. Calls come from one thread at a time for
/// each set of requests.
pub trait Transport {
    /// Room for the requests of one plan.
    type Requests;

    /// Room for so many requests, none under way.
    fn requests(&self, count: usize) -> Self::Requests;

    /// Starts a send as request number `at`.
    ///
    /// # Safety
    /// The bytes stay readable and unchanged until the request is finished.
    #[allow(unsafe_code)]
    unsafe fn send(
        &self,
        requests: &mut Self::Requests,
        at: usize,
        data: *const u8,
        bytes: usize,
        to: Peer,
    ) -> Result<(), Failure>;

    /// Starts a receive as request number `at`.
    ///
    /// # Safety
    /// The bytes stay writable, and nobody else touches them, until the request is finished.
    #[allow(unsafe_code)]
    unsafe fn recv(
        &self,
        requests: &mut Self::Requests,
        at: usize,
        data: *mut u8,
        bytes: usize,
        from: Peer,
    ) -> Result<(), Failure>;

    /// Waits until these requests are done; also if some of them fail.
    fn finish(&self, requests: &mut Self::Requests, which: Range<usize>) -> Result<(), Failure>;

    /// Whether these requests are done; they are then finished, also if some of them have failed.
    fn test(&self, requests: &mut Self::Requests, which: Range<usize>) -> Result<bool, Failure>;

    /// Lets the transport move whatever it has under way: messages, collectives and one-sided operations of all its
    /// users, on every communicator. Whoever waits for something that is no message must call this again and again.
    ///
    /// It must do so **whatever has arrived unexpected**. A look for messages that finds one returns at once and moves
    /// nothing else: a rank that waits on shared memory while a message of another node lies there would then keep its
    /// own partners waiting for ever.
    fn progress(&self);

    /// What is said where ranks take the sizes of a call to be different.
    fn truncated(&self) -> Failure;
}

/// The other end of a message, as the transport knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// Its number there.
    pub rank: u32,
    /// The message's tag there.
    pub tag: u32,
}

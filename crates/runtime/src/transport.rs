//! Interface between plans and the library that carries their messages.

use std::ops::Range;

/// Error of a transport function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{call} failed with code {code}")]
pub struct TransportError {
    /// Name of the function that failed.
    pub call: &'static str,
    /// Error code that the function returned.
    pub code: i32,
}

/// Carries messages between ranks; messages between two ranks with the same tag stay in order. A set of requests is used by one thread at
/// a time.
pub trait Transport {
    /// Requests of one plan.
    type Requests;

    /// Creates `count` requests, none of them under way.
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
    ) -> Result<(), TransportError>;

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
    ) -> Result<(), TransportError>;

    /// Waits until the requests in `which` are done, even if some of them fail.
    fn finish(&self, requests: &mut Self::Requests, which: Range<usize>) -> Result<(), TransportError>;

    /// Returns whether the requests in `which` are done. If so, they are finished, even if some of them have failed.
    fn test(&self, requests: &mut Self::Requests, which: Range<usize>) -> Result<bool, TransportError>;

    /// Progresses everything that the transport has under way: messages, collectives and one-sided operations of all users, on every
    /// communicator. A rank that waits for anything other than a message must call this repeatedly.
    ///
    /// An implementation must make progress **even if an unexpected message has arrived**. A probe that finds a message returns at once
    /// and progresses nothing else: a rank that waits on shared memory while a message from another node is pending would then block its
    /// own partners forever.
    fn progress(&self);

    /// Returns the error for a call whose sizes differ between ranks.
    fn truncated(&self) -> TransportError;
}

/// The other end of a message, in the numbering of the transport.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// Rank of the other end.
    pub rank: u32,
    /// Tag of the message.
    pub tag: u32,
}

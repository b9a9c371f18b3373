//! Interface between plans and the library that transfers their messages, for example MPI.

use std::ops::Range;

/// Error that a function of the transport library returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{call} failed with code {code}")]
pub struct TransportError {
    /// Name of the function that failed.
    pub call: &'static str,
    /// Error code that the function returned.
    pub code: i32,
}

/// Transfers messages between ranks. Messages between the same two ranks with the same tag stay in order. A set of requests is used by one
/// thread at a time.
pub trait Transport {
    /// Set of the requests of one plan.
    type Requests;

    /// Creates a set of `count` requests that are not in use.
    fn requests(&self, count: usize) -> Self::Requests;

    /// Starts a send as request number `at`.
    ///
    /// # Safety
    /// The data stays readable and unchanged until the request is finished.
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
    /// The buffer stays writable, and nobody else accesses it, until the request is finished.
    #[allow(unsafe_code)]
    unsafe fn recv(
        &self,
        requests: &mut Self::Requests,
        at: usize,
        data: *mut u8,
        bytes: usize,
        from: Peer,
    ) -> Result<(), TransportError>;

    /// Waits until the requests numbered `which` are complete, even if some of them fail.
    fn finish(&self, requests: &mut Self::Requests, which: Range<usize>) -> Result<(), TransportError>;

    /// Returns whether the requests numbered `which` are complete. If so, they are finished, even if some of them have failed.
    fn test(&self, requests: &mut Self::Requests, which: Range<usize>) -> Result<bool, TransportError>;

    /// Lets the library make progress with all pending communication: messages, collectives and one-sided operations of all users, on
    /// every communicator. A rank that waits for anything other than a message must call this repeatedly.
    ///
    /// An implementation must make progress **even if an unexpected message has arrived**. A probe that finds a message returns at once
    /// without any other progress. If that probe were used, a rank that waits on shared memory while a message from another node is
    /// pending would block the ranks that communicate with it forever.
    fn progress(&self);

    /// Returns the error for a call whose sizes differ between ranks.
    fn truncated(&self) -> TransportError;
}

/// The other rank of a message, and its tag, in the numbering of the transport.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// Rank that receives or sends the message at the other end.
    pub rank: u32,
    /// Tag of the message.
    pub tag: u32,
}

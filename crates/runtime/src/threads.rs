//! A transport within one process, with threads as ranks, so that every algorithm runs with real data in ordinary tests.
//!
//! A send completes only when the matching receive has copied the data. Messages are not buffered, so a program that relies on buffering
//! hangs, and a test detects that.
#![allow(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::memory::Scratch;
use crate::segment::{Segment, SegmentSize};
use crate::transport::{Peer, Transport, TransportError};

/// A posted send or receive that has no matching receive or send yet.
struct Waiting {
    data: *mut u8,
    bytes: usize,
    done: Arc<AtomicBool>,
}

// SAFETY: until the request is complete, only the thread that posts the matching send or receive uses the address.
unsafe impl Send for Waiting {}

#[derive(Default)]
struct Channel {
    sends: VecDeque<Waiting>,
    receives: VecDeque<Waiting>,
}

/// Ranks that run as threads of this process.
#[derive(Default)]
pub struct Cluster {
    channels: Mutex<HashMap<(u32, u32, u32), Channel>>,
}

impl Cluster {
    /// Creates a cluster without any posted messages.
    pub fn new() -> Arc<Cluster> {
        Arc::new(Cluster::default())
    }

    /// Returns the transport of a rank.
    pub fn rank(self: &Arc<Cluster>, rank: u32) -> Thread {
        Thread { cluster: self.clone(), rank }
    }
}

/// Creates a segment for `members` threads, and returns one handle for each.
pub fn segment(members: u32, size: SegmentSize) -> Vec<Arc<Segment>> {
    let bytes = Segment::bytes(members, size);
    let memory = Arc::new(Scratch::new(bytes));
    // SAFETY: the memory has `bytes` bytes, and nobody else uses it yet.
    unsafe { memory.start().write_bytes(0, bytes) };
    let member = |me| {
        let memory = memory.clone();
        // SAFETY: the memory was zeroed above; the members are the threads that run the same plans.
        Arc::new(unsafe { Segment::new(memory.start(), members, me, size, Box::new(memory)) })
    };
    (0..members).map(member).collect()
}

/// Transport of one rank of a cluster.
pub struct Thread {
    cluster: Arc<Cluster>,
    rank: u32,
}

/// Error code of a message whose sender and receiver expect different sizes, and of a call whose sizes differ between ranks.
const TRUNCATED: i32 = 15;

impl Thread {
    fn post(
        &self,
        requests: &mut [Option<Arc<AtomicBool>>],
        at: usize,
        waiting: (*mut u8, usize),
        peer: Peer,
        sends: bool,
    ) -> Result<(), TransportError> {
        let done = Arc::new(AtomicBool::new(false));
        requests[at] = Some(done.clone());
        let mine = Waiting { data: waiting.0, bytes: waiting.1, done };
        let key = if sends { (self.rank, peer.rank, peer.tag) } else { (peer.rank, self.rank, peer.tag) };
        let mut channels = self.cluster.channels.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let channel = channels.entry(key).or_default();
        let other = if sends { channel.receives.pop_front() } else { channel.sends.pop_front() };
        let Some(other) = other else {
            if sends {
                channel.sends.push_back(mine);
            } else {
                channel.receives.push_back(mine);
            };
            return Ok(());
        };
        let (from, to) = if sends { (&mine, &other) } else { (&other, &mine) };
        if from.bytes != to.bytes {
            return Err(self.truncated());
        }
        // SAFETY: both requests are incomplete, so both buffers are valid and nobody else uses them.
        unsafe { std::ptr::copy_nonoverlapping(from.data, to.data, from.bytes) };
        mine.done.store(true, Ordering::Release);
        other.done.store(true, Ordering::Release);
        Ok(())
    }
}

impl Transport for Thread {
    type Requests = Vec<Option<Arc<AtomicBool>>>;

    fn requests(&self, count: usize) -> Self::Requests {
        vec![None; count]
    }

    unsafe fn send(
        &self,
        requests: &mut Self::Requests,
        at: usize,
        data: *const u8,
        bytes: usize,
        to: Peer,
    ) -> Result<(), TransportError> {
        self.post(requests, at, (data.cast_mut(), bytes), to, true)
    }

    unsafe fn recv(
        &self,
        requests: &mut Self::Requests,
        at: usize,
        data: *mut u8,
        bytes: usize,
        from: Peer,
    ) -> Result<(), TransportError> {
        self.post(requests, at, (data, bytes), from, false)
    }

    fn finish(&self, requests: &mut Self::Requests, which: Range<usize>) -> Result<(), TransportError> {
        while !self.test(requests, which.clone())? {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn test(&self, requests: &mut Self::Requests, which: Range<usize>) -> Result<bool, TransportError> {
        let done = |request: &Option<Arc<AtomicBool>>| request.as_ref().is_none_or(|d| d.load(Ordering::Acquire));
        if !requests[which.clone()].iter().all(done) {
            return Ok(false);
        }
        requests[which].fill(None);
        Ok(true)
    }

    fn progress(&self) {
        std::thread::yield_now();
    }

    fn truncated(&self) -> TransportError {
        TransportError { call: "match", code: TRUNCATED }
    }
}

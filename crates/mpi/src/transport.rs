//! Transport of a plan's messages over MPI.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use bruckner_runtime::{Backoff, Peer, Transport, TransportError};

use crate::Mpi;
use crate::functions::Handle;
use crate::hook::{Hook, IsComplete};

/// Transport that sends the messages of plans on an internal communicator.
#[derive(Clone, Copy)]
pub struct MpiTransport {
    mpi: &'static Mpi,
    comm: Handle,
    /// A tag that no message uses.
    unused_tag: u32,
    /// How to wait for messages if ranks share cores, because MPI's own waits spin. `None` if each rank has a core of its own.
    backoff: Option<Backoff>,
    /// Function that tests a request without making MPI progress. It is used in functions that MPI calls during its own progress.
    quiet: Option<IsComplete>,
}

/// How messages are posted: with immediate or with persistent requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostStyle {
    /// Each execution posts its messages anew (`MPI_Isend`, `MPI_Irecv`).
    Immediate,
    /// Each execution starts the same persistent requests (`MPI_Send_init`, `MPI_Recv_init`). The buffers of the plan must not change.
    Persistent,
}

/// Requests of a plan, as an array of MPI handles with the width of the MPI's family.
pub struct Requests {
    mpi: &'static Mpi,
    cells: Vec<u64>,
    count: usize,
    style: PostStyle,
    /// For each request, whether it exists as a persistent request.
    made: Vec<bool>,
}

impl MpiTransport {
    /// Creates a transport on a communicator whose functions return errors. No message may use the tag `never_sent`.
    pub fn new(mpi: &'static Mpi, comm: Handle, never_sent: u32, shared_cores: bool) -> MpiTransport {
        MpiTransport {
            mpi,
            comm,
            unused_tag: never_sent,
            backoff: shared_cores.then_some(Backoff::SharedCores),
            quiet: None,
        }
    }

    /// Returns how to wait for anything other than messages.
    pub fn backoff(&self) -> Backoff {
        self.backoff.unwrap_or(Backoff::CoreEach)
    }

    /// Returns this transport for use in functions that MPI calls during its progress. It tests requests without making progress, if the
    /// MPI has a function for that.
    pub fn quiet(mut self) -> MpiTransport {
        self.quiet = self.mpi.hook.as_ref().and_then(Hook::is_complete);
        self
    }

    /// Returns whether all requests numbered `which` are complete, without making progress. If so, frees them.
    fn look(&self, requests: &mut Requests, which: Range<usize>, is_complete: IsComplete) -> bool {
        let null = self.mpi.constants.required("MPI_REQUEST_NULL");
        let all = which.clone().all(|at| {
            let request = requests.get(at);
            // SAFETY: the request is valid.
            request == null || unsafe { is_complete(request) } != 0
        });
        for at in which.filter(|_| all) {
            if requests.get(at) != null {
                // SAFETY: the request is valid and complete.
                unsafe { (self.mpi.f.request_free)(requests.at(at)) };
                // A persistent request is created again when it is needed.
                requests.made[at] = false;
            }
        }
        all
    }

    /// Handles the failure of some requests: waits for the others of `which`, so that none stays pending. The error of each request is in
    /// its status, which MPI was told to ignore. The messages were verified, so only a length can be wrong, and truncation is reported.
    #[cold]
    fn failed(&self, call: &'static str, code: c_int, requests: &mut Requests, which: Range<usize>) -> TransportError {
        let constant = |name: &str| self.mpi.constants.required(name) as c_int;
        let mut code = if code == constant("MPI_ERR_IN_STATUS") { constant("MPI_ERR_TRUNCATE") } else { code };
        for at in which {
            // SAFETY: the address is that of a pending request, a null request, or a persistent request that is not active.
            let other = unsafe { (self.mpi.f.wait)(requests.at(at), self.mpi.status_ignore) };
            if other != 0 {
                code = other;
            }
        }
        TransportError { call, code }
    }

    fn peer(&self, peer: Peer) -> (c_int, c_int) {
        (peer.rank as c_int, peer.tag as c_int)
    }

    /// Posts a message: depending on the style, `now` posts it by an immediate request, or `keep` creates a persistent request, which is
    /// then started.
    #[inline]
    fn post(
        &self,
        requests: &mut Requests,
        at: usize,
        bytes: usize,
        now: impl FnOnce(c_int, Handle, *mut c_void) -> c_int,
        keep: impl FnOnce(c_int, Handle, *mut c_void) -> c_int,
    ) -> Result<(), TransportError> {
        let cell = requests.at(at);
        if requests.style == PostStyle::Immediate {
            return self.counted(bytes, |count, datatype| done("MPI_Isend or MPI_Irecv", now(count, datatype, cell)));
        }
        if !requests.made[at] {
            self.counted(bytes, |count, datatype| done("MPI_Send_init or MPI_Recv_init", keep(count, datatype, cell)))?;
            requests.made[at] = true;
        }
        // SAFETY: the persistent request exists and is not active.
        done("MPI_Start", unsafe { (self.mpi.f.start)(cell) })
    }

    /// Calls a function with a count and a datatype that describe `bytes` bytes.
    #[inline]
    fn counted(
        &self,
        bytes: usize,
        call: impl FnOnce(c_int, Handle) -> Result<(), TransportError>,
    ) -> Result<(), TransportError> {
        if bytes <= c_int::MAX as usize {
            return call(bytes as c_int, self.mpi.byte);
        }
        let large =
            self.mpi.large_type(bytes, self.mpi.byte).map_err(|e| TransportError { call: e.call, code: e.code })?;
        let result = call(1, large);
        // MPI keeps a freed datatype until the messages that use it are complete.
        self.mpi.free_type(large);
        result
    }
}

impl Requests {
    /// Returns the number of requests.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn at(&mut self, at: usize) -> *mut c_void {
        debug_assert!(at < self.count);
        // SAFETY: the index is within the array, which has room for the widest handles.
        unsafe { self.cells.as_mut_ptr().cast::<u8>().add(at * self.mpi.width()).cast() }
    }

    fn get(&mut self, at: usize) -> Handle {
        let cell = self.at(at);
        // SAFETY: the address lies within the array.
        unsafe { self.mpi.handle_at(cell, 0) }
    }

    fn set_null(&mut self) {
        let (mpi, null) = (self.mpi, self.mpi.constants.required("MPI_REQUEST_NULL").to_le_bytes());
        for i in 0..self.count {
            let cell = self.at(i).cast::<u8>();
            // SAFETY: exactly one handle is copied, which stays within the array.
            unsafe { std::ptr::copy_nonoverlapping(null.as_ptr(), cell, mpi.width()) };
        }
    }

    /// Sets how messages are posted from now on. No request may be pending.
    pub fn set_style(&mut self, style: PostStyle) {
        if style != self.style {
            self.free();
            self.style = style;
        }
    }

    /// Frees the persistent requests, unless MPI is finalised, because then they no longer exist. Sets all requests to null.
    fn free(&mut self) {
        let is_running = self.made.contains(&true) && self.mpi.is_running();
        for i in 0..self.count {
            if std::mem::take(&mut self.made[i]) && is_running {
                let at = self.at(i);
                // SAFETY: the persistent request was created and is not active.
                unsafe { (self.mpi.f.request_free)(at) };
            }
        }
        self.set_null();
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.free();
    }
}

#[inline]
fn done(call: &'static str, code: c_int) -> Result<(), TransportError> {
    if code == 0 { Ok(()) } else { Err(TransportError { call, code }) }
}

impl Transport for MpiTransport {
    type Requests = Requests;

    fn truncated(&self) -> TransportError {
        let error = self.mpi.truncated();
        TransportError { call: error.call, code: error.code }
    }

    fn requests(&self, count: usize) -> Requests {
        let mut requests = Requests {
            mpi: self.mpi,
            cells: vec![0; count.max(1)],
            count,
            style: PostStyle::Immediate,
            made: vec![false; count],
        };
        requests.set_null();
        requests
    }

    #[inline]
    unsafe fn send(
        &self,
        requests: &mut Requests,
        at: usize,
        data: *const u8,
        bytes: usize,
        to: Peer,
    ) -> Result<(), TransportError> {
        let (f, data, (rank, tag)) = (&self.mpi.f, data.cast(), self.peer(to));
        // SAFETY: the caller of `send` guarantees the data; the handles are valid, and `cell` has space for a request.
        let now = |count, datatype, cell| unsafe { (f.isend)(data, count, datatype, rank, tag, self.comm, cell) };
        // SAFETY: the caller of `send` guarantees the data; the handles are valid, and `cell` has space for a request.
        let keep = |count, datatype, cell| unsafe { (f.send_init)(data, count, datatype, rank, tag, self.comm, cell) };
        self.post(requests, at, bytes, now, keep)
    }

    #[inline]
    unsafe fn recv(
        &self,
        requests: &mut Requests,
        at: usize,
        data: *mut u8,
        bytes: usize,
        from: Peer,
    ) -> Result<(), TransportError> {
        let (f, data, (rank, tag)) = (&self.mpi.f, data.cast(), self.peer(from));
        // SAFETY: the caller of `recv` guarantees the buffer; the handles are valid, and `cell` has space for a request.
        let now = |count, datatype, cell| unsafe { (f.irecv)(data, count, datatype, rank, tag, self.comm, cell) };
        // SAFETY: the caller of `recv` guarantees the buffer; the handles are valid, and `cell` has space for a request.
        let keep = |count, datatype, cell| unsafe { (f.recv_init)(data, count, datatype, rank, tag, self.comm, cell) };
        self.post(requests, at, bytes, now, keep)
    }

    #[inline]
    fn finish(&self, requests: &mut Requests, which: Range<usize>) -> Result<(), TransportError> {
        if let Some(backoff) = self.backoff {
            let mut result = Ok(());
            backoff.wait_for(|| {
                let tested = self.test(requests, which.clone());
                result = tested.map(|_| ());
                tested != Ok(false)
            });
            return result;
        }
        let (count, first) = (which.len() as c_int, requests.at(which.start));
        // SAFETY: there are `count` requests from `first` on.
        match unsafe { (self.mpi.f.waitall)(count, first, self.mpi.status_ignore) } {
            0 => Ok(()),
            code => Err(self.failed("MPI_Waitall", code, requests, which)),
        }
    }

    fn test(&self, requests: &mut Requests, which: Range<usize>) -> Result<bool, TransportError> {
        if let Some(is_complete) = self.quiet {
            return Ok(self.look(requests, which, is_complete));
        }
        let mut flag = 0;
        let (count, first) = (which.len() as c_int, requests.at(which.start));
        // SAFETY: there are `count` requests from `first` on.
        match unsafe { (self.mpi.f.testall)(count, first, &mut flag, self.mpi.status_ignore) } {
            0 => Ok(flag != 0),
            code => Err(self.failed("MPI_Testall", code, requests, which)),
        }
    }

    fn progress(&self) {
        if self.quiet.is_some() {
            return;
        }
        let mut flag = 0;
        let (any, tag) = (self.mpi.any_source, self.unused_tag as c_int);
        // SAFETY: the handles are valid. Probing for a message that never comes makes MPI progress; a probe that finds a message would
        // return at once and progress nothing else.
        unsafe { (self.mpi.f.iprobe)(any, tag, self.comm, &mut flag, self.mpi.status_ignore) };
    }
}

//! Ranks that are threads of one process: a [`Backend`] for tests.
//!
//! Each rank is a thread with an engine of its own. Communicators, agreement, native collectives and messages are simple and strict. A
//! send completes only when its receive has taken the data, so code that relies on buffering hangs. If a rank waits too long, it panics
//! with a message, so the test ends. Shared-memory segments are the real ones.
//!
//! ```
//! use bruckner_threads::{F64, SUM, ThreadRank, run};
//! use bruckner_engine::{Call, Engine, EntryPoint, backend::Communicators as _};
//!
//! let sums = run("2x2", |_| Default::default(), |engine: &Engine<ThreadRank>, rank: &'static ThreadRank| {
//!     let (mine, mut sum) = (f64::from(rank.number()), 0.0f64);
//!     let call = Call::allreduce((&raw const mine).cast(), (&raw mut sum).cast(), 1, F64, SUM);
//!     // SAFETY: one number in and one out.
//!     unsafe { engine.run(&call, rank.comm_world(), EntryPoint::Api) }.unwrap();
//!     sum
//! });
//! assert_eq!(sums, [6.0; 4]);
//! ```

mod collectives;
mod meeting;
mod types;

use std::collections::HashMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bruckner_config::ProfileFile;
use bruckner_engine::backend::{Communicators, Fault, Wire};
use bruckner_engine::{Backend, Call, Engine};
use bruckner_mpi::{AgreeOp, AttachedState, FreeingCommunicators, Handle, Location, MpiError, PostStyle, Work};
use bruckner_runtime::threads::Thread;
use bruckner_runtime::{Backoff, Peer, Transport, TransportError};
use bruckner_schedule::{Level, Rank as Number, Topology};

use meeting::{Ticket, World};

pub use types::{BYTE, COMPOSE, F64, F64_WITH_GAP, I64, IN_PLACE, MAX, PAIR, SUM, compose};

/// Time limit for a run. If it is exceeded, the ranks are considered hung. It is generous, because the machine may be busy.
const LIMIT: Duration = Duration::from_secs(120);

/// Options of a rank, set by a test.
#[derive(Clone, Debug)]
pub struct Options {
    /// Settings of the rank, as lines `NAME=value`. Only the settings of rank 0 take effect.
    pub settings: String,
    /// Machine profile of the rank. Only the profile of rank 0 takes effect.
    pub profile: ProfileFile,
    /// Fault to inject on this rank.
    pub fault: Option<Fault>,
    /// Whether the rank may have buffers in device memory.
    pub device: bool,
    /// Largest message tag.
    pub tags: u32,
    /// Function that is called whenever the rank sends a message or begins a native blocking collective.
    pub on_leave: Option<fn()>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            settings: String::new(),
            profile: ProfileFile::Missing,
            fault: None,
            device: false,
            tags: 32767,
            on_leave: None,
        }
    }
}

/// A rank that is a thread. The communicators belong to all ranks together.
pub struct ThreadRank {
    meetings: Arc<World>,
    topology: Topology,
    number: u32,
    options: Mutex<Options>,
    kept: Mutex<HashMap<Handle, AttachedState>>,
    generation: AtomicU64,
    /// Pending native nonblocking collectives, by request.
    started: Mutex<HashMap<u64, (Ticket, Handle, Call)>>,
    natives: AtomicU64,
    raised: Mutex<Vec<i32>>,
    ending: FreeingCommunicators,
    on_leave: Option<fn()>,
}

/// Runs `body` on each rank of a topology, with an engine for each rank, and returns the results by rank. If one rank panics, the ranks
/// that wait for it panic too, and then the caller.
pub fn run<R: Send>(
    topology: &str,
    options: impl Fn(u32) -> Options + Sync,
    body: impl Fn(&Engine<ThreadRank>, &'static ThreadRank) -> R + Sync,
) -> Vec<R> {
    let topology: Topology = topology.parse().expect("a topology");
    let size = topology.ranks();
    let meetings = World::new(size, LIMIT);
    let (body, options, meetings) = (&body, &options, &meetings);
    let results: Vec<_> = std::thread::scope(|scope| {
        let one = |number| {
            let topology = topology.clone();
            scope.spawn(move || {
                let options = options(number);
                // The rank is leaked, because state in the engine may refer to it until the process ends.
                let rank: &'static ThreadRank = Box::leak(Box::new(ThreadRank {
                    on_leave: options.on_leave,
                    meetings: meetings.clone(),
                    topology,
                    number,
                    options: Mutex::new(options),
                    kept: Mutex::default(),
                    generation: AtomicU64::new(0),
                    started: Mutex::default(),
                    natives: AtomicU64::new(0),
                    raised: Mutex::default(),
                    ending: FreeingCommunicators::new(),
                }));
                let engine = Engine::new(rank, || false);
                let result = catch_unwind(AssertUnwindSafe(|| {
                    engine.init().expect("engine.init failed: no internal communicator");
                    let result = body(&engine, rank);
                    engine.finalize();
                    result
                }));
                if result.is_err() {
                    meetings.abort();
                }
                lock(&rank.kept).clear();
                result
            })
        };
        let threads: Vec<_> = (0..size).map(one).collect();
        threads.into_iter().map(|thread| thread.join().expect("panics are caught")).collect()
    });
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(value) => good.push(value),
            Err(cause) => bad.push(cause),
        }
    }
    // The panic of a rank that failed by itself has a more useful message than those of the ranks that waited for it.
    let waited = |cause: &Box<dyn std::any::Any + Send>| {
        cause.downcast_ref::<&str>().is_some_and(|text| *text == meeting::GIVEN_UP)
    };
    if let Some(at) = bad.iter().position(|cause| !waited(cause)) {
        resume_unwind(bad.swap_remove(at));
    }
    assert!(bad.is_empty(), "all ranks waited for another rank that failed");
    good
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ThreadRank {
    /// Returns the rank in the world communicator.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the number of native blocking collectives that this rank has called.
    pub fn native_calls(&self) -> u64 {
        self.natives.load(Ordering::Relaxed)
    }

    /// Returns the error codes that were raised on this rank.
    pub fn raised(&self) -> Vec<i32> {
        lock(&self.raised).clone()
    }

    /// Changes the options of this rank.
    pub fn set_options(&self, change: impl FnOnce(&mut Options)) {
        change(&mut lock(&self.options));
    }

    /// Splits a communicator by `color`, like `MPI_Comm_split` with equal keys, and returns the new communicator of this rank. Collective.
    pub fn split(&self, comm: Handle, color: u32) -> Handle {
        let colors = self.allgather_numbers(comm, &[u64::from(color)]);
        let members = self.meetings.members(comm);
        let mut distinct: Vec<u64> = Vec::new();
        for color in &colors {
            if !distinct.contains(color) {
                distinct.push(*color);
            }
        }
        let of = |color: &u64| -> Vec<u32> {
            let chosen = members.iter().zip(&colors).filter(|(_, other)| *other == color);
            chosen.map(|(member, _)| *member).collect()
        };
        // The first member creates all new communicators, in the order of their first members, so handles are the same in every run.
        let opens = members[0] == self.number;
        let opened: Vec<u64> =
            distinct.iter().filter(|_| opens).map(|color| self.meetings.create_comm(&of(color))).collect();
        let all = self.allgather_numbers(comm, &opened);
        let own = distinct.iter().position(|other| *other == u64::from(color)).expect("its own color");
        self.ending.mark_live(all[own]);
        self.advance_generation();
        all[own]
    }

    /// Frees a communicator, like `MPI_Comm_free`. The state attached to the communicator is dropped, and its handle may be reused.
    pub fn comm_free(&self, comm: Handle) {
        self.comm_free_with(comm, || {}, || {});
    }

    /// Frees a communicator. Calls `before` and `after` in the place of callbacks of user attributes, which MPI calls before and after it
    /// deletes the engine's attribute.
    pub fn comm_free_with(&self, comm: Handle, before: impl FnOnce(), after: impl FnOnce()) {
        before();
        drop(lock(&self.kept).remove(&comm));
        self.advance_generation();
        self.ending.attribute_deleted(comm);
        after();
        // State that a callback has attached meanwhile is dropped too.
        drop(lock(&self.kept).remove(&comm));
        self.meetings.free_comm(comm);
    }

    /// Calls the test's function [`Options::on_leave`], if there is one.
    fn notify_leave(&self) {
        if let Some(on_leave) = self.on_leave {
            on_leave();
        }
    }

    /// Gathers the numbers of all ranks of a communicator. Collective.
    fn allgather_numbers(&self, comm: Handle, mine: &[u64]) -> Vec<u64> {
        let bytes = mine.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let all = self.meetings.allgather(comm, self.number, bytes);
        all.iter().flat_map(|bytes| bytes.as_chunks().0).map(|bytes| u64::from_ne_bytes(*bytes)).collect()
    }
}

impl Communicators for ThreadRank {
    fn comm_world(&self) -> Handle {
        World::WORLD
    }

    fn rank(&self, comm: Handle) -> Result<u32, MpiError> {
        let members = self.meetings.members(comm);
        Ok(members.iter().position(|member| *member == self.number).expect("it is a member") as u32)
    }

    fn size(&self, comm: Handle) -> Result<u32, MpiError> {
        Ok(self.meetings.members(comm).len() as u32)
    }

    fn is_inter(&self, _comm: Handle) -> Result<bool, MpiError> {
        Ok(false)
    }

    fn is_null_comm(&self, comm: Handle) -> bool {
        comm == 0
    }

    fn translate(&self, comm: Handle, of: Handle) -> Result<Vec<Option<u32>>, MpiError> {
        let (from, to) = (self.meetings.members(comm), self.meetings.members(of));
        let find = |member: &u32| to.iter().position(|other| other == member).map(|at| at as u32);
        Ok(from.iter().map(find).collect())
    }

    fn create_internal(&self, comm: Handle) -> Result<Handle, MpiError> {
        Ok(self.split(comm, 0))
    }

    fn node(&self, comm: Handle) -> Result<Handle, MpiError> {
        Ok(self.split(comm, self.topology.node_of(Number(self.number))))
    }

    fn free(&self, comm: Handle) {
        self.comm_free(comm);
    }

    fn agree(&self, comm: Handle, how: AgreeOp, numbers: &mut [u64]) -> Result<(), MpiError> {
        let all = self.allgather_numbers(comm, numbers);
        for (at, number) in numbers.iter_mut().enumerate() {
            let of_all = all.iter().skip(at).step_by(all.len() / self.meetings.members(comm).len());
            *number = of_all.fold(*number, |a, b| how.join(a, *b));
        }
        Ok(())
    }

    fn gather(&self, comm: Handle, mine: &[u64]) -> Result<Vec<u64>, MpiError> {
        Ok(self.allgather_numbers(comm, mine))
    }

    fn share_text(&self, comm: Handle, text: &str) -> Result<String, MpiError> {
        let all = self.meetings.allgather(comm, self.number, text.as_bytes().to_vec());
        Ok(String::from_utf8_lossy(&all[0]).into_owned())
    }

    fn places(&self, comm: Handle, _: Handle) -> Result<Vec<Location>, MpiError> {
        let region = |level, rank: u32| u64::from(self.topology.region_of(level, Number(rank)));
        let place = |rank: &u32| Location {
            node: region(Level::NODE, *rank),
            socket: region(Level::SOCKET, *rank),
            machine: 0,
        };
        Ok(self.meetings.members(comm).iter().map(place).collect())
    }

    fn sharers(&self, _: Handle, places: &[Location]) -> Result<(u32, u32), MpiError> {
        // Assumes one core, because threads in tests usually outnumber cores.
        Ok((places.len() as u32, 1))
    }

    fn tag_limit(&self) -> u32 {
        lock(&self.options).tags
    }

    fn raise(&self, _comm: Handle, code: i32) {
        lock(&self.raised).push(code);
    }

    fn attach(&self, comm: Handle, value: AttachedState) -> Result<(), MpiError> {
        let before = lock(&self.kept).insert(comm, value);
        if before.is_some() {
            self.advance_generation();
        }
        Ok(())
    }

    fn attached(&self, comm: Handle) -> Option<AttachedState> {
        lock(&self.kept).get(&comm).cloned()
    }

    fn detach(&self, comm: Handle) {
        let before = lock(&self.kept).remove(&comm);
        self.advance_generation();
        drop(before);
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn advance_generation(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn being_freed(&self) -> &FreeingCommunicators {
        &self.ending
    }
}

impl Backend for ThreadRank {
    type Wire = ThreadTransport;

    fn wire(&'static self, hidden: Handle, _never_sent: u32, _shared_cores: bool) -> ThreadTransport {
        let number = Communicators::rank(self, hidden).expect("it is a member");
        let thread = Box::leak(Box::new(self.meetings.cluster(hidden).rank(number)));
        ThreadTransport { rank: self, thread }
    }

    fn name(&self) -> &str {
        "threads"
    }

    fn is_threaded(&self) -> bool {
        true
    }

    fn has_hook(&self) -> bool {
        false
    }

    fn work_inside(&self, _work: Work) -> Result<(), MpiError> {
        Ok(())
    }

    fn settings(&self) -> String {
        lock(&self.options).settings.clone()
    }

    fn profile(&self, _settings: &str) -> ProfileFile {
        lock(&self.options).profile.clone()
    }

    fn fails(&self, fault: Fault, _rank: u32) -> bool {
        lock(&self.options).fault == Some(fault)
    }
}

/// Transport of messages between threads.
#[derive(Clone, Copy)]
pub struct ThreadTransport {
    rank: &'static ThreadRank,
    thread: &'static Thread,
}

impl Wire for ThreadTransport {
    fn backoff(&self) -> Backoff {
        Backoff::SharedCores
    }

    fn quiet(self) -> ThreadTransport {
        self
    }

    fn set_style(_requests: &mut Self::Requests, _style: PostStyle) {}
}

impl Transport for ThreadTransport {
    type Requests = <Thread as Transport>::Requests;

    fn requests(&self, count: usize) -> Self::Requests {
        self.thread.requests(count)
    }

    unsafe fn send(
        &self,
        requests: &mut Self::Requests,
        at: usize,
        data: *const u8,
        bytes: usize,
        to: Peer,
    ) -> Result<(), TransportError> {
        self.rank.notify_leave();
        // SAFETY: the caller upholds the contract of `Transport::send`.
        unsafe { self.thread.send(requests, at, data, bytes, to) }
    }

    unsafe fn recv(
        &self,
        requests: &mut Self::Requests,
        at: usize,
        data: *mut u8,
        bytes: usize,
        from: Peer,
    ) -> Result<(), TransportError> {
        // SAFETY: the caller upholds the contract of `Transport::recv`.
        unsafe { self.thread.recv(requests, at, data, bytes, from) }
    }

    fn finish(&self, requests: &mut Self::Requests, which: Range<usize>) -> Result<(), TransportError> {
        while !self.test(requests, which.clone())? {
            self.progress();
        }
        Ok(())
    }

    fn test(&self, requests: &mut Self::Requests, which: Range<usize>) -> Result<bool, TransportError> {
        self.rank.meetings.panic_if_aborted();
        self.thread.test(requests, which)
    }

    fn progress(&self) {
        self.rank.meetings.panic_if_aborted();
        self.thread.progress();
    }

    fn truncated(&self) -> TransportError {
        self.thread.truncated()
    }
}

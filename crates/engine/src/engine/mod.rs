//! The engine of a process, and the path of a call through it. It uses all other modules of this crate, and none of them uses it.
//!
//! A call that the cache recognises takes the fast path (`fast_path`); any other goes through the pipeline (`pipeline`).

mod control;
mod entries;
mod fast_path;
mod freeing;
mod incoming;
mod persistent;
mod pipeline;
mod process;
mod remember;

use std::ffi::c_int;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bruckner_config::{Destination, files};
use bruckner_mpi::{Function, Handle, Work, is_pinned};
use bruckner_report::{JobPlacement, RunInfo, Statistics, assemble};
use bruckner_schedule::Level;

use crate::Error;
use crate::backend::Backend;
use crate::cache::PassThroughCache;
use crate::communicator::CommEntry;
use crate::error::raise;
use crate::group::InternalComm;
use crate::progress::Active;
use crate::requests::PersistentRequests;

/// The kind of function by which a program made a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryPoint {
    /// A function of the library's own API. The library handles the call if it can, and returns an error for invalid arguments.
    Api,
    /// An intercepted MPI function. Unsupported calls are passed through.
    Mpi,
}

/// The engine of a process, or of a rank that is a thread.
pub struct Engine<B: Backend> {
    backend: &'static B,
    /// The internal communicator of `MPI_COMM_WORLD`, once there is one.
    internal: Mutex<Option<Arc<InternalComm<B>>>>,
    /// The number of communicators with an internal communicator of their own.
    private: AtomicUsize,
    active: Arc<Active>,
    requests: PersistentRequests<B>,
    statistics: Arc<Statistics>,
    natives: PassThroughCache,
    /// Whether the caches recognise earlier calls; false if results are compared with the MPI's own (`BRUCKNER_CHECK`).
    recognises: AtomicBool,
    /// Whether calls are counted for a report; if so, no call may bypass the engine.
    counts: AtomicBool,
    /// Whether any communicator ever got an entry.
    keeps: AtomicBool,
    /// The entry shared by all communicators that are being freed.
    being_freed: Arc<CommEntry<B>>,
    /// MPI functions whose calls bypass the engine, as bits; all functions until there is an internal communicator.
    left: AtomicU16,
}

/// Facts about `MPI_COMM_WORLD`, to be shown to a user.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Number of ranks.
    pub ranks: u32,
    /// Topology of the ranks, as text.
    pub topology: String,
    /// Whether the ranks of each node have shared memory.
    pub shared_memory: bool,
    /// Whether ranks of a node can read each other's buffers.
    pub reads: bool,
    /// Whether processes outnumber the cores that they may use.
    pub oversubscribed: bool,
    /// Messages about invalid settings.
    pub complaints: Vec<String>,
}

impl<B: Backend> Engine<B> {
    /// Creates an engine. While operations are started, the MPI calls the function `inside` in each of its waits.
    pub fn new(backend: &'static B, inside: Work) -> Engine<B> {
        Engine {
            backend,
            internal: Mutex::new(None),
            private: AtomicUsize::new(0),
            active: Arc::default(),
            requests: PersistentRequests::new(backend, inside),
            statistics: Arc::default(),
            natives: PassThroughCache::new(),
            recognises: AtomicBool::new(true),
            counts: AtomicBool::new(false),
            keeps: AtomicBool::new(false),
            being_freed: CommEntry::being_freed(),
            left: AtomicU16::new(u16::MAX),
        }
    }

    /// Makes the internal communicator. Collective over `MPI_COMM_WORLD`; a second call does nothing.
    pub fn init(&self) -> Result<(), Error> {
        self.make_internal_comm().map(|_| ())
    }

    /// Whether calls of an MPI function bypass the engine.
    #[inline]
    pub fn bypasses(&self, function: Function) -> bool {
        self.left.load(Ordering::Relaxed) & (1 << function as u8) != 0
    }

    /// Returns the backend: a real MPI, or ranks that are threads.
    #[inline]
    pub fn backend(&self) -> &'static B {
        self.backend
    }

    /// Returns the MPI persistent requests that the library handles or counts.
    #[inline]
    pub fn requests(&self) -> &PersistentRequests<B> {
        &self.requests
    }

    /// Advances all started operations; returns whether any is not yet done. `inside` is true if the MPI calls this in one of its waits.
    pub fn advance(&self, inside: bool) -> bool {
        self.active.advance(inside);
        !self.active.is_empty()
    }

    /// Returns the internal communicator, if there is one.
    fn internal_comm(&self) -> Option<Arc<InternalComm<B>>> {
        self.internal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the internal communicator, made at first use. Collective over `MPI_COMM_WORLD`.
    fn make_internal_comm(&self) -> Result<Arc<InternalComm<B>>, Error> {
        if let Some(internal) = self.internal_comm() {
            return Ok(internal);
        }
        let made = Arc::new(InternalComm::new(self.backend, self.backend.comm_world(), self.active.clone())?);
        self.recognises.store(made.settings.check_interval == 0, Ordering::Relaxed);
        self.counts.store(made.settings.report.is_some(), Ordering::Relaxed);
        *self.internal.lock().unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
        Ok(made)
    }

    /// Writes the report and drops everything that needs MPI, before MPI is finalised. Collective over `MPI_COMM_WORLD`.
    pub fn finalize(&self) {
        let internal = self.internal.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.left.store(u16::MAX, Ordering::Release);
        if let Some(internal) = &internal {
            self.report(internal);
        }
        let backend = self.backend.comm_world();
        if self.backend.attached(backend).is_some() {
            self.backend.detach(backend);
        }
        self.backend.advance_generation();
        entries::forget_recent();
        if let Some(internal) = internal.and_then(Arc::into_inner) {
            self.backend.free(internal.comm);
        }
    }

    fn report(&self, internal: &InternalComm<B>) {
        let Some(to) = &internal.settings.report else { return };
        // A failure to collect the report has no caller to return to, so it is printed.
        let texts = match internal.collect(&self.statistics.text()) {
            Ok(Some(texts)) => texts,
            Ok(None) => return,
            Err(error) => return eprintln!("bruckner: cannot write the report: {error}"),
        };
        let mode = format!("{:?}", internal.settings.mode).to_lowercase();
        let machine = JobPlacement {
            nodes: internal.places.regions(Level::NODE),
            oversubscribed: internal.oversubscribed,
            pinned: is_pinned(),
        };
        let run = RunInfo {
            mpi: self.backend.name(),
            mode: &mode,
            seconds: self.statistics.seconds(),
            machine,
            complaints: &internal.settings.complaints,
        };
        let report = assemble(&texts, &run);
        match to {
            Destination::Stderr => eprint!("{}", report.table()),
            Destination::File(pattern) => {
                let path = files::expand_pattern(pattern);
                match files::create_new(&path).and_then(|(mut file, other)| {
                    file.write_all(report.json().as_bytes())?;
                    Ok(other)
                }) {
                    Ok(None) => {}
                    Ok(Some(other)) => eprintln!(
                        "bruckner: {} already exists; the report was written to {}",
                        path.display(),
                        other.display()
                    ),
                    Err(error) => {
                        eprintln!("bruckner: cannot write the report to {} (BRUCKNER_REPORT): {error}", path.display());
                    }
                }
            }
        }
    }

    /// Raises an error on a user's communicator, as MPI would, and returns its error code.
    pub fn raise(&self, comm: Handle, error: &Error) -> c_int {
        raise(self.backend, comm, error)
    }
}

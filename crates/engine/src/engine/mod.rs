//! The engine of a process: the way of a call. It uses all other modules of this crate, and none of them uses it.
//!
//! A call that came before takes the fast path (`fast_path`); any other goes through the pipeline (`pipeline`).

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
use crate::requests::Requests;

/// The function by which a call came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryPoint {
    /// A function of the library's own. Its caller wants the library to handle the call, and is told about wrong arguments.
    Api,
    /// An intercepted function of MPI. Calls that are not understood are passed through.
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
    requests: Requests<B>,
    statistics: Arc<Statistics>,
    natives: PassThroughCache,
    /// Whether calls that came before are recognised: not if each may have to be compared.
    recognises: AtomicBool,
    /// Whether calls are counted for a report. Then none may bypass the engine.
    counts: AtomicBool,
    /// Whether any communicator ever got an entry.
    keeps: AtomicBool,
    /// The entry of all communicators that are being freed.
    being_freed: Arc<CommEntry<B>>,
    /// The MPI functions that are not handled, as bits; all, as long as there is no internal communicator.
    left: AtomicU16,
}

/// Facts about `MPI_COMM_WORLD`, for people.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Its ranks.
    pub ranks: u32,
    /// Where they are.
    pub topology: String,
    /// Whether nodes have shared memory.
    pub shared_memory: bool,
    /// Whether ranks of a node can read each other's buffers.
    pub reads: bool,
    /// Whether ranks outnumber cores.
    pub shared_cores: bool,
    /// Complaints about settings.
    pub complaints: Vec<String>,
}

impl<B: Backend> Engine<B> {
    /// An engine. `inside` is what the MPI is to do inside its waits as long as operations are under way.
    pub fn new(backend: &'static B, inside: Work) -> Engine<B> {
        Engine {
            backend,
            internal: Mutex::new(None),
            private: AtomicUsize::new(0),
            active: Arc::default(),
            requests: Requests::new(backend, inside),
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

    /// Whether calls of an MPI function are passed through unseen.
    #[inline]
    pub fn leaves(&self, function: Function) -> bool {
        self.left.load(Ordering::Relaxed) & (1 << function as u8) != 0
    }

    /// The MPI, or ranks that are threads.
    #[inline]
    pub fn backend(&self) -> &'static B {
        self.backend
    }

    /// The persistent requests of MPI that operations stand beside.
    #[inline]
    pub fn requests(&self) -> &Requests<B> {
        &self.requests
    }

    /// Advances all operations that are started; whether any is left.
    pub fn advance(&self, inside: bool) -> bool {
        self.active.advance(inside);
        !self.active.is_empty()
    }

    /// The internal communicator, if there is one.
    fn internal_comm(&self) -> Option<Arc<InternalComm<B>>> {
        self.internal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The internal communicator, made at first use. Collective over `MPI_COMM_WORLD`.
    fn make_internal_comm(&self) -> Result<Arc<InternalComm<B>>, Error> {
        if let Some(internal) = self.internal_comm() {
            return Ok(internal);
        }
        let made = Arc::new(InternalComm::new(self.backend, self.backend.comm_world(), self.active.clone())?);
        self.recognises.store(made.settings.check == 0, Ordering::Relaxed);
        self.counts.store(made.settings.report.is_some(), Ordering::Relaxed);
        *self.internal.lock().unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
        Ok(made)
    }

    /// Writes the report and forgets everything that needs MPI, before it is finalised. Collective over
    /// `MPI_COMM_WORLD`.
    pub fn finalize(&self) {
        let internal = self.internal.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.left.store(u16::MAX, Ordering::Release);
        if let Some(internal) = &internal {
            self.report(internal);
        }
        let backend = self.backend.comm_world();
        if self.backend.kept(backend).is_some() {
            self.backend.forget(backend);
        }
        self.backend.renew();
        entries::forget_recent();
        if let Some(internal) = internal.and_then(Arc::into_inner) {
            self.backend.free(internal.comm);
        }
    }

    fn report(&self, internal: &InternalComm<B>) {
        let Some(to) = &internal.settings.report else { return };
        // There is nobody left to tell of a failure but the user.
        let texts = match internal.collect(&self.statistics.text()) {
            Ok(Some(texts)) => texts,
            Ok(None) => return,
            Err(error) => return eprintln!("bruckner: the report cannot be put together: {error}"),
        };
        let mode = format!("{:?}", internal.settings.mode).to_lowercase();
        let machine = JobPlacement {
            nodes: internal.places.regions(Level::NODE),
            shared_cores: internal.shared_cores,
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
                let path = files::named(pattern);
                match files::create_new(&path).and_then(|(mut file, other)| {
                    file.write_all(report.json().as_bytes())?;
                    Ok(other)
                }) {
                    Ok(None) => {}
                    Ok(Some(other)) => eprintln!(
                        "bruckner: {} is there already; the report is {}",
                        path.display(),
                        other.display()
                    ),
                    Err(error) => eprintln!("bruckner: BRUCKNER_REPORT={}: {error}", path.display()),
                }
            }
        }
    }

    /// Raises an error on a communicator of the user's, as MPI would; what its handler returns.
    pub fn raise(&self, comm: Handle, error: &Error) -> c_int {
        raise(self.backend, comm, error)
    }
}

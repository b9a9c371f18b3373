//! A call on its way through the engine, normalised at most once.

use std::cell::{Cell, OnceCell};

use bruckner_mpi::Handle;

use crate::Error;
use crate::backend::Backend;
use crate::call::Call;
use crate::normalize::{NormalizedCall, alltoallv_layout, normalize};
use crate::refusal::Refusal;

/// A call that came in on a communicator.
pub(super) struct Incoming<'a, B: Backend> {
    backend: &'static B,
    pub(super) call: &'a Call,
    pub(super) comm: Handle,
    normalized: OnceCell<Result<NormalizedCall, Refusal>>,
    /// Bytes of the largest block or of the vector, once it is normalised; 0 if that failed.
    bytes: Cell<Option<u64>>,
}

impl<'a, B: Backend> Incoming<'a, B> {
    pub(super) fn new(backend: &'static B, call: &'a Call, comm: Handle) -> Incoming<'a, B> {
        Incoming { backend, call, comm, normalized: OnceCell::new(), bytes: Cell::new(None) }
    }

    fn normalize(&self, rank: u32, size: u32) -> &Result<NormalizedCall, Refusal> {
        self.normalized.get_or_init(|| {
            let normalized = normalize(self.backend, self.call, rank, size);
            self.bytes.set(Some(normalized.as_ref().map_or(0, |normalized| normalized.signature.bytes())));
            normalized
        })
    }

    /// The call as all ranks plan it. An error is the MPI's, about the communicator.
    pub(super) fn normalized(&self) -> Result<Result<&NormalizedCall, &Refusal>, Error> {
        let (rank, size) = (self.backend.rank(self.comm)?, self.backend.size(self.comm)?);
        Ok(self.normalize(rank, size).as_ref())
    }

    /// The same for this rank of a communicator of this size, to keep.
    pub(super) fn take_normalized(&mut self, rank: u32, size: u32) -> Result<NormalizedCall, Refusal> {
        self.normalize(rank, size);
        self.normalized.take().expect("normalised above")
    }

    /// Bytes of the largest block or of the vector; 0 if the call is not understood.
    pub(super) fn bytes(&self) -> Result<u64, Error> {
        if self.bytes.get().is_none() && !self.backend.is_inter(self.comm)? {
            let _ = self.normalized()?;
        }
        Ok(self.bytes.get().unwrap_or(0))
    }

    /// Whether the call does something, and the MPI will not refuse it before it has talked to others.
    pub(super) fn is_sound(&self) -> Result<bool, Error> {
        Ok(self.normalized()?.is_ok_and(|normalized| !normalized.signature.is_nothing()))
    }

    /// Whether the MPI will not refuse an alltoallv before it has talked to others.
    pub(super) fn is_alltoallv_sound(&self) -> Result<bool, Error> {
        Ok(alltoallv_layout(self.backend, self.call, self.backend.size(self.comm)?).is_ok())
    }
}

//! A call on its way through the engine. It is normalised at most once.

use std::cell::{Cell, OnceCell};

use bruckner_mpi::Handle;

use crate::Error;
use crate::backend::Backend;
use crate::call::Call;
use crate::normalize::{NormalizedCall, alltoallv_layout, normalize};
use crate::refusal::Refusal;

/// A call on a communicator, with its normalised form once that is needed.
pub(super) struct Incoming<'a, B: Backend> {
    backend: &'static B,
    pub(super) call: &'a Call,
    pub(super) comm: Handle,
    normalized: OnceCell<Result<NormalizedCall, Refusal>>,
    /// Bytes of the largest block or of the vector, set when the call is normalised; 0 if normalisation failed.
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

    /// Returns the normalised call, or the reason why the call is not handled. The outer `Err` is an error of the MPI when it is asked for
    /// the rank and size of the communicator.
    pub(super) fn normalized(&self) -> Result<Result<&NormalizedCall, &Refusal>, Error> {
        let (rank, size) = (self.backend.rank(self.comm)?, self.backend.size(self.comm)?);
        Ok(self.normalize(rank, size).as_ref())
    }

    /// Takes the normalised call out, for rank `rank` of a communicator of `size` ranks.
    pub(super) fn take_normalized(&mut self, rank: u32, size: u32) -> Result<NormalizedCall, Refusal> {
        self.normalize(rank, size);
        self.normalized.take().expect("normalised above")
    }

    /// Returns the bytes of the largest block or of the vector; 0 if the call cannot be normalised.
    pub(super) fn bytes(&self) -> Result<u64, Error> {
        if self.bytes.get().is_none() && !self.backend.is_inter(self.comm)? {
            let _ = self.normalized()?;
        }
        Ok(self.bytes.get().unwrap_or(0))
    }

    /// Whether the call is valid, so that the MPI does not reject it before it communicates, and is not a zero-byte call.
    pub(super) fn is_sound(&self) -> Result<bool, Error> {
        Ok(self.normalized()?.is_ok_and(|normalized| !normalized.signature.is_nothing()))
    }

    /// Whether an alltoallv is valid, so that the MPI does not reject it before it communicates.
    pub(super) fn is_alltoallv_sound(&self) -> Result<bool, Error> {
        Ok(alltoallv_layout(self.backend, self.call, self.backend.size(self.comm)?).is_ok())
    }
}

//! Normalisation of calls: the signature that all ranks share, which is planned, and the layout of this rank's buffers.
//!
//! Plans depend only on the [`CallSignature`], which all ranks share. Datatypes of one type signature, displacements and addresses may
//! differ between ranks; they only decide how a buffer is staged. There is a file for each family of collectives.

mod alltoallv;
mod invalid;
mod layout;
mod movement;
mod operation;
mod reductions;

use std::ffi::c_int;

use bruckner_choose::{Name, Question};
use bruckner_mpi::Function;
use bruckner_runtime::{Compiled, Reduction};
use bruckner_schedule::{Collective, Counts, Order, Problem};

pub(crate) use alltoallv::alltoallv_layout;
pub(crate) use layout::BufferLayout;
pub(crate) use operation::{Combine, UserOp};

use crate::Error;
use crate::backend::Backend;
use crate::call::{Call, Count, List};
use crate::refusal::Refusal;

/// The part of a call that all ranks share.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CallSignature {
    pub(crate) name: Name,
    /// The problem to solve, with one piece for each block until an algorithm cuts blocks into several.
    pub(crate) problem: Problem,
    pub(crate) combine: Combine,
}

impl CallSignature {
    /// Returns the signature of a call that moves data without reducing it.
    fn moves(name: Name, collective: Collective, ranks: u32, counts: Counts, element: u32) -> CallSignature {
        let problem = Problem { collective, ranks, counts, pieces: 1, element, order: Order::Any };
        CallSignature { name, problem, combine: Combine::Nothing }
    }

    /// Returns the properties of the call by which an algorithm is chosen.
    pub(crate) fn question(&self) -> Question<'_> {
        Question { name: self.name, problem: &self.problem, is_order_sensitive: self.combine.is_order_sensitive() }
    }

    /// Whether this is a zero-byte call: no rank sends data, so no rank needs to wait for another.
    pub(crate) fn is_nothing(&self) -> bool {
        self.name != Name::Barrier && !self.is_local() && self.problem.largest_block() == 0
    }

    /// Whether the collective has a root: ranks that only send or only receive may then leave before others have entered.
    pub(crate) fn is_rooted(&self) -> bool {
        self.name.is_rooted()
    }

    /// Whether each rank knows only its own sizes, as in an alltoallv.
    pub(crate) fn is_local(&self) -> bool {
        self.problem.counts == Counts::Local
    }

    /// Returns the bytes of the largest block, or of the whole vector of a reduction; 0 if each rank knows only its own sizes.
    pub(crate) fn bytes(&self) -> u64 {
        self.problem.largest_block() * u64::from(self.problem.element)
    }
}

/// A normalised call: the shared signature and the layout of this rank's buffers.
#[derive(Clone, Debug)]
pub(crate) struct NormalizedCall {
    pub(crate) signature: CallSignature,
    pub(crate) input: BufferLayout,
    pub(crate) output: BufferLayout,
    /// Whether the input lies in the output's memory. It must then be copied before the execution, unless the plan reads all input before
    /// it writes.
    pub(crate) overlaps: bool,
    /// Bytes of this rank's packed input and output, by the counts that all ranks share.
    pub(crate) bytes: (usize, usize),
    /// Actual and expected bytes of a block of this rank's input, if they differ. That is an error, but only this rank can see it, so it
    /// still takes part in the collective.
    pub(crate) misfit: Option<(usize, usize)>,
    pub(crate) user_op: Option<UserOp>,
}

impl NormalizedCall {
    /// Creates a call whose input and output do not overlap and have the expected sizes.
    fn plain(
        signature: CallSignature,
        input: BufferLayout,
        output: BufferLayout,
        bytes: (usize, usize),
    ) -> NormalizedCall {
        NormalizedCall { signature, input, output, overlaps: false, bytes, misfit: None, user_op: None }
    }

    /// Determines whether the bytes of the user's datatypes lie in the order in which they are sent. Only needed if the library handles
    /// the call.
    pub(crate) fn look_closer(&mut self, backend: &impl Backend) {
        for side in [&mut self.input, &mut self.output] {
            side.determine_order(backend);
            *side = std::mem::replace(side, BufferLayout::None).settled();
        }
    }

    /// Whether a plan works directly on the user's buffers. `in_place` allows input and output to overlap.
    pub(crate) fn is_direct(&self, compiled: &Compiled, in_place: bool, device: bool) -> bool {
        let kept = matches!(self.output, BufferLayout::AlreadyInPlace) && !compiled.only_reads;
        let staged = self.input.is_staged(device) || self.output.is_staged(device);
        !staged && !kept && (in_place || !self.overlaps)
    }

    /// Whether a plan works directly on the user's buffers, except for an output of pairs with padding, which is copied afterwards.
    pub(crate) fn is_direct_or_padded(&self, compiled: &Compiled, device: bool) -> bool {
        let padded = self.output.pair().is_some() && !device && !self.input.is_staged(device);
        padded || self.is_direct(compiled, true, device)
    }

    /// Returns the bytes of memory that the staged input needs.
    pub(crate) fn staged_input(&self) -> usize {
        // Each block starts at its expected offset; if blocks are too long, the last one extends past the expected end.
        self.bytes.0 + self.misfit.map_or(0, |(given, wanted)| given.saturating_sub(wanted))
    }

    /// Returns a truncation error if this rank sent more data than the others receive from it. The call was carried out nevertheless.
    pub(crate) fn truncation_error(&self, backend: &impl Backend) -> Result<(), Error> {
        match self.misfit {
            Some((given, wanted)) if given > wanted => Err(Error::Mpi(backend.truncated())),
            _ => Ok(()),
        }
    }

    /// Returns the reduction for a plan of this call.
    pub(crate) fn reduction<B: Backend>(&self, backend: &'static B) -> Reduction {
        match (self.signature.combine, self.user_op) {
            (Combine::UserOp, Some(user_op)) => user_op.reduction(backend),
            (combine, _) => combine.kernel(),
        }
    }
}

/// Reads a list of counts, one for each rank; an error if one is negative.
fn read_counts(numbers: List, size: u32) -> Result<Vec<usize>, Error> {
    read_displacements(numbers, size).into_iter().map(to_count).collect()
}

/// Reads a list of displacements, one for each rank.
fn read_displacements(numbers: List, size: u32) -> Vec<i64> {
    // SAFETY: MPI requires a list to have one number for each rank.
    unsafe { numbers.read(size) }
}

fn to_count(count: Count) -> Result<usize, Error> {
    usize::try_from(count).map_err(|_| Error::Negative(count))
}

fn check_root(root: c_int, size: u32) -> Result<u32, Error> {
    u32::try_from(root).ok().filter(|root| *root < size).ok_or_else(|| {
        Error::Argument(format!("root {root} is not a rank of the communicator, which has {size} ranks"))
    })
}

/// Normalises a call for rank `rank` of `size`. Returns an error only for a mistake that MPI detects before it communicates. With a
/// mistake that only this rank can see, such as a block that is too long, the rank still takes part in the collective.
pub(crate) fn normalize(backend: &impl Backend, call: &Call, rank: u32, size: u32) -> Result<NormalizedCall, Refusal> {
    invalid::not_in_place(backend, call, rank)?;
    invalid::not_aliased(backend, call, rank)?;
    match call.function {
        Function::Barrier => Ok(movement::barrier(size)),
        Function::Allgather => movement::allgather(backend, call, rank, size),
        Function::Allgatherv => movement::allgatherv(backend, call, rank, size),
        Function::Alltoall => movement::alltoall(backend, call, size),
        Function::Alltoallv => Ok(movement::alltoallv(size)),
        Function::Bcast => movement::bcast(backend, call, rank, size),
        Function::Allreduce | Function::ReduceScatter | Function::ReduceScatterBlock | Function::Reduce => {
            reductions::reduction(backend, call, rank, size)
        }
    }
}

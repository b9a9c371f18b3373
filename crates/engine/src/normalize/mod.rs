//! From a call to what is planned: the problem that all ranks share, and how this rank's buffers lie.
//!
//! What may differ between ranks (datatypes of one signature, displacements, addresses) only decides how a buffer is
//! staged; what all ranks share, the [`CallSignature`], decides what is planned. There is a file for each family of collectives.

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
    /// Its blocks in one piece each, until an algorithm wants more.
    pub(crate) problem: Problem,
    pub(crate) combine: Combine,
}

impl CallSignature {
    /// A call that moves data.
    fn moves(name: Name, collective: Collective, ranks: u32, counts: Counts, element: u32) -> CallSignature {
        let problem = Problem { collective, ranks, counts, pieces: 1, element, order: Order::Any };
        CallSignature { name, problem, combine: Combine::Nothing }
    }

    /// The question that algorithms are chosen by.
    pub(crate) fn question(&self) -> Question<'_> {
        Question { name: self.name, problem: &self.problem, shows_order: self.combine.shows_order() }
    }

    /// Whether nobody gives anything to anybody: then nobody need wait for anybody.
    pub(crate) fn is_nothing(&self) -> bool {
        self.name != Name::Barrier && !self.is_local() && self.problem.largest() == 0
    }

    /// Whether ranks may leave before others have come: nobody waits for those who only receive, or only give.
    pub(crate) fn is_rooted(&self) -> bool {
        self.name.is_rooted()
    }

    /// Whether each rank knows only its own sizes.
    pub(crate) fn is_local(&self) -> bool {
        self.problem.counts == Counts::Local
    }

    /// Bytes of the largest block, or of the vector.
    pub(crate) fn bytes(&self) -> u64 {
        self.problem.largest() * u64::from(self.problem.element)
    }
}

/// A call that can be planned.
#[derive(Clone, Debug)]
pub(crate) struct NormalizedCall {
    pub(crate) signature: CallSignature,
    pub(crate) input: BufferLayout,
    pub(crate) output: BufferLayout,
    /// Whether the input is read from the output's memory and must be put aside unless the plan reads it all first.
    pub(crate) overlaps: bool,
    /// Bytes of the input and of the output, as all ranks have them.
    pub(crate) bytes: (usize, usize),
    /// How long a block of this rank's really is, and how long it should be, where it gives more or less than is received.
    /// That is wrong, but only it knows: it takes part all the same.
    pub(crate) misfit: Option<(usize, usize)>,
    pub(crate) user_op: Option<UserOp>,
}

impl NormalizedCall {
    /// A call whose buffers lie apart and have the sizes that they should.
    fn plain(
        signature: CallSignature,
        input: BufferLayout,
        output: BufferLayout,
        bytes: (usize, usize),
    ) -> NormalizedCall {
        NormalizedCall { signature, input, output, overlaps: false, bytes, misfit: None, user_op: None }
    }

    /// Finds out about the user's datatypes what matters only where the call is served.
    pub(crate) fn look_closer(&mut self, backend: &impl Backend) {
        for side in [&mut self.input, &mut self.output] {
            side.look_closer(backend);
            *side = std::mem::replace(side, BufferLayout::None).settled();
        }
    }

    /// Whether a plan works on the user's own buffers; input and output that overlap are looked at elsewhere if `in_place`.
    pub(crate) fn is_direct(&self, compiled: &Compiled, in_place: bool, device: bool) -> bool {
        let kept = matches!(self.output, BufferLayout::Kept) && !compiled.only_reads;
        let staged = self.input.is_staged(device) || self.output.is_staged(device);
        !staged && !kept && (in_place || !self.overlaps)
    }

    /// Whether a plan works on the user's own buffers but for an output of pairs with padding, whose data is copied behind it.
    pub(crate) fn is_direct_or_padded(&self, compiled: &Compiled, device: bool) -> bool {
        let padded = self.output.pair().is_some() && !device && !self.input.is_staged(device);
        padded || self.is_direct(compiled, true, device)
    }

    /// How many bytes of room the input takes when it is staged.
    pub(crate) fn staged_input(&self) -> usize {
        // Each block lies where it should begin, and the last of those that are too long goes on behind the end.
        self.bytes.0 + self.misfit.map_or(0, |(given, wanted)| given.saturating_sub(wanted))
    }

    /// The error of a call that was carried out although more was given than is received.
    pub(crate) fn verdict(&self, backend: &impl Backend) -> Result<(), Error> {
        match self.misfit {
            Some((given, wanted)) if given > wanted => Err(Error::Mpi(backend.truncated())),
            _ => Ok(()),
        }
    }

    /// The reduction, for a plan of this call.
    pub(crate) fn reduction<B: Backend>(&self, backend: &'static B) -> Reduction {
        match (self.signature.combine, self.user_op) {
            (Combine::UserOp, Some(user_op)) => user_op.reduction(backend),
            (combine, _) => combine.kernel(),
        }
    }
}

/// Counts, one for each rank.
fn counted(numbers: List, size: u32) -> Result<Vec<usize>, Error> {
    placed(numbers, size).into_iter().map(positive).collect()
}

/// Displacements, one for each rank.
fn placed(numbers: List, size: u32) -> Vec<i64> {
    // SAFETY: MPI asks for one number for each rank.
    unsafe { numbers.read(size) }
}

fn positive(count: Count) -> Result<usize, Error> {
    usize::try_from(count).map_err(|_| Error::Negative(count))
}

fn rooted(root: c_int, size: u32) -> Result<u32, Error> {
    u32::try_from(root)
        .ok()
        .filter(|root| *root < size)
        .ok_or_else(|| Error::Argument(format!("root {root} is not one of {size} ranks")))
}

/// The call as this rank of `size` plans it. An error is one that MPI finds before it talks to other ranks. A mistake that only this rank
/// can know of is none: the rank takes part all the same.
pub(crate) fn normalize(
    backend: &impl Backend,
    call: &Call,
    rank: u32,
    size: u32,
) -> Result<NormalizedCall, Refusal> {
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

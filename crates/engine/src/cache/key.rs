//! The key by which a call is recognised.

use bruckner_mpi::{Function, Handle};

use crate::backend::Backend;
use crate::call::{Amount, Call, Count, List};

/// A plan of a communicator, by number. Valid until plans are forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlanId(pub(crate) usize);

/// The arguments of a call that decide about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallKey {
    /// All but the count, and but for what is listed.
    pub(crate) words: [u64; 4],
    /// The largest, where it is listed.
    pub(crate) count: u64,
    /// The lists, where the call has any.
    pub(crate) listed: Option<ListedCounts>,
}

/// How much each rank has, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListedCounts {
    pub(crate) counts: List,
    pub(crate) displacements: List,
    /// How much this rank gives, if that is said.
    pub(crate) given: Option<Count>,
}

impl CallKey {
    /// Whether calls that differ in nothing but their count are alike: what is given is as much as what is received.
    pub(crate) fn is_one_count(&self) -> bool {
        let [function, .., difference] = self.words;
        let two_counts = [Function::Allgather, Function::Alltoall].map(|function| function as u64);
        !two_counts.contains(&function) || difference == 0
    }
}

/// The key of a call, if its arguments alone decide about it. `size` is how many numbers of a list do.
#[inline(always)]
pub(crate) fn key_of(
    backend: &impl Backend,
    call: &Call,
    size: impl FnOnce() -> Option<u32>,
) -> Option<CallKey> {
    let (function, datatype, root) = (call.function as u64, call.recv.datatype, call.root as u64);
    let mut count = call.recv.amount.each();
    let mut listed = None;
    if let Amount::Listed { counts, displacements } = call.recv.amount {
        let is_given = matches!(call.send.amount, Amount::Each(_)) && !backend.is_in_place(call.send.data);
        listed =
            Some(ListedCounts { counts, displacements, given: is_given.then(|| call.send.amount.each()) });
        // SAFETY: MPI asks for one number for each rank.
        count = unsafe { counts.largest(size()?) };
    }
    let (mut words, count) = match call.function {
        Function::Allreduce | Function::ReduceScatter | Function::ReduceScatterBlock | Function::Reduce => {
            ([function, datatype, call.op, root], count)
        }
        Function::Bcast => ([function, datatype, 0, root], count),
        Function::Allgather | Function::Allgatherv if backend.is_in_place(call.send.data) => {
            ([function, datatype, datatype, 0], count)
        }
        Function::Allgatherv => ([function, datatype, call.send.datatype, 0], count),
        Function::Alltoall if backend.is_in_place(call.send.data) => return None,
        Function::Allgather | Function::Alltoall => {
            let difference = (call.send.amount.each() ^ count) as u64;
            ([function, datatype, call.send.datatype, difference], count)
        }
        Function::Barrier => ([function, 0, 0, 0], 1),
        Function::Alltoallv => return None,
    };
    // What is wrong is looked at more closely.
    if count < 0 {
        return None;
    }
    // Calls of nothing go another way than others, and do not take their place.
    words[3] ^= u64::from(count == 0) << 63;
    Some(CallKey { words, count: count as u64, listed })
}

/// Whether the types and the operation of a call are built in and dense: their handles never mean anything else.
pub(crate) fn is_built_in(backend: &impl Backend, call: &Call) -> bool {
    let is = |datatype: Handle| backend.is_built_in(datatype);
    match call.function {
        Function::Barrier => true,
        Function::Allgather | Function::Allgatherv | Function::Alltoall => {
            is(call.recv.datatype) && (backend.is_in_place(call.send.data) || is(call.send.datatype))
        }
        _ => is(call.recv.datatype) && (call.op == 0 || backend.operation(call.op).is_some()),
    }
}

/// The hash bucket for these arguments.
#[inline(always)]
pub(super) fn bucket(words: &[u64; 4], buckets: usize) -> usize {
    // Handles are addresses, or small numbers with the same upper half; two of them may be the same.
    let second = words[2].rotate_left(3);
    let mixed = words[0] ^ words[1] ^ (words[1] >> 6) ^ second ^ (second >> 6) ^ words[3];
    (mixed ^ (mixed >> 4)) as usize % buckets
}

//! The key by which the caches recognise a call.

use bruckner_mpi::{Function, Handle};

use crate::backend::Backend;
use crate::call::{Amount, Call, Count, List};

/// Number of a plan of a communicator; valid until the communicator drops its plans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlanId(pub(crate) usize);

/// Key of a call: the arguments that decide how it is handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallKey {
    /// All arguments except the count and the lists.
    pub(crate) words: [u64; 4],
    /// The count of the call, or the largest number in its list of counts.
    pub(crate) count: u64,
    /// The lists of counts and displacements, if the call has any.
    pub(crate) listed: Option<ListedCounts>,
}

/// The lists of a call: a count and a displacement for each rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListedCounts {
    pub(crate) counts: List,
    pub(crate) displacements: List,
    /// Number of elements that this rank sends, if the call has a separate count for it, as an allgatherv has.
    pub(crate) given: Option<Count>,
}

impl CallKey {
    /// Whether the same call with another count is handled in the same way. For an allgather or alltoall, that holds only if its send and
    /// receive counts are equal.
    pub(crate) fn is_one_count(&self) -> bool {
        let [function, .., difference] = self.words;
        let two_counts = [Function::Allgather, Function::Alltoall].map(|function| function as u64);
        !two_counts.contains(&function) || difference == 0
    }
}

/// Returns the key of a call, or `None` if the call's arguments alone do not decide how it is handled. `size` returns how many counts of a
/// list are read to find the largest: one for each rank, or none where all calls are passed through. While that is undecided, `size`
/// returns `None`, and the call has no key.
#[inline(always)]
pub(crate) fn key_of(backend: &impl Backend, call: &Call, size: impl FnOnce() -> Option<u32>) -> Option<CallKey> {
    let (function, datatype, root) = (call.function as u64, call.recv.datatype, call.root as u64);
    let mut count = call.recv.amount.each();
    let mut listed = None;
    if let Amount::Listed { counts, displacements } = call.recv.amount {
        let is_given = matches!(call.send.amount, Amount::Each(_)) && !backend.is_in_place(call.send.data);
        listed = Some(ListedCounts { counts, displacements, given: is_given.then(|| call.send.amount.each()) });
        // SAFETY: MPI requires a list to have one number for each rank.
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
    // A call with a negative count has no key, so the pipeline checks it.
    if count < 0 {
        return None;
    }
    // Zero-byte calls are handled differently from others, so they have keys of their own.
    words[3] ^= u64::from(count == 0) << 63;
    Some(CallKey { words, count: count as u64, listed })
}

/// Whether the datatypes and the operation of a call are built in, so that their handles always mean the same objects.
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

/// Returns the hash bucket of these arguments.
#[inline(always)]
pub(super) fn bucket(words: &[u64; 4], buckets: usize) -> usize {
    // Handles are addresses, whose lowest bits are equal, or numbers that differ only in the lowest bits, so both groups of bits are
    // mixed. The second datatype is rotated, because it often equals the first and both would cancel each other.
    let second = words[2].rotate_left(3);
    let mixed = words[0] ^ words[1] ^ (words[1] >> 6) ^ second ^ (second >> 6) ^ words[3];
    (mixed ^ (mixed >> 4)) as usize % buckets
}

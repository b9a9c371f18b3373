//! Compositions: two of the MPI's own collectives in place of one, where the MPI's single function is slower than both together.
//!
//! Both calls use the user's communicator, in place of the original call, so all ranks keep the same order of collectives on it. The
//! second call is made even if the first has failed on this rank, because it may not have failed on others.

use std::ffi::{c_int, c_void};

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_choose::Name;
use bruckner_mpi::{Handle, MpiError};
use bruckner_schedule::Counts;

use crate::Error;
use crate::backend::Backend;
use crate::call::{Call, Count, Lists};
use crate::normalize::{BufferLayout, CallSignature, Combine, NormalizedCall};

/// The two functions of the MPI that make up a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parts {
    /// An allreduce as a reduce and a broadcast.
    ReduceBcast,
    /// An allreduce as a reduce_scatter and an allgather.
    ReduceScatterAllgather,
    /// An allgather as a gather and a broadcast.
    GatherBcast,
}

/// Root of the rooted functions in a composition.
const ROOT: c_int = 0;

impl Parts {
    /// Returns the composition that an expression names for a call, the same on all ranks. `None` if it names no composition, or one that
    /// does not fit the call.
    ///
    /// Compositions handle only built-in element types or bytes: MPIs split broadcasts and gathers between elements, with wrong results if
    /// ranks describe the same data by different datatypes.
    pub(crate) fn of(expression: &Expression, signature: &CallSignature) -> Option<Parts> {
        let Expression::Plain(plain) = expression else { return None };
        // Calls with lists of counts or more than 2 GiB need functions that some MPIs lack or get wrong.
        let all = signature.bytes().saturating_mul(signature.problem.ranks.into());
        let fits = matches!(signature.problem.counts, Counts::Equal(_)) && signature.combine != Combine::UserOp;
        match (plain, signature.name) {
            _ if !fits || all > c_int::MAX as u64 => None,
            (Plain::NativeRooted, Name::Allreduce) => Some(Parts::ReduceBcast),
            (Plain::NativeRooted, Name::Allgather) => Some(Parts::GatherBcast),
            (Plain::NativeRsag, Name::Allreduce) => Some(Parts::ReduceScatterAllgather),
            _ => None,
        }
    }

    /// Runs a call as this composition. `Ok` has the code of the MPI's own functions: 0, or an error that they have already raised.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name.
    pub(crate) unsafe fn run<B: Backend>(
        self,
        backend: &'static B,
        call: &Call,
        normalized: &NormalizedCall,
        comm: Handle,
    ) -> Result<c_int, Error> {
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        unsafe {
            match self {
                Parts::ReduceBcast => reduce_bcast(backend, call, comm),
                Parts::ReduceScatterAllgather => reduce_scatter_allgather(backend, call, normalized, comm),
                Parts::GatherBcast => gather_bcast(backend, normalized, comm),
            }
        }
    }
}

/// Returns the error code of the first of two functions that failed, or 0.
fn joined(first: Result<(), MpiError>, second: Result<(), MpiError>) -> c_int {
    first.and(second).map_or_else(|error| error.code, |()| 0)
}

/// Whether input and output of a reduction are the same memory. Some MPIs accept that in one function and reject it in another.
fn overlaps(backend: &impl Backend, call: &Call) -> bool {
    backend.is_in_place(call.send.data) || call.send.data == call.recv.data
}

unsafe fn reduce_bcast(backend: &impl Backend, call: &Call, comm: Handle) -> Result<c_int, Error> {
    let (recv, count, datatype) = (call.recv.data, call.recv.amount.each(), call.recv.datatype);
    let is_root = backend.rank(comm)? == ROOT as u32;
    // Only the root may pass `MPI_IN_PLACE`, and only the root's output is used.
    let (send, into) = match (overlaps(backend, call), is_root) {
        (true, true) => (backend.in_place().cast_mut(), recv),
        (true, false) => (recv, std::ptr::null_mut()),
        (false, _) => (call.send.data, recv),
    };
    let reduce = Call::reduce(send, into, count, datatype, call.op, ROOT);
    // SAFETY: the buffers have the same elements as in the call, which the caller guarantees.
    let [reduced, given] =
        unsafe { [backend.native(&reduce, comm), backend.native(&Call::bcast(recv, count, datatype, ROOT), comm)] };
    Ok(joined(reduced, given))
}

unsafe fn gather_bcast<B: Backend>(
    backend: &'static B,
    normalized: &NormalizedCall,
    comm: Handle,
) -> Result<c_int, Error> {
    let (own, all) = normalized.bytes;
    let (mut input, mut output) = (Vec::new(), Vec::new());
    let send = match &normalized.input {
        BufferLayout::Direct(data) => *data,
        side => {
            input.resize(normalized.staged_input().max(1), 0u8);
            side.pack(backend, input.as_mut_ptr(), own)?;
            input.as_mut_ptr().cast()
        }
    };
    let recv: *mut c_void = match &normalized.output {
        BufferLayout::Direct(data) => *data,
        _ => {
            output.resize(all.max(1), 0u8);
            output.as_mut_ptr().cast()
        }
    };
    let is_root = backend.rank(comm)? == ROOT as u32;
    let send = if is_root && send == recv { backend.in_place().cast_mut() } else { send };
    let (byte, own) = (backend.byte(), own as Count);
    let gather = Call::allgather(send, own, byte, recv, own, byte);
    // SAFETY: the buffers are bytes of the user's elements, or workspace of the same size.
    let [gathered, given] = unsafe {
        [backend.native_gather(&gather, ROOT, comm), backend.native(&Call::bcast(recv, all as Count, byte, ROOT), comm)]
    };
    let code = joined(gathered, given);
    if code == 0 {
        if !output.is_empty() {
            normalized.output.unpack(backend, output.as_ptr(), all)?;
        }
        normalized.truncation_error(backend)?;
    }
    Ok(code)
}

unsafe fn reduce_scatter_allgather<B: Backend>(
    backend: &'static B,
    call: &Call,
    normalized: &NormalizedCall,
    comm: Handle,
) -> Result<c_int, Error> {
    let (rank, size) = (backend.rank(comm)? as usize, backend.size(comm)? as usize);
    let (recv, datatype) = (call.recv.data, call.recv.datatype);
    let count = call.recv.amount.each() as usize;
    // Block lengths differ by at most one element, and longer blocks come first.
    let counts: Vec<i64> = (0..size).map(|at| ((count + size - 1 - at) / size) as i64).collect();
    let at: Vec<i64> = counts.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n))).collect();
    let element = normalized.signature.problem.element as usize;
    let length = counts[rank] as usize * element;
    // An empty last block would begin at the end of the output, where the input may begin; MPI would take both for the same buffer.
    let before = if length == 0 { 0 } else { at[rank] as usize * element };
    let own = recv.wrapping_byte_add(before);
    let in_place = backend.in_place().cast_mut();
    let overlaps = overlaps(backend, call);
    let (from, to) = if overlaps { (in_place, recv) } else { (call.send.data, own) };
    let mut lists = Lists::default();
    let (counts, at) = (lists.keep(&counts), lists.keep(&at));
    let scatter = Call::reduce_scatter(from, to, counts, datatype, call.op);
    let gather = Call::allgatherv(in_place, 0, datatype, recv, counts, at, datatype);
    // SAFETY: the buffers have the same elements as in the call, and blocks are contiguous.
    let scattered = unsafe { backend.native(&scatter, comm) };
    if overlaps && before > 0 {
        // An in-place reduce_scatter leaves its result at the beginning. It is moved through a copy, because the blocks may overlap or be
        // in device memory.
        let mut block = vec![0u8; length];
        BufferLayout::Direct(recv).pack(backend, block.as_mut_ptr(), length)?;
        BufferLayout::Direct(own).unpack(backend, block.as_ptr(), length)?;
    }
    // SAFETY: the buffers have the same elements as in the call, and blocks are contiguous.
    Ok(joined(scattered, unsafe { backend.native(&gather, comm) }))
}

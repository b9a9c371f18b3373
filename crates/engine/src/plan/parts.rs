//! One collective by two of the MPI's own: where an MPI's function is slower than what it is made of.
//!
//! Both calls go by the user's communicator, in the place of the one that was asked for: collectives there have one order. The second is made
//! though the first has failed on this rank, which may be the only one.

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
    /// An allreduce: a reduce, and a broadcast.
    ReduceBcast,
    /// An allreduce: a reduce_scatter, and an allgather.
    ReduceScatterAllgather,
    /// An allgather: a gather, and a broadcast.
    GatherBcast,
}

/// The rank that everything passes.
const ROOT: c_int = 0;

impl Parts {
    /// The composition that an expression names for a call; the same on all ranks. None if it names no composition, or one that does not
    /// fit the call.
    ///
    /// Elements are built in, or bytes: MPIs cut broadcasts and gathers by elements, and get it wrong where ranks have different types of
    /// one signature.
    pub(crate) fn of(expression: &Expression, signature: &CallSignature) -> Option<Parts> {
        let Expression::Plain(plain) = expression else { return None };
        // What is listed or long needs forms of functions that not every MPI has, or gets right.
        let all = signature.bytes().saturating_mul(signature.problem.ranks.into());
        let fits =
            matches!(signature.problem.counts, Counts::Equal(_)) && signature.combine != Combine::UserOp;
        match (plain, signature.name) {
            _ if !fits || all > c_int::MAX as u64 => None,
            (Plain::NativeRooted, Name::Allreduce) => Some(Parts::ReduceBcast),
            (Plain::NativeRooted, Name::Allgather) => Some(Parts::GatherBcast),
            (Plain::NativeHalves, Name::Allreduce) => Some(Parts::ReduceScatterAllgather),
            _ => None,
        }
    }

    /// Does a call so. `Ok` has what the MPI's own functions returned: 0, or an error that they have raised already.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name.
    pub(crate) unsafe fn run<B: Backend>(
        self,
        backend: &'static B,
        call: &Call,
        normalized: &NormalizedCall,
        comm: Handle,
    ) -> Result<c_int, Error> {
        // SAFETY: as for this function.
        unsafe {
            match self {
                Parts::ReduceBcast => reduce_bcast(backend, call, comm),
                Parts::ReduceScatterAllgather => reduce_scatter_allgather(backend, call, normalized, comm),
                Parts::GatherBcast => gather_bcast(backend, normalized, comm),
            }
        }
    }
}

/// The joined result of two functions.
fn joined(first: Result<(), MpiError>, second: Result<(), MpiError>) -> c_int {
    first.and(second).map_or_else(|error| error.code, |()| 0)
}

/// Whether input and output of a reduction are one memory. Some MPIs forgive that in one function and not in another.
fn overlaps(backend: &impl Backend, call: &Call) -> bool {
    backend.is_in_place(call.send.data) || call.send.data == call.recv.data
}

unsafe fn reduce_bcast(backend: &impl Backend, call: &Call, comm: Handle) -> Result<c_int, Error> {
    let (recv, count, datatype) = (call.recv.data, call.recv.amount.each(), call.recv.datatype);
    let is_root = backend.rank(comm)? == ROOT as u32;
    // Only the root may say that its input is where its output is, and only its output counts.
    let (send, into) = match (overlaps(backend, call), is_root) {
        (true, true) => (backend.in_place().cast_mut(), recv),
        (true, false) => (recv, std::ptr::null_mut()),
        (false, _) => (call.send.data, recv),
    };
    let reduce = Call::reduce(send, into, count, datatype, call.op, ROOT);
    // SAFETY: the same elements as in the call.
    let [reduced, given] = unsafe {
        [backend.native(&reduce, comm), backend.native(&Call::bcast(recv, count, datatype, ROOT), comm)]
    };
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
    // SAFETY: bytes of the user's elements, or as many of ours.
    let [gathered, given] = unsafe {
        [
            backend.native_gather(&gather, ROOT, comm),
            backend.native(&Call::bcast(recv, all as Count, byte, ROOT), comm),
        ]
    };
    let code = joined(gathered, given);
    if code == 0 {
        if !output.is_empty() {
            normalized.output.unpack(backend, output.as_ptr(), all)?;
        }
        normalized.verdict(backend)?;
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
    // As equal as can be, the longer ones first.
    let counts: Vec<i64> = (0..size).map(|at| ((count + size - 1 - at) / size) as i64).collect();
    let at: Vec<i64> = counts.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n))).collect();
    let element = normalized.signature.problem.element as usize;
    let length = counts[rank] as usize * element;
    // Behind the end may be the input, which would be one memory for two buffers.
    let before = if length == 0 { 0 } else { at[rank] as usize * element };
    let own = recv.wrapping_byte_add(before);
    let in_place = backend.in_place().cast_mut();
    let overlaps = overlaps(backend, call);
    let (from, to) = if overlaps { (in_place, recv) } else { (call.send.data, own) };
    let mut lists = Lists::default();
    let (counts, at) = (lists.keep(&counts), lists.keep(&at));
    let scatter = Call::reduce_scatter(from, to, counts, datatype, call.op);
    let gather = Call::allgatherv(in_place, 0, datatype, recv, counts, at, datatype);
    // SAFETY: the same elements as in the call; blocks lie one behind the other.
    let scattered = unsafe { backend.native(&scatter, comm) };
    if overlaps && before > 0 {
        // The result of such a reduce_scatter is at the beginning. Blocks may overlap, and may be in device memory.
        let mut block = vec![0u8; length];
        BufferLayout::Direct(recv).pack(backend, block.as_mut_ptr(), length)?;
        BufferLayout::Direct(own).unpack(backend, block.as_ptr(), length)?;
    }
    // SAFETY: as above.
    Ok(joined(scattered, unsafe { backend.native(&gather, comm) }))
}

//! One collective by two of the MPI's own: where an MPI's function is slower than what it is made of.
//!
//! Both calls go by the user's communicator, in the place of the one that was asked for: collectives there have one order.

use std::ffi::{c_int, c_void};

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_choose::Name;
use bruckner_mpi::{MpiError, Word};
use bruckner_schedule::Counts;

use crate::buffers::{Combine, Common};
use crate::call::{Call, Count, Lists};
use crate::world::World;

/// What a collective is made of.
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
    /// What an expression means for a call, which is the same on all ranks; nothing where it is none of these, or does not fit.
    pub(crate) fn of(expression: &Expression, common: &Common) -> Option<Parts> {
        let Expression::Plain(plain) = expression else { return None };
        // What is listed or long needs forms of functions that not every MPI has.
        let fits = matches!(common.problem.counts, Counts::Equal(_)) && common.bytes() <= c_int::MAX as u64;
        match (plain, common.name) {
            _ if !fits => None,
            (Plain::NativeRooted, Name::Allreduce) => Some(Parts::ReduceBcast),
            (Plain::NativeRooted, Name::Allgather) => Some(Parts::GatherBcast),
            // A block is moved as bytes.
            (Plain::NativeHalves, Name::Allreduce) if common.combine != Combine::Foreign => {
                Some(Parts::ReduceScatterAllgather)
            }
            _ => None,
        }
    }

    /// Does a call so.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name.
    pub(crate) unsafe fn run(self, world: &impl World, call: &Call, comm: Word) -> Result<(), MpiError> {
        // SAFETY: as for this function.
        unsafe {
            match self {
                Parts::ReduceBcast => reduce_bcast(world, call, comm),
                Parts::ReduceScatterAllgather => reduce_scatter_allgather(world, call, comm),
                Parts::GatherBcast => gather_bcast(world, call, comm),
            }
        }
    }
}

unsafe fn reduce_bcast(world: &impl World, call: &Call, comm: Word) -> Result<(), MpiError> {
    let (send, recv, count) = (call.send.data, call.recv.data, call.recv.amount.each());
    let is_root = world.rank(comm)? == ROOT as u32;
    // Only the root may say that its input is where its output is, and only its output counts.
    let (send, into) = match world.is_in_place(send) {
        true if !is_root => (recv, std::ptr::null_mut()),
        _ => (send, recv),
    };
    let reduce = Call::reduce(send, into, count, call.recv.datatype, call.op, ROOT);
    // SAFETY: the same elements as in the call.
    unsafe {
        world.native(&reduce, comm)?;
        world.native(&Call::bcast(recv, count, call.recv.datatype, ROOT), comm)
    }
}

unsafe fn gather_bcast(world: &impl World, call: &Call, comm: Word) -> Result<(), MpiError> {
    let (rank, size) = (world.rank(comm)?, world.size(comm)?);
    let (recv, count) = (call.recv, call.recv.amount.each());
    let mut gather = *call;
    if world.is_in_place(call.send.data) && rank != ROOT as u32 {
        let before = rank as isize * count as isize * world.shape(recv.datatype)?.extent;
        gather.send = recv;
        gather.send.data = recv.data.wrapping_byte_offset(before);
    }
    // SAFETY: the same elements as in the call.
    unsafe {
        world.native_gather(&gather, ROOT, comm)?;
        world.native(&Call::bcast(recv.data, count * Count::from(size), recv.datatype, ROOT), comm)
    }
}

unsafe fn reduce_scatter_allgather(world: &impl World, call: &Call, comm: Word) -> Result<(), MpiError> {
    let (rank, size) = (world.rank(comm)? as usize, world.size(comm)? as usize);
    let (send, recv, datatype) = (call.send.data, call.recv.data, call.recv.datatype);
    let count = call.recv.amount.each() as usize;
    // As equal as can be, the longer ones first.
    let counts: Vec<i64> = (0..size).map(|at| ((count + size - 1 - at) / size) as i64).collect();
    let at: Vec<i64> = counts.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n))).collect();
    let element = world.shape(datatype)?.size;
    // Behind the end may be the input, which would be one memory for two buffers.
    let before = if counts[rank] == 0 { 0 } else { at[rank] as usize * element };
    let own = recv.wrapping_byte_add(before);
    let in_place = world.in_place().cast_mut();
    let overlaps = world.is_in_place(send) || send == recv;
    let (from, to): (*mut c_void, _) = if overlaps { (in_place, recv) } else { (send, own) };
    let mut lists = Lists::default();
    let (counts_list, at_list) = (lists.keep(&counts), lists.keep(&at));
    let scatter = Call::reduce_scatter(from, to, counts_list, datatype, call.op);
    let gather = Call::allgatherv(in_place, 0, datatype, recv, counts_list, at_list, datatype);
    // SAFETY: the same elements as in the call; blocks lie one behind the other.
    unsafe {
        world.native(&scatter, comm)?;
        if overlaps {
            // The result of such a reduce_scatter is at the beginning.
            std::ptr::copy(recv.cast_const().cast::<u8>(), own.cast(), counts[rank] as usize * element);
        }
        world.native(&gather, comm)
    }
}

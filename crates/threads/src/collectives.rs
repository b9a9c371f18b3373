//! Native collectives of ranks that are threads: each rank contributes its packed input to all ranks, and computes its output from the
//! contributions of all.

use std::ffi::c_int;

use bruckner_mpi::{Flavour, Function, Handle, MpiError};
use std::sync::atomic::Ordering;

use crate::{ThreadRank, lock};
use bruckner_engine::backend::{Communicators as _, Datatypes as _, Natives, Way};
use bruckner_engine::call::{Call, UserBuffer};

/// Returns the blocks of a buffer, each as first element and number of elements. A buffer with a single count has one block for each rank
/// if `each` is set, and one block otherwise.
fn blocks(buffer: &UserBuffer, size: u32, each: bool) -> Vec<(usize, usize)> {
    let (counts, at) = buffer.amount.lists();
    // SAFETY: both lists have one entry for each rank, as the MPI functions require.
    let (counts, at) = unsafe { (counts.read(size), at.read(size)) };
    match buffer.amount {
        bruckner_engine::call::Amount::Each(count) if each => {
            (0..size as usize).map(|rank| (rank * count as usize, count as usize)).collect()
        }
        bruckner_engine::call::Amount::Each(count) => vec![(0, count as usize)],
        bruckner_engine::call::Amount::Listed { .. } => {
            counts.iter().zip(&at).map(|(count, at)| (*at as usize, *count as usize)).collect()
        }
    }
}

impl ThreadRank {
    fn packed(&self, buffer: &UserBuffer, blocks: &[(usize, usize)]) -> Result<Vec<Vec<u8>>, MpiError> {
        let shape = self.shape(buffer.datatype)?;
        let pack = |(at, count): &(usize, usize)| {
            let mut bytes = vec![0; count * shape.size];
            let data = buffer.data.wrapping_byte_offset(*at as isize * shape.extent);
            let length = bytes.len();
            // SAFETY: the caller of the collective passes `count` elements, and `bytes` has room for them.
            unsafe { self.pack(Way::Pack, buffer.datatype, data, *count, bytes.as_mut_ptr(), length) }?;
            Ok(bytes)
        };
        blocks.iter().map(pack).collect()
    }

    fn put(&self, buffer: &UserBuffer, (at, count): (usize, usize), bytes: &[u8]) -> Result<(), MpiError> {
        let shape = self.shape(buffer.datatype)?;
        if bytes.len() > count * shape.size {
            return Err(self.truncated());
        }
        let data = buffer.data.wrapping_byte_offset(at as isize * shape.extent);
        let count = bytes.len() / shape.size.max(1);
        let (from, length) = (bytes.as_ptr().cast_mut(), bytes.len());
        // SAFETY: the caller of the collective provides room for `count` elements.
        unsafe { self.pack(Way::Unpack, buffer.datatype, data, count, from, length) }
    }

    /// Packs this rank's contribution: blocks, each preceded by its length.
    fn input(&self, call: &Call, comm: Handle) -> Result<Vec<u8>, MpiError> {
        let (rank, size) = (self.rank(comm)?, self.size(comm)?);
        let in_place = self.is_in_place(call.send.data);
        let given = if in_place { &call.recv } else { &call.send };
        let mine = match call.function {
            Function::Barrier => Vec::new(),
            Function::Bcast if rank != call.root as u32 => Vec::new(),
            Function::Allgather | Function::Allgatherv if in_place => {
                let own = blocks(given, size, true)[rank as usize];
                self.packed(given, &[own])?
            }
            Function::Alltoall | Function::Alltoallv => self.packed(given, &blocks(given, size, true))?,
            Function::ReduceScatterBlock => self.packed(given, &blocks(given, size, true))?,
            Function::ReduceScatter => {
                let counts: Vec<usize> = blocks(given, size, true).iter().map(|(_, count)| *count).collect();
                let starts = counts.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n)));
                self.packed(given, &starts.zip(counts.iter().copied()).collect::<Vec<_>>())?
            }
            _ => self.packed(given, &blocks(given, size, false))?,
        };
        Ok(mine
            .iter()
            .flat_map(|block| (block.len() as u64).to_ne_bytes().into_iter().chain(block.iter().copied()))
            .collect())
    }

    /// Writes this rank's output from the contributions of all ranks.
    fn output(&self, call: &Call, comm: Handle, all: &[Vec<u8>]) -> Result<(), MpiError> {
        let (rank, size) = (self.rank(comm)? as usize, self.size(comm)?);
        let brought: Vec<Vec<&[u8]>> = all.iter().map(|bytes| unframed(bytes)).collect();
        let of = |each: bool| blocks(&call.recv, size, each);
        match call.function {
            Function::Barrier => Ok(()),
            Function::Bcast => match rank == call.root as usize {
                true => Ok(()),
                false => self.put(&call.recv, of(false)[0], brought[call.root as usize][0]),
            },
            Function::Allgather | Function::Allgatherv => {
                (of(true).into_iter().zip(&brought)).try_for_each(|(to, from)| self.put(&call.recv, to, from[0]))
            }
            Function::Alltoall | Function::Alltoallv => {
                (of(true).into_iter().zip(&brought)).try_for_each(|(to, from)| self.put(&call.recv, to, from[rank]))
            }
            Function::Reduce if rank != call.root as usize => Ok(()),
            Function::Allreduce | Function::Reduce => {
                self.put(&call.recv, of(false)[0], &self.reduced(call, &brought, 0)?)
            }
            Function::ReduceScatter | Function::ReduceScatterBlock => {
                let (_, count) = of(true)[rank];
                self.put(&call.recv, (0, count), &self.reduced(call, &brought, rank)?)
            }
        }
    }

    /// Reduces one block of all ranks, in rank order.
    fn reduced(&self, call: &Call, brought: &[Vec<&[u8]>], block: usize) -> Result<Vec<u8>, MpiError> {
        let (last, before) = brought.split_last().expect("there is a rank");
        let mut result = last[block].to_vec();
        let count = result.len() / self.shape(call.recv.datatype)?.size.max(1);
        for left in before.iter().rev().map(|blocks| blocks[block]) {
            if left.len() != result.len() {
                return Err(self.truncated());
            }
            let (datatype, op) = (call.recv.datatype, call.op);
            // SAFETY: both sides hold `count` packed elements, because the types that are reduced here have no gaps.
            unsafe { self.reduce_local(left.as_ptr(), result.as_mut_ptr(), count as i32, datatype, op) }?;
        }
        Ok(result)
    }
}

/// Splits a contribution into its blocks, each of which is preceded by its length.
fn unframed(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut blocks = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (block, rest) = rest.split_at(u64::from_ne_bytes(*length) as usize);
        blocks.push(block);
        bytes = rest;
    }
    blocks
}

impl Natives for ThreadRank {
    fn has(&self, _function: Function, _flavour: Flavour, _wide: bool) -> bool {
        true
    }

    unsafe fn native(&self, call: &Call, comm: Handle) -> Result<(), MpiError> {
        self.notify_leave();
        self.natives.fetch_add(1, Ordering::Relaxed);
        let all = self.meetings.allgather(comm, self.number, self.input(call, comm)?);
        self.output(call, comm, &all)
    }

    unsafe fn native_gather(&self, call: &Call, root: c_int, comm: Handle) -> Result<(), MpiError> {
        let all = self.meetings.allgather(comm, self.number, self.input(call, comm)?);
        if self.rank(comm)? == root as u32 { self.output(call, comm, &all) } else { Ok(()) }
    }

    unsafe fn native_start(&self, call: &Call, comm: Handle) -> Result<u64, MpiError> {
        let ticket = self.meetings.contribute(comm, self.number, self.input(call, comm)?);
        let mut started = lock(&self.started);
        let request = (1..).find(|request| !started.contains_key(request)).expect("there are many numbers");
        started.insert(request, (ticket, comm, *call));
        Ok(request)
    }

    fn native_test(&self, request: &mut u64) -> Result<bool, MpiError> {
        let (ticket, comm, call) = *lock(&self.started).get(request).expect("a request");
        let Some(all) = self.meetings.try_take(ticket) else { return Ok(false) };
        lock(&self.started).remove(request);
        self.output(&call, comm, &all).map(|()| true)
    }
}

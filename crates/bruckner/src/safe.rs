//! The public Rust API: collectives on slices, and plans that borrow their buffers.
//!
//! A [`Communicator`] is made of any MPI communicator by its handle; with the feature `rsmpi`, of an rsmpi communicator by
//! [`Collectives::bruckner`](crate::rsmpi::Collectives::bruckner). Errors are values.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use bruckner_runtime::reduce::Operation;

use crate::call::{Call, Name};
use crate::{Engine, Error, Persistent};

/// An element that can be sent and, mostly, reduced.
pub trait Element: Copy + 'static {
    /// The name of its MPI datatype.
    const MPI_NAME: &'static str;
}

macro_rules! elements {
    ($($t:ty = $name:literal),*) => {$(
        impl Element for $t {
            const MPI_NAME: &'static str = $name;
        }
    )*};
}

elements!(
    i8 = "MPI_INT8_T",
    i16 = "MPI_INT16_T",
    i32 = "MPI_INT32_T",
    i64 = "MPI_INT64_T",
    u8 = "MPI_UINT8_T",
    u16 = "MPI_UINT16_T",
    u32 = "MPI_UINT32_T",
    u64 = "MPI_UINT64_T",
    f32 = "MPI_FLOAT",
    f64 = "MPI_DOUBLE"
);

/// A communicator of the user's.
#[derive(Clone, Copy)]
pub struct Communicator {
    engine: &'static Engine,
    comm: u64,
}

/// A plan that borrows its buffers until it is dropped. See [`Persistent`] for what advances one that is started.
pub struct Plan<'a> {
    plan: Persistent,
    buffers: PhantomData<&'a mut ()>,
}

impl Plan<'_> {
    /// Starts it; it must be awaited before its buffers are looked at.
    pub fn start(&mut self) -> Result<(), Error> {
        // SAFETY: the buffers are borrowed as long as the plan lives, and dropping it waits.
        unsafe { self.plan.start() }
    }

    /// Does what can be done without waiting; whether it is done.
    pub fn test(&mut self) -> Result<bool, Error> {
        self.plan.test()
    }

    /// Waits until it is done.
    pub fn wait(&mut self) -> Result<(), Error> {
        self.plan.wait()
    }

    /// Starts it and waits until it is done.
    pub fn run(&mut self) -> Result<(), Error> {
        // SAFETY: as above.
        unsafe { self.plan.run() }
    }
}

impl Drop for Plan<'_> {
    fn drop(&mut self) {
        if self.plan.is_active() {
            // What is under way uses the buffers; there is nobody to tell of a failure.
            let _ = self.plan.wait();
        }
    }
}

fn op_name(op: Operation) -> &'static str {
    match op {
        Operation::Max => "MPI_MAX",
        Operation::Min => "MPI_MIN",
        Operation::Sum => "MPI_SUM",
        Operation::Prod => "MPI_PROD",
        Operation::LogicalAnd => "MPI_LAND",
        Operation::LogicalOr => "MPI_LOR",
        Operation::LogicalXor => "MPI_LXOR",
        Operation::BitAnd => "MPI_BAND",
        Operation::BitOr => "MPI_BOR",
        Operation::BitXor => "MPI_BXOR",
        Operation::MinLoc => "MPI_MINLOC",
        Operation::MaxLoc => "MPI_MAXLOC",
    }
}

fn length(n: usize) -> Result<c_int, Error> {
    c_int::try_from(n).map_err(|_| Error::Argument(format!("{n} elements are too many for one call")))
}

fn must_be(what: &str, have: usize, want: usize) -> Result<(), Error> {
    if have == want {
        return Ok(());
    }
    Err(Error::Argument(format!("{what} has {have} elements, and must have {want}")))
}

impl Communicator {
    /// Of an MPI communicator by its handle. First use is collective.
    ///
    /// # Safety
    /// A valid handle of a communicator of the MPI that this process uses.
    pub unsafe fn from_handle(handle: u64) -> Result<Communicator, Error> {
        let engine = Engine::get()?;
        Ok(Communicator { engine, comm: engine.handle(handle) })
    }

    /// `MPI_COMM_WORLD`.
    pub fn world() -> Result<Communicator, Error> {
        let engine = Engine::get()?;
        Ok(Communicator { engine, comm: engine.mpi.world() })
    }

    /// This process's rank.
    pub fn rank(&self) -> Result<u32, Error> {
        Ok(self.engine.mpi.rank(self.comm)?)
    }

    /// How many processes there are.
    pub fn size(&self) -> Result<u32, Error> {
        Ok(self.engine.mpi.size(self.comm)?)
    }

    /// Uses these algorithms from now on: `allreduce=locality(node); allgather=sparbit`. Collective.
    pub fn set_algorithms(&self, rules: &str) -> Result<(), Error> {
        self.engine.set_algorithms(self.comm, rules)
    }

    /// The algorithm that last served a collective.
    pub fn algorithm_of(&self, name: Name) -> Result<Option<String>, Error> {
        self.engine.algorithm_of(self.comm, name)
    }

    fn datatype<T: Element>(&self) -> u64 {
        self.engine.constant(T::MPI_NAME).expect("every family has it")
    }

    fn op(&self, op: Operation) -> u64 {
        self.engine.constant(op_name(op)).expect("every family has it")
    }

    fn run(&self, call: &Call) -> Result<(), Error> {
        // SAFETY: each function here has checked lengths against counts.
        unsafe { self.engine.run(call, self.comm) }
    }

    fn plan<'a>(&self, call: Call, algorithm: &str) -> Result<Plan<'a>, Error> {
        // SAFETY: as above; whoever calls this ties the buffers to the plan's life.
        let plan = unsafe { Persistent::new(self.engine, call, self.comm, Some(algorithm)) }?;
        Ok(Plan { plan, buffers: PhantomData })
    }

    /// `MPI_Barrier`.
    pub fn barrier(&self) -> Result<(), Error> {
        self.run(&Call::Barrier)
    }

    fn bcast_call<T: Element>(&self, data: &mut [T], root: u32) -> Result<Call, Error> {
        let (data, count) = (data.as_mut_ptr().cast::<c_void>(), length(data.len())?);
        Ok(Call::Bcast { data, count, datatype: self.datatype::<T>(), root: root as c_int })
    }

    /// `MPI_Bcast`.
    pub fn bcast<T: Element>(&self, data: &mut [T], root: u32) -> Result<(), Error> {
        self.run(&self.bcast_call(data, root)?)
    }

    fn allreduce_call<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: Operation,
    ) -> Result<Call, Error> {
        must_be("the output", output.len(), input.len())?;
        Ok(Call::Allreduce {
            send: input.as_ptr().cast(),
            recv: output.as_mut_ptr().cast(),
            count: length(input.len())?,
            datatype: self.datatype::<T>(),
            op: self.op(op),
        })
    }

    /// `MPI_Allreduce`.
    pub fn allreduce<T: Element>(&self, input: &[T], output: &mut [T], op: Operation) -> Result<(), Error> {
        self.run(&self.allreduce_call(input, output, op)?)
    }

    /// `MPI_Allreduce` in place.
    pub fn allreduce_in_place<T: Element>(&self, data: &mut [T], op: Operation) -> Result<(), Error> {
        self.run(&Call::Allreduce {
            send: self.engine.mpi.in_place(),
            recv: data.as_mut_ptr().cast(),
            count: length(data.len())?,
            datatype: self.datatype::<T>(),
            op: self.op(op),
        })
    }

    /// A plan of `MPI_Allreduce`; an empty algorithm leaves the choice to the library. Collective.
    pub fn allreduce_init<'a, T: Element>(
        &self,
        input: &'a [T],
        output: &'a mut [T],
        op: Operation,
        algorithm: &str,
    ) -> Result<Plan<'a>, Error> {
        self.plan(self.allreduce_call(input, output, op)?, algorithm)
    }

    fn reduce_call<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: Operation,
        root: u32,
    ) -> Result<Call, Error> {
        if self.rank()? == root {
            must_be("the root's output", output.len(), input.len())?;
        }
        Ok(Call::Reduce {
            send: input.as_ptr().cast(),
            recv: output.as_mut_ptr().cast(),
            count: length(input.len())?,
            datatype: self.datatype::<T>(),
            op: self.op(op),
            root: root as c_int,
        })
    }

    /// `MPI_Reduce`; only the root's output is looked at.
    pub fn reduce<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: Operation,
        root: u32,
    ) -> Result<(), Error> {
        self.run(&self.reduce_call(input, output, op, root)?)
    }

    fn allgather_call<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<Call, Error> {
        must_be("the output", output.len(), input.len() * self.size()? as usize)?;
        let (count, datatype) = (length(input.len())?, self.datatype::<T>());
        Ok(Call::Allgather {
            send: input.as_ptr().cast(),
            send_count: count,
            send_type: datatype,
            recv: output.as_mut_ptr().cast(),
            recv_count: count,
            recv_type: datatype,
        })
    }

    /// `MPI_Allgather`.
    pub fn allgather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        self.run(&self.allgather_call(input, output)?)
    }

    /// A plan of `MPI_Allgather`. Collective.
    pub fn allgather_init<'a, T: Element>(
        &self,
        input: &'a [T],
        output: &'a mut [T],
        algorithm: &str,
    ) -> Result<Plan<'a>, Error> {
        self.plan(self.allgather_call(input, output)?, algorithm)
    }

    /// `MPI_Allgatherv`, blocks one behind the other: rank r's has `counts[r]` elements.
    pub fn allgatherv<T: Element>(&self, input: &[T], output: &mut [T], counts: &[i32]) -> Result<(), Error> {
        must_be("the list of counts", counts.len(), self.size()? as usize)?;
        must_be("the output", output.len(), counts.iter().map(|n| (*n).max(0) as usize).sum())?;
        must_be("the input", input.len(), counts[self.rank()? as usize].max(0) as usize)?;
        let at: Vec<c_int> = counts.iter().scan(0, |end, n| Some(std::mem::replace(end, *end + n))).collect();
        self.run(&Call::Allgatherv {
            send: input.as_ptr().cast(),
            send_count: length(input.len())?,
            send_type: self.datatype::<T>(),
            recv: output.as_mut_ptr().cast(),
            recv_counts: counts.as_ptr(),
            displacements: at.as_ptr(),
            recv_type: self.datatype::<T>(),
        })
    }

    fn reduce_scatter_block_call<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: Operation,
    ) -> Result<Call, Error> {
        must_be("the input", input.len(), output.len() * self.size()? as usize)?;
        Ok(Call::ReduceScatterBlock {
            send: input.as_ptr().cast(),
            recv: output.as_mut_ptr().cast(),
            count: length(output.len())?,
            datatype: self.datatype::<T>(),
            op: self.op(op),
        })
    }

    /// `MPI_Reduce_scatter_block`.
    pub fn reduce_scatter_block<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: Operation,
    ) -> Result<(), Error> {
        self.run(&self.reduce_scatter_block_call(input, output, op)?)
    }

    /// A plan of `MPI_Reduce_scatter_block`. Collective.
    pub fn reduce_scatter_block_init<'a, T: Element>(
        &self,
        input: &'a [T],
        output: &'a mut [T],
        op: Operation,
        algorithm: &str,
    ) -> Result<Plan<'a>, Error> {
        self.plan(self.reduce_scatter_block_call(input, output, op)?, algorithm)
    }

    fn alltoall_call<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<Call, Error> {
        must_be("the output", output.len(), input.len())?;
        let size = self.size()? as usize;
        if !input.len().is_multiple_of(size) {
            return Err(Error::Argument(format!("{} elements are no blocks for {size} ranks", input.len())));
        }
        let (count, datatype) = (length(input.len() / size)?, self.datatype::<T>());
        Ok(Call::Alltoall {
            send: input.as_ptr().cast(),
            send_count: count,
            send_type: datatype,
            recv: output.as_mut_ptr().cast(),
            recv_count: count,
            recv_type: datatype,
        })
    }

    /// `MPI_Alltoall`.
    pub fn alltoall<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        self.run(&self.alltoall_call(input, output)?)
    }

    /// A plan of `MPI_Alltoall`. Collective.
    pub fn alltoall_init<'a, T: Element>(
        &self,
        input: &'a [T],
        output: &'a mut [T],
        algorithm: &str,
    ) -> Result<Plan<'a>, Error> {
        self.plan(self.alltoall_call(input, output)?, algorithm)
    }

    /// A plan of `MPI_Bcast`. Collective.
    pub fn bcast_init<'a, T: Element>(
        &self,
        data: &'a mut [T],
        root: u32,
        algorithm: &str,
    ) -> Result<Plan<'a>, Error> {
        self.plan(self.bcast_call(data, root)?, algorithm)
    }

    /// A plan of `MPI_Reduce`. Collective.
    pub fn reduce_init<'a, T: Element>(
        &self,
        input: &'a [T],
        output: &'a mut [T],
        op: Operation,
        root: u32,
        algorithm: &str,
    ) -> Result<Plan<'a>, Error> {
        self.plan(self.reduce_call(input, output, op, root)?, algorithm)
    }

    /// A plan of `MPI_Barrier`. Collective.
    pub fn barrier_init(&self, algorithm: &str) -> Result<Plan<'static>, Error> {
        self.plan(Call::Barrier, algorithm)
    }
}

//! The public Rust API: collectives on slices, which are run at once or planned. A plan borrows its buffers.
//!
//! A [`Communicator`] is made from the handle of any MPI communicator, or with the feature `rsmpi` from an rsmpi communicator by
//! [`Collectives::bruckner`](crate::rsmpi::Collectives::bruckner). Errors are returned as values.

use std::ffi::{c_int, c_void};

use bruckner_engine::call::{Call, Count, Lists};
use bruckner_engine::{Engine, Error, Mpi, Name};
use bruckner_runtime::reduce::{ElementType, Operation, Reduction};

use crate::collective::Collective;

mod sealed {
    use bruckner_runtime::reduce::ElementType;

    /// MPI datatype of an element type. The trait is sealed, because a datatype of the wrong size would let MPI write beyond a slice.
    pub trait Sealed: Copy + 'static {
        /// Name of the MPI datatype.
        const MPI_NAME: &'static str;
        /// Element type for the reduction kernels.
        const KIND: ElementType;
    }
}

/// Element type of a collective's data: one of Rust's integer and floating-point types of up to 64 bits. Most operations can reduce it.
///
/// ```compile_fail
/// #[derive(Clone, Copy)]
/// struct Mine(u8);
/// impl bruckner::Element for Mine {}
/// ```
pub trait Element: sealed::Sealed {}

macro_rules! elements {
    ($($t:ty = $name:literal $kind:ident),*) => {$(
        impl sealed::Sealed for $t {
            const MPI_NAME: &'static str = $name;
            const KIND: ElementType = ElementType::$kind;
        }
        impl Element for $t {}
    )*};
}

elements!(
    i8 = "MPI_INT8_T" I8,
    i16 = "MPI_INT16_T" I16,
    i32 = "MPI_INT32_T" I32,
    i64 = "MPI_INT64_T" I64,
    u8 = "MPI_UINT8_T" U8,
    u16 = "MPI_UINT16_T" U16,
    u32 = "MPI_UINT32_T" U32,
    u64 = "MPI_UINT64_T" U64,
    f32 = "MPI_FLOAT" F32,
    f64 = "MPI_DOUBLE" F64
);

/// Handle of an MPI communicator.
#[derive(Clone, Copy)]
pub struct Communicator {
    pub(crate) engine: &'static Engine<Mpi>,
    pub(crate) comm: u64,
}

/// Input of a rank: elements, or [`InPlace`].
#[derive(Clone, Copy, Debug)]
pub enum Input<'a, T> {
    /// Elements to send or reduce.
    Elements(&'a [T]),
    /// The input is in the output buffer, at the place that MPI specifies for each collective.
    InPlace,
}

/// `MPI_IN_PLACE`: the input is in the output buffer.
#[derive(Clone, Copy, Debug)]
pub struct InPlace;

impl<T> From<InPlace> for Input<'_, T> {
    fn from(_: InPlace) -> Self {
        Input::InPlace
    }
}

impl<'a, T> From<&'a [T]> for Input<'a, T> {
    fn from(elements: &'a [T]) -> Self {
        Input::Elements(elements)
    }
}

impl<'a, T> From<&'a Vec<T>> for Input<'a, T> {
    fn from(elements: &'a Vec<T>) -> Self {
        Input::Elements(elements)
    }
}

impl<'a, T, const N: usize> From<&'a [T; N]> for Input<'a, T> {
    fn from(elements: &'a [T; N]) -> Self {
        Input::Elements(elements)
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

fn defined(op: Operation, kind: ElementType, name: &str) -> Result<(), Error> {
    match Reduction::of(op, kind) {
        Some(_) => Ok(()),
        None => Err(Error::Argument(format!("{} is not defined for {name}", op_name(op)))),
    }
}

/// Addresses that are passed to MPI for empty slices. The address of an empty slice may be any number, even that of `MPI_IN_PLACE`.
static EMPTY_ADDRESSES: [u64; 2] = [0; 2];

/// Returns the address of an input for MPI.
fn input_address<T>(elements: &[T]) -> *const c_void {
    if elements.is_empty() { (&raw const EMPTY_ADDRESSES[0]).cast() } else { elements.as_ptr().cast() }
}

/// Returns the address of an output for MPI. MPI writes nothing to an empty output.
fn output_address<T>(elements: &mut [T]) -> *mut c_void {
    if elements.is_empty() { (&raw const EMPTY_ADDRESSES[1]).cast_mut().cast() } else { elements.as_mut_ptr().cast() }
}

fn check_len(what: &str, have: usize, want: usize) -> Result<(), Error> {
    if have == want {
        return Ok(());
    }
    Err(Error::Argument(format!("{what} has {have} elements but must have {want}")))
}

/// Returns the displacements of contiguous blocks with the given numbers of elements.
fn displacements(counts: &[usize]) -> Vec<i64> {
    counts.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + *n as i64))).collect()
}

fn to_i64(counts: &[usize]) -> Vec<i64> {
    counts.iter().map(|n| *n as i64).collect()
}

impl Communicator {
    /// Creates a communicator from the handle of an MPI communicator. Its first use is collective.
    ///
    /// # Safety
    /// `handle` is a valid handle of a communicator of the MPI that this process uses.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// // SAFETY: the handle of a valid communicator.
    /// let same = unsafe { bruckner::Communicator::from_handle(world.handle()) }?;
    /// assert_eq!(same.size()?, world.size()?);
    /// # Ok(()) });
    /// ```
    pub unsafe fn from_handle(handle: u64) -> Result<Communicator, Error> {
        let engine = Engine::get()?;
        Ok(Communicator { engine, comm: engine.handle(handle) })
    }

    /// Returns `MPI_COMM_WORLD`.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// assert_eq!(bruckner::Communicator::world()?.rank()?, world.rank()?);
    /// # Ok(()) });
    /// ```
    pub fn world() -> Result<Communicator, Error> {
        let engine = Engine::get()?;
        Ok(Communicator { engine, comm: engine.backend().comm_world() })
    }

    /// Creates a communicator of the ranks that share memory with this process. Collective. The communicator is not freed before MPI is
    /// finalised.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// assert!(world.node_communicator()?.size()? <= world.size()?);
    /// # Ok(()) });
    /// ```
    pub fn node_communicator(&self) -> Result<Communicator, Error> {
        Ok(Communicator { engine: self.engine, comm: self.engine.backend().node(self.comm)? })
    }

    /// Splits the communicator: ranks that pass the same `number` form a new communicator, in the same order. Collective.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// let halves = world.split(world.rank()? % 2)?;
    /// assert!(halves.size()? <= world.size()?.div_ceil(2));
    /// # Ok(()) });
    /// ```
    pub fn split(&self, number: u32) -> Result<Communicator, Error> {
        Ok(Communicator { engine: self.engine, comm: self.engine.backend().split(self.comm, number)? })
    }

    /// Returns the handle of the MPI communicator.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// // SAFETY: the handle of a valid communicator.
    /// let same = unsafe { bruckner::Communicator::from_handle(world.handle()) }?;
    /// assert_eq!(same.handle(), world.handle());
    /// # Ok(()) });
    /// ```
    pub fn handle(&self) -> u64 {
        self.comm
    }

    /// Returns the rank of this process.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// assert!(world.rank()? < world.size()?);
    /// # Ok(()) });
    /// ```
    pub fn rank(&self) -> Result<u32, Error> {
        Ok(self.engine.backend().rank(self.comm)?)
    }

    /// Returns the number of ranks.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// assert!(world.size()? > 0);
    /// # Ok(()) });
    /// ```
    pub fn size(&self) -> Result<u32, Error> {
        Ok(self.engine.backend().size(self.comm)?)
    }

    /// Sets the algorithms to use from now on, for example `allreduce=locality(node); allgather=sparbit`. Collective.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// world.set_algorithms("allreduce=recursive-doubling; allgather=ring")?;
    /// assert!(world.set_algorithms("allreduce=rnig").is_err());
    /// # Ok(()) });
    /// ```
    pub fn set_algorithms(&self, rules: &str) -> Result<(), Error> {
        self.engine.set_algorithms(self.comm, rules)
    }

    /// Returns the algorithm that last ran a collective on this communicator, or `None` if the collective has not been called yet.
    ///
    /// ```standalone_crate
    /// # use bruckner::{Name};
    /// # bruckner::example(|world| {
    /// assert_eq!(world.algorithm_of(Name::Alltoall)?, None);
    /// # Ok(()) });
    /// ```
    pub fn algorithm_of(&self, name: Name) -> Result<Option<String>, Error> {
        self.engine.algorithm_of(self.comm, name)
    }

    fn datatype<T: Element>(&self) -> u64 {
        self.engine.constant(T::MPI_NAME).expect("every family has it")
    }

    /// Returns the handle of an operation, or an error if the operation is not defined for the element type, because MPI would abort the
    /// job.
    fn op<T: Element>(&self, op: Operation) -> Result<u64, Error> {
        defined(op, T::KIND, T::MPI_NAME)?;
        Ok(self.engine.constant(op_name(op)).expect("every family has it"))
    }

    fn collective<'a>(&self, call: Call, lists: Lists) -> Collective<'a> {
        Collective::new(self.engine, self.comm, call, lists)
    }

    /// Returns the address of an input, after checking that it has `want` elements.
    fn input<T>(&self, input: &Input<'_, T>, want: usize) -> Result<*const c_void, Error> {
        match input {
            Input::InPlace => Ok(self.engine.backend().in_place()),
            Input::Elements(elements) => {
                check_len("the input", elements.len(), want)?;
                Ok(input_address(elements))
            }
        }
    }

    /// Returns a root if it is one of the ranks, and otherwise an error, because MPI would abort the job.
    fn root(&self, root: u32) -> Result<c_int, Error> {
        let size = self.size()?;
        match root < size {
            true => Ok(root as c_int),
            false => Err(Error::Argument(format!("root {root} is not one of {size} ranks"))),
        }
    }

    /// Creates an `MPI_Barrier`.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// world.barrier()?.run()?;
    /// # Ok(()) });
    /// ```
    pub fn barrier(&self) -> Result<Collective<'static>, Error> {
        Ok(self.collective(Call::barrier(), Lists::default()))
    }

    /// Creates an `MPI_Bcast` of `data` from rank `root`.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// let mut data = if world.rank()? == 0 { [1.5, 2.5] } else { [0.0, 0.0] };
    /// world.bcast(&mut data, 0)?.run()?;
    /// assert_eq!(data, [1.5, 2.5]);
    /// // An invalid root is an error; it does not end the job.
    /// let size = world.size()?;
    /// assert!(world.bcast(&mut data, size).is_err());
    /// # Ok(()) });
    /// ```
    pub fn bcast<'a, T: Element>(&self, data: &'a mut [T], root: u32) -> Result<Collective<'a>, Error> {
        let call = Call::bcast(output_address(data), data.len() as Count, self.datatype::<T>(), self.root(root)?);
        Ok(self.collective(call, Lists::default()))
    }

    /// Creates an `MPI_Allreduce` of vectors as long as `output`.
    ///
    /// ```standalone_crate
    /// # use bruckner::{Operation};
    /// # bruckner::example(|world| {
    /// let mut sum = [0];
    /// world.allreduce(&[1], &mut sum, Operation::Sum)?.run()?;
    /// assert_eq!(sum[0], world.size()?);
    /// # Ok(()) });
    /// ```
    pub fn allreduce<'a, T: Element>(
        &self,
        input: impl Into<Input<'a, T>>,
        output: &'a mut [T],
        op: Operation,
    ) -> Result<Collective<'a>, Error> {
        let call = Call::allreduce(
            self.input(&input.into(), output.len())?,
            output_address(output),
            output.len() as Count,
            self.datatype::<T>(),
            self.op::<T>(op)?,
        );
        Ok(self.collective(call, Lists::default()))
    }

    /// Creates an `MPI_Reduce` to rank `root`. On other ranks the length of the input determines the count, and `output` is ignored. The
    /// root may reduce [`InPlace`].
    ///
    /// ```standalone_crate
    /// # use bruckner::{Operation};
    /// # bruckner::example(|world| {
    /// let mut most = [0];
    /// let mine = [world.rank()?];
    /// match world.rank()? {
    ///     0 => world.reduce(&mine, &mut most, Operation::Max, 0)?.run()?,
    ///     _ => world.reduce(&mine, &mut [], Operation::Max, 0)?.run()?,
    /// }
    /// assert!(world.rank()? != 0 || most[0] == world.size()? - 1);
    /// # Ok(()) });
    /// ```
    pub fn reduce<'a, T: Element>(
        &self,
        input: impl Into<Input<'a, T>>,
        output: &'a mut [T],
        op: Operation,
        root: u32,
    ) -> Result<Collective<'a>, Error> {
        let input = input.into();
        let (is_root, root) = (self.rank()? == root, self.root(root)?);
        let count = match (&input, is_root) {
            (Input::Elements(elements), false) => elements.len(),
            (Input::InPlace, false) => {
                return Err(Error::Argument("only the root may reduce in place".into()));
            }
            (_, true) => output.len(),
        };
        let call = Call::reduce(
            self.input(&input, count)?,
            output_address(output),
            count as Count,
            self.datatype::<T>(),
            self.op::<T>(op)?,
            root,
        );
        Ok(self.collective(call, Lists::default()))
    }

    /// Returns the number of elements in one rank's block, if `elements` can be divided into equal blocks, one for each rank.
    fn block(&self, what: &str, elements: usize) -> Result<usize, Error> {
        let size = self.size()? as usize;
        if elements.is_multiple_of(size) {
            return Ok(elements / size);
        }
        Err(Error::Argument(format!("{what} has {elements} elements, which cannot be cut into {size} equal blocks")))
    }

    /// Creates an `MPI_Allgather`. The output is divided into equal blocks, one for each rank, and the input is one block.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// let mut all = vec![0; world.size()? as usize];
    /// world.allgather(&[world.rank()?], &mut all)?.run()?;
    /// assert!((0..world.size()?).eq(all));
    /// # Ok(()) });
    /// ```
    pub fn allgather<'a, T: Element>(
        &self,
        input: impl Into<Input<'a, T>>,
        output: &'a mut [T],
    ) -> Result<Collective<'a>, Error> {
        let block = self.block("the output", output.len())?;
        let (count, datatype) = (block as Count, self.datatype::<T>());
        let call = Call::allgather(
            self.input(&input.into(), block)?,
            count,
            datatype,
            output_address(output),
            count,
            datatype,
        );
        Ok(self.collective(call, Lists::default()))
    }

    /// Creates an `MPI_Allgatherv` with contiguous blocks. The block of rank r has `counts[r]` elements.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// // Rank r contributes r elements.
    /// let counts: Vec<usize> = (0..world.size()? as usize).collect();
    /// let mine = vec![7u8; world.rank()? as usize];
    /// let mut all = vec![0u8; counts.iter().sum()];
    /// world.allgatherv(&mine, &mut all, &counts)?.run()?;
    /// assert!(all.iter().all(|one| *one == 7));
    /// # Ok(()) });
    /// ```
    pub fn allgatherv<'a, T: Element>(
        &self,
        input: impl Into<Input<'a, T>>,
        output: &'a mut [T],
        counts: &[usize],
    ) -> Result<Collective<'a>, Error> {
        self.check_list_len("counts", counts)?;
        check_len("the output", output.len(), counts.iter().sum())?;
        let (own, datatype, mut lists) = (counts[self.rank()? as usize], self.datatype::<T>(), Lists::default());
        let call = Call::allgatherv(
            self.input(&input.into(), own)?,
            own as Count,
            datatype,
            output_address(output),
            lists.keep(&to_i64(counts)),
            lists.keep(&displacements(counts)),
            datatype,
        );
        Ok(self.collective(call, lists))
    }

    /// Creates an `MPI_Reduce_scatter_block`. The output is one block, and the input has one block for each rank. In place, the output
    /// holds all blocks, and the result replaces the first block.
    ///
    /// ```standalone_crate
    /// # use bruckner::{Operation};
    /// # bruckner::example(|world| {
    /// let mine = vec![1u64; world.size()? as usize];
    /// let mut own = [0];
    /// world.reduce_scatter_block(&mine, &mut own, Operation::Sum)?.run()?;
    /// assert_eq!(own[0], u64::from(world.size()?));
    /// # Ok(()) });
    /// ```
    pub fn reduce_scatter_block<'a, T: Element>(
        &self,
        input: impl Into<Input<'a, T>>,
        output: &'a mut [T],
        op: Operation,
    ) -> Result<Collective<'a>, Error> {
        let input = input.into();
        let block = match &input {
            Input::InPlace => self.block("the output", output.len())?,
            Input::Elements(_) => output.len(),
        };
        let call = Call::reduce_scatter_block(
            self.input(&input, block * self.size()? as usize)?,
            output_address(output),
            block as Count,
            self.datatype::<T>(),
            self.op::<T>(op)?,
        );
        Ok(self.collective(call, Lists::default()))
    }

    /// Creates an `MPI_Reduce_scatter`. Rank r gets `counts[r]` elements of the result. In place, the output holds all blocks, and the
    /// result replaces the beginning of the output.
    ///
    /// ```standalone_crate
    /// # use bruckner::{Operation};
    /// # bruckner::example(|world| {
    /// let counts = vec![2; world.size()? as usize];
    /// let mine = vec![1.0; 2 * counts.len()];
    /// let mut own = [0.0; 2];
    /// world.reduce_scatter(&mine, &mut own, &counts, Operation::Sum)?.run()?;
    /// assert_eq!(own, [f64::from(world.size()?); 2]);
    /// # Ok(()) });
    /// ```
    pub fn reduce_scatter<'a, T: Element>(
        &self,
        input: impl Into<Input<'a, T>>,
        output: &'a mut [T],
        counts: &[usize],
        op: Operation,
    ) -> Result<Collective<'a>, Error> {
        self.check_list_len("counts", counts)?;
        let (input, all, mut lists) = (input.into(), counts.iter().sum(), Lists::default());
        let own = counts[self.rank()? as usize];
        check_len("the output", output.len(), if matches!(input, Input::InPlace) { all } else { own })?;
        let call = Call::reduce_scatter(
            self.input(&input, all)?,
            output_address(output),
            lists.keep(&to_i64(counts)),
            self.datatype::<T>(),
            self.op::<T>(op)?,
        );
        Ok(self.collective(call, lists))
    }

    /// Creates an `MPI_Alltoall`. Input and output are divided into equal blocks, one for each rank.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// let mine = vec![world.rank()?; world.size()? as usize];
    /// let mut theirs = vec![0; mine.len()];
    /// world.alltoall(&mine, &mut theirs)?.run()?;
    /// assert!((0..world.size()?).eq(theirs));
    /// # Ok(()) });
    /// ```
    pub fn alltoall<'a, T: Element>(
        &self,
        input: impl Into<Input<'a, T>>,
        output: &'a mut [T],
    ) -> Result<Collective<'a>, Error> {
        let count = self.block("the output", output.len())? as Count;
        let datatype = self.datatype::<T>();
        let call = Call::alltoall(
            self.input(&input.into(), output.len())?,
            count,
            datatype,
            output_address(output),
            count,
            datatype,
        );
        Ok(self.collective(call, Lists::default()))
    }

    /// Creates an `MPI_Alltoallv` with contiguous blocks: sends `sent[r]` elements to rank r and receives `received[r]` elements from it.
    /// In place, the output holds the data to send, in blocks of `received[r]` elements, which the received data replaces.
    ///
    /// ```standalone_crate
    /// # bruckner::example(|world| {
    /// // Each rank sends one element to the next rank, and nothing to other ranks.
    /// let (me, size) = (world.rank()? as usize, world.size()? as usize);
    /// let count = |with: usize| (0..size).map(|rank| usize::from(rank == with)).collect::<Vec<_>>();
    /// let (sent, received) = (count((me + 1) % size), count((me + size - 1) % size));
    /// let mut got = [0];
    /// world.alltoallv(&[me as u64], &sent, &mut got, &received)?.run()?;
    /// assert_eq!(got[0] as usize, (me + size - 1) % size);
    /// # Ok(()) });
    /// ```
    pub fn alltoallv<'a, T: Element>(
        &self,
        input: impl Into<Input<'a, T>>,
        sent: &[usize],
        output: &'a mut [T],
        received: &[usize],
    ) -> Result<Collective<'a>, Error> {
        self.check_list_len("counts to send", sent)?;
        self.check_list_len("counts to receive", received)?;
        check_len("the output", output.len(), received.iter().sum())?;
        let (datatype, mut lists) = (self.datatype::<T>(), Lists::default());
        let call = Call::alltoallv(
            self.input(&input.into(), sent.iter().sum())?,
            lists.keep(&to_i64(sent)),
            lists.keep(&displacements(sent)),
            datatype,
            output_address(output),
            lists.keep(&to_i64(received)),
            lists.keep(&displacements(received)),
            datatype,
        );
        Ok(self.collective(call, lists))
    }

    fn check_list_len(&self, what: &str, counts: &[usize]) -> Result<(), Error> {
        check_len(&format!("the list of {what}"), counts.len(), self.size()? as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_lies_somewhere() {
        let (input, mut output) = (Vec::<u8>::new(), Vec::<u8>::new());
        assert!(input_address(&input) as usize > 4096 && output_address(&mut output) as usize > 4096);
        assert_ne!(input_address(&input), output_address(&mut output).cast_const());
        let full = [1u8];
        assert_eq!(input_address(&full), full.as_ptr().cast());
    }

    #[test]
    fn an_operation_that_a_type_lacks_is_an_error() {
        assert!(defined(Operation::Sum, ElementType::F64, "MPI_DOUBLE").is_ok());
        assert!(defined(Operation::BitAnd, ElementType::U8, "MPI_UINT8_T").is_ok());
        let text = |op| defined(op, ElementType::F64, "MPI_DOUBLE").unwrap_err().to_string();
        assert_eq!(text(Operation::BitAnd), "MPI_BAND is not defined for MPI_DOUBLE");
        assert_eq!(text(Operation::MaxLoc), "MPI_MAXLOC is not defined for MPI_DOUBLE");
    }
}

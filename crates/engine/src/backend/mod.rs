//! The interface to an MPI, as traits.
//!
//! An MPI implements them ([`bruckner_mpi::Mpi`]). For tests, crate `bruckner-threads` has ranks that are threads of one process, on which
//! everything else of the engine runs unchanged.

mod large;
mod mpi;

pub use mpi::{by_rival, native_init};

use std::ffi::{c_int, c_void};

use bruckner_config::ProfileFile;
use bruckner_mpi::{Agree, Ending, Flavour, Function, Handle, Kept, MpiError, Place, Shape, Style, Work};
use bruckner_runtime::reduce::{Kind, Operation};
use bruckner_runtime::{Backoff, Transport};

use crate::call::Call;

/// Carries the messages of plans, and of ranks that agree.
pub trait Wire: Transport<Requests: Send> + Copy + Send + Sync + 'static {
    /// How to wait for what is no message.
    fn backoff(&self) -> Backoff;

    /// The same wire for use inside the world's own progress, from where no progress may be asked for.
    #[must_use]
    fn quiet(self) -> Self;

    /// Posts messages otherwise from now on. Nothing may be under way.
    fn set_style(requests: &mut Self::Requests, style: Style);
}

/// Faults that tests ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Planning panics.
    Plan,
    /// Memory for a plan cannot be had.
    Memory,
}

impl Fault {
    /// As it is written in `BRUCKNER_FAULT`.
    pub fn text(self) -> &'static str {
        match self {
            Fault::Plan => "plan",
            Fault::Memory => "memory",
        }
    }
}

/// Communicators: who is in them, what their ranks tell each other, and what is kept with them.
pub trait Communicators {
    /// `MPI_COMM_WORLD`.
    fn comm_world(&self) -> Handle;

    /// This process's rank in a communicator.
    fn rank(&self, comm: Handle) -> Result<u32, MpiError>;

    /// How many ranks a communicator has.
    fn size(&self, comm: Handle) -> Result<u32, MpiError>;

    /// Whether a communicator has two groups.
    fn is_inter(&self, comm: Handle) -> Result<bool, MpiError>;

    /// Whether this is no communicator.
    fn is_null_comm(&self, comm: Handle) -> bool;

    /// The ranks in `of` of all processes of `comm`, in order; `None` for those that are not in it.
    fn translate(&self, comm: Handle, of: Handle) -> Result<Vec<Option<u32>>, MpiError>;

    /// A communicator of our own with the same processes in the same order. Collective.
    fn hide(&self, comm: Handle) -> Result<Handle, MpiError>;

    /// The processes of a communicator that share memory with this one, as a communicator. Collective.
    fn node(&self, comm: Handle) -> Result<Handle, MpiError>;

    /// Frees a communicator that [`hide`](Communicators::hide) or [`node`](Communicators::node) made.
    fn free(&self, comm: Handle);

    /// Makes numbers the same on all ranks. Collective and blocking.
    fn agree(&self, comm: Handle, how: Agree, numbers: &mut [u64]) -> Result<(), MpiError>;

    /// The numbers of all ranks, in their order. Collective.
    fn gather(&self, comm: Handle, mine: &[u64]) -> Result<Vec<u64>, MpiError>;

    /// A text of rank 0's. Collective.
    fn share_text(&self, comm: Handle, text: &str) -> Result<String, MpiError>;

    /// Where ranks run, one of whose nodes has these. Collective.
    fn places(&self, comm: Handle, node: Handle) -> Result<Vec<Place>, MpiError>;

    /// Processes of this machine, and cores that they may use. Collective.
    fn sharers(&self, comm: Handle, places: &[Place]) -> Result<(u32, u32), MpiError>;

    /// The largest tag.
    fn tag_limit(&self) -> u32;

    /// Calls the error handler of a communicator of the user's.
    fn raise(&self, comm: Handle, code: i32);

    /// Keeps something until the communicator is freed.
    fn keep(&self, comm: Handle, value: Kept) -> Result<(), MpiError>;

    /// The value that is kept with a communicator.
    fn kept(&self, comm: Handle) -> Option<Kept>;

    /// Forgets what is kept with a communicator.
    fn forget(&self, comm: Handle);

    /// The generation of handles: a value that was remembered by handle is valid as long as the generation is the same.
    fn generation(&self) -> u64;

    /// Makes void what is remembered by handle.
    fn renew(&self);

    /// Communicators that end.
    fn ending(&self) -> &Ending;
}

/// Which way data goes between the user's elements and bytes of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From elements to bytes.
    Pack,
    /// From bytes to elements.
    Unpack,
}

/// Datatypes and operations of the user's.
pub trait Datatypes {
    /// Whether an address is `MPI_IN_PLACE`.
    fn is_in_place(&self, data: *const c_void) -> bool;

    /// `MPI_IN_PLACE` itself.
    fn in_place(&self) -> *const c_void;

    /// Whether input and output that are the same memory are an error here.
    fn refuses_aliases(&self) -> bool;

    /// Whether `MPI_IN_PLACE` is an error here on ranks of a reduce that are not its root.
    fn refuses_in_place_off_root(&self) -> bool;

    /// Whether this is no datatype.
    fn is_null_type(&self, datatype: Handle) -> bool;

    /// Whether this is no operation.
    fn is_null_op(&self, op: Handle) -> bool;

    /// Bytes of data that an element of a datatype has.
    fn type_size(&self, datatype: Handle) -> Result<usize, MpiError>;

    /// How a datatype lies in memory; the order of its bytes may be left open.
    fn shape(&self, datatype: Handle) -> Result<Shape, MpiError>;

    /// The same, with the order of its bytes, if that can be told without data. To be asked where something depends on it.
    fn look_closer(&self, datatype: Handle, shape: Shape) -> Shape;

    /// The kind of a datatype's elements, if kernels know it.
    fn kind(&self, datatype: Handle) -> Option<Kind>;

    /// The operation of a handle, if kernels know it.
    fn operation(&self, op: Handle) -> Option<Operation>;

    /// Whether a datatype is built in, so that its handle never means anything else, and dense or a pair.
    fn is_built_in(&self, datatype: Handle) -> bool;

    /// Whether an operation is defined for a built-in datatype that kernels do not know.
    fn is_defined(&self, operation: Operation, datatype: Handle) -> bool;

    /// Whether an operation is the user's.
    fn is_users(&self, op: Handle) -> bool;

    /// `MPI_BYTE`.
    fn byte(&self) -> Handle;

    /// Packs elements into bytes, or unpacks them from there.
    ///
    /// # Safety
    /// So many elements of the type at `data`, or room for them, and the same in so many bytes at `bytes`.
    unsafe fn pack(
        &self,
        way: Way,
        datatype: Handle,
        data: *mut c_void,
        count: usize,
        bytes: *mut u8,
        length: usize,
    ) -> Result<(), MpiError>;

    /// `MPI_Reduce_local`: `into[i] = left[i] op into[i]`.
    ///
    /// # Safety
    /// So many elements of the type at both addresses.
    unsafe fn reduce_local(
        &self,
        left: *const u8,
        into: *mut u8,
        count: c_int,
        datatype: Handle,
        op: Handle,
    ) -> Result<(), MpiError>;

    /// Whether this process may have buffers in device memory.
    fn has_device(&self) -> bool;

    /// The error of who gets more than was expected, or gives more than is taken.
    fn truncated(&self) -> MpiError;

    /// The error of a count that is none.
    fn bad_count(&self) -> i32;

    /// The error that has no better name.
    fn other_error(&self) -> i32;
}

/// The MPI's own collectives.
pub trait Natives {
    /// Whether there is such a function.
    fn has(&self, function: Function, flavour: Flavour, wide: bool) -> bool;

    /// Calls the MPI's own function.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name.
    unsafe fn native(&self, call: &Call, comm: Handle) -> Result<(), MpiError>;

    /// The MPI's own gather, of what an allgather would gather.
    ///
    /// # Safety
    /// The arguments are right for `MPI_Gather`, and counts are C integers.
    unsafe fn native_gather(&self, call: &Call, root: c_int, comm: Handle) -> Result<(), MpiError>;

    /// Starts the MPI's own nonblocking function.
    ///
    /// # Safety
    /// As for [`Natives::native`], until it is done.
    unsafe fn native_start(&self, call: &Call, comm: Handle) -> Result<u64, MpiError>;

    /// Whether what [`Natives::native_start`] started is done.
    fn native_test(&self, request: &mut u64) -> Result<bool, MpiError>;
}

/// All of it.
pub trait Backend: Communicators + Datatypes + Natives + Send + Sync + Sized + 'static {
    /// The transport of messages.
    type Wire: Wire;

    /// Messages on a hidden communicator. No message may have the tag `never_sent`.
    fn wire(&'static self, internal: Handle, never_sent: u32, shared_cores: bool) -> Self::Wire;

    /// The name and version of the MPI, in few words.
    fn name(&self) -> &str;

    /// Whether several threads may call at once.
    fn is_threaded(&self) -> bool;

    /// Whether the MPI calls others inside its waits.
    fn has_hook(&self) -> bool;

    /// Has work done inside every wait of the MPI from now on, as long as there is some. Always the same work.
    fn work_inside(&self, work: Work) -> Result<(), MpiError>;

    /// The settings in files and the environment of this process, as lines `NAME=value`.
    fn settings(&self) -> String;

    /// The profile file that this process finds in the place that these settings name.
    fn profile(&self, settings: &str) -> ProfileFile;

    /// Whether a fault is to happen on this process, which has this rank of all.
    fn fails(&self, fault: Fault, rank: u32) -> bool;
}

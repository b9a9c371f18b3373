//! The interface to an MPI, as traits.
//!
//! [`bruckner_mpi::Mpi`] implements the traits for a real MPI. For tests, crate `bruckner-threads` implements them for ranks that are
//! threads of one process, on which the rest of the engine runs unchanged.

mod large;
mod mpi;

pub use mpi::{native_init, run_external};

use std::ffi::{c_int, c_void};

use bruckner_config::ProfileFile;
use bruckner_mpi::{
    AgreeOp, AttachedState, Flavour, FreeingCommunicators, Function, Handle, Location, MpiError, PostStyle, TypeLayout,
    Work,
};
use bruckner_runtime::reduce::{ElementType, Operation};
use bruckner_runtime::{Backoff, Transport};

use crate::call::Call;

/// The transport that carries the engine's messages: the messages of plans, and the messages by which ranks agree.
pub trait Wire: Transport<Requests: Send> + Copy + Send + Sync + 'static {
    /// Returns how to wait for events other than messages, such as flags in shared memory.
    fn backoff(&self) -> Backoff;

    /// Returns this transport for use inside the MPI's own progress: it tests requests without making the MPI progress, which is not
    /// allowed there.
    #[must_use]
    fn quiet(self) -> Self;

    /// Sets how messages are posted from now on: by immediate or persistent requests. No message may be in flight.
    fn set_style(requests: &mut Self::Requests, style: PostStyle);
}

/// Faults that tests inject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Planning panics.
    Plan,
    /// Allocating memory for a plan fails.
    Memory,
}

impl Fault {
    /// Returns the fault's name in the environment variable `BRUCKNER_FAULT`.
    pub fn text(self) -> &'static str {
        match self {
            Fault::Plan => "plan",
            Fault::Memory => "memory",
        }
    }
}

/// Operations on communicators: their ranks, agreement among the ranks, and values attached to communicators.
pub trait Communicators {
    /// Returns `MPI_COMM_WORLD`.
    fn comm_world(&self) -> Handle;

    /// Returns this process's rank in a communicator.
    fn rank(&self, comm: Handle) -> Result<u32, MpiError>;

    /// Returns the number of ranks of a communicator.
    fn size(&self, comm: Handle) -> Result<u32, MpiError>;

    /// Whether a communicator is an intercommunicator.
    fn is_inter(&self, comm: Handle) -> Result<bool, MpiError>;

    /// Whether a handle is `MPI_COMM_NULL`.
    fn is_null_comm(&self, comm: Handle) -> bool;

    /// Translates all ranks of `comm`, in order, to ranks of `of`; `None` for a process that is not in `of`.
    fn translate(&self, comm: Handle, of: Handle) -> Result<Vec<Option<u32>>, MpiError>;

    /// Creates an internal communicator with the same processes in the same order. Collective.
    fn create_internal(&self, comm: Handle) -> Result<Handle, MpiError>;

    /// Creates a communicator of the processes of `comm` that share memory with this one. Collective.
    fn node(&self, comm: Handle) -> Result<Handle, MpiError>;

    /// Frees a communicator that [`create_internal`](Communicators::create_internal) or [`node`](Communicators::node) made.
    fn free(&self, comm: Handle);

    /// Combines the numbers of all ranks element by element, and stores the results in `numbers` on all ranks. Collective and blocking.
    fn agree(&self, comm: Handle, how: AgreeOp, numbers: &mut [u64]) -> Result<(), MpiError>;

    /// Returns the numbers of all ranks, in rank order. Collective.
    fn gather(&self, comm: Handle, mine: &[u64]) -> Result<Vec<u64>, MpiError>;

    /// Returns the text that rank 0 passes. Collective.
    fn share_text(&self, comm: Handle, text: &str) -> Result<String, MpiError>;

    /// Returns where each rank of `comm` runs; `node` is the communicator of this rank's node. Collective.
    fn places(&self, comm: Handle, node: Handle) -> Result<Vec<Location>, MpiError>;

    /// Returns the number of processes on this machine and the number of cores that they may use. Collective.
    fn sharers(&self, comm: Handle, places: &[Location]) -> Result<(u32, u32), MpiError>;

    /// Returns the largest valid message tag.
    fn tag_limit(&self) -> u32;

    /// Calls the error handler of a user's communicator.
    fn raise(&self, comm: Handle, code: i32);

    /// Attaches a value to a communicator until the communicator is freed.
    fn attach(&self, comm: Handle, value: AttachedState) -> Result<(), MpiError>;

    /// Returns the value that is attached to a communicator.
    fn attached(&self, comm: Handle) -> Option<AttachedState>;

    /// Removes the value that is attached to a communicator.
    fn detach(&self, comm: Handle);

    /// Returns the generation of handles: a value that was remembered by handle is valid as long as the generation is the same.
    fn generation(&self) -> u64;

    /// Starts a new generation, which invalidates all values that were remembered by handle.
    fn advance_generation(&self);

    /// Returns the list of communicators that are being freed.
    fn being_freed(&self) -> &FreeingCommunicators;
}

/// Direction of a copy between elements in the user's buffer and packed bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From elements to bytes.
    Pack,
    /// From bytes to elements.
    Unpack,
}

/// Queries and operations on datatypes and reduction operations.
pub trait Datatypes {
    /// Whether an address is `MPI_IN_PLACE`.
    fn is_in_place(&self, data: *const c_void) -> bool;

    /// Returns `MPI_IN_PLACE`.
    fn in_place(&self) -> *const c_void;

    /// Whether this MPI rejects calls whose send and receive buffer are the same memory.
    fn refuses_aliases(&self) -> bool;

    /// Whether this MPI rejects `MPI_IN_PLACE` on ranks of a reduce other than the root.
    fn refuses_in_place_off_root(&self) -> bool;

    /// Whether a handle is `MPI_DATATYPE_NULL`.
    fn is_null_type(&self, datatype: Handle) -> bool;

    /// Whether a handle is `MPI_OP_NULL`.
    fn is_null_op(&self, op: Handle) -> bool;

    /// Returns the bytes of data in one element of a datatype.
    fn type_size(&self, datatype: Handle) -> Result<usize, MpiError>;

    /// Returns the memory layout of a datatype. Whether its bytes lie in the order in which they are sent may be left undetermined.
    fn shape(&self, datatype: Handle) -> Result<TypeLayout, MpiError>;

    /// Completes a memory layout with the order of the datatype's bytes, if that can be determined without data. Called only where the
    /// order matters.
    fn determine_order(&self, datatype: Handle, shape: TypeLayout) -> TypeLayout;

    /// Returns the kind of a datatype's elements, if reduction kernels support it.
    fn kind(&self, datatype: Handle) -> Option<ElementType>;

    /// Returns the operation that a handle means, if reduction kernels support it.
    fn operation(&self, op: Handle) -> Option<Operation>;

    /// Whether a datatype is predefined and either dense or a pair type. The handle of a predefined datatype always means the same type.
    fn is_built_in(&self, datatype: Handle) -> bool;

    /// Whether an operation is defined for a built-in datatype that reduction kernels do not support.
    fn is_defined(&self, operation: Operation, datatype: Handle) -> bool;

    /// Whether an operation is user-defined.
    fn is_user_defined(&self, op: Handle) -> bool;

    /// Returns `MPI_BYTE`.
    fn byte(&self) -> Handle;

    /// Packs elements into bytes, or unpacks bytes into elements.
    ///
    /// # Safety
    /// `data` is valid for `count` elements of the datatype, and `bytes` for their `length` packed bytes.
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
    /// Both addresses are valid for `count` elements of the datatype.
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

    /// Returns the error for a message that is longer than its receiver expects.
    fn truncated(&self) -> MpiError;

    /// Returns the code of the error for an invalid count.
    fn bad_count(&self) -> i32;

    /// Returns the code of the error for which MPI has no specific class (`MPI_ERR_OTHER`).
    fn other_error(&self) -> i32;
}

/// The MPI's own collectives.
pub trait Natives {
    /// Whether the MPI has this function in this flavour, with wide counts if `wide`.
    fn has(&self, function: Function, flavour: Flavour, wide: bool) -> bool;

    /// Calls the MPI's own blocking function.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name.
    unsafe fn native(&self, call: &Call, comm: Handle) -> Result<(), MpiError>;

    /// Calls the MPI's own gather with the arguments of an allgather.
    ///
    /// # Safety
    /// The arguments are valid for `MPI_Gather`, and counts are C integers.
    unsafe fn native_gather(&self, call: &Call, root: c_int, comm: Handle) -> Result<(), MpiError>;

    /// Starts the MPI's own nonblocking function.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name, and stay so until the operation is done.
    unsafe fn native_start(&self, call: &Call, comm: Handle) -> Result<u64, MpiError>;

    /// Whether the operation that [`Natives::native_start`] started is done.
    fn native_test(&self, request: &mut u64) -> Result<bool, MpiError>;
}

/// An MPI as the engine needs it: communicators, datatypes, native collectives and a message transport.
pub trait Backend: Communicators + Datatypes + Natives + Send + Sync + Sized + 'static {
    /// The transport of messages.
    type Wire: Wire;

    /// Returns a transport for messages on an internal communicator. No message may have the tag `never_sent`. With `shared_cores`,
    /// waiting ranks yield their cores, because there are more ranks than cores.
    fn wire(&'static self, internal: Handle, never_sent: u32, shared_cores: bool) -> Self::Wire;

    /// Returns the name and version of the MPI in short form.
    fn name(&self) -> &str;

    /// Whether several threads may call MPI at once.
    fn is_threaded(&self) -> bool;

    /// Whether the MPI can call a function of the library inside its waits.
    fn has_hook(&self) -> bool;

    /// Registers `work` with the MPI, which from now on calls it in each of its waits until it returns false. Every call of `work_inside`
    /// must pass a function that does the same.
    fn work_inside(&self, work: Work) -> Result<(), MpiError>;

    /// Reads the settings in files and the environment of this process, as lines `NAME=value`.
    fn settings(&self) -> String;

    /// Reads the profile file that `settings` name. The result may differ between processes.
    fn profile(&self, settings: &str) -> ProfileFile;

    /// Whether a test injects this fault into this process, which has rank `rank` in the internal communicator.
    fn fails(&self, fault: Fault, rank: u32) -> bool;
}

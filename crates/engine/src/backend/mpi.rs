//! The backend for a real MPI.

use std::ffi::{c_int, c_void};

use bruckner_config::{ProfileFile, Settings, find_settings};
use bruckner_mpi::{
    AgreeOp, AttachedState, ExternalCollectives, Family, Flavour, FreeingCommunicators, Function, Handle, Location,
    Mpi, MpiError, MpiTransport, PostStyle, Requests, TypeLayout, Work, has_device_runtime, locations,
    processes_and_cores, variable,
};
use bruckner_runtime::Backoff;
use bruckner_runtime::reduce::{ElementType, Operation};

use super::{Backend, Communicators, Datatypes, Fault, Natives, Way, Wire};
use crate::call::{Amount, Call};

impl Wire for MpiTransport {
    fn backoff(&self) -> Backoff {
        MpiTransport::backoff(self)
    }

    fn quiet(self) -> MpiTransport {
        MpiTransport::quiet(self)
    }

    fn set_style(requests: &mut Requests, style: PostStyle) {
        requests.set_style(style);
    }
}

impl Communicators for Mpi {
    fn comm_world(&self) -> Handle {
        Mpi::comm_world(self)
    }

    fn rank(&self, comm: Handle) -> Result<u32, MpiError> {
        Mpi::rank(self, comm)
    }

    fn size(&self, comm: Handle) -> Result<u32, MpiError> {
        Mpi::size(self, comm)
    }

    fn is_inter(&self, comm: Handle) -> Result<bool, MpiError> {
        Mpi::is_inter(self, comm)
    }

    fn is_null_comm(&self, comm: Handle) -> bool {
        Mpi::is_null_comm(self, comm)
    }

    fn translate(&self, comm: Handle, of: Handle) -> Result<Vec<Option<u32>>, MpiError> {
        Mpi::translate(self, comm, of)
    }

    fn create_internal(&self, comm: Handle) -> Result<Handle, MpiError> {
        Mpi::create_internal(self, comm)
    }

    fn node(&self, comm: Handle) -> Result<Handle, MpiError> {
        Mpi::node(self, comm)
    }

    fn free(&self, comm: Handle) {
        Mpi::free(self, comm);
    }

    fn agree(&self, comm: Handle, how: AgreeOp, numbers: &mut [u64]) -> Result<(), MpiError> {
        Mpi::agree(self, comm, how, numbers)
    }

    fn gather(&self, comm: Handle, mine: &[u64]) -> Result<Vec<u64>, MpiError> {
        Mpi::gather(self, comm, mine)
    }

    fn share_text(&self, comm: Handle, text: &str) -> Result<String, MpiError> {
        Mpi::share_text(self, comm, text)
    }

    fn places(&self, comm: Handle, node: Handle) -> Result<Vec<Location>, MpiError> {
        locations(self, comm, node)
    }

    fn sharers(&self, comm: Handle, places: &[Location]) -> Result<(u32, u32), MpiError> {
        processes_and_cores(self, comm, places)
    }

    fn tag_limit(&self) -> u32 {
        Mpi::tag_limit(self)
    }

    fn raise(&self, comm: Handle, code: i32) {
        // SAFETY: callers pass a valid communicator.
        unsafe { (self.f.comm_call_errhandler)(comm, code) };
    }

    fn attach(&self, comm: Handle, value: AttachedState) -> Result<(), MpiError> {
        Mpi::attach(self, comm, value)
    }

    fn attached(&self, comm: Handle) -> Option<AttachedState> {
        Mpi::attached(self, comm)
    }

    fn detach(&self, comm: Handle) {
        Mpi::detach(self, comm);
    }

    #[inline]
    fn generation(&self) -> u64 {
        Mpi::generation()
    }

    fn advance_generation(&self) {
        Mpi::invalidate_caches();
    }

    fn being_freed(&self) -> &FreeingCommunicators {
        Mpi::ending()
    }
}

impl Datatypes for Mpi {
    #[inline(always)]
    fn is_in_place(&self, data: *const c_void) -> bool {
        Mpi::is_in_place(self, data)
    }

    fn in_place(&self) -> *const c_void {
        Mpi::in_place(self)
    }

    #[inline]
    fn refuses_aliases(&self) -> bool {
        Mpi::refuses_aliases(self)
    }

    fn refuses_in_place_off_root(&self) -> bool {
        // Open MPI rejects it; other MPIs read the receive buffer instead.
        self.family == Family::OpenMpi
    }

    fn is_null_type(&self, datatype: Handle) -> bool {
        Mpi::is_null_type(self, datatype)
    }

    fn is_null_op(&self, op: Handle) -> bool {
        Mpi::is_null_op(self, op)
    }

    fn type_size(&self, datatype: Handle) -> Result<usize, MpiError> {
        Mpi::type_size(self, datatype)
    }

    fn shape(&self, datatype: Handle) -> Result<TypeLayout, MpiError> {
        Mpi::shape(self, datatype)
    }

    fn determine_order(&self, datatype: Handle, shape: TypeLayout) -> TypeLayout {
        Mpi::look_closer(self, datatype, shape)
    }

    fn kind(&self, datatype: Handle) -> Option<ElementType> {
        self.types().kind(datatype)
    }

    fn operation(&self, op: Handle) -> Option<Operation> {
        self.types().operation(op)
    }

    fn is_built_in(&self, datatype: Handle) -> bool {
        self.types().is_built_in(datatype)
    }

    fn is_defined(&self, operation: Operation, datatype: Handle) -> bool {
        self.types().is_defined(operation, datatype)
    }

    fn is_user_defined(&self, op: Handle) -> bool {
        Mpi::is_user_defined(self, op)
    }

    fn byte(&self) -> Handle {
        Mpi::byte(self)
    }

    unsafe fn pack(
        &self,
        way: Way,
        datatype: Handle,
        data: *mut c_void,
        count: usize,
        bytes: *mut u8,
        length: usize,
    ) -> Result<(), MpiError> {
        let (Ok(length), Ok(number)) = (c_int::try_from(length), c_int::try_from(count)) else {
            return Err(MpiError { call: "MPI_Pack", code: self.bad_count() });
        };
        let (bytes, comm) = (bytes.cast::<c_void>(), self.for_packing());
        let pack = |data: *mut c_void, count, datatype| {
            let mut at = 0;
            // SAFETY: the caller guarantees valid buffers; the communicator is one of this MPI's.
            unsafe {
                match way {
                    Way::Pack => done("MPI_Pack", (self.f.pack)(data, count, datatype, bytes, length, &mut at, comm)),
                    Way::Unpack => {
                        done("MPI_Unpack", (self.f.unpack)(bytes, length, &mut at, data, count, datatype, comm))
                    }
                }
            }
        };
        if !data.is_null() {
            return pack(data, number, datatype);
        }
        // Elements at MPI_BOTTOM have a datatype with absolute addresses. MPICH 4.0 rejects a null pointer, so a datatype relative to
        // another base address is used instead.
        let moved = self.moved_type(count, datatype, (bytes as isize).wrapping_neg())?;
        let result = pack(bytes, 1, moved);
        self.free_type(moved);
        result
    }

    unsafe fn reduce_local(
        &self,
        left: *const u8,
        into: *mut u8,
        count: c_int,
        datatype: Handle,
        op: Handle,
    ) -> Result<(), MpiError> {
        // SAFETY: the caller guarantees `count` elements at both addresses.
        done("MPI_Reduce_local", unsafe { (self.f.reduce_local)(left.cast(), into.cast(), count, datatype, op) })
    }

    #[inline]
    fn has_device(&self) -> bool {
        has_device_runtime()
    }

    fn truncated(&self) -> MpiError {
        Mpi::truncated(self)
    }

    fn bad_count(&self) -> i32 {
        self.constants.get("MPI_ERR_COUNT").unwrap_or(2) as i32
    }

    fn other_error(&self) -> i32 {
        self.constants.get("MPI_ERR_OTHER").unwrap_or(1) as i32
    }
}

fn done(call: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == 0 { Ok(()) } else { Err(MpiError { call, code }) }
}

/// The arguments of a call as machine words, with space to append communicator, info and request.
struct CallArguments {
    words: [Handle; 11],
    len: usize,
}

impl CallArguments {
    #[inline(always)]
    fn of<const N: usize>(words: [Handle; N]) -> CallArguments {
        CallArguments { words: [0; 11], len: 0 }.append(words)
    }

    #[inline(always)]
    fn append<const N: usize>(mut self, words: [Handle; N]) -> CallArguments {
        for (i, word) in words.into_iter().enumerate() {
            self.words[self.len + i] = word;
        }
        self.len += N;
        self
    }
}

/// Returns the arguments of a call as words, in the order of its MPI function.
#[inline(always)]
fn words(call: &Call) -> CallArguments {
    let (send, recv, op, root) = (&call.send, &call.recv, call.op, call.root as Handle);
    let (from, to) = (send.data as Handle, recv.data as Handle);
    let (given, taken) = (send.amount.each() as Handle, recv.amount.each() as Handle);
    let (counts, displacements) = recv.amount.lists();
    let (counts, displacements) = (counts.word(), displacements.word());
    match call.function {
        Function::Allgather | Function::Alltoall => {
            CallArguments::of([from, given, send.datatype, to, taken, recv.datatype])
        }
        Function::Allgatherv => {
            CallArguments::of([from, given, send.datatype, to, counts, displacements, recv.datatype])
        }
        Function::Alltoallv => {
            let (given, at) = send.amount.lists();
            let (given, at) = (given.word(), at.word());
            CallArguments::of([from, given, at, send.datatype, to, counts, displacements, recv.datatype])
        }
        Function::Allreduce | Function::ReduceScatterBlock => CallArguments::of([from, to, taken, recv.datatype, op]),
        Function::ReduceScatter => CallArguments::of([from, to, counts, recv.datatype, op]),
        Function::Bcast => CallArguments::of([to, taken, recv.datatype, root]),
        Function::Reduce => CallArguments::of([from, to, taken, recv.datatype, op, root]),
        Function::Barrier => CallArguments::of([]),
    }
}

#[inline(always)]
unsafe fn invoke<const N: usize>(mpi: &Mpi, call: &Call, flavour: Flavour, more: [Handle; N]) -> Result<(), MpiError> {
    let words = words(call).append(more);
    // SAFETY: these are the arguments of the MPI function in its order, and the caller guarantees that they are valid.
    unsafe { mpi.collective(call.function, flavour, call.is_wide(), &words.words[..words.len]) }
}

/// Runs a collective call with another library's function instead of the MPI's.
///
/// # Safety
/// The arguments of the call and `comm` are valid for the MPI function `call.function`.
pub unsafe fn run_external(
    mpi: &Mpi,
    external: &ExternalCollectives,
    call: &Call,
    comm: Handle,
) -> Result<(), MpiError> {
    let words = words(call).append([comm]);
    // SAFETY: these are the arguments of the MPI function in its order, and the caller guarantees that they are valid.
    unsafe { external.collective(mpi, call.function, &words.words[..words.len]) }
}

impl Natives for Mpi {
    #[inline]
    fn has(&self, function: Function, flavour: Flavour, wide: bool) -> bool {
        Mpi::has(self, function, flavour, wide)
    }

    #[inline(always)]
    unsafe fn native(&self, call: &Call, comm: Handle) -> Result<(), MpiError> {
        if call.is_wide() && !self.has(call.function, Flavour::Blocking, true) {
            // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
            return unsafe { super::large::native(self, call, comm) };
        }
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        unsafe { invoke(self, call, Flavour::Blocking, [comm]) }
    }

    unsafe fn native_gather(&self, call: &Call, root: c_int, comm: Handle) -> Result<(), MpiError> {
        let (send, recv) = (call.send, call.recv);
        let count = |amount: Amount| amount.each() as c_int;
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        let code = unsafe {
            (self.f.gather)(
                send.data,
                count(send.amount),
                send.datatype,
                recv.data,
                count(recv.amount),
                recv.datatype,
                root,
                comm,
            )
        };
        done("MPI_Gather", code)
    }

    unsafe fn native_start(&self, call: &Call, comm: Handle) -> Result<u64, MpiError> {
        let mut request = 0u64;
        // SAFETY: the caller guarantees valid arguments; `request` is as wide as the widest request handle.
        unsafe { invoke(self, call, Flavour::Nonblocking, [comm, (&raw mut request) as Handle]) }?;
        Ok(request)
    }

    fn native_test(&self, request: &mut u64) -> Result<bool, MpiError> {
        let mut flag = 0;
        let ignore = self.constants.get("MPI_STATUSES_IGNORE").unwrap_or_default() as *mut c_void;
        // SAFETY: `request` is a request that `native_start` made.
        let code = unsafe { (self.f.testall)(1, (&raw mut *request).cast(), &mut flag, ignore) };
        done("MPI_Testall", code).map(|()| flag != 0)
    }
}

/// Creates the MPI's own persistent request and writes its handle to `request`, in the width of the MPI family.
///
/// # Safety
/// The arguments are valid for the MPI function of the same name, as long as the request is used.
pub unsafe fn native_init(
    mpi: &Mpi,
    call: &Call,
    comm: Handle,
    info: Handle,
    request: *mut c_void,
) -> Result<(), MpiError> {
    // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
    unsafe { invoke(mpi, call, Flavour::Persistent, [comm, info, request as Handle]) }
}

impl Backend for Mpi {
    type Wire = MpiTransport;

    fn wire(&'static self, internal: Handle, never_sent: u32, shared_cores: bool) -> MpiTransport {
        MpiTransport::new(self, internal, never_sent, shared_cores)
    }

    fn name(&self) -> &str {
        Mpi::name(self)
    }

    fn is_threaded(&self) -> bool {
        Mpi::is_threaded(self)
    }

    fn has_hook(&self) -> bool {
        Mpi::has_hook(self)
    }

    fn work_inside(&self, work: Work) -> Result<(), MpiError> {
        Mpi::work_inside(self, work)
    }

    fn settings(&self) -> String {
        find_settings()
    }

    fn profile(&self, settings: &str) -> ProfileFile {
        ProfileFile::find(&Settings::of(settings, 0).profile_source)
    }

    fn fails(&self, fault: Fault, rank: u32) -> bool {
        let wanted = variable("BRUCKNER_FAULT").and_then(|value| value.into_string().ok());
        wanted.is_some_and(|wanted| wanted == format!("{}@{rank}", fault.text()))
    }
}

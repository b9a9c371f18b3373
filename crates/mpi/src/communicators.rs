//! Operations on communicators, and agreement among their ranks.
//!
//! All handles are valid by contract with the callers: they come from MPI, or from the user, who is responsible for their validity.

use std::ffi::{c_int, c_void};

use crate::functions::Handle;
use crate::{Mpi, MpiError, check, registry};

/// Operation that combines the values of all ranks when they agree on a value. It is idempotent, so a value may be included twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AgreeOp {
    /// The ranks agree on the maximum of their values.
    Max,
    /// The ranks agree on the minimum of their values.
    Min,
    /// The ranks agree on the bitwise and of their values.
    And,
}

impl AgreeOp {
    /// Returns the result of this operation on two values.
    pub fn join(self, a: u64, b: u64) -> u64 {
        match self {
            AgreeOp::Max => a.max(b),
            AgreeOp::Min => a.min(b),
            AgreeOp::And => a & b,
        }
    }
}

impl Mpi {
    /// Returns this process's rank in a communicator.
    pub fn rank(&self, comm: Handle) -> Result<u32, MpiError> {
        let mut rank: c_int = 0;
        // SAFETY: the handle is valid by contract (module documentation).
        check("MPI_Comm_rank", unsafe { (self.f.comm_rank)(comm, &mut rank) })?;
        Ok(rank as u32)
    }

    /// Returns the number of processes in a communicator (the local group of an intercommunicator).
    pub fn size(&self, comm: Handle) -> Result<u32, MpiError> {
        let mut size: c_int = 0;
        // SAFETY: the handle is valid by contract (module documentation).
        check("MPI_Comm_size", unsafe { (self.f.comm_size)(comm, &mut size) })?;
        Ok(size as u32)
    }

    /// Returns the number of processes that a process exchanges data with in collectives: those of `comm`, or of the remote group of an
    /// intercommunicator.
    pub fn peers(&self, comm: Handle) -> Result<u32, MpiError> {
        if !self.is_inter(comm)? {
            return self.size(comm);
        }
        let mut size: c_int = 0;
        // SAFETY: the handle is valid by contract (module documentation).
        check("MPI_Comm_remote_size", unsafe { (self.f.comm_remote_size)(comm, &mut size) })?;
        Ok(size as u32)
    }

    /// Returns whether a communicator is an intercommunicator.
    pub fn is_inter(&self, comm: Handle) -> Result<bool, MpiError> {
        let mut inter: c_int = 0;
        // SAFETY: the handle is valid by contract (module documentation).
        check("MPI_Comm_test_inter", unsafe { (self.f.comm_test_inter)(comm, &mut inter) })?;
        Ok(inter != 0)
    }

    /// Creates an internal communicator with the same processes in the same order. Its functions return errors instead of calling the
    /// user's error handler, and no user callbacks run. Collective.
    pub fn create_internal(&self, comm: Handle) -> Result<Handle, MpiError> {
        let made = self.split(comm, 0)?;
        // SAFETY: the communicator was just created, and the error handler is a constant.
        check("MPI_Comm_set_errhandler", unsafe {
            (self.f.comm_set_errhandler)(made, self.constants.required("MPI_ERRORS_RETURN"))
        })?;
        let _ = self.quiet.set(made);
        Ok(made)
    }

    /// Creates a communicator of the processes that pass the same `number`, in the order of `comm`. Collective.
    pub fn split(&self, comm: Handle, number: u32) -> Result<Handle, MpiError> {
        let rank = self.rank(comm)?;
        let mut made: u64 = 0;
        // SAFETY: the handles are valid, and `made` has space for the widest handle.
        check("MPI_Comm_split", unsafe {
            (self.f.comm_split)(comm, number as c_int, rank as c_int, (&raw mut made).cast())
        })?;
        Ok(self.read(made))
    }

    /// Returns a communicator for `MPI_Pack` and `MPI_Unpack`. If possible it is one that returns errors, so that an invalid datatype
    /// raises its error only later, in the user's own call.
    pub fn for_packing(&self) -> Handle {
        self.quiet.get().copied().unwrap_or_else(|| self.comm_world())
    }

    /// Registers a function to be called during `MPI_Finalize`, while MPI still works: MPI calls it when it deletes an attribute of
    /// `MPI_COMM_SELF`. Functions are called in reverse order of registration.
    pub fn at_finalize(&self, call: fn()) -> Result<(), MpiError> {
        unsafe extern "C" fn delete(_comm: Handle, _key: c_int, value: *mut c_void, _extra: *mut c_void) -> c_int {
            // SAFETY: the value of the attribute is this function.
            let call = unsafe { std::mem::transmute::<*mut c_void, fn()>(value) };
            call();
            0
        }
        let mut key: c_int = 0;
        // SAFETY: the callbacks have the signatures of the standard; the attribute is not copied to duplicates.
        check("MPI_Comm_create_keyval", unsafe {
            (self.f.comm_create_keyval)(
                registry::copy as *mut c_void,
                delete as *mut c_void,
                &mut key,
                std::ptr::null_mut(),
            )
        })?;
        // SAFETY: the handle is valid; the value of the attribute is passed to the callback above.
        check("MPI_Comm_set_attr", unsafe {
            (self.f.comm_set_attr)(self.constants.required("MPI_COMM_SELF"), key, call as *mut c_void)
        })
    }

    /// Creates a communicator of the processes of `comm` that share memory with this process. Collective.
    pub fn node(&self, comm: Handle) -> Result<Handle, MpiError> {
        let (shared, info) =
            (self.constants.required("MPI_COMM_TYPE_SHARED") as c_int, self.constants.required("MPI_INFO_NULL"));
        let rank = self.rank(comm)?;
        let mut made: u64 = 0;
        // SAFETY: the handles are valid, and `made` has space for the widest handle.
        check("MPI_Comm_split_type", unsafe {
            (self.f.comm_split_type)(comm, shared, rank as c_int, info, (&raw mut made).cast())
        })?;
        Ok(self.read(made))
    }

    /// Frees a communicator that was created by a function of this module.
    pub fn free(&self, comm: Handle) {
        let mut cell = comm;
        // SAFETY: the handle is valid; on a little-endian machine the first bytes of `cell` are the handle, whatever its width.
        unsafe { (self.f.comm_free)((&raw mut cell).cast()) };
    }

    /// Returns, for each process of `comm` in order, its rank in `of`, or `None` if it is not in `of`.
    pub fn translate(&self, comm: Handle, of: Handle) -> Result<Vec<Option<u32>>, MpiError> {
        let size = self.size(comm)?;
        let (mut from, mut to) = (0u64, 0u64);
        // SAFETY: the handle is valid, and `from` has space for the widest handle.
        check("MPI_Comm_group", unsafe { (self.f.comm_group)(comm, (&raw mut from).cast()) })?;
        // SAFETY: the handle is valid, and `to` has space for the widest handle.
        check("MPI_Comm_group", unsafe { (self.f.comm_group)(of, (&raw mut to).cast()) })?;
        let ranks: Vec<c_int> = (0..size as c_int).collect();
        let mut found = vec![0 as c_int; size as usize];
        // SAFETY: `ranks` and `found` have `size` elements each.
        let result = unsafe {
            (self.f.group_translate_ranks)(
                self.read(from),
                size as c_int,
                ranks.as_ptr(),
                self.read(to),
                found.as_mut_ptr(),
            )
        };
        // SAFETY: both groups were created above.
        unsafe {
            (self.f.group_free)((&raw mut from).cast());
            (self.f.group_free)((&raw mut to).cast());
        }
        check("MPI_Group_translate_ranks", result)?;
        let undefined = self.constants.required("MPI_UNDEFINED") as c_int;
        Ok(found.into_iter().map(|rank| (rank != undefined).then_some(rank as u32)).collect())
    }

    /// Returns the error for a rank that receives more data than it expects, or sends more data than is received: `MPI_ERR_TRUNCATE`.
    pub fn truncated(&self) -> MpiError {
        MpiError { call: "a collective", code: self.constants.required("MPI_ERR_TRUNCATE") as c_int }
    }

    /// Returns the largest tag that the MPI allows (`MPI_TAG_UB`), at least 32767.
    pub fn tag_limit(&self) -> u32 {
        let mut value: *const c_int = std::ptr::null();
        let mut found: c_int = 0;
        let key = self.constants.required("MPI_TAG_UB") as c_int;
        // SAFETY: a predefined attribute of `MPI_COMM_WORLD`, whose value is the address of an integer.
        unsafe { (self.f.comm_get_attr)(self.comm_world(), key, (&raw mut value).cast(), &mut found) };
        if found == 0 || value.is_null() {
            return 32767;
        }
        // SAFETY: a predefined attribute of `MPI_COMM_WORLD`, whose value is the address of an integer.
        unsafe { *value }.max(32767) as u32
    }

    /// Combines each of `numbers` over all processes of a communicator, by the MPI's own blocking allreduce. A nonblocking allreduce is
    /// not used, because the user may have other nonblocking collectives pending on the same communicator, and Open MPI then mixes them
    /// up. Collective.
    pub fn agree(&self, comm: Handle, how: AgreeOp, numbers: &mut [u64]) -> Result<(), MpiError> {
        let op = self.constants.required(match how {
            AgreeOp::Max => "MPI_MAX",
            AgreeOp::Min => "MPI_MIN",
            AgreeOp::And => "MPI_BAND",
        });
        let mine = numbers.to_vec();
        // SAFETY: input and output have the same number of elements.
        check("MPI_Allreduce", unsafe {
            (self.f.allreduce)(
                mine.as_ptr().cast(),
                numbers.as_mut_ptr().cast(),
                numbers.len() as c_int,
                self.uint64,
                op,
                comm,
            )
        })
    }

    /// Returns the numbers of all processes of a communicator, in the order of ranks. Collective.
    pub fn gather(&self, comm: Handle, mine: &[u64]) -> Result<Vec<u64>, MpiError> {
        let size = self.size(comm)? as usize;
        let mut all = vec![0u64; size * mine.len()];
        let count = mine.len() as c_int;
        // SAFETY: `all` has space for `count` numbers from each process.
        check("MPI_Allgather", unsafe {
            (self.f.allgather)(
                mine.as_ptr().cast(),
                count,
                self.uint64,
                all.as_mut_ptr().cast(),
                count,
                self.uint64,
                comm,
            )
        })?;
        Ok(all)
    }

    /// Broadcasts rank 0's text and returns it. Collective.
    pub fn share_text(&self, comm: Handle, text: &str) -> Result<String, MpiError> {
        let mut bytes = text.as_bytes().to_vec();
        let mut length = [bytes.len() as u64];
        // SAFETY: `length` is a single number.
        check("MPI_Bcast", unsafe { (self.f.bcast)(length.as_mut_ptr().cast(), 1, self.uint64, 0, comm) })?;
        bytes.resize(length[0] as usize, 0);
        // The address of an empty vector is arbitrary and could be taken for `MPI_IN_PLACE`.
        if bytes.is_empty() {
            return Ok(String::new());
        }
        // SAFETY: `bytes` has the length that rank 0 has broadcast.
        check("MPI_Bcast", unsafe {
            (self.f.bcast)(bytes.as_mut_ptr().cast(), bytes.len() as c_int, self.byte, 0, comm)
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

//! Calls about communicators, and agreement among their ranks.
//!
//! All handles are valid by contract of the callers: they come from the user, who vouches for them, or from MPI.

use std::ffi::{c_int, c_void};

use crate::functions::Handle;
use crate::{Mpi, MpiError, check, registry};

/// How two values become one in an agreement. Each of these may meet the same value twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Agree {
    /// The greatest.
    Max,
    /// The least.
    Min,
    /// The bits that all have.
    And,
}

impl Agree {
    /// The two as one.
    pub fn join(self, a: u64, b: u64) -> u64 {
        match self {
            Agree::Max => a.max(b),
            Agree::Min => a.min(b),
            Agree::And => a & b,
        }
    }
}

impl Mpi {
    /// This process's rank in a communicator.
    pub fn rank(&self, comm: Handle) -> Result<u32, MpiError> {
        let mut rank: c_int = 0;
        // SAFETY: a valid handle.
        check("MPI_Comm_rank", unsafe { (self.f.comm_rank)(comm, &mut rank) })?;
        Ok(rank as u32)
    }

    /// How many a communicator has.
    pub fn size(&self, comm: Handle) -> Result<u32, MpiError> {
        let mut size: c_int = 0;
        // SAFETY: a valid handle.
        check("MPI_Comm_size", unsafe { (self.f.comm_size)(comm, &mut size) })?;
        Ok(size as u32)
    }

    /// How many a process of a communicator exchanges data with: its own group, or the other one.
    pub fn peers(&self, comm: Handle) -> Result<u32, MpiError> {
        if !self.is_inter(comm)? {
            return self.size(comm);
        }
        let mut size: c_int = 0;
        // SAFETY: a valid handle.
        check("MPI_Comm_remote_size", unsafe { (self.f.comm_remote_size)(comm, &mut size) })?;
        Ok(size as u32)
    }

    /// Whether a communicator has two groups.
    pub fn is_inter(&self, comm: Handle) -> Result<bool, MpiError> {
        let mut inter: c_int = 0;
        // SAFETY: a valid handle.
        check("MPI_Comm_test_inter", unsafe { (self.f.comm_test_inter)(comm, &mut inter) })?;
        Ok(inter != 0)
    }

    /// A communicator of the same processes in the same order, whose errors are returned. Runs no user callbacks.
    pub fn hide(&self, comm: Handle) -> Result<Handle, MpiError> {
        let made = self.split(comm, 0)?;
        // SAFETY: as above.
        check("MPI_Comm_set_errhandler", unsafe {
            (self.f.comm_set_errhandler)(made, self.constants.must("MPI_ERRORS_RETURN"))
        })?;
        let _ = self.quiet.set(made);
        Ok(made)
    }

    /// The processes that give the same number, in the same order, as a communicator. Collective.
    pub fn split(&self, comm: Handle, number: u32) -> Result<Handle, MpiError> {
        let rank = self.rank(comm)?;
        let mut made: u64 = 0;
        // SAFETY: valid handles, and room for the widest one.
        check("MPI_Comm_split", unsafe {
            (self.f.comm_split)(comm, number as c_int, rank as c_int, (&raw mut made).cast())
        })?;
        Ok(self.read(made))
    }

    /// A communicator on which to pack: where a datatype is wrong, the error is returned, and MPI raises it where it
    /// belongs.
    pub fn for_packing(&self) -> Handle {
        self.quiet.get().copied().unwrap_or_else(|| self.comm_world())
    }

    /// Has a function called when MPI is finalised, while everything still works: as an attribute of `MPI_COMM_SELF` is
    /// deleted. What was asked for first is called last.
    pub fn at_finalize(&self, call: fn()) -> Result<(), MpiError> {
        unsafe extern "C" fn delete(
            _comm: Handle,
            _key: c_int,
            value: *mut c_void,
            _extra: *mut c_void,
        ) -> c_int {
            // SAFETY: the function that was put there.
            let call = unsafe { std::mem::transmute::<*mut c_void, fn()>(value) };
            call();
            0
        }
        let mut key: c_int = 0;
        // SAFETY: a callback with the signature of the standard; nothing is copied to duplicates.
        check("MPI_Comm_create_keyval", unsafe {
            (self.f.comm_create_keyval)(
                registry::copy as *mut c_void,
                delete as *mut c_void,
                &mut key,
                std::ptr::null_mut(),
            )
        })?;
        // SAFETY: a valid handle; the value is given to the callback above.
        check("MPI_Comm_set_attr", unsafe {
            (self.f.comm_set_attr)(self.constants.must("MPI_COMM_SELF"), key, call as *mut c_void)
        })
    }

    /// The processes of a communicator that share memory with this one, as a communicator.
    pub fn node(&self, comm: Handle) -> Result<Handle, MpiError> {
        let (shared, info) =
            (self.constants.must("MPI_COMM_TYPE_SHARED") as c_int, self.constants.must("MPI_INFO_NULL"));
        let rank = self.rank(comm)?;
        let mut made: u64 = 0;
        // SAFETY: valid handles, and room for the widest one.
        check("MPI_Comm_split_type", unsafe {
            (self.f.comm_split_type)(comm, shared, rank as c_int, info, (&raw mut made).cast())
        })?;
        Ok(self.read(made))
    }

    /// Frees a communicator that was made here.
    pub fn free(&self, comm: Handle) {
        let mut cell = comm;
        // SAFETY: a valid handle in a cell of its width: little-endian, so the first bytes are it.
        unsafe { (self.f.comm_free)((&raw mut cell).cast()) };
    }

    /// The ranks in `of` of all processes of `comm`, in order; `None` for those that are not in it.
    pub fn translate(&self, comm: Handle, of: Handle) -> Result<Vec<Option<u32>>, MpiError> {
        let size = self.size(comm)?;
        let (mut from, mut to) = (0u64, 0u64);
        // SAFETY: valid handles, and room for the widest ones.
        check("MPI_Comm_group", unsafe { (self.f.comm_group)(comm, (&raw mut from).cast()) })?;
        // SAFETY: as above.
        check("MPI_Comm_group", unsafe { (self.f.comm_group)(of, (&raw mut to).cast()) })?;
        let ranks: Vec<c_int> = (0..size as c_int).collect();
        let mut found = vec![0 as c_int; size as usize];
        // SAFETY: as many ranks in as out.
        let result = unsafe {
            (self.f.group_translate_ranks)(
                self.read(from),
                size as c_int,
                ranks.as_ptr(),
                self.read(to),
                found.as_mut_ptr(),
            )
        };
        // SAFETY: groups that were made above.
        unsafe {
            (self.f.group_free)((&raw mut from).cast());
            (self.f.group_free)((&raw mut to).cast());
        }
        check("MPI_Group_translate_ranks", result)?;
        let undefined = self.constants.must("MPI_UNDEFINED") as c_int;
        Ok(found.into_iter().map(|rank| (rank != undefined).then_some(rank as u32)).collect())
    }

    /// The error of who gets more than was expected, or gives more than is taken.
    pub fn truncated(&self) -> MpiError {
        MpiError { call: "a collective", code: self.constants.must("MPI_ERR_TRUNCATE") as c_int }
    }

    /// The largest tag.
    pub fn tag_limit(&self) -> u32 {
        let mut value: *const c_int = std::ptr::null();
        let mut found: c_int = 0;
        let key = self.constants.must("MPI_TAG_UB") as c_int;
        // SAFETY: a predefined attribute of the world; its value is the address of an integer.
        unsafe { (self.f.comm_get_attr)(self.comm_world(), key, (&raw mut value).cast(), &mut found) };
        if found == 0 || value.is_null() {
            return 32767;
        }
        // SAFETY: as above.
        unsafe { *value }.max(32767) as u32
    }

    /// Makes numbers the same on all processes of a communicator, by the MPI's own blocking allreduce: never by a nonblocking
    /// one, beside which the user may have others under way on the same communicator (Open MPI then mixes them up).
    pub fn agree(&self, comm: Handle, how: Agree, numbers: &mut [u64]) -> Result<(), MpiError> {
        let op = self.constants.must(match how {
            Agree::Max => "MPI_MAX",
            Agree::Min => "MPI_MIN",
            Agree::And => "MPI_BAND",
        });
        let mine = numbers.to_vec();
        // SAFETY: as many numbers in as out.
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

    /// The numbers of all processes of a communicator, in order of ranks.
    pub fn gather(&self, comm: Handle, mine: &[u64]) -> Result<Vec<u64>, MpiError> {
        let size = self.size(comm)? as usize;
        let mut all = vec![0u64; size * mine.len()];
        let count = mine.len() as c_int;
        // SAFETY: as many numbers from each.
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

    /// A text of rank 0's.
    pub fn share_text(&self, comm: Handle, text: &str) -> Result<String, MpiError> {
        let mut bytes = text.as_bytes().to_vec();
        let mut length = [bytes.len() as u64];
        // SAFETY: one number, then as many bytes as it says.
        check("MPI_Bcast", unsafe { (self.f.bcast)(length.as_mut_ptr().cast(), 1, self.uint64, 0, comm) })?;
        bytes.resize(length[0] as usize, 0);
        // Where nothing lies may be anywhere, even where MPI_IN_PLACE is.
        if bytes.is_empty() {
            return Ok(String::new());
        }
        // SAFETY: as above.
        check("MPI_Bcast", unsafe {
            (self.f.bcast)(bytes.as_mut_ptr().cast(), bytes.len() as c_int, self.byte, 0, comm)
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

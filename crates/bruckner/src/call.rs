//! A collective call as it comes in: the arguments of the MPI function of the same name, and that function itself.

use std::ffi::{c_int, c_void};

use bruckner_mpi::{Mpi, MpiError, Word};

/// The collectives by the names that people use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Name {
    /// `MPI_Allgather`, `MPI_Allgatherv`.
    Allgather,
    /// `MPI_Allreduce`.
    Allreduce,
    /// `MPI_Reduce_scatter`, `MPI_Reduce_scatter_block`.
    ReduceScatter,
    /// `MPI_Alltoall`, `MPI_Alltoallv`.
    Alltoall,
    /// `MPI_Bcast`.
    Bcast,
    /// `MPI_Reduce`.
    Reduce,
    /// `MPI_Barrier`.
    Barrier,
}

impl Name {
    /// All seven.
    pub const ALL: [Name; 7] = [
        Name::Allgather,
        Name::Allreduce,
        Name::ReduceScatter,
        Name::Alltoall,
        Name::Bcast,
        Name::Reduce,
        Name::Barrier,
    ];

    /// As it is written.
    pub fn text(self) -> &'static str {
        match self {
            Name::Allgather => "allgather",
            Name::Allreduce => "allreduce",
            Name::ReduceScatter => "reduce_scatter",
            Name::Alltoall => "alltoall",
            Name::Bcast => "bcast",
            Name::Reduce => "reduce",
            Name::Barrier => "barrier",
        }
    }
}

/// A user's buffer to read.
pub type Read = *const c_void;
/// A user's buffer to write.
pub type Write = *mut c_void;
/// One number for each rank.
pub type Ints = *const c_int;

/// The arguments of a collective, but for the communicator.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Call {
    /// `MPI_Allgather`.
    Allgather {
        send: Read,
        send_count: c_int,
        send_type: Word,
        recv: Write,
        recv_count: c_int,
        recv_type: Word,
    },
    /// `MPI_Allgatherv`.
    Allgatherv {
        send: Read,
        send_count: c_int,
        send_type: Word,
        recv: Write,
        recv_counts: Ints,
        displacements: Ints,
        recv_type: Word,
    },
    /// `MPI_Allreduce`.
    Allreduce { send: Read, recv: Write, count: c_int, datatype: Word, op: Word },
    /// `MPI_Reduce_scatter`.
    ReduceScatter { send: Read, recv: Write, counts: Ints, datatype: Word, op: Word },
    /// `MPI_Reduce_scatter_block`.
    ReduceScatterBlock { send: Read, recv: Write, count: c_int, datatype: Word, op: Word },
    /// `MPI_Alltoall`.
    Alltoall {
        send: Read,
        send_count: c_int,
        send_type: Word,
        recv: Write,
        recv_count: c_int,
        recv_type: Word,
    },
    /// `MPI_Alltoallv`.
    Alltoallv {
        send: Read,
        send_counts: Ints,
        send_displacements: Ints,
        send_type: Word,
        recv: Write,
        recv_counts: Ints,
        recv_displacements: Ints,
        recv_type: Word,
    },
    /// `MPI_Bcast`.
    Bcast { data: Write, count: c_int, datatype: Word, root: c_int },
    /// `MPI_Reduce`.
    Reduce { send: Read, recv: Write, count: c_int, datatype: Word, op: Word, root: c_int },
    /// `MPI_Barrier`.
    Barrier,
}

// SAFETY: addresses of the user's, who vouches for them; a plan that is tested by another thread carries them there.
unsafe impl Send for Call {}

impl Call {
    /// Which collective it is.
    pub fn name(&self) -> Name {
        match self {
            Call::Allgather { .. } | Call::Allgatherv { .. } => Name::Allgather,
            Call::Allreduce { .. } => Name::Allreduce,
            Call::ReduceScatter { .. } | Call::ReduceScatterBlock { .. } => Name::ReduceScatter,
            Call::Alltoall { .. } | Call::Alltoallv { .. } => Name::Alltoall,
            Call::Bcast { .. } => Name::Bcast,
            Call::Reduce { .. } => Name::Reduce,
            Call::Barrier => Name::Barrier,
        }
    }

    /// Calls the MPI's own function.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of this name.
    pub unsafe fn native(&self, mpi: &Mpi, comm: Word) -> Result<(), MpiError> {
        let f = &mpi.f;
        // SAFETY: the caller's promise.
        let (call, code) = unsafe {
            match *self {
                Call::Allgather { send, send_count, send_type, recv, recv_count, recv_type } => (
                    "MPI_Allgather",
                    (f.allgather)(send, send_count, send_type, recv, recv_count, recv_type, comm),
                ),
                Call::Allgatherv {
                    send,
                    send_count,
                    send_type,
                    recv,
                    recv_counts,
                    displacements,
                    recv_type,
                } => (
                    "MPI_Allgatherv",
                    (f.allgatherv)(
                        send,
                        send_count,
                        send_type,
                        recv,
                        recv_counts,
                        displacements,
                        recv_type,
                        comm,
                    ),
                ),
                Call::Allreduce { send, recv, count, datatype, op } => {
                    ("MPI_Allreduce", (f.allreduce)(send, recv, count, datatype, op, comm))
                }
                Call::ReduceScatter { send, recv, counts, datatype, op } => {
                    ("MPI_Reduce_scatter", (f.reduce_scatter)(send, recv, counts, datatype, op, comm))
                }
                Call::ReduceScatterBlock { send, recv, count, datatype, op } => (
                    "MPI_Reduce_scatter_block",
                    (f.reduce_scatter_block)(send, recv, count, datatype, op, comm),
                ),
                Call::Alltoall { send, send_count, send_type, recv, recv_count, recv_type } => (
                    "MPI_Alltoall",
                    (f.alltoall)(send, send_count, send_type, recv, recv_count, recv_type, comm),
                ),
                Call::Alltoallv {
                    send,
                    send_counts,
                    send_displacements,
                    send_type,
                    recv,
                    recv_counts,
                    recv_displacements,
                    recv_type,
                } => (
                    "MPI_Alltoallv",
                    (f.alltoallv)(
                        send,
                        send_counts,
                        send_displacements,
                        send_type,
                        recv,
                        recv_counts,
                        recv_displacements,
                        recv_type,
                        comm,
                    ),
                ),
                Call::Bcast { data, count, datatype, root } => {
                    ("MPI_Bcast", (f.bcast)(data, count, datatype, root, comm))
                }
                Call::Reduce { send, recv, count, datatype, op, root } => {
                    ("MPI_Reduce", (f.reduce)(send, recv, count, datatype, op, root, comm))
                }
                Call::Barrier => ("MPI_Barrier", (f.barrier)(comm)),
            }
        };
        if code == 0 { Ok(()) } else { Err(MpiError { call, code }) }
    }

    /// Starts the MPI's own nonblocking function; its request goes into a cell of the family's width.
    ///
    /// # Safety
    /// As for [`Call::native`], until the request is done.
    pub unsafe fn native_start(&self, mpi: &Mpi, comm: Word, request: *mut c_void) -> Result<(), MpiError> {
        let f = &mpi.f;
        // SAFETY: the caller's promise.
        let code = unsafe {
            match *self {
                Call::Allgather { send, send_count, send_type, recv, recv_count, recv_type } => {
                    (f.iallgather)(send, send_count, send_type, recv, recv_count, recv_type, comm, request)
                }
                Call::Allgatherv {
                    send,
                    send_count,
                    send_type,
                    recv,
                    recv_counts,
                    displacements,
                    recv_type,
                } => (f.iallgatherv)(
                    send,
                    send_count,
                    send_type,
                    recv,
                    recv_counts,
                    displacements,
                    recv_type,
                    comm,
                    request,
                ),
                Call::Allreduce { send, recv, count, datatype, op } => {
                    (f.iallreduce)(send, recv, count, datatype, op, comm, request)
                }
                Call::ReduceScatter { send, recv, counts, datatype, op } => {
                    (f.ireduce_scatter)(send, recv, counts, datatype, op, comm, request)
                }
                Call::ReduceScatterBlock { send, recv, count, datatype, op } => {
                    (f.ireduce_scatter_block)(send, recv, count, datatype, op, comm, request)
                }
                Call::Alltoall { send, send_count, send_type, recv, recv_count, recv_type } => {
                    (f.ialltoall)(send, send_count, send_type, recv, recv_count, recv_type, comm, request)
                }
                Call::Alltoallv {
                    send,
                    send_counts,
                    send_displacements,
                    send_type,
                    recv,
                    recv_counts,
                    recv_displacements,
                    recv_type,
                } => (f.ialltoallv)(
                    send,
                    send_counts,
                    send_displacements,
                    send_type,
                    recv,
                    recv_counts,
                    recv_displacements,
                    recv_type,
                    comm,
                    request,
                ),
                Call::Bcast { data, count, datatype, root } => {
                    (f.ibcast)(data, count, datatype, root, comm, request)
                }
                Call::Reduce { send, recv, count, datatype, op, root } => {
                    (f.ireduce)(send, recv, count, datatype, op, root, comm, request)
                }
                Call::Barrier => (f.ibarrier)(comm, request),
            }
        };
        if code == 0 { Ok(()) } else { Err(MpiError { call: "a nonblocking collective", code }) }
    }
}

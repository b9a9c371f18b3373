//! The table of collectives, from which the intercepted functions of MPI and the functions of the C API are generated.

/// Passes the table to a macro. Each line has the name of a function, its name in MPI, and its arguments without the communicator. Each
/// argument has a name and a kind.
macro_rules! collectives {
    ($macro:ident) => {
        $macro! {
            allgather "Allgather" (send: Read, send_count: Count, send_type: Type, recv: Write, recv_count: Count, recv_type: Type);
            allgatherv "Allgatherv" (send: Read, send_count: Count, send_type: Type, recv: Write, recv_counts: List, displacements: List, recv_type: Type);
            allreduce "Allreduce" (send: Read, recv: Write, count: Count, datatype: Type, op: Op);
            reduce_scatter "Reduce_scatter" (send: Read, recv: Write, counts: List, datatype: Type, op: Op);
            reduce_scatter_block "Reduce_scatter_block" (send: Read, recv: Write, count: Count, datatype: Type, op: Op);
            alltoall "Alltoall" (send: Read, send_count: Count, send_type: Type, recv: Write, recv_count: Count, recv_type: Type);
            alltoallv "Alltoallv" (send: Read, send_counts: List, send_displacements: List, send_type: Type, recv: Write, recv_counts: List, recv_displacements: List, recv_type: Type);
            bcast "Bcast" (data: Write, count: Count, datatype: Type, root: Root);
            reduce "Reduce" (send: Read, recv: Write, count: Count, datatype: Type, op: Op, root: Root);
            barrier "Barrier" ();
        }
    };
}

pub(crate) use collectives;

//! The functions of the loaded MPI library, called by their `PMPI_` names.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::load::{Library, NoMpi};

/// An MPI handle of any MPI family, widened to 64 bits.
pub type Handle = u64;

/// Address of a buffer to write, of a status, or of one or several handles, which have the width of the MPI's family in memory.
pub(crate) type At = *mut c_void;

/// Address of a buffer to read.
pub(crate) type Data = *const c_void;

/// Address of an array of counts, displacements or ranks.
pub(crate) type Ints = *const c_int;

macro_rules! functions {
    ($($field:ident $name:ident ($($argument:ty),*);)*) => {
        /// Functions that every MPI has.
        #[derive(Clone, Copy, Debug)]
        pub struct Functions {
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                pub $field: unsafe extern "C" fn($($argument),*) -> c_int,
            )*
        }

        impl Functions {
            pub(crate) fn of(library: &Library) -> Result<Functions, NoMpi> {
                Ok(Functions { $($field: {
                    let name = concat!("P", stringify!($name), "\0");
                    let symbol = CStr::from_bytes_with_nul(name.as_bytes())
                        .ok()
                        .and_then(|name| library.symbol(name))
                        .ok_or(NoMpi::Lacks(stringify!($name)))?;
                    // SAFETY: the function of this name has this signature in every MPI of a known family.
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> c_int>(symbol) }
                },)* })
            }
        }
    };
}

functions! {
    init MPI_Init(*mut c_int, *mut *mut *mut c_char);
    init_thread MPI_Init_thread(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    finalize MPI_Finalize();
    abort MPI_Abort(Handle, c_int);
    initialized MPI_Initialized(*mut c_int);
    finalized MPI_Finalized(*mut c_int);
    query_thread MPI_Query_thread(*mut c_int);
    get_version MPI_Get_version(*mut c_int, *mut c_int);
    get_library_version MPI_Get_library_version(*mut c_char, *mut c_int);

    comm_rank MPI_Comm_rank(Handle, *mut c_int);
    comm_size MPI_Comm_size(Handle, *mut c_int);
    comm_remote_size MPI_Comm_remote_size(Handle, *mut c_int);
    comm_split MPI_Comm_split(Handle, c_int, c_int, At);
    comm_split_type MPI_Comm_split_type(Handle, c_int, c_int, Handle, At);
    comm_free MPI_Comm_free(At);
    comm_group MPI_Comm_group(Handle, At);
    comm_test_inter MPI_Comm_test_inter(Handle, *mut c_int);
    comm_call_errhandler MPI_Comm_call_errhandler(Handle, c_int);
    comm_set_errhandler MPI_Comm_set_errhandler(Handle, Handle);
    comm_create_keyval MPI_Comm_create_keyval(At, At, *mut c_int, At);
    comm_set_attr MPI_Comm_set_attr(Handle, c_int, At);
    comm_get_attr MPI_Comm_get_attr(Handle, c_int, At, *mut c_int);
    comm_delete_attr MPI_Comm_delete_attr(Handle, c_int);
    group_translate_ranks MPI_Group_translate_ranks(Handle, c_int, Ints, Handle, *mut c_int);
    group_free MPI_Group_free(At);

    isend MPI_Isend(Data, c_int, Handle, c_int, c_int, Handle, At);
    irecv MPI_Irecv(At, c_int, Handle, c_int, c_int, Handle, At);
    send_init MPI_Send_init(Data, c_int, Handle, c_int, c_int, Handle, At);
    recv_init MPI_Recv_init(At, c_int, Handle, c_int, c_int, Handle, At);
    start MPI_Start(At);
    wait MPI_Wait(At, At);
    waitany MPI_Waitany(c_int, At, *mut c_int, At);
    waitsome MPI_Waitsome(c_int, At, *mut c_int, *mut c_int, At);
    test MPI_Test(At, *mut c_int, At);
    testany MPI_Testany(c_int, At, *mut c_int, *mut c_int, At);
    testsome MPI_Testsome(c_int, At, *mut c_int, *mut c_int, At);
    startall MPI_Startall(c_int, At);
    request_get_status MPI_Request_get_status(Handle, *mut c_int, At);
    waitall MPI_Waitall(c_int, At, At);
    testall MPI_Testall(c_int, At, *mut c_int, At);
    iprobe MPI_Iprobe(c_int, c_int, Handle, *mut c_int, At);
    request_free MPI_Request_free(At);

    type_size MPI_Type_size(Handle, *mut c_int);
    type_get_extent MPI_Type_get_extent(Handle, *mut isize, *mut isize);
    type_get_true_extent MPI_Type_get_true_extent(Handle, *mut isize, *mut isize);
    type_contiguous MPI_Type_contiguous(c_int, Handle, At);
    type_create_struct MPI_Type_create_struct(c_int, Ints, *const isize, *const c_void, At);
    type_commit MPI_Type_commit(At);
    type_free MPI_Type_free(At);
    type_dup MPI_Type_dup(Handle, At);
    type_get_envelope MPI_Type_get_envelope(Handle, *mut c_int, *mut c_int, *mut c_int, *mut c_int);
    type_get_contents MPI_Type_get_contents(Handle, c_int, c_int, c_int, *mut c_int, *mut isize, At);
    type_create_keyval MPI_Type_create_keyval(At, At, *mut c_int, At);
    type_set_attr MPI_Type_set_attr(Handle, c_int, At);
    type_get_attr MPI_Type_get_attr(Handle, c_int, At, *mut c_int);
    pack MPI_Pack(Data, c_int, Handle, At, c_int, *mut c_int, Handle);
    unpack MPI_Unpack(Data, c_int, *mut c_int, At, c_int, Handle, Handle);
    op_commutative MPI_Op_commutative(Handle, *mut c_int);
    reduce_local MPI_Reduce_local(Data, At, c_int, Handle, Handle);

    allgather MPI_Allgather(Data, c_int, Handle, At, c_int, Handle, Handle);
    allreduce MPI_Allreduce(Data, At, c_int, Handle, Handle, Handle);
    gather MPI_Gather(Data, c_int, Handle, At, c_int, Handle, c_int, Handle);
    bcast MPI_Bcast(At, c_int, Handle, c_int, Handle);
}

/// Type of `MPI_Request_get_status_all`: number of requests, requests, whether all are done, statuses.
type GetStatusAll = unsafe extern "C" fn(c_int, Data, *mut c_int, At) -> c_int;

/// Type of `MPI_Request_get_status_any` and `MPI_Request_get_status_some`: number of requests, requests, two results, statuses.
type GetStatusSome = unsafe extern "C" fn(c_int, Data, *mut c_int, *mut c_int, At) -> c_int;

/// Type of `MPI_Type_get_envelope_c`: a datatype, its numbers of integers, addresses, large counts and datatypes, its combiner.
type Envelope = unsafe extern "C" fn(Handle, *mut i64, *mut i64, *mut i64, *mut i64, *mut c_int) -> c_int;

/// Type of `MPI_Type_get_contents_c`: a datatype, the lengths of four arrays (integers, addresses, large counts, datatypes), the arrays.
type Contents = unsafe extern "C" fn(Handle, i64, i64, i64, i64, *mut c_int, *mut isize, *mut i64, At) -> c_int;

/// Functions that only some MPI libraries have.
#[derive(Clone, Copy, Debug)]
pub struct OptionalFunctions {
    /// `MPI_Request_get_status_all`.
    pub request_get_status_all: Option<GetStatusAll>,
    /// `MPI_Request_get_status_any`.
    pub request_get_status_any: Option<GetStatusSome>,
    /// `MPI_Request_get_status_some`.
    pub request_get_status_some: Option<GetStatusSome>,
    /// `MPI_Type_get_envelope_c`.
    pub type_get_envelope_c: Option<Envelope>,
    /// `MPI_Type_get_contents_c`.
    pub type_get_contents_c: Option<Contents>,
}

impl OptionalFunctions {
    pub(crate) fn of(library: &Library) -> OptionalFunctions {
        let some = |name: &CStr| {
            // SAFETY: the functions of these names have this signature.
            library.symbol(name).map(|symbol| unsafe { std::mem::transmute::<*mut c_void, GetStatusSome>(symbol) })
        };
        let all = library.symbol(c"PMPI_Request_get_status_all");
        OptionalFunctions {
            // SAFETY: the function of this name has this signature.
            request_get_status_all: all
                .map(|symbol| unsafe { std::mem::transmute::<*mut c_void, GetStatusAll>(symbol) }),
            // SAFETY: the function of this name has this signature.
            type_get_envelope_c: library
                .symbol(c"PMPI_Type_get_envelope_c")
                .map(|symbol| unsafe { std::mem::transmute::<*mut c_void, Envelope>(symbol) }),
            // SAFETY: the function of this name has this signature.
            type_get_contents_c: library
                .symbol(c"PMPI_Type_get_contents_c")
                .map(|symbol| unsafe { std::mem::transmute::<*mut c_void, Contents>(symbol) }),
            request_get_status_any: some(c"PMPI_Request_get_status_any"),
            request_get_status_some: some(c"PMPI_Request_get_status_some"),
        }
    }
}

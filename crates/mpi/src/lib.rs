//! Finds the MPI library at run time and calls it.
//!
//! This crate links to no MPI and reads no MPI header. It finds the MPI library among the objects that the process has loaded, or else
//! loads that of the launcher. It determines the library's [`Family`] from its symbols, and calls its functions by their `PMPI_` names
//! through [`Mpi`]. [`MpiTransport`] transfers the messages of plans; [`locations`] determines which ranks share a node; [`Mpi::attach`]
//! attaches state to a communicator; [`Tags`] allocates ranges of tags on an internal communicator that several communicators share.

mod collectives;
mod communicators;
mod ending;
mod exchange;
mod external;
mod family;
mod functions;
mod hook;
pub mod launcher;
mod layout;
mod load;
mod registry;
mod tags;
mod topology;
mod transport;
mod types;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use collectives::Collectives;
pub use collectives::{Flavour, Function};
pub use communicators::AgreeOp;
pub use ending::{FreeId, FreeingCommunicators};
pub use external::ExternalCollectives;
pub use family::{Constants, Family};
pub use functions::{Functions, Handle, OptionalFunctions};
use hook::Hook;
pub use hook::Work;
pub use load::{Library, NoMpi, has_device_runtime, has_raised_privileges, variable};
pub use registry::AttachedState;
pub use tags::{TagRange, Tags};
pub use topology::{Location, is_pinned, locations, processes_and_cores};
pub use transport::{MpiTransport, PostStyle, Requests};
pub use types::{TypeLayout, Types};

/// Error of an MPI function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{call} failed with error code {code}")]
pub struct MpiError {
    /// Name of the function that failed.
    pub call: &'static str,
    /// Error code that the function returned.
    pub code: i32,
}

/// The MPI library that this process uses, with its constants and functions.
pub struct Mpi {
    /// The MPI library as a loaded shared object.
    pub library: Library,
    /// Family of the library, which determines its constants and the width of its handles.
    pub family: Family,
    /// Values of the MPI library's constants.
    pub constants: Constants,
    /// Functions that every MPI has.
    pub f: Functions,
    /// Functions that only some MPI libraries have.
    pub extra: OptionalFunctions,
    pub(crate) collectives: Collectives,
    pub(crate) hook: Option<Hook>,
    name: String,
    width: usize,
    /// Mask of the bits of a 64-bit word that belong to a handle.
    mask: Handle,
    in_place: Handle,
    pub(crate) byte: Handle,
    pub(crate) uint64: Handle,
    /// `MPI_COMM_NULL`; `null_type` and `null_op` are `MPI_DATATYPE_NULL` and `MPI_OP_NULL`.
    null_comm: Option<Handle>,
    pub(crate) null_type: Option<Handle>,
    pub(crate) null_op: Option<Handle>,
    pub(crate) status_ignore: *mut c_void,
    pub(crate) any_source: c_int,
    types: OnceLock<Types>,
    /// An internal communicator, once one exists. Its functions return errors instead of calling the user's error handler.
    pub(crate) quiet: OnceLock<Handle>,
}

// SAFETY: the only pointer is a constant of the MPI, which is never dereferenced here.
unsafe impl Send for Mpi {}
// SAFETY: the only pointer is a constant of the MPI, which is never dereferenced here.
unsafe impl Sync for Mpi {}

static FOUND: OnceLock<Mpi> = OnceLock::new();

impl Mpi {
    /// Returns the MPI library that this process has loaded. The result is cached once the library is found.
    #[inline]
    pub fn find() -> Result<&'static Mpi, NoMpi> {
        match FOUND.get() {
            Some(mpi) => Ok(mpi),
            None => Mpi::look(),
        }
    }

    #[cold]
    fn look() -> Result<&'static Mpi, NoMpi> {
        let mpi = Mpi::of(Library::loaded()?)?;
        Ok(FOUND.get_or_init(|| mpi))
    }

    /// Returns the MPI library that this process has loaded. If there is none, loads the MPI library of the launcher that started the
    /// process.
    pub fn find_or_load() -> Result<&'static Mpi, NoMpi> {
        match Mpi::find() {
            Err(NoMpi::NotLoaded) => {}
            other => return other,
        }
        static LOADED: OnceLock<Mpi> = OnceLock::new();
        if let Some(mpi) = LOADED.get() {
            return Ok(mpi);
        }
        let mpi = Mpi::of(Library::load_of_launcher()?)?;
        Ok(LOADED.get_or_init(|| mpi))
    }

    fn of(library: Library) -> Result<Mpi, NoMpi> {
        let f = Functions::of(&library)?;
        let family = classify(&library, &f)?;
        let name = library_version(&f);
        let constants = Constants::of(family, &library, &name);
        Ok(Mpi {
            collectives: Collectives::of(&library)?,
            hook: Hook::of(family, &library),
            extra: OptionalFunctions::of(&library),
            family,
            name,
            width: family.width(),
            mask: if family.width() == 4 { 0xffff_ffff } else { Handle::MAX },
            in_place: constants.required("MPI_IN_PLACE"),
            null_comm: constants.get("MPI_COMM_NULL"),
            null_type: constants.get("MPI_DATATYPE_NULL"),
            null_op: constants.get("MPI_OP_NULL"),
            byte: constants.required("MPI_BYTE"),
            uint64: constants.required("MPI_UINT64_T"),
            status_ignore: constants.required("MPI_STATUS_IGNORE") as *mut c_void,
            any_source: constants.required("MPI_ANY_SOURCE") as c_int,
            constants,
            library,
            f,
            types: OnceLock::new(),
            quiet: OnceLock::new(),
        })
    }

    /// Returns the size of a handle in memory, in bytes.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the handle in a 64-bit word that a caller passed. If handles are narrower than 64 bits, the upper bits are cleared.
    #[inline]
    pub fn handle(&self, word: Handle) -> Handle {
        word & self.mask
    }

    /// Returns the handle at index `at` of an array of handles.
    ///
    /// # Safety
    /// The array has a handle at index `at`.
    pub unsafe fn handle_at(&self, handles: *const c_void, at: usize) -> Handle {
        // SAFETY: the caller guarantees that there is a handle at this index.
        unsafe {
            match self.width {
                4 => Handle::from(handles.cast::<u32>().add(at).read_unaligned()),
                _ => handles.cast::<u64>().add(at).read_unaligned(),
            }
        }
    }

    /// Writes a handle to index `at` of an array of handles.
    ///
    /// # Safety
    /// The array has space for a handle at index `at`.
    pub unsafe fn put_handle(&self, handles: *mut c_void, at: usize, handle: Handle) {
        // SAFETY: the caller guarantees that there is space for a handle at this index.
        unsafe {
            match self.width {
                4 => handles.cast::<u32>().add(at).write_unaligned(handle as u32),
                _ => handles.cast::<u64>().add(at).write_unaligned(handle),
            }
        }
    }

    /// Returns the handle that an MPI function has written to a 64-bit variable.
    #[inline]
    fn read(&self, cell: u64) -> Handle {
        self.handle(cell)
    }

    /// Returns whether this handle is `MPI_COMM_NULL`.
    pub fn is_null_comm(&self, comm: Handle) -> bool {
        self.null_comm == Some(comm)
    }

    /// Returns the handle of `MPI_COMM_WORLD`.
    pub fn comm_world(&self) -> Handle {
        self.constants.required("MPI_COMM_WORLD")
    }

    /// Returns whether this address is `MPI_IN_PLACE`.
    #[inline]
    pub fn is_in_place(&self, data: *const c_void) -> bool {
        data as Handle == self.in_place
    }

    /// Returns the value of `MPI_IN_PLACE`.
    pub fn in_place(&self) -> *const c_void {
        self.in_place as *const c_void
    }

    /// Returns the meaning of predefined datatypes and operations.
    pub fn types(&self) -> &Types {
        self.types.get_or_init(|| Types::of(self))
    }

    /// Returns whether this MPI treats input and output in the same memory as an error: MPICH and its derivatives do, Open MPI does not. A
    /// test call cannot determine this, because in Intel MPI's standard ABI the error ends the job regardless of the error handler.
    #[inline]
    pub fn refuses_aliases(&self) -> bool {
        self.family != Family::OpenMpi
    }

    /// Returns whether MPI is initialised and not yet finalised.
    pub fn is_running(&self) -> bool {
        let (mut started, mut ended) = (0, 0);
        // SAFETY: both functions may be called at any time, and write one integer.
        unsafe {
            (self.f.initialized)(&mut started);
            (self.f.finalized)(&mut ended);
        }
        started != 0 && ended == 0
    }

    /// Returns whether the program can continue after a process has failed, as in Open MPI started with `--with-ft`.
    pub fn survives_failures(&self) -> bool {
        // SAFETY: Open MPI's variable of this name is a boolean, which is set when MPI is initialised.
        self.library.symbol(c"ompi_ftmpi_enabled").is_some_and(|enabled| unsafe { *enabled.cast::<u8>() != 0 })
    }

    /// Returns the function `name` of a tool that is preloaded after this library, if there is such a tool. The dynamic linker finds a
    /// tool before the MPI. What it finds is the MPI if it is the MPI's file or, as an MPI may have several libraries, if it also exports
    /// `PMPI_Init`.
    pub fn function_of_tool(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: looks up a C string in the objects that the dynamic linker searches after this library.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        let object = load::object_of(found)?;
        let is_the_mpis = self.library.is(&object) || Library::has_both_names(&object);
        (!is_the_mpis).then_some(found)
    }

    /// Returns the address of a function in the MPI library.
    pub fn function(&self, name: &CStr) -> Option<*mut c_void> {
        self.library.symbol(name)
    }

    /// Returns whether several threads may call MPI at once (`MPI_THREAD_MULTIPLE`). Also returns true if the query fails.
    pub fn is_threaded(&self) -> bool {
        let mut given = 0;
        // SAFETY: the function writes one integer; MPI is running.
        let code = unsafe { (self.f.query_thread)(&mut given) };
        code != 0 || Some(given as Handle) == self.constants.get("MPI_THREAD_MULTIPLE")
    }

    /// Initialises MPI, for a command of this project that runs as an MPI program.
    pub fn start(&self) -> Result<(), MpiError> {
        let (single, mut provided) = (self.constants.required("MPI_THREAD_SINGLE") as c_int, 0);
        // SAFETY: null arguments are allowed since MPI 2.
        check("MPI_Init_thread", unsafe {
            (self.f.init_thread)(std::ptr::null_mut(), std::ptr::null_mut(), single, &mut provided)
        })
    }

    /// Finalises MPI, for a process that has initialised it by [`Mpi::start`].
    pub fn stop(&self) -> Result<(), MpiError> {
        // SAFETY: the call is collective over all processes; each of them makes it.
        check("MPI_Finalize", unsafe { (self.f.finalize)() })
    }

    /// Ends all processes of the job, if one of them cannot continue and others would wait for it.
    pub fn abort(&self, code: c_int) -> ! {
        // SAFETY: `MPI_COMM_WORLD` exists between `start` and `stop`.
        unsafe { (self.f.abort)(self.comm_world(), code) };
        std::process::exit(code)
    }

    /// Returns the major and minor version of the MPI standard that the library supports.
    pub fn standard(&self) -> (i32, i32) {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the function may be called at any time, and writes two integers.
        unsafe { (self.f.get_version)(&mut major, &mut minor) };
        (major, minor)
    }

    /// Returns the library's name and version in a short form.
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn check(call: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == 0 { Ok(()) } else { Err(MpiError { call, code }) }
}

fn library_version(f: &Functions) -> String {
    let mut text = vec![0u8; 8193];
    let mut length: c_int = 0;
    // SAFETY: the function may be called at any time; the buffer is longer than the longest text of any MPI.
    unsafe { (f.get_library_version)(text.as_mut_ptr().cast::<c_char>(), &mut length) };
    text.truncate(length.clamp(0, 8192) as usize);
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().next().unwrap_or_default();
    let name = line.split(',').next().unwrap_or_default().replace("Version:", "");
    let name = name.replace("(R) MPI Library", " MPI").replace("for Linux* OS", "").replace(" v", " ");
    name.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Determines the family of an MPI library from its symbols and from the version text that it reports.
fn classify(library: &Library, f: &Functions) -> Result<Family, NoMpi> {
    if library.symbol(c"ompi_mpi_comm_world").is_some() {
        return Ok(Family::OpenMpi);
    }
    if let Some(symbol) = library.symbol(c"PMPI_Abi_get_version") {
        let (mut major, mut minor): (c_int, c_int) = (-1, -1);
        // SAFETY: the function of this name has this signature, and may be called at any time.
        unsafe {
            let get: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = std::mem::transmute(symbol);
            get(&mut major, &mut minor);
        }
        if major >= 1 {
            return Ok(Family::Abi);
        }
    }
    let version = library_version(f);
    let mpich = ["MPICH", "Intel MPI", "MVAPICH"];
    if mpich.iter().any(|name| version.contains(name)) {
        return Ok(Family::Mpich);
    }
    Err(NoMpi::Unknown(version))
}

//! MPI found at run time.
//!
//! No MPI is linked and no header is read: the library that a process uses is found among what it has loaded, its
//! [`Family`] is told by its symbols, and everything is called by its `PMPI_` name. [`Mpi`] is that; [`Messages`] carries
//! a program's messages over it; [`places`] says who shares a node; [`Mpi::keep`] keeps what belongs to a communicator;
//! [`Tags`] are shared out among communicators on one hidden communicator.

mod collectives;
mod communicators;
mod ending;
mod exchange;
mod family;
mod functions;
mod hook;
pub mod launcher;
mod layout;
mod load;
mod registry;
mod rival;
mod tags;
mod topology;
mod transport;
mod types;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use collectives::Collectives;
pub use collectives::{Flavour, Function};
pub use communicators::Agree;
pub use ending::{Ending, EndingId};
pub use family::{Constants, Family};
pub use functions::{Extra, Functions, Handle};
use hook::Hook;
pub use hook::Work;
pub use load::{Library, NoMpi, has_device_runtime, has_raised_privileges, variable};
pub use registry::Kept;
pub use rival::Rival;
pub use tags::{TagRange, Tags};
pub use topology::{Place, is_pinned, places, sharers};
pub use transport::{Messages, Requests, Style};
pub use types::{Shape, Types};

/// What an MPI function returned instead of success.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{call} returned {code}")]
pub struct MpiError {
    /// The function.
    pub call: &'static str,
    /// Its error code.
    pub code: i32,
}

/// The MPI of this process.
pub struct Mpi {
    /// Where it is.
    pub library: Library,
    /// Which constants it has.
    pub family: Family,
    /// Its constants.
    pub constants: Constants,
    /// Its functions.
    pub f: Functions,
    /// Those that not every MPI has.
    pub extra: Extra,
    pub(crate) collectives: Collectives,
    pub(crate) hook: Option<Hook>,
    name: String,
    width: usize,
    /// The bits of a word that are a handle.
    mask: Handle,
    in_place: Handle,
    pub(crate) byte: Handle,
    pub(crate) uint64: Handle,
    /// What is no communicator, datatype or operation.
    null_comm: Option<Handle>,
    pub(crate) null_type: Option<Handle>,
    pub(crate) null_op: Option<Handle>,
    pub(crate) status_ignore: *mut c_void,
    pub(crate) any_source: c_int,
    types: OnceLock<Types>,
    /// A communicator whose errors are returned, once there is one.
    pub(crate) quiet: OnceLock<Handle>,
}

// SAFETY: the one pointer is a constant of the MPI's, never followed here.
unsafe impl Send for Mpi {}
// SAFETY: as above.
unsafe impl Sync for Mpi {}

static FOUND: OnceLock<Mpi> = OnceLock::new();

impl Mpi {
    /// The MPI that this process has loaded. The answer is found once.
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

    /// The MPI of this process, or the one that launched it, loaded now.
    pub fn find_or_load() -> Result<&'static Mpi, NoMpi> {
        match Mpi::find() {
            Err(NoMpi::NotLoaded) => {}
            other => return other,
        }
        static LOADED: OnceLock<Mpi> = OnceLock::new();
        if let Some(mpi) = LOADED.get() {
            return Ok(mpi);
        }
        let mpi = Mpi::of(Library::launched()?)?;
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
            extra: Extra::of(&library),
            family,
            name,
            width: family.width(),
            mask: if family.width() == 4 { 0xffff_ffff } else { Handle::MAX },
            in_place: constants.must("MPI_IN_PLACE"),
            null_comm: constants.get("MPI_COMM_NULL"),
            null_type: constants.get("MPI_DATATYPE_NULL"),
            null_op: constants.get("MPI_OP_NULL"),
            byte: constants.must("MPI_BYTE"),
            uint64: constants.must("MPI_UINT64_T"),
            status_ignore: constants.must("MPI_STATUS_IGNORE") as *mut c_void,
            any_source: constants.must("MPI_ANY_SOURCE") as c_int,
            constants,
            library,
            f,
            types: OnceLock::new(),
            quiet: OnceLock::new(),
        })
    }

    /// Bytes of a handle in memory.
    pub fn width(&self) -> usize {
        self.width
    }

    /// A handle as the caller passed it, without what a wider register may carry besides.
    #[inline]
    pub fn handle(&self, word: Handle) -> Handle {
        word & self.mask
    }

    /// A handle in an array of handles.
    ///
    /// # Safety
    /// The array has one there.
    pub unsafe fn handle_at(&self, handles: *const c_void, at: usize) -> Handle {
        // SAFETY: the array has a handle there, as asked for above.
        unsafe {
            match self.width {
                4 => Handle::from(handles.cast::<u32>().add(at).read_unaligned()),
                _ => handles.cast::<u64>().add(at).read_unaligned(),
            }
        }
    }

    /// Puts a handle into an array of handles.
    ///
    /// # Safety
    /// The array has one there.
    pub unsafe fn put_handle(&self, handles: *mut c_void, at: usize, handle: Handle) {
        // SAFETY: the array has a handle there, as asked for above.
        unsafe {
            match self.width {
                4 => handles.cast::<u32>().add(at).write_unaligned(handle as u32),
                _ => handles.cast::<u64>().add(at).write_unaligned(handle),
            }
        }
    }

    /// A handle from memory that a function has written.
    #[inline]
    fn read(&self, cell: u64) -> Handle {
        self.handle(cell)
    }

    /// Whether this is no communicator.
    pub fn is_null_comm(&self, comm: Handle) -> bool {
        self.null_comm == Some(comm)
    }

    /// `MPI_COMM_WORLD`.
    pub fn comm_world(&self) -> Handle {
        self.constants.must("MPI_COMM_WORLD")
    }

    /// Whether this address is `MPI_IN_PLACE`.
    #[inline]
    pub fn is_in_place(&self, data: *const c_void) -> bool {
        data as Handle == self.in_place
    }

    /// `MPI_IN_PLACE` itself.
    pub fn in_place(&self) -> *const c_void {
        self.in_place as *const c_void
    }

    /// What built-in types and operations are.
    pub fn types(&self) -> &Types {
        self.types.get_or_init(|| Types::of(self))
    }

    /// Whether this MPI takes input and output that are the same memory for an error: MPICH and its like do, Open MPI does
    /// not. Trying it out is no way to know: what Intel MPI's standard ABI finds wrong ends the job, whatever the handler.
    #[inline]
    pub fn refuses_aliases(&self) -> bool {
        self.family != Family::OpenMpi
    }

    /// Whether MPI is initialised and not yet finalised.
    pub fn is_running(&self) -> bool {
        let (mut started, mut ended) = (0, 0);
        // SAFETY: both may be called at any time, and write one integer.
        unsafe {
            (self.f.initialized)(&mut started);
            (self.f.finalized)(&mut ended);
        }
        started != 0 && ended == 0
    }

    /// Whether a program goes on when a process has failed: Open MPI started with `--with-ft`.
    pub fn survives_failures(&self) -> bool {
        // SAFETY: Open MPI's variable of this name is a boolean, and set when MPI is initialised.
        self.library
            .symbol(c"ompi_ftmpi_enabled")
            .is_some_and(|enabled| unsafe { *enabled.cast::<u8>() != 0 })
    }

    /// The function of a tool that is preloaded behind this library, if there is one: it is found before the MPI's own, or another library
    /// of the MPI's, where functions come in pairs.
    pub fn function_of_tool(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: looks up a C string among what is loaded behind the object that this code is in.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        let object = load::object_of(found)?;
        let is_the_mpis = self.library.is(&object) || Library::has_both_names(&object);
        (!is_the_mpis).then_some(found)
    }

    /// The address of a function of the MPI's library.
    pub fn function(&self, name: &CStr) -> Option<*mut c_void> {
        self.library.symbol(name)
    }

    /// Whether several threads may call MPI at once.
    pub fn is_threaded(&self) -> bool {
        let mut given = 0;
        // SAFETY: writes one integer; MPI is running.
        let code = unsafe { (self.f.query_thread)(&mut given) };
        code != 0 || Some(given as Handle) == self.constants.get("MPI_THREAD_MULTIPLE")
    }

    /// Initialises MPI, for a process that is no MPI program.
    pub fn start(&self) -> Result<(), MpiError> {
        let (single, mut provided) = (self.constants.must("MPI_THREAD_SINGLE") as c_int, 0);
        // SAFETY: null arguments are allowed since MPI 2.
        check("MPI_Init_thread", unsafe {
            (self.f.init_thread)(std::ptr::null_mut(), std::ptr::null_mut(), single, &mut provided)
        })
    }

    /// Finalises MPI, for a process that initialised it by [`Mpi::start`].
    pub fn stop(&self) -> Result<(), MpiError> {
        // SAFETY: collective over all processes, by contract of the command that calls it.
        check("MPI_Finalize", unsafe { (self.f.finalize)() })
    }

    /// Ends all processes, where one cannot go on and others would wait for it.
    pub fn abort(&self, code: c_int) -> ! {
        // SAFETY: takes the world, which is there from start to stop.
        unsafe { (self.f.abort)(self.comm_world(), code) };
        std::process::exit(code)
    }

    /// The version of the standard.
    pub fn standard(&self) -> (i32, i32) {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: may be called at any time, and writes two integers.
        unsafe { (self.f.get_version)(&mut major, &mut minor) };
        (major, minor)
    }

    /// Its name and version, in few words.
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
    // SAFETY: may be called at any time; longer than any MPI's longest text.
    unsafe { (f.get_library_version)(text.as_mut_ptr().cast::<c_char>(), &mut length) };
    text.truncate(length.clamp(0, 8192) as usize);
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().next().unwrap_or_default();
    let name = line.split(',').next().unwrap_or_default().replace("Version:", "");
    let name = name.replace("(R) MPI Library", " MPI").replace("for Linux* OS", "").replace(" v", " ");
    name.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The family, by symbols and by what the library says of its ABI.
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

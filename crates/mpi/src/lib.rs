//! MPI found at run time.
//!
//! No MPI is linked and no header is read: the library that a process uses is found among what it has loaded, its
//! [`Family`] is told by its symbols, and everything is called by its `PMPI_` name. [`Mpi`] is that; [`Messages`] carries
//! a program's messages over it; [`places`] says who shares a node; [`Registry`] keeps what belongs to a communicator;
//! [`Tags`] are shared out among communicators on one hidden communicator.

mod collectives;
mod family;
mod functions;
mod hook;
mod load;
mod registry;
mod tags;
mod topology;
mod transport;
mod types;

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use bruckner_runtime::Patience;
use collectives::Collectives;
pub use collectives::{Flavour, Function};
pub use family::{Constants, Family};
pub use functions::{Extra, Functions, Word};
use hook::Hook;
pub use hook::Work;
pub use load::{Library, NoMpi, has_device_runtime};
pub use registry::Registry;
pub use tags::{TagRange, Tags};
pub use topology::{Place, places, sharers};
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
    mask: Word,
    in_place: Word,
    pub(crate) byte: Word,
    pub(crate) uint64: Word,
    pub(crate) status_ignore: *mut c_void,
    pub(crate) any_source: c_int,
    pub(crate) any_tag: c_int,
    types: OnceLock<Types>,
}

// SAFETY: the one pointer is a constant of the MPI's, never followed here.
unsafe impl Send for Mpi {}
// SAFETY: as above.
unsafe impl Sync for Mpi {}

static FOUND: OnceLock<Mpi> = OnceLock::new();

/// How two values become one in an agreement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Agree {
    /// The greatest.
    Max,
    /// The least.
    Min,
    /// The bits that all have.
    And,
}

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
            mask: if family.width() == 4 { 0xffff_ffff } else { Word::MAX },
            in_place: constants.must("MPI_IN_PLACE"),
            byte: constants.must("MPI_BYTE"),
            uint64: constants.must("MPI_UINT64_T"),
            status_ignore: constants.must("MPI_STATUS_IGNORE") as *mut c_void,
            any_source: constants.must("MPI_ANY_SOURCE") as c_int,
            any_tag: constants.must("MPI_ANY_TAG") as c_int,
            constants,
            library,
            f,
            types: OnceLock::new(),
        })
    }

    /// Bytes of a handle in memory.
    pub fn width(&self) -> usize {
        self.width
    }

    /// A handle as the caller passed it, without what a wider register may carry besides.
    #[inline]
    pub fn handle(&self, word: Word) -> Word {
        word & self.mask
    }

    /// A handle in an array of handles.
    ///
    /// # Safety
    /// The array has one there.
    pub unsafe fn handle_at(&self, handles: *const c_void, at: usize) -> Word {
        // SAFETY: the caller's promise.
        unsafe {
            match self.width {
                4 => Word::from(handles.cast::<u32>().add(at).read_unaligned()),
                _ => handles.cast::<u64>().add(at).read_unaligned(),
            }
        }
    }

    /// Puts a handle into an array of handles.
    ///
    /// # Safety
    /// The array has one there.
    pub unsafe fn put_handle(&self, handles: *mut c_void, at: usize, handle: Word) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.width {
                4 => handles.cast::<u32>().add(at).write_unaligned(handle as u32),
                _ => handles.cast::<u64>().add(at).write_unaligned(handle),
            }
        }
    }

    /// A handle from memory that a function has written.
    #[inline]
    fn read(&self, cell: u64) -> Word {
        self.handle(cell)
    }

    /// `MPI_COMM_WORLD`.
    pub fn world(&self) -> Word {
        self.constants.must("MPI_COMM_WORLD")
    }

    /// Whether this address is `MPI_IN_PLACE`.
    #[inline]
    pub fn is_in_place(&self, data: *const c_void) -> bool {
        data as Word == self.in_place
    }

    /// `MPI_IN_PLACE` itself.
    pub fn in_place(&self) -> *const c_void {
        self.in_place as *const c_void
    }

    /// What built-in types and operations are.
    pub fn types(&self) -> &Types {
        self.types.get_or_init(|| Types::of(self))
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

/// Calls about communicators. All handles are valid by contract of the callers: they come from the user, who vouches for
/// them, or from MPI.
impl Mpi {
    /// This process's rank in a communicator.
    pub fn rank(&self, comm: Word) -> Result<u32, MpiError> {
        let mut rank: c_int = 0;
        // SAFETY: a valid handle.
        check("MPI_Comm_rank", unsafe { (self.f.comm_rank)(comm, &mut rank) })?;
        Ok(rank as u32)
    }

    /// How many a communicator has.
    pub fn size(&self, comm: Word) -> Result<u32, MpiError> {
        let mut size: c_int = 0;
        // SAFETY: a valid handle.
        check("MPI_Comm_size", unsafe { (self.f.comm_size)(comm, &mut size) })?;
        Ok(size as u32)
    }

    /// How many a process of a communicator exchanges data with: its own group, or the other one.
    pub fn peers(&self, comm: Word) -> Result<u32, MpiError> {
        if !self.is_inter(comm)? {
            return self.size(comm);
        }
        let mut size: c_int = 0;
        // SAFETY: a valid handle.
        check("MPI_Comm_remote_size", unsafe { (self.f.comm_remote_size)(comm, &mut size) })?;
        Ok(size as u32)
    }

    /// Whether a communicator has two groups.
    pub fn is_inter(&self, comm: Word) -> Result<bool, MpiError> {
        let mut inter: c_int = 0;
        // SAFETY: a valid handle.
        check("MPI_Comm_test_inter", unsafe { (self.f.comm_test_inter)(comm, &mut inter) })?;
        Ok(inter != 0)
    }

    /// A communicator of the same processes in the same order, whose errors are returned. Runs no user callbacks.
    pub fn hide(&self, comm: Word) -> Result<Word, MpiError> {
        let rank = self.rank(comm)?;
        let mut made: u64 = 0;
        // SAFETY: valid handles, and room for the widest one.
        check("MPI_Comm_split", unsafe {
            (self.f.comm_split)(comm, 0, rank as c_int, (&raw mut made).cast())
        })?;
        let made = self.read(made);
        // SAFETY: as above.
        check("MPI_Comm_set_errhandler", unsafe {
            (self.f.comm_set_errhandler)(made, self.constants.must("MPI_ERRORS_RETURN"))
        })?;
        Ok(made)
    }

    /// Has a function called when MPI is finalised, while everything still works: as an attribute of `MPI_COMM_SELF` is
    /// deleted. What was asked for first is called last.
    pub fn at_finalize(&self, call: fn()) -> Result<(), MpiError> {
        unsafe extern "C" fn delete(
            _comm: Word,
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
    pub fn node(&self, comm: Word) -> Result<Word, MpiError> {
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
    pub fn free(&self, comm: Word) {
        let mut cell = comm;
        // SAFETY: a valid handle in a cell of its width: little-endian, so the first bytes are it.
        unsafe { (self.f.comm_free)((&raw mut cell).cast()) };
    }

    /// The ranks in `of` of all processes of `comm`, in order; `None` for those that are not in it.
    pub fn translate(&self, comm: Word, of: Word) -> Result<Vec<Option<u32>>, MpiError> {
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

    /// The largest tag.
    pub fn tag_limit(&self) -> u32 {
        let mut value: *const c_int = std::ptr::null();
        let mut found: c_int = 0;
        let key = self.constants.must("MPI_TAG_UB") as c_int;
        // SAFETY: a predefined attribute of the world; its value is the address of an integer.
        unsafe { (self.f.comm_get_attr)(self.world(), key, (&raw mut value).cast(), &mut found) };
        if found == 0 || value.is_null() {
            return 32767;
        }
        // SAFETY: as above.
        unsafe { *value }.max(32767) as u32
    }

    /// Makes numbers the same on all processes of a communicator.
    pub fn agree(&self, comm: Word, how: Agree, numbers: &mut [u64]) -> Result<(), MpiError> {
        let op = self.constants.must(match how {
            Agree::Max => "MPI_MAX",
            Agree::Min => "MPI_MIN",
            Agree::And => "MPI_BAND",
        });
        let mine = numbers.to_vec();
        let mut request: u64 = 0;
        // SAFETY: as many numbers in as out, and both live until the request is done.
        check("MPI_Iallreduce", unsafe {
            (self.f.iallreduce)(
                mine.as_ptr().cast(),
                numbers.as_mut_ptr().cast(),
                numbers.len() as c_int,
                self.uint64,
                op,
                comm,
                (&raw mut request).cast(),
            )
        })?;
        // Not by a blocking call: those spin even where ranks share cores.
        let mut code = 0;
        Patience::SHARED_CORES.wait(
            || {
                let mut flag = 0;
                // SAFETY: the request made above.
                code =
                    unsafe { (self.f.testall)(1, (&raw mut request).cast(), &mut flag, self.status_ignore) };
                code != 0 || flag != 0
            },
            || {},
        );
        check("MPI_Testall", code)
    }

    /// The numbers of all processes of a communicator, in order of ranks.
    pub fn gather(&self, comm: Word, mine: &[u64]) -> Result<Vec<u64>, MpiError> {
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
    pub fn share_text(&self, comm: Word, text: &str) -> Result<String, MpiError> {
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

//! Finds the MPI library of this process, or loads the MPI library of the launcher that started it.
//!
//! This crate links to no MPI. A process that uses MPI has loaded its MPI library, under any file name: it is the object that exports
//! `PMPI_Initialized` (not `PMPI_Init`, which a preloaded library may export, too). A process without MPI (the `bruckner` command under
//! mpirun) loads the library that belongs to its launcher. It is determined by environment variables that the launcher sets, or by
//! `BRUCKNER_MPI`.

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// An MPI library that is loaded in this process.
#[derive(Debug)]
pub struct Library {
    handle: *mut c_void,
    /// Path of the library's file.
    pub path: PathBuf,
}

// SAFETY: a handle of the dynamic linker may be used by any thread.
unsafe impl Send for Library {}
// SAFETY: a handle of the dynamic linker may be used by any thread.
unsafe impl Sync for Library {}

/// Why no MPI library is available.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoMpi {
    /// The process has not loaded any MPI.
    #[error("no MPI library is loaded in this process")]
    NotLoaded,
    /// No known launcher started the process, so it is unknown which library to load.
    #[error(
        "this process was not started by a known MPI launcher; start it with mpirun, or set BRUCKNER_MPI to the path of an MPI library"
    )]
    NoLauncher,
    /// None of the candidate libraries can be loaded.
    #[error("cannot load an MPI library; tried {tried}; last error: {reason}")]
    CannotLoad {
        /// Names of the candidate libraries.
        tried: String,
        /// Error message of the dynamic linker for the last candidate.
        reason: String,
    },
    /// The library belongs to no supported family: it is not Open MPI, MPICH or a derivative, and does not follow the MPI-5 ABI.
    #[error("unsupported MPI: {0}; Bruckner supports Open MPI, MPICH, Intel MPI and the MPI-5 ABI")]
    Unknown(String),
    /// The library lacks a function that is needed.
    #[error("the MPI library lacks the function {0}")]
    Lacks(&'static str),
}

impl Library {
    /// Returns the address of a symbol.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle comes from dlopen, and the name is a C string.
        let at = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!at.is_null()).then_some(at)
    }

    /// Returns the address of a variable. If the program has its own copy of the variable (a copy relocation), the MPI library uses that
    /// copy, too, so the address of the copy is returned.
    pub(crate) fn variable(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: looks up a C string in the loaded objects.
        let copy = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if copy.is_null() { self.symbol(name) } else { Some(copy) }
    }

    /// Returns the MPI library that this process uses.
    pub(crate) fn loaded() -> Result<Library, NoMpi> {
        // The library that the program is linked to takes precedence. Under Python the program is linked to none, and all loaded objects
        // are searched.
        // SAFETY: looks up a symbol in the loaded objects.
        let bound = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PMPI_Initialized".as_ptr()) };
        if let Some(library) = object_of(bound).and_then(|path| Library::already(&path)) {
            return Ok(library);
        }
        let mut found: Option<Library> = None;
        visit_objects(&mut |path| {
            if let Some(library) = Library::already(path) {
                found = Some(library);
            }
            found.is_some()
        });
        found.ok_or(NoMpi::NotLoaded)
    }

    /// Returns the loaded object with this path as a library, if it is an MPI library.
    fn already(path: &CStr) -> Option<Library> {
        // SAFETY: the path is a C string; with RTLD_NOLOAD nothing new is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return None;
        }
        let library = Library { handle, path: PathBuf::from(path.to_string_lossy().into_owned()) };
        library.own_symbol(c"PMPI_Initialized").map(|_| library)
    }

    /// Returns whether `file` is the path of this library.
    pub(crate) fn is(&self, file: &CStr) -> bool {
        file.to_bytes() == self.path.as_os_str().as_bytes()
    }

    /// Returns whether a loaded file itself exports `PMPI_Init`. An MPI library exports it, but a tool does not.
    pub(crate) fn has_both_names(file: &CStr) -> bool {
        // SAFETY: the path is a C string; with RTLD_NOLOAD nothing new is loaded.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return false;
        }
        let library = Library { handle, path: PathBuf::from(file.to_string_lossy().into_owned()) };
        library.own_symbol(c"PMPI_Init").is_some()
    }

    /// Returns the address of a symbol that the object itself defines. `dlsym` alone also finds symbols of the object's dependencies.
    pub(crate) fn own_symbol(&self, name: &CStr) -> Option<*mut c_void> {
        let own = |at: &*mut c_void| object_of(*at).is_some_and(|object| self.is(&object));
        self.symbol(name).filter(own)
    }

    /// Loads an object that finds its own symbols first, and whose symbols are invisible to other objects.
    pub(crate) fn open_isolated(path: &Path) -> Result<Library, NoMpi> {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
        Library::open(path, flags).map_err(|reason| NoMpi::CannotLoad { tried: path.display().to_string(), reason })
    }

    /// Loads an object, or returns the error message of the dynamic linker.
    fn open(path: &Path, flags: c_int) -> Result<Library, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: the name is a C string. Loading an object runs its initialisers, as intended.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        if !handle.is_null() {
            return Ok(Library { handle, path: path.to_owned() });
        }
        // SAFETY: dlerror returns a C string after a failure, or null.
        let error = unsafe { libc::dlerror() };
        match error.is_null() {
            true => Err("the dynamic linker reports no reason".into()),
            // SAFETY: dlerror has returned a C string.
            false => Err(unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned()),
        }
    }

    /// Loads the MPI library of the launcher that started this process.
    pub(crate) fn load_of_launcher() -> Result<Library, NoMpi> {
        let candidates = trusted(candidates(&environment_variable, &launcher()), has_raised_privileges());
        if candidates.is_empty() {
            return Err(NoMpi::NoLauncher);
        }
        let mut reason = String::new();
        for path in &candidates {
            match Library::open(path, libc::RTLD_LAZY | libc::RTLD_GLOBAL) {
                Ok(library) => return Ok(library),
                Err(error) => reason = error,
            }
        }
        let tried: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
        Err(NoMpi::CannotLoad { tried: tried.join(", "), reason })
    }
}

/// Returns whether this process has loaded a GPU runtime, so that any address may be in device memory. The library calls it before it
/// accesses a user's buffer. On a machine without a GPU the cost is negligible. With a GPU the call takes some tens of nanoseconds, and
/// longer only if objects were loaded since the last call.
#[inline]
pub fn has_device_runtime() -> bool {
    DEVICES.load(Ordering::Relaxed) != Devices::None as u8 && look_for_runtime()
}

/// Whether the machine has a GPU that is visible to this process.
#[repr(u8)]
enum Devices {
    Unknown,
    None,
    Some,
}

static DEVICES: AtomicU8 = AtomicU8::new(Devices::Unknown as u8);

fn look_for_runtime() -> bool {
    if DEVICES.load(Ordering::Relaxed) == Devices::Unknown as u8 {
        let found = has_device() || variable("BRUCKNER_FAULT").is_some_and(|fault| fault == "device");
        DEVICES.store(if found { Devices::Some } else { Devices::None } as u8, Ordering::Relaxed);
        if !found {
            return false;
        }
    }
    FOUND.load(Ordering::Relaxed) || (LOADED.load(Ordering::Relaxed) != objects_loaded() && look_for_device())
}

/// Returns whether there is a device file that a GPU runtime needs: a file of NVIDIA's or AMD's driver, or any render device.
fn has_device() -> bool {
    let is_there = |folder: &str, starts: &[&str]| {
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
        names
            .into_iter()
            .any(|file| starts.iter().any(|start| file.file_name().as_bytes().starts_with(start.as_bytes())))
    };
    is_there("/dev", &["nvidia", "nvmap", "nvhost", "nvgpu", "kfd", "dxg"]) || is_there("/dev/dri", &["renderD"])
}

/// Whether a GPU runtime was found. It is never reset, because device memory may outlive the runtime.
static FOUND: AtomicBool = AtomicBool::new(false);
/// Number of objects loaded at the time of the last search for a GPU runtime.
static LOADED: AtomicU64 = AtomicU64::new(0);

#[cold]
fn look_for_device() -> bool {
    const RUNTIMES: [&str; 5] =
        ["libcuda.so", "libcudart.so", "libamdhip64.so", "libhsa-runtime64.so", "libze_loader.so"];
    let loaded = objects_loaded();
    let mut found = false;
    visit_objects(&mut |path| {
        let file = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes())).file_name().unwrap_or_default();
        found = RUNTIMES.iter().any(|name| file.as_bytes().starts_with(name.as_bytes()));
        found
    });
    FOUND.fetch_or(found, Ordering::Relaxed);
    LOADED.store(loaded, Ordering::Relaxed);
    found
}

/// Returns the number of objects that this process has loaded since its start.
fn objects_loaded() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
        // SAFETY: the linker passes a valid struct, and the address of the number that was passed in.
        unsafe { *data.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut loaded = 0u64;
    // SAFETY: the callback uses the address of `loaded` only during the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut loaded).cast()) };
    loaded
}

/// Returns whether this process has more privileges than the user who started it (for example setuid). Then the user's environment must
/// not influence it.
pub fn has_raised_privileges() -> bool {
    // SAFETY: this call has no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns the value of an environment variable; `None` if the process has raised privileges, so that the user must not influence it.
pub fn variable(name: &str) -> Option<OsString> {
    if has_raised_privileges() { None } else { std::env::var_os(name) }
}

/// Returns the value of an environment variable of this library or of a launcher. Variables of this library are ignored if privileges are
/// raised.
pub(crate) fn environment_variable(name: &str) -> Option<String> {
    let value = if name.starts_with("BRUCKNER") { variable(name) } else { std::env::var_os(name) };
    value.and_then(|value| value.into_string().ok())
}

/// Returns the path of the parent process's executable.
fn launcher() -> PathBuf {
    // SAFETY: this call has no preconditions.
    let parent = unsafe { libc::getppid() };
    std::fs::read_link(format!("/proc/{parent}/exe")).unwrap_or_default()
}

/// Returns the paths or names of the MPI libraries to try, the most likely one first.
fn candidates(environment: &dyn Fn(&str) -> Option<String>, launcher: &Path) -> Vec<PathBuf> {
    if let Some(chosen) = environment("BRUCKNER_MPI") {
        return vec![chosen.into()];
    }
    let (directories, names): (Vec<PathBuf>, &[&str]) = if environment("OMPI_COMM_WORLD_SIZE").is_some() {
        (environment("OMPI_LIBDIR_LOC").into_iter().map(PathBuf::from).collect(), &["libmpi.so.40"])
    } else if environment("I_MPI_MPIRUN").is_some() {
        let root = environment("I_MPI_ROOT").map(PathBuf::from);
        (root.map(|root| root.join("lib")).into_iter().collect(), &["libmpi.so.12"])
    } else if environment("PMI_RANK").is_some() || environment("PMI_FD").is_some() {
        (Vec::new(), &["libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1"])
    } else if environment("PMIX_NAMESPACE").is_some() {
        // Started by `srun --mpi=pmix`, which is used with Open MPI.
        let root = environment("OPAL_PREFIX").map(PathBuf::from);
        (root.map(|root| root.join("lib")).into_iter().collect(), &["libmpi.so.40"])
    } else {
        return Vec::new();
    };
    // The installation that the launcher belongs to is searched, too.
    let beside = launcher.parent().and_then(Path::parent).map(|prefix| prefix.join("lib"));
    let directories = directories.into_iter().chain(beside);
    let there: Vec<PathBuf> = directories
        .flat_map(|directory| names.iter().map(move |name| directory.join(name)))
        .filter(|path| path.exists())
        .collect();
    // A launcher in `/usr` is usually Debian's Hydra, which launches MPICH; Debian calls the MPICH library `libmpich`.
    let by_name: Vec<&str> = match launcher.starts_with("/usr") {
        true => names.iter().rev().copied().collect(),
        false => names.to_vec(),
    };
    there.into_iter().chain(by_name.into_iter().filter(|n| *n != "libmpi_abi.so.1").map(PathBuf::from)).collect()
}

/// Returns those candidates that a process may load. The user chooses the directories in `candidates`, by variables and by the launcher, so
/// a process with raised privileges only loads libraries by their names, which the dynamic loader searches in the system's directories.
fn trusted(mut candidates: Vec<PathBuf>, privileged: bool) -> Vec<PathBuf> {
    candidates.retain(|path| !privileged || path.components().count() == 1);
    candidates
}

/// Returns the path of the loaded object that contains an address.
pub(crate) fn object_of(address: *mut c_void) -> Option<CString> {
    if address.is_null() {
        return None;
    }
    // SAFETY: all zero is a valid value of this plain struct.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `dladdr` accepts any address.
    if unsafe { libc::dladdr(address, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `dladdr` has returned a C string.
    Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_owned())
}

/// Calls `enough` with the path of each loaded object, until it returns true.
fn visit_objects(enough: &mut dyn FnMut(&CStr) -> bool) {
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
        // SAFETY: the linker passes a valid struct.
        let name: *const c_char = unsafe { (*info).dlpi_name };
        if name.is_null() {
            return 0;
        }
        // SAFETY: `dlpi_name` is a C string of the linker, and `data` is the address of the list that was passed in.
        let (name, list) = unsafe { (CStr::from_ptr(name), &mut *data.cast::<Vec<CString>>()) };
        if !name.is_empty() {
            list.push(name.to_owned());
        }
        0
    }
    // The names are collected first, because no object may be opened during the iteration, which holds the linker's lock.
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: the callback uses the address of `names` only during the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut names).cast()) };
    for name in &names {
        if enough(name) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)], launcher: &str) -> Vec<String> {
        let environment = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        let found = candidates(&environment, Path::new(launcher));
        found.into_iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn the_launcher_tells_which_library() {
        assert_eq!(of(&[], "/bin/sh"), [""; 0]);
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "2")], "/opt/no/bin/prted"), ["libmpi.so.40"]);
        assert_eq!(of(&[("PMI_RANK", "0")], "/opt/no/bin/hydra_pmi_proxy"), ["libmpi.so.12", "libmpich.so.12"]);
        assert_eq!(of(&[("PMI_RANK", "0")], "/usr/bin/hydra_pmi_proxy"), ["libmpich.so.12", "libmpi.so.12"]);
        assert_eq!(of(&[("PMI_RANK", "0"), ("BRUCKNER_MPI", "/x/libmpi.so")], "/bin/sh"), ["/x/libmpi.so"]);
        assert_eq!(of(&[("PMIX_NAMESPACE", "slurm.pmix.1.0")], "/usr/sbin/slurmstepd"), ["libmpi.so.40"]);
        assert_eq!(of(&[("I_MPI_MPIRUN", "mpirun"), ("PMI_RANK", "0")], "/opt/no/bin/hydra"), ["libmpi.so.12"]);
    }

    #[test]
    fn raised_privileges_allow_no_directory_of_the_user() {
        let place = std::env::temp_dir().join(format!("bruckner-load-{}", std::process::id()));
        std::fs::create_dir_all(&place).expect("a directory");
        std::fs::write(place.join("libmpi.so.40"), "").expect("a file");
        let directory = place.display().to_string();
        let found = of(&[("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_LIBDIR_LOC", &directory)], "/opt/no/bin/prted");
        std::fs::remove_dir_all(&place).expect("removed");
        assert_eq!(found, [format!("{directory}/libmpi.so.40"), "libmpi.so.40".to_owned()]);
        let found: Vec<PathBuf> = found.into_iter().map(PathBuf::from).collect();
        assert_eq!(trusted(found.clone(), false), found);
        assert_eq!(trusted(found, true), [PathBuf::from("libmpi.so.40")]);
    }

    #[test]
    fn a_process_without_mpi_has_none() {
        assert_eq!(Library::loaded().unwrap_err(), NoMpi::NotLoaded);
    }
}

//! `bruckner exec`: runs a program with the library preloaded, and sets a variable that tells its ranks that all of them have the library.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use bruckner_engine::mpi::launcher::{MARK, file_id, mark};
use clap::Args;

/// File name of the library.
const LIBRARY: &str = "libbruckner.so";

/// Run a program with the library preloaded: mpirun -n 4 bruckner exec ./app
///
/// Put `bruckner exec` between the launcher and the program: `mpirun -n 4 bruckner exec ./app`, `srun bruckner exec ./app`. It appends
/// libbruckner.so to LD_PRELOAD, and works with every launcher, on one node and on several.
///
/// If the launcher starts a script, put `bruckner exec` before the program inside the script. With `bruckner exec` before the
/// script, all calls on several nodes are passed through to the MPI unless you add --through, because the script might remove the library
/// on some ranks.
///
/// libbruckner.so must be in the directory of this command, or in ../lib, ../lib64 or ../lib/bruckner relative to it; otherwise give its
/// path with --library.
#[derive(Args)]
pub(crate) struct Exec {
    /// Assert that PROGRAM is a script or wrapper that passes LD_PRELOAD on to the real program on every rank, so that calls are handled on
    /// several nodes, too
    #[arg(long)]
    through: bool,
    /// Path of libbruckner.so, if it is not installed beside this command
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Exec {
    pub(crate) fn run(&self) -> ExitCode {
        let library = match self.library() {
            Ok(library) => library,
            Err(why) => {
                eprintln!("bruckner exec: {why}");
                return ExitCode::from(2);
            }
        };
        let list = match append_to_preload(&library, &std::env::var_os("LD_PRELOAD").unwrap_or_default()) {
            Ok(list) => list,
            Err(why) => {
                eprintln!("bruckner exec: {why}");
                return ExitCode::from(2);
            }
        };
        let started = find_program(Path::new(&self.program[0])).and_then(|file| file_id(&file));
        let mark = mark(&|name| std::env::var(name).ok(), started.filter(|_| !self.through));
        // `exec` returns only if it fails.
        let error =
            Command::new(&self.program[0]).args(&self.program[1..]).env("LD_PRELOAD", list).env(MARK, mark).exec();
        eprintln!("bruckner exec: {}: {error}", self.program[0].display());
        // Exit statuses of shells: 127 if the program was not found, 126 if it cannot be run.
        ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
    }

    fn library(&self) -> Result<PathBuf, String> {
        if let Some(given) = &self.library {
            return std::fs::canonicalize(given).map_err(|error| format!("{}: {error}", given.display()));
        }
        let here = std::env::current_exe().map_err(|error| format!("cannot find the path of this command: {error}"))?;
        let here = here.parent().unwrap_or(Path::new("/"));
        let places = [here.to_owned(), here.join("../lib"), here.join("../lib64"), here.join("../lib/bruckner")];
        let found = places.iter().find_map(|place| std::fs::canonicalize(place.join(LIBRARY)).ok());
        found.ok_or_else(|| {
            let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
            format!("{LIBRARY} was not found in {}; give its path with --library", places.join(", "))
        })
    }
}

/// Returns the value of `LD_PRELOAD` with the library appended last, so that preloaded tools wrap the library and see only the program's
/// calls.
fn append_to_preload(library: &Path, others: &OsStr) -> Result<OsString, String> {
    let ends = |byte: &u8| b" :".contains(byte);
    if library.as_os_str().as_bytes().iter().any(|byte| ends(byte) || *byte == b'$') {
        return Err(format!(
            "{}: LD_PRELOAD cannot hold a path with a space, a colon or a dollar sign; move the library and give its new \
             path with --library",
            library.display()
        ));
    }
    let others =
        others.as_bytes().split(ends).filter(|other| !other.is_empty() && *other != library.as_os_str().as_bytes());
    let all: Vec<&[u8]> = others.chain([library.as_os_str().as_bytes()]).collect();
    Ok(OsString::from_vec(all.join(&b':')))
}

/// Returns the path of a program that can be executed, searched in `PATH` as a shell does.
pub(crate) fn find_program(program: &Path) -> Option<PathBuf> {
    let runs =
        |path: &PathBuf| path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0);
    if program.components().count() > 1 {
        return Some(program.to_owned()).filter(runs);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|place| place.join(program)).find(runs)
}

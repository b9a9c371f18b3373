//! Checks whether the library can intercept the calls of a program. LD_PRELOAD has no effect on a program that is statically linked or
//! that runs with raised privileges (set-user-id).

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use bruckner_engine::mpi::Family;
use object::{Object as _, ObjectSymbol as _};

use super::Findings;
use crate::exec::find_program;

/// Checks a program. `mpi` is the MPI family of this process, if it has an MPI.
pub(super) fn examine(program: &Path, mpi: Option<Family>, findings: &mut Findings) {
    let shown = program.display();
    let Some(path) = find_program(program) else {
        return findings.wrong.push(format!("{shown}: program not found"));
    };
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) => return findings.wrong.push(format!("{shown}: {error}")),
    };
    if path.metadata().is_ok_and(|about| about.permissions().mode() & 0o6000 != 0) {
        findings.wrong.push(format!("{shown} is set-user-id or set-group-id: LD_PRELOAD has no effect on it"));
    }
    let file = match object::File::parse(&*bytes) {
        Ok(file) => file,
        Err(_) if bytes.starts_with(b"#!") => {
            return findings.found("program", format!("{shown} is a script: give doctor the program that it starts"));
        }
        Err(why) => return findings.wrong.push(format!("{shown} is not an executable program: {why}")),
    };
    if file.dynamic_symbol_table().is_none() {
        return findings
            .wrong
            .push(format!("{shown} is statically linked: LD_PRELOAD has no effect on it; link it dynamically"));
    }
    let calls = Calls::of(&file);
    findings.found("program", format!("{shown}: {}", calls.text()));
    if calls.has_mpi_inside {
        findings.wrong.push(format!(
            "{shown} contains its MPI as a static library, so its calls cannot be intercepted: link a shared MPI"
        ));
    }
    let libraries = libraries(&path);
    let needs = libraries.iter().find_map(|(name, _)| family(name));
    if let (Some(needs), Some(mpi)) = (needs, mpi.filter(|mpi| *mpi != Family::Abi))
        && needs != mpi
    {
        findings.wrong.push(format!(
            "{shown} is linked with {0}, but was started by the launcher of {1}: each rank would get an MPI_COMM_WORLD of its own; use \
             the launcher of {0}",
            needs.name(),
            mpi.name()
        ));
    }
    if calls.fortran {
        fortran(&libraries, findings);
    }
}

/// Returns the MPI family of a library by its file name; `None` for the library of the standard ABI, which any MPI may provide.
fn family(name: &str) -> Option<Family> {
    match name {
        name if name.starts_with("libmpi.so.40") => Some(Family::OpenMpi),
        name if name.starts_with("libmpi.so.12") || name.starts_with("libmpich.so") => Some(Family::Mpich),
        _ => None,
    }
}

/// Returns the libraries that the dynamic linker loads for a program, as pairs of name and file.
fn libraries(program: &Path) -> Vec<(String, String)> {
    let said = Command::new("ldd").arg(program).output().map(|said| said.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&said);
    let pair = |line: &str| {
        let (name, rest) = line.split_once("=> ")?;
        Some((name.trim().to_owned(), rest.split(" (").next()?.to_owned()))
    };
    text.lines().filter_map(pair).collect()
}

/// MPI symbols of a program: calls from C, calls from Fortran, and an MPI linked statically.
#[derive(Default)]
struct Calls {
    c: bool,
    fortran: bool,
    has_mpi_inside: bool,
}

/// Symbols of `MPI_Init` and `MPI_Allreduce`, which most programs call, in C and in Fortran.
const C: [&str; 2] = ["MPI_Init", "MPI_Allreduce"];
const FORTRAN: [&str; 4] = ["mpi_init_", "mpi_allreduce_", "mpi_init_f08_", "mpi_allreduce_f08_"];

impl Calls {
    fn of(file: &object::File<'_>) -> Calls {
        let mut calls = Calls::default();
        for symbol in file.dynamic_symbols().chain(file.symbols()) {
            let Ok(name) = symbol.name() else { continue };
            let name = name.split('@').next().unwrap_or(name);
            calls.c |= name.starts_with("MPI_") && symbol.is_undefined();
            calls.fortran |= symbol.is_undefined() && name.starts_with("mpi_") && name.ends_with('_');
            calls.has_mpi_inside |= C.contains(&name) && symbol.is_definition();
        }
        calls
    }

    fn text(&self) -> &'static str {
        match (self.has_mpi_inside, self.c, self.fortran) {
            (true, ..) => "is statically linked with its MPI",
            (_, true, true) => "calls MPI from C and Fortran",
            (_, true, false) => "calls MPI from C",
            (_, false, true) => "calls MPI from Fortran",
            _ => "makes no MPI calls itself; a library that it loads may",
        }
    }
}

/// Reports a problem if the MPI's Fortran library does not call the MPI's C functions, because the library intercepts only these.
fn fortran(libraries: &[(String, String)], findings: &mut Findings) {
    for (_, library) in libraries {
        let Ok(bytes) = std::fs::read(library) else { continue };
        let Ok(file) = object::File::parse(&*bytes) else { continue };
        let symbols = || file.dynamic_symbols().filter_map(|symbol| Some((symbol.name().ok()?, symbol.is_undefined())));
        let has = |wanted: &[&str], undefined: bool| {
            symbols().any(|(name, is_undefined)| is_undefined == undefined && wanted.contains(&name))
        };
        if has(&FORTRAN[1..2], false) && !has(&["MPI_Allreduce", "PMPI_Allreduce"], true) {
            findings.wrong.push(format!(
                "Fortran calls cannot be intercepted: {library} does not call the C function MPI_Allreduce or PMPI_Allreduce"
            ));
        }
    }
}

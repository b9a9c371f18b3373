//! The engine of this process, on a real MPI.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use bruckner_config::{Mode, Settings, is_off_here, is_report_wanted_here};
use bruckner_mpi::launcher::{LaunchContext, LibraryPresence};
use bruckner_mpi::{AgreeOp, ExternalCollectives, Flavour, Function, Handle, Mpi};

use super::Engine;
use super::incoming::Incoming;
use crate::Error;
use crate::account::OperationCounters;
use crate::backend::{native_init, run_external};
use crate::call::{Call, Lists, name};
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::requests::Known;

/// How a rank's environment requests calls to be treated: passed through, passed through and counted, or handled.
const PASSED_THROUGH: u64 = 0;
const COUNTED: u64 = 1;
const HANDLED: u64 = 2;

/// Whether calls of an MPI function bypass the engine: because the settings say so, or because the MPI's own function would be chosen in
/// any case (by [`bruckner_choose::DecisionTables`]) and calls are not counted.
fn is_bypassed(settings: &Settings, function: Function) -> bool {
    let name = name(function);
    let is_native = name.is_rooted() || function == Function::Alltoallv;
    let is_unseen = settings.report.is_none();
    let is_useless = settings.mode == Mode::Off || (is_native && !settings.handles_all(name));
    settings.not_intercepted.contains(&name) || (is_unseen && is_useless)
}

static ENGINE: OnceLock<Engine<Mpi>> = OnceLock::new();

impl Engine<Mpi> {
    /// Returns the engine of this process, if there is one already.
    #[inline]
    pub fn current() -> Option<&'static Engine<Mpi>> {
        ENGINE.get()
    }

    /// Returns the engine of this process, created at first use.
    pub fn get() -> Result<&'static Engine<Mpi>, Error> {
        if let Some(engine) = Engine::current() {
            return Ok(engine);
        }
        let mpi = Mpi::find_or_load()?;
        if !mpi.is_running() {
            return Err(Error::NotRunning);
        }
        let inside = || Engine::current().is_some_and(|engine| engine.advance(true));
        let engine = ENGINE.get_or_init(|| Engine::new(mpi, inside));
        // This attribute is set on MPI_COMM_SELF before all others, so that its callback runs last when MPI is finalised.
        mpi.at_finalize(|| {
            if let Some(engine) = Engine::current() {
                engine.finalize();
            }
        })?;
        Ok(engine)
    }

    /// Prepares to handle intercepted MPI functions, at the end of `MPI_Init`. Collective over `MPI_COMM_WORLD`. Ranks agree on whether
    /// calls are handled: a single rank with `BRUCKNER=off` in its environment prevents it on all. If all ranks have `BRUCKNER=off` and
    /// request a report, their calls are counted, but passed through.
    ///
    /// If some rank may not have loaded the library, no rank communicates: all calls are passed through, and the first rank tells the user
    /// the reason.
    pub fn enable_interception(&self) -> Result<(), Error> {
        let mpi = self.backend;
        let ranks = mpi.size(mpi.comm_world())?;
        if let LibraryPresence::Unknown(why) = LaunchContext::presence_in_this_process(ranks) {
            if mpi.rank(mpi.comm_world())? == 0 && !is_off_here() {
                eprintln!("bruckner: all calls are passed through to the MPI: {why}");
            }
            return Ok(());
        }
        // If the MPI lets programs continue after the failure of a process, only its own waits detect failures, so all calls are passed
        // through.
        let wanted = match is_off_here() {
            false => HANDLED,
            true if is_report_wanted_here() => COUNTED,
            true => PASSED_THROUGH,
        };
        let wanted = if mpi.survives_failures() { PASSED_THROUGH } else { wanted };
        let mut all = [wanted, !wanted];
        mpi.agree(mpi.comm_world(), AgreeOp::Min, &mut all)?;
        // Unless all ranks request the same, all calls are passed through and not counted.
        let [least, most] = [all[0], !all[1]];
        if least == PASSED_THROUGH || least != most {
            return Ok(());
        }
        let internal = self.make_internal_comm()?;
        let settings = &internal.settings;
        if mpi.rank(mpi.comm_world())? == 0 {
            for complaint in &settings.complaints {
                eprintln!("bruckner: {complaint}");
            }
        }
        let left = Function::ALL.into_iter().filter(|function| is_bypassed(settings, *function));
        self.left.store(left.fold(0, |bits, function| bits | 1 << function as u8), Ordering::Release);
        Ok(())
    }

    /// Returns a handle without the upper bits of a register that is wider than the MPI's handles.
    #[inline]
    pub fn handle(&self, word: Handle) -> Handle {
        self.backend.handle(word)
    }

    /// Returns a constant of `mpi.h` by its name.
    pub fn constant(&self, name: &str) -> Option<Handle> {
        self.backend.constants.get(name)
    }

    /// Returns the version and the family of the MPI.
    pub fn about(&self) -> (String, &'static str) {
        (self.backend.name().to_owned(), self.backend.family.name())
    }

    /// Runs a collective by another library's function, to compare that library with this one.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name.
    pub unsafe fn run_external(&self, external: &ExternalCollectives, call: &Call, comm: Handle) -> Result<(), Error> {
        if !external.has(call.function) || call.is_wide() {
            let (path, name) = (external.path().display(), call.function.name());
            return Err(Error::Argument(format!("{path} has no {name} for these arguments")));
        }
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        Ok(unsafe { run_external(self.backend, external, call, comm) }?)
    }

    /// Returns the address of the MPI's own function, if calls of the function bypass the engine or this call is in the cache of calls
    /// that are passed through. This lookup is the whole cost of interception where native is chosen.
    #[inline(always)]
    pub fn cached_native(&self, call: &Call, wide: bool, comm: Handle) -> Option<NonNull<c_void>> {
        match self.bypasses(call.function) || self.is_cached_native(call, comm) {
            true => self.backend.address(call.function, Flavour::Blocking, wide),
            false => None,
        }
    }

    /// Makes an MPI persistent request, and an operation that handles it if possible. Collective.
    ///
    /// # Safety
    /// The arguments are valid for the MPI function of the same name, and stay so as long as the request is used.
    pub unsafe fn request(
        &'static self,
        call: Call,
        lists: Lists,
        comm: Handle,
        info: Handle,
        request: *mut c_void,
    ) -> Result<c_int, Error> {
        let mpi = self.backend;
        // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
        if let Err(error) = unsafe { native_init(mpi, &call, comm, info, request) } {
            return Ok(error.code);
        }
        let (call, types) = self.own(call)?;
        let mut incoming = Incoming::new(mpi, &call, comm);
        let Some(entry_point) = self.first_use_by(&incoming)? else {
            types.into_iter().for_each(|datatype| mpi.free_type(datatype));
            std::mem::forget(lists);
            return Ok(0);
        };
        let entry = self.use_entry(comm, entry_point)?;
        let handled = match call.op != 0 && mpi.is_user_defined(call.op) {
            true => Err(Reason::UsersOperation),
            // SAFETY: ARGUMENTS (see `lib.rs`), guaranteed by the caller.
            false => match unsafe { self.for_request(&entry, &mut incoming) } {
                Ok(operation) => Ok(operation),
                Err(Refusal::PassThrough(reason)) => Err(reason),
                Err(Refusal::Error(error)) => return Err(error),
            },
        };
        if let Ok(operation) = &handled
            && !operation.is_one_round()
        {
            mpi.work_inside(|| Engine::current().is_some_and(|engine| engine.advance(true)))?;
        }
        if handled.is_ok() || entry.counters().is_some() {
            let account = OperationCounters::new(self.statistics.clone(), entry.counters().cloned(), call.name());
            let known = Known { handled, comm, account, types, _lists: lists };
            // SAFETY: `request` holds the handle that was just made.
            self.requests.put(unsafe { mpi.handle_at(request, 0) }, known);
        } else {
            types.into_iter().for_each(|datatype| mpi.free_type(datatype));
            // The MPI may read the lists as long as the request is used. The library does not see its end, so it leaks the lists.
            std::mem::forget(lists);
        }
        Ok(0)
    }

    /// Returns the call with its user-defined datatypes replaced by copies, which only the library frees, and the copies.
    fn own(&self, mut call: Call) -> Result<(Call, Vec<Handle>), Error> {
        let mpi = self.backend;
        let mut types = Vec::new();
        let mut own = |datatype: &mut Handle| {
            if !mpi.types().is_named(*datatype) && !mpi.is_null_type(*datatype) {
                *datatype = mpi.duplicate_type(*datatype)?;
                types.push(*datatype);
            }
            Ok::<_, Error>(())
        };
        // The send datatype has no meaning in an in-place call, so it is not copied.
        if call.send.datatype == call.recv.datatype {
            own(&mut call.recv.datatype)?;
            call.send.datatype = call.recv.datatype;
        } else {
            own(&mut call.recv.datatype)?;
            if !mpi.is_in_place(call.send.data) {
                own(&mut call.send.datatype)?;
            }
        }
        Ok((call, types))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions that are passed through in any case bypass the engine, unless calls are counted.
    #[test]
    fn functions_that_are_never_served_are_left_alone() {
        let left = |text: &str| {
            let settings = Settings::of(text, 4);
            Function::ALL.into_iter().filter(|function| is_bypassed(&settings, *function)).collect::<Vec<_>>()
        };
        let (bcast, reduce, alltoallv) = (Function::Bcast, Function::Reduce, Function::Alltoallv);
        assert_eq!(left(""), [alltoallv, bcast, reduce]);
        assert_eq!(left("BRUCKNER_ALGORITHM=bcast=shm"), [alltoallv, reduce]);
        assert_eq!(left("BRUCKNER=always\nBRUCKNER_ALGORITHM=bcast=native"), [bcast]);
        assert_eq!(left("BRUCKNER_ALGORITHM=alltoall=pairwise"), [bcast, reduce]);
        assert_eq!(left("BRUCKNER_PASS_THROUGH=alltoall"), [Function::Alltoall, alltoallv, bcast, reduce]);
        assert_eq!(left("BRUCKNER=always"), []);
        assert_eq!(left("BRUCKNER_REPORT=stderr"), []);
        assert_eq!(left("BRUCKNER=off"), Function::ALL);
        assert_eq!(left("BRUCKNER=off\nBRUCKNER_REPORT=stderr"), []);
    }
}

//! The engine of this process, on the MPI that it uses.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use bruckner_config::{Mode, Settings, is_off_here, is_report_wanted_here};
use bruckner_mpi::launcher::{Launch, Reach};
use bruckner_mpi::{Agree, Flavour, Function, Handle, Mpi, Rival};

use super::Engine;
use super::incoming::Incoming;
use crate::Error;
use crate::account::OperationCounters;
use crate::backend::{by_rival, native_init};
use crate::call::{Call, Lists, name};
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::requests::Known;

/// How the environment of a rank wants calls to be treated: passed through, passed through and counted, or handled.
const LEFT: u64 = 0;
const COUNTED: u64 = 1;
const SERVED: u64 = 2;

/// Whether a function of the MPI's is left alone: because the settings say so, or because it is the MPI's own that would be chosen in any
/// case (by [`bruckner_choose::Menus`]), and nobody counts.
fn is_left_alone(settings: &Settings, function: Function) -> bool {
    let name = name(function);
    let is_native = name.is_rooted() || function == Function::Alltoallv;
    let is_unseen = settings.report.is_none();
    let is_useless = settings.mode == Mode::Off || (is_native && !settings.asks_for(name));
    settings.left.contains(&name) || (is_unseen && is_useless)
}

static ENGINE: OnceLock<Engine<Mpi>> = OnceLock::new();

impl Engine<Mpi> {
    /// The engine of this process, if there is one already.
    #[inline]
    pub fn current() -> Option<&'static Engine<Mpi>> {
        ENGINE.get()
    }

    /// The engine of this process.
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
        // First of all that hangs on MPI_COMM_SELF, so that it runs last when MPI is finalised.
        mpi.at_finalize(|| {
            if let Some(engine) = Engine::current() {
                engine.finalize();
            }
        })?;
        Ok(engine)
    }

    /// Prepares for calls of MPI's own functions, at the end of `MPI_Init`. Collective over `MPI_COMM_WORLD`. Whether
    /// anything is taken over is agreed on: a single rank whose environment says `BRUCKNER=off` keeps all from it. With a report
    /// calls are still counted then.
    ///
    /// As long as a rank may lack the library, nobody says a word to another: then everything stays with the MPI, and the
    /// first rank tells the user what to do.
    pub fn take_over(&self) -> Result<(), Error> {
        let mpi = self.backend;
        let ranks = mpi.size(mpi.comm_world())?;
        if let Reach::Unknown(why) = Launch::reach_of_this_process(ranks) {
            if mpi.rank(mpi.comm_world())? == 0 && !is_off_here() {
                eprintln!("bruckner: everything stays with the MPI: {why}");
            }
            return Ok(());
        }
        // Where MPI tells of failures and goes on, it alone must wait.
        let wanted = match is_off_here() {
            false => SERVED,
            true if is_report_wanted_here() => COUNTED,
            true => LEFT,
        };
        let wanted = if mpi.survives_failures() { LEFT } else { wanted };
        let mut all = [wanted, !wanted];
        mpi.agree(mpi.comm_world(), Agree::Min, &mut all)?;
        // Calls are counted only if all ranks want nothing else.
        let [least, most] = [all[0], !all[1]];
        if least == LEFT || least != most {
            return Ok(());
        }
        let internal = self.make_internal_comm()?;
        let settings = &internal.settings;
        if mpi.rank(mpi.comm_world())? == 0 {
            for complaint in &settings.complaints {
                eprintln!("bruckner: {complaint}");
            }
        }
        let left = Function::ALL.into_iter().filter(|function| is_left_alone(settings, *function));
        self.left.store(left.fold(0, |bits, function| bits | 1 << function as u8), Ordering::Release);
        Ok(())
    }

    /// A handle as the caller passed it, without what a wider register may carry besides.
    #[inline]
    pub fn handle(&self, word: Handle) -> Handle {
        self.backend.handle(word)
    }

    /// A constant of `mpi.h` by its name.
    pub fn constant(&self, name: &str) -> Option<Handle> {
        self.backend.constants.get(name)
    }

    /// The version and the family of the MPI.
    pub fn about(&self) -> (String, &'static str) {
        (self.backend.name().to_owned(), self.backend.family.name())
    }

    /// A collective by another library's function, to be compared with this one's.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of the same name.
    pub unsafe fn by_rival(&self, rival: &Rival, call: &Call, comm: Handle) -> Result<(), Error> {
        if !rival.has(call.function) || call.is_wide() {
            let (path, name) = (rival.path().display(), call.function.name());
            return Err(Error::Argument(format!("{path} does not serve this {name}")));
        }
        // SAFETY: as for this function.
        Ok(unsafe { by_rival(self.backend, rival, call, comm) }?)
    }

    /// The MPI's own function, if it is left alone, or a call came before on the same communicator and went there. The whole of what it costs to
    /// be taken over where the choice is native.
    #[inline(always)]
    pub fn cached_native(&self, call: &Call, wide: bool, comm: Handle) -> Option<NonNull<c_void>> {
        match self.leaves(call.function) || self.is_cached_native(call, comm) {
            true => self.backend.address(call.function, Flavour::Blocking, wide),
            false => None,
        }
    }

    /// Makes a persistent request of MPI's, and an operation beside it if one can serve. Collective.
    ///
    /// # Safety
    /// The arguments are right for the MPI function of this name, and stay so as long as the request is used.
    pub unsafe fn request(
        &'static self,
        call: Call,
        lists: Lists,
        comm: Handle,
        info: Handle,
        request: *mut c_void,
    ) -> Result<c_int, Error> {
        let mpi = self.backend;
        // SAFETY: as for this function.
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
        let served = match call.op != 0 && mpi.is_users(call.op) {
            true => Err(Reason::UsersOperation),
            // SAFETY: as for this function.
            false => match unsafe { self.for_request(&entry, &mut incoming) } {
                Ok(operation) => Ok(operation),
                Err(Refusal::Native(reason)) => Err(reason),
                Err(Refusal::Wrong(error)) => return Err(error),
            },
        };
        if let Ok(operation) = &served
            && !operation.is_one_round()
        {
            mpi.work_inside(|| Engine::current().is_some_and(|engine| engine.advance(true)))?;
        }
        if served.is_ok() || entry.counters().is_some() {
            let account =
                OperationCounters::new(self.statistics.clone(), entry.counters().cloned(), call.name());
            let known = Known { served, comm, account, types, _lists: lists };
            // SAFETY: the handle that was just made.
            self.requests.put(unsafe { mpi.handle_at(request, 0) }, known);
        } else {
            types.into_iter().for_each(|datatype| mpi.free_type(datatype));
            // The MPI may look at the lists as long as the request is used, which nobody here is told.
            std::mem::forget(lists);
        }
        Ok(0)
    }

    /// The same call with datatypes that nobody else frees.
    fn own(&self, mut call: Call) -> Result<(Call, Vec<Handle>), Error> {
        let mpi = self.backend;
        let mut types = Vec::new();
        let mut own = |datatype: &mut Handle| {
            if !mpi.types().is_named(*datatype) && !mpi.is_null_type(*datatype) {
                *datatype = mpi.same_type(*datatype)?;
                types.push(*datatype);
            }
            Ok::<_, Error>(())
        };
        // A type that means nothing is not looked at.
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

    /// Functions that are passed through in any case are left alone, unless calls are counted.
    #[test]
    fn functions_that_are_never_served_are_left_alone() {
        let left = |text: &str| {
            let settings = Settings::of(text, 4);
            Function::ALL
                .into_iter()
                .filter(|function| is_left_alone(&settings, *function))
                .collect::<Vec<_>>()
        };
        let (bcast, reduce, alltoallv) = (Function::Bcast, Function::Reduce, Function::Alltoallv);
        assert_eq!(left(""), [alltoallv, bcast, reduce]);
        assert_eq!(left("BRUCKNER_ALGORITHM=bcast=shm"), [alltoallv, reduce]);
        assert_eq!(left("BRUCKNER=always\nBRUCKNER_ALGORITHM=bcast=native"), [bcast]);
        assert_eq!(left("BRUCKNER_ALGORITHM=alltoall=pairwise"), [bcast, reduce]);
        assert_eq!(left("BRUCKNER_LEAVE=alltoall"), [Function::Alltoall, alltoallv, bcast, reduce]);
        assert_eq!(left("BRUCKNER=always"), []);
        assert_eq!(left("BRUCKNER_REPORT=stderr"), []);
        assert_eq!(left("BRUCKNER=off"), Function::ALL);
        assert_eq!(left("BRUCKNER=off\nBRUCKNER_REPORT=stderr"), []);
    }
}

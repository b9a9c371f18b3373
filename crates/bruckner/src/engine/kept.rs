//! What an engine keeps for a communicator: whether it is served, by what, and its pages of the report.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};

use bruckner_mpi::{Agree, Registry, Word};

use crate::Error;
use crate::call::Call;
use crate::communicator::Communicator;
use crate::engine::{Door, Engine};
use crate::hidden::Hidden;
use crate::normal::{normal, personal};
use crate::report::Ledger;
use crate::settings::Mode;

/// Communicators that may have a hidden one of their own, where `bruckner_init` was not called.
const QUOTA: usize = 64;

/// What is kept for a communicator.
pub(crate) struct Entry {
    pub(crate) serving: Serving,
    pub(crate) ledger: Option<Arc<Ledger>>,
}

/// Whether a communicator is served.
pub(crate) enum Serving {
    /// It is.
    Planned(Communicator),
    /// It is not, for a reason that all its ranks share.
    Native(&'static str),
    /// Not yet: it has had so many calls.
    NotYet(AtomicU32),
}

thread_local! {
    /// The communicator of the last call: its handle, the generation, and what is kept.
    pub(super) static LAST: Cell<(Word, u64, *const Entry)> = const { Cell::new((0, u64::MAX, std::ptr::null())) };
}

impl Engine {
    /// What is kept for a communicator; made at first use, which is collective.
    #[inline]
    pub(crate) fn entry(&self, comm: Word, door: Door) -> Result<&Entry, Error> {
        if let Some(entry) = Engine::settled(comm) {
            return Ok(entry);
        }
        let kept = self.kept(comm, door)?;
        Ok(self.last(comm, &kept))
    }

    /// The same for a call of MPI's. A communicator's first calls are counted, so that all its ranks come to its first use,
    /// which is collective, in the same call. What need not be made by all ranks at once is left alone till then: a call
    /// that is wrong on this rank, one of nothing, and rooted ones, whose ranks may run ahead of each other.
    pub(super) fn entry_for(&self, call: &Call, comm: Word) -> Result<&Entry, Error> {
        if let Some(entry) = Engine::settled(comm) {
            return Ok(entry);
        }
        let kept = match self.known(comm)? {
            Some(kept) if !matches!(kept.serving, Serving::NotYet(_)) => kept,
            known => match (self.door(call, comm)?, known) {
                (Some(door), _) => self.kept(comm, door)?,
                (None, Some(kept)) => kept,
                (None, None) => {
                    let ledger = self.ledger(comm, "")?;
                    self.keep(comm, Entry { serving: Serving::NotYet(AtomicU32::new(0)), ledger })?
                }
            },
        };
        Ok(self.last(comm, &kept))
    }

    /// By which door a call of MPI's comes to a communicator that is not in use yet: by none unless all ranks must be in it
    /// at once for it to end on any, as far as this rank can tell. Calls that round are served from the first or never, so
    /// that their results are the same from call to call; others wait till a communicator has had a few.
    pub(crate) fn door(&self, call: &Call, comm: Word) -> Result<Option<Door>, Error> {
        if self.mpi.is_inter(comm)? {
            return Ok(Some(Door::Mpi));
        }
        let Ok(Ok(normal)) = normal(self.mpi, call, self.mpi.rank(comm)?, self.mpi.size(comm)?) else {
            return Ok(None);
        };
        let common = &normal.common;
        let world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = world.as_ref().is_some_and(|world| {
            world.settings.mode == Mode::Always || world.settings.rules.of(common.name).is_some()
        });
        // Of an alltoallv a rank knows only its own sizes, which may be nothing.
        let local = common.is_local();
        let sound = !local || personal(self.mpi, call, self.mpi.size(comm)?).is_ok();
        let meets = sound && !common.is_nothing() && (asked || !(local || common.is_rooted()));
        Ok(meets.then_some(if common.combine.rounds() { Door::Api } else { Door::Mpi }))
    }

    /// What is kept for the communicator of this thread's last call, if it is this one and its first calls are over.
    #[inline]
    fn settled<'e>(comm: Word) -> Option<&'e Entry> {
        let (handle, generation, entry) = LAST.get();
        if handle != comm || generation != Registry::generation() || entry.is_null() {
            return None;
        }
        // SAFETY: kept until its communicator is freed, which would have changed the generation.
        let entry = unsafe { &*entry };
        (!matches!(entry.serving, Serving::NotYet(_))).then_some(entry)
    }

    fn last(&self, comm: Word, kept: &Arc<Entry>) -> &Entry {
        let entry: *const Entry = Arc::as_ptr(kept);
        LAST.set((comm, Registry::generation(), entry));
        // SAFETY: the registry keeps it until the communicator is freed.
        unsafe { &*entry }
    }

    /// The same, shared: for plans, which may outlive the communicator's handle.
    pub(crate) fn kept(&self, comm: Word, door: Door) -> Result<Arc<Entry>, Error> {
        let mut ledger = None;
        if let Some(kept) = self.known(comm)? {
            match &kept.serving {
                Serving::NotYet(calls) => {
                    // Each call is made by all ranks: they all count the same.
                    let before = calls.fetch_add(1, Ordering::Relaxed);
                    if door == Door::Mpi && before < self.patience() {
                        return Ok(kept);
                    }
                    ledger = kept.ledger.clone();
                }
                _ => return Ok(kept),
            }
        } else if door == Door::Mpi && self.patience() > 0 {
            let ledger = self.ledger(comm, "")?;
            return self.keep(comm, Entry { serving: Serving::NotYet(AtomicU32::new(1)), ledger });
        }
        let serving = self.serve(comm)?;
        let topology = match &serving {
            Serving::Planned(communicator) => communicator.topology_text(),
            _ => String::new(),
        };
        let ledger = match ledger {
            Some(ledger) => {
                ledger.placed(&topology);
                Some(ledger)
            }
            None => self.ledger(comm, &topology)?,
        };
        self.keep(comm, Entry { serving, ledger })
    }

    /// The same if there is something. Communicates with nobody.
    pub(super) fn known(&self, comm: Word) -> Result<Option<Arc<Entry>>, Error> {
        let kept = self.registry.get(comm).map(|kept| {
            kept.downcast::<Entry>().map_err(|_| Error::NotServed("an attribute of another kind".into()))
        });
        kept.transpose()
    }

    fn keep(&self, comm: Word, entry: Entry) -> Result<Arc<Entry>, Error> {
        let entry = Arc::new(entry);
        self.registry.put(comm, entry.clone())?;
        Ok(entry)
    }

    /// A communicator's ledger, if there is to be a report; its first rank keeps it.
    fn ledger(&self, comm: Word, topology: &str) -> Result<Option<Arc<Ledger>>, Error> {
        let world = self.world.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if world.is_none_or(|world| world.settings.report.is_none()) || self.mpi.rank(comm)? != 0 {
            return Ok(None);
        }
        let name = if comm == self.mpi.world() { "MPI_COMM_WORLD" } else { "" };
        Ok(Some(self.books.open(name, self.mpi.size(comm)?, topology.to_owned())))
    }

    /// Calls that a communicator must have had before it is served.
    fn patience(&self) -> u32 {
        let world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.as_ref().map_or(0, |world| match world.settings.mode {
            Mode::Always => 0,
            _ => world.settings.after,
        })
    }

    fn serve(&self, comm: Word) -> Result<Serving, Error> {
        if self.mpi.is_inter(comm)? {
            return Ok(Serving::Native("an intercommunicator"));
        }
        if self.mpi.size(comm)? == 1 {
            return Ok(Serving::Native("one rank"));
        }
        let world = match comm == self.mpi.world() {
            true => Some(self.world()?),
            false => self.world.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        let hidden = match world {
            Some(world) => world,
            None => {
                let mut used = [self.private.load(Ordering::Relaxed) as u64];
                self.mpi.agree(comm, Agree::Max, &mut used)?;
                if used[0] >= QUOTA as u64 {
                    return Ok(Serving::Native("too many communicators without bruckner_init"));
                }
                self.private.fetch_add(1, Ordering::Relaxed);
                Arc::new(Hidden::new(self.mpi, comm, Engine::meanwhile)?)
            }
        };
        if hidden.settings.mode == Mode::Off {
            return Ok(Serving::Native("BRUCKNER=off"));
        }
        Ok(match Communicator::new(hidden, comm)? {
            Ok(communicator) => Serving::Planned(communicator),
            Err(why) => Serving::Native(why),
        })
    }

    /// The plans of a communicator, if it is served. Collective at first use.
    pub(super) fn planned(&self, comm: Word) -> Result<Option<&Communicator>, Error> {
        Ok(match &self.entry(comm, Door::Api)?.serving {
            Serving::Planned(communicator) => Some(communicator),
            _ => None,
        })
    }
}

//! What an engine keeps for a communicator: whether it is served, by what, and its pages of the report.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bruckner_config::Mode;
use bruckner_mpi::{Agree, Function, Handle};
use bruckner_report::Counters;

use super::{Engine, EntryPoint};
use crate::Error;
use crate::backend::Backend;
use crate::call::{Amount, Call};
use crate::communicator::{Communicator, Hidden};
use crate::normalize::{alltoallv_layout, normalize};
use crate::reason::Reason;
use crate::refusal::Refusal;

/// Communicators that may have a hidden one of their own, where `bruckner_init` was not called.
const QUOTA: usize = 64;

/// What is kept for a communicator.
pub(crate) struct Entry<B: Backend> {
    pub(crate) serving: Serving<B>,
    /// Where its calls are counted, if there is to be a report.
    pub(crate) counted: Option<Counted>,
}

impl<B: Backend> Entry<B> {
    /// Of a communicator that has had so many calls.
    pub(super) fn not_yet(calls: u32, counted: Option<Counted>) -> Entry<B> {
        Entry { serving: Serving::NotYet(AtomicU32::new(calls)), counted }
    }

    /// Of communicators that are being freed.
    pub(super) fn ending() -> Arc<Entry<B>> {
        Arc::new(Entry { serving: Serving::Native(Reason::BeingFreed), counted: None })
    }

    /// How many numbers of a list decide about a call: none where nothing is served. Not known before that is.
    #[inline]
    pub(crate) fn listed(&self) -> Option<u32> {
        match &self.serving {
            Serving::Planned(communicator) => Some(communicator.size),
            Serving::Native(_) => Some(0),
            Serving::NotYet(_) => None,
        }
    }

    /// Its counters, on the rank that keeps it.
    pub(crate) fn counters(&self) -> Option<&Arc<Counters>> {
        self.counted.as_ref()?.counters.as_ref()
    }
}

/// Of so many calls that all ranks make together one begins with a barrier, which shows how long ranks wait for each other. A number that
/// is in step with few programs.
const EVERY: u32 = 61;
/// And it is this one, when a communicator's first calls are over.
const SEVENTH: u32 = 7;

/// How the calls of a communicator are counted for the report; on all of its ranks.
#[derive(Default)]
pub(crate) struct Counted {
    /// On its first rank.
    pub(crate) counters: Option<Arc<Counters>>,
    /// Whether all of its ranks are of this world, and so count as well.
    pub(crate) inside: bool,
    /// Calls that all ranks make together.
    calls: AtomicU32,
}

impl Counted {
    fn new(counters: Option<Arc<Counters>>, inside: bool) -> Counted {
        Counted { counters, inside, calls: AtomicU32::new(0) }
    }

    /// Counts a call; whether ranks are to meet before it. Only those count that end on no rank before all have begun, which all ranks
    /// know alike: the functions in which each gives to all others.
    pub(super) fn meets(&self, call: &Call) -> bool {
        let meets = self.meets_next(call);
        self.count(call);
        meets
    }

    /// The same without counting it.
    #[inline]
    pub(super) fn meets_next(&self, call: &Call) -> bool {
        is_by_all(call) && self.calls.load(Ordering::Relaxed) % EVERY == SEVENTH
    }

    /// Counts it.
    #[inline]
    pub(super) fn count(&self, call: &Call) {
        self.calls.fetch_add(u32::from(is_by_all(call)), Ordering::Relaxed);
    }
}

/// Whether each rank gives to all others in a call.
#[inline]
fn is_by_all(call: &Call) -> bool {
    use Function::{Allgather, Allreduce, Alltoall, ReduceScatterBlock};
    matches!(call.function, Allgather | Allreduce | Alltoall | ReduceScatterBlock)
        && !matches!(call.recv.amount, Amount::Each(0))
}

/// Whether a communicator is served.
pub(crate) enum Serving<B: Backend> {
    /// It is.
    Planned(Arc<Communicator<B>>),
    /// It is not, for a reason that all its ranks share.
    Native(Reason),
    /// Not yet: it has had so many calls.
    NotYet(AtomicU32),
}

/// The communicator of a thread's last call.
#[derive(Clone, Copy)]
pub(super) struct Last {
    /// The engine, its handle, and the generation of handles.
    pub(super) engine: *const (),
    pub(super) comm: Handle,
    pub(super) generation: u64,
    /// What the engine keeps for it: an [`Entry`].
    pub(super) entry: *const (),
}

/// There was none.
pub(super) const NOTHING: Last =
    Last { engine: std::ptr::null(), comm: 0, generation: u64::MAX, entry: std::ptr::null() };

/// How many communicators a thread remembers: a power of two. Programs often take turns on a few.
const REMEMBERED: u32 = 8;

thread_local! {
    static LAST: [Cell<Last>; REMEMBERED as usize] = const { [const { Cell::new(NOTHING) }; REMEMBERED as usize] };
}

/// Where a communicator is remembered, if it is: by the upper bits of a product, which all of its own take part in.
#[inline]
fn place_of(comm: Handle) -> usize {
    (comm.wrapping_mul(0x94d0_49bb_1331_11eb) >> (Handle::BITS - REMEMBERED.ilog2())) as usize
}

/// Forgets the communicators of this thread's calls.
pub(super) fn forget_last() {
    LAST.with(|last| last.iter().for_each(|one| one.set(NOTHING)));
}

impl<B: Backend> Engine<B> {
    /// What is kept for a communicator; made at first use, which is collective.
    #[inline]
    pub(crate) fn entry(&self, comm: Handle, entry_point: EntryPoint) -> Result<&Entry<B>, Error> {
        if let Some(entry) = self.settled(comm) {
            return Ok(entry);
        }
        let kept = self.kept(comm, entry_point)?;
        Ok(self.set_last(comm, &kept))
    }

    /// The same for a call of MPI's. A communicator's first calls are counted, so that all its ranks come to its first use,
    /// which is collective, in the same call. What need not be made by all ranks at once is left alone till then: a call
    /// that is wrong on this rank, one of nothing, and rooted ones, whose ranks may run ahead of each other.
    pub(super) fn entry_for(&self, call: &Call, comm: Handle) -> Result<&Entry<B>, Error> {
        if let Some(entry) = self.settled(comm) {
            return Ok(entry);
        }
        let kept = match self.known(comm)? {
            Some(kept) if !matches!(kept.serving, Serving::NotYet(_)) => kept,
            known => match (self.entry_point(call, comm)?, known) {
                (Some(entry_point), _) => self.kept(comm, entry_point)?,
                (None, Some(kept)) => kept,
                (None, None) => {
                    let counted = self.counted(comm)?;
                    self.keep(comm, Entry::not_yet(0, counted))?
                }
            },
        };
        Ok(self.set_last(comm, &kept))
    }

    /// By which door a call of MPI's comes to a communicator that is not in use yet: by none unless all ranks must be in it
    /// at once for it to end on any, as far as this rank can tell. Calls that round are served from the first or never, so
    /// that their results are the same from call to call; others wait till a communicator has had a few.
    pub(crate) fn entry_point(&self, call: &Call, comm: Handle) -> Result<Option<EntryPoint>, Error> {
        if self.backend.is_inter(comm)? {
            return Ok(Some(EntryPoint::Mpi));
        }
        let Ok(normalized) =
            normalize(self.backend, call, self.backend.rank(comm)?, self.backend.size(comm)?)
        else {
            return Ok(None);
        };
        let signature = &normalized.signature;
        let asked = self.hidden_now().is_some_and(|hidden| hidden.settings.asks_for(signature.name));
        // Of an alltoallv a rank knows only its own sizes, which may be nothing.
        let local = signature.is_local();
        let sound = !local || alltoallv_layout(self.backend, call, self.backend.size(comm)?).is_ok();
        let meets = sound && !signature.is_nothing() && (asked || !(local || signature.is_rooted()));
        Ok(meets.then_some(if signature.combine.rounds() { EntryPoint::Api } else { EntryPoint::Mpi }))
    }

    /// What is kept for a communicator, if it is one of those of this thread's last calls.
    #[inline]
    pub(super) fn last(&self, comm: Handle) -> Option<&Entry<B>> {
        let last = LAST.with(|last| last[place_of(comm)].get());
        let same = last.comm == comm
            && last.generation == self.backend.generation()
            && last.engine == std::ptr::from_ref(self).cast();
        // SAFETY: an entry of this engine, by GENERATION.
        same.then(|| unsafe { &*last.entry.cast::<Entry<B>>() })
    }

    /// The same, if the first calls on it are over.
    #[inline]
    fn settled(&self, comm: Handle) -> Option<&Entry<B>> {
        self.last(comm).filter(|entry| !matches!(entry.serving, Serving::NotYet(_)))
    }

    fn set_last(&self, comm: Handle, kept: &Arc<Entry<B>>) -> &Entry<B> {
        let (engine, generation) = (std::ptr::from_ref(self).cast(), self.backend.generation());
        let entry: *const Entry<B> = Arc::as_ptr(kept);
        let one = Last { engine, comm, generation, entry: entry.cast() };
        LAST.with(|last| last[place_of(comm)].set(one));
        // SAFETY: just kept with the communicator: GENERATION.
        unsafe { &*entry }
    }

    /// The same, shared: for plans, which may outlive the communicator's handle.
    pub(crate) fn kept(&self, comm: Handle, entry_point: EntryPoint) -> Result<Arc<Entry<B>>, Error> {
        let mut counted = None;
        if let Some(kept) = self.known(comm)? {
            match &kept.serving {
                Serving::NotYet(calls) => {
                    // Each call is made by all ranks: they all count the same.
                    let before = calls.fetch_add(1, Ordering::Relaxed);
                    if entry_point == EntryPoint::Mpi && before < self.backoff() {
                        return Ok(kept);
                    }
                    let again = |counted: &Counted| Counted::new(counted.counters.clone(), counted.inside);
                    counted = kept.counted.as_ref().map(again);
                }
                _ => return Ok(kept),
            }
        } else if entry_point == EntryPoint::Mpi && self.backoff() > 0 {
            let counted = self.counted(comm)?;
            return self.keep(comm, Entry::not_yet(1, counted));
        }
        let serving = self.serve(comm)?;
        let (topology, measured) = match &serving {
            Serving::Planned(communicator) => communicator.texts(),
            _ => Default::default(),
        };
        let counted = match counted {
            Some(counted) => Some(counted),
            None => self.counted(comm)?,
        };
        let entry = Entry { serving, counted };
        if let Some(counters) = entry.counters() {
            counters.set_topology(&topology, &measured);
        }
        self.keep(comm, entry)
    }

    /// The same if there is something. Communicates with nobody.
    pub(super) fn known(&self, comm: Handle) -> Result<Option<Arc<Entry<B>>>, Error> {
        if self.backend.ending().contains(comm) {
            return Ok(Some(self.ending.clone()));
        }
        let kept = self.backend.kept(comm).map(|kept| {
            kept.downcast::<Entry<B>>().map_err(|_| Error::NotServed("an attribute of another kind".into()))
        });
        kept.transpose()
    }

    pub(super) fn keep(&self, comm: Handle, entry: Entry<B>) -> Result<Arc<Entry<B>>, Error> {
        let entry = Arc::new(entry);
        self.keeps.store(true, Ordering::Relaxed);
        self.backend.keep(comm, entry.clone())?;
        Ok(entry)
    }

    /// How a communicator's calls are counted, if there is to be a report.
    fn counted(&self, comm: Handle) -> Result<Option<Counted>, Error> {
        let hidden = self.hidden_now();
        if hidden.is_none_or(|hidden| hidden.settings.report.is_none()) {
            return Ok(None);
        }
        let name = if comm == self.backend.comm_world() { "MPI_COMM_WORLD" } else { "" };
        let counters = match self.backend.rank(comm)? {
            0 => Some(self.statistics.open(name, self.backend.size(comm)?)),
            _ => None,
        };
        let inside = !self.backend.is_inter(comm)?
            && self.backend.translate(comm, self.backend.comm_world())?.iter().all(Option::is_some);
        Ok(Some(Counted::new(counters, inside)))
    }

    /// Whether the settings say that nothing is served.
    pub(super) fn is_off(&self) -> bool {
        self.hidden_now().is_some_and(|hidden| hidden.settings.mode == Mode::Off)
    }

    /// Calls that a communicator must have had before it is served.
    fn backoff(&self) -> u32 {
        self.hidden_now().map_or(0, |hidden| match hidden.settings.mode {
            Mode::Always | Mode::Off => 0,
            _ => hidden.settings.after,
        })
    }

    fn serve(&self, comm: Handle) -> Result<Serving<B>, Error> {
        if self.backend.is_inter(comm)? {
            return Ok(Serving::Native(Reason::Intercommunicator));
        }
        if self.backend.size(comm)? == 1 {
            return Ok(Serving::Native(Reason::OneRank));
        }
        let hidden = match comm == self.backend.comm_world() {
            true => Some(self.hidden()?),
            false => self.hidden_now(),
        };
        let hidden = match hidden {
            Some(hidden) => hidden,
            None => {
                let mut used = [self.private.load(Ordering::Relaxed) as u64];
                self.backend.agree(comm, Agree::Max, &mut used)?;
                if used[0] >= QUOTA as u64 {
                    return Ok(Serving::Native(Reason::Quota));
                }
                self.private.fetch_add(1, Ordering::Relaxed);
                Arc::new(Hidden::new(self.backend, comm, self.active.clone())?)
            }
        };
        if hidden.settings.mode == Mode::Off {
            return Ok(Serving::Native(Reason::Off));
        }
        match Communicator::new(hidden, comm) {
            Ok(communicator) => Ok(Serving::Planned(Arc::new(communicator))),
            Err(Refusal::Native(reason)) => Ok(Serving::Native(reason)),
            Err(Refusal::Wrong(error)) => Err(error),
        }
    }

    /// The plans of a communicator, if it is served. Collective at first use.
    pub(super) fn planned(&self, comm: Handle) -> Result<Option<&Communicator<B>>, Error> {
        Ok(match &self.entry(comm, EntryPoint::Api)?.serving {
            Serving::Planned(communicator) => Some(communicator),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::place_of;

    /// Handles of MPICH's: the world's, and those that are made first.
    #[test]
    fn the_world_and_the_first_others_are_remembered_together() {
        let mut places: Vec<usize> =
            [0x4400_0000].into_iter().chain(0x8400_0000..0x8400_0007).map(place_of).collect();
        places.sort_unstable();
        assert_eq!(places, (0..8).collect::<Vec<_>>());
    }
}

//! The entries of communicators. An entry is the library's state of a communicator, attached to it as an MPI attribute. It is looked up in
//! a table of communicators that the thread used recently, read from the communicator, or created, which is collective.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bruckner_config::Mode;
use bruckner_mpi::{AgreeOp, Handle};

use super::incoming::Incoming;
use super::{Engine, EntryPoint};
use crate::Error;
use crate::account::CommCounters;
use crate::backend::Backend;
use crate::communicator::{CommEntry, Communicator, Handling};
use crate::group::InternalComm;
use crate::reason::Reason;
use crate::refusal::Refusal;

/// Maximum number of communicators with an internal communicator of their own, if `bruckner_init` was not called.
const QUOTA: usize = 64;

/// A communicator that a thread used recently, with its entry.
#[derive(Clone, Copy)]
struct Recent {
    engine: *const (),
    comm: Handle,
    /// Generation of handles when the thread looked up the entry; the entry is valid as long as the generation is the same.
    generation: u64,
    /// Address of the communicator's [`CommEntry`].
    entry: *const (),
}

const NONE: Recent = Recent { engine: std::ptr::null(), comm: 0, generation: u64::MAX, entry: std::ptr::null() };

/// Number of communicators that a thread remembers: a power of two. Programs often alternate between a few.
const REMEMBERED: u32 = 8;

thread_local! {
    static RECENT: [Cell<Recent>; REMEMBERED as usize] =
        const { [const { Cell::new(NONE) }; REMEMBERED as usize] };
}

/// Returns the index of a communicator in the thread's table: the upper bits of a product, which depend on all bits of the handle.
#[inline]
fn place_of(comm: Handle) -> usize {
    (comm.wrapping_mul(0x94d0_49bb_1331_11eb) >> (Handle::BITS - REMEMBERED.ilog2())) as usize
}

/// Clears this thread's table of recent communicators.
pub(super) fn forget_recent() {
    RECENT.with(|recent| recent.iter().for_each(|one| one.set(NONE)));
}

impl<B: Backend> Engine<B> {
    /// Returns the entry of a communicator that this thread used recently.
    #[inline]
    pub(super) fn recent_entry(&self, comm: Handle) -> Option<&CommEntry<B>> {
        let recent = RECENT.with(|recent| recent[place_of(comm)].get());
        let same = recent.comm == comm
            && recent.generation == self.backend.generation()
            && recent.engine == std::ptr::from_ref(self).cast();
        // SAFETY: GENERATION (see `lib.rs`): the entry is of this engine, and lives as long as the generation is the same.
        same.then(|| unsafe { &*recent.entry.cast::<CommEntry<B>>() })
    }

    /// Returns the entry of a communicator that this thread used recently, if it is decided whether the library handles its calls.
    #[inline]
    fn decided_entry(&self, comm: Handle) -> Option<&CommEntry<B>> {
        self.recent_entry(comm).filter(|entry| !entry.is_pending())
    }

    fn set_recent(&self, comm: Handle, entry: &Arc<CommEntry<B>>) -> &CommEntry<B> {
        let (engine, generation) = (std::ptr::from_ref(self).cast(), self.backend.generation());
        let entry: *const CommEntry<B> = Arc::as_ptr(entry);
        let one = Recent { engine, comm, generation, entry: entry.cast() };
        RECENT.with(|recent| recent[place_of(comm)].set(one));
        // SAFETY: GENERATION (see `lib.rs`): the entry was just attached to the communicator.
        unsafe { &*entry }
    }

    /// Returns the entry of a communicator for a call of the library's own API. Collective at first use.
    #[inline]
    pub(super) fn entry(&self, comm: Handle) -> Result<&CommEntry<B>, Error> {
        if let Some(entry) = self.decided_entry(comm) {
            return Ok(entry);
        }
        let entry = self.use_entry(comm, EntryPoint::Api)?;
        Ok(self.set_recent(comm, &entry))
    }

    /// Returns the entry of a communicator for an intercepted call. The first use of a communicator is collective. All ranks reach it in
    /// the same call, because each rank counts only calls that synchronise all ranks. Not counted are calls that are invalid on this rank,
    /// zero-byte calls, and calls with a root, in which ranks may run ahead of each other.
    pub(super) fn entry_for(&self, incoming: &Incoming<'_, B>) -> Result<&CommEntry<B>, Error> {
        let comm = incoming.comm;
        if let Some(entry) = self.decided_entry(comm) {
            return Ok(entry);
        }
        let entry = match self.attached_entry(comm)? {
            Some(entry) if !entry.is_pending() => entry,
            kept => match (self.first_use_by(incoming)?, kept) {
                (Some(entry_point), _) => self.use_entry(comm, entry_point)?,
                (None, Some(entry)) => entry,
                (None, None) => {
                    let counted = self.new_counters(comm)?;
                    self.attach_entry(comm, CommEntry::pending(0, counted))?
                }
            },
        };
        Ok(self.set_recent(comm, &entry))
    }

    /// Returns as which kind of call an intercepted call counts on a communicator that is not in use yet; `None` if it does not count,
    /// because some rank may leave it before all have entered it. Calls with a root and alltoallv count only if the settings request an
    /// algorithm for them. Reductions that round, such as floating-point sums, count as API calls: they are handled from the first call on
    /// or never, so that equal calls have equal results. Other calls are handled only after a communicator has had a few calls.
    pub(super) fn first_use_by(&self, incoming: &Incoming<'_, B>) -> Result<Option<EntryPoint>, Error> {
        let comm = incoming.comm;
        if self.backend.is_inter(comm)? {
            return Ok(Some(EntryPoint::Mpi));
        }
        let Ok(normalized) = incoming.normalized()? else { return Ok(None) };
        let signature = &normalized.signature;
        let asked = self.internal_comm().is_some_and(|internal| internal.settings.handles_all(signature.name));
        // In an alltoallv a rank knows only its own sizes, which may all be 0.
        let local = signature.is_local();
        let sound = !local || incoming.is_alltoallv_sound()?;
        let meets = sound && !signature.is_nothing() && (asked || !(local || signature.is_rooted()));
        Ok(meets.then_some(if signature.combine.rounds() { EntryPoint::Api } else { EntryPoint::Mpi }))
    }

    /// Returns the entry of a communicator that is used now, with shared ownership because plans may outlive the communicator's handle.
    /// Makes it at first use, which is collective.
    pub(super) fn use_entry(&self, comm: Handle, entry_point: EntryPoint) -> Result<Arc<CommEntry<B>>, Error> {
        let mut counted = None;
        if let Some(entry) = self.attached_entry(comm)? {
            match &entry.handling {
                Handling::Pending(calls) => {
                    // All ranks make each of these calls, so their counts are the same.
                    let before = calls.fetch_add(1, Ordering::Relaxed);
                    if entry_point == EntryPoint::Mpi && before < self.first_calls() {
                        return Ok(entry);
                    }
                    counted = entry.counted.as_ref().map(CommCounters::anew);
                }
                _ => return Ok(entry),
            }
        } else if entry_point == EntryPoint::Mpi && self.first_calls() > 0 {
            let counted = self.new_counters(comm)?;
            return self.attach_entry(comm, CommEntry::pending(1, counted));
        }
        let handling = self.handling(comm)?;
        let (topology, calibration) = match &handling {
            Handling::Handled(communicator) => communicator.texts(),
            _ => Default::default(),
        };
        let counted = match counted {
            Some(counted) => Some(counted),
            None => self.new_counters(comm)?,
        };
        let entry = CommEntry { handling, counted };
        if let Some(counters) = entry.counters() {
            counters.set_topology(&topology, &calibration);
        }
        self.attach_entry(comm, entry)
    }

    /// Returns the entry that is attached to a communicator. Does not communicate.
    pub(super) fn attached_entry(&self, comm: Handle) -> Result<Option<Arc<CommEntry<B>>>, Error> {
        if self.backend.being_freed().contains(comm) {
            return Ok(Some(self.being_freed.clone()));
        }
        let kept = self.backend.attached(comm).map(|kept| {
            kept.downcast::<CommEntry<B>>().map_err(|_| {
                Error::Unsupported("the library's attribute of the communicator has an unexpected type".into())
            })
        });
        kept.transpose()
    }

    pub(super) fn attach_entry(&self, comm: Handle, entry: CommEntry<B>) -> Result<Arc<CommEntry<B>>, Error> {
        let entry = Arc::new(entry);
        self.keeps.store(true, Ordering::Relaxed);
        self.backend.attach(comm, entry.clone())?;
        Ok(entry)
    }

    /// Makes counters for a communicator, if there is to be a report.
    fn new_counters(&self, comm: Handle) -> Result<Option<CommCounters>, Error> {
        if self.internal_comm().is_none_or(|internal| internal.settings.report.is_none()) {
            return Ok(None);
        }
        let name = if comm == self.backend.comm_world() { "MPI_COMM_WORLD" } else { "" };
        let counters = match self.backend.rank(comm)? {
            0 => Some(self.statistics.open(name, self.backend.size(comm)?)),
            _ => None,
        };
        let inside = !self.backend.is_inter(comm)?
            && self.backend.translate(comm, self.backend.comm_world())?.iter().all(Option::is_some);
        Ok(Some(CommCounters::new(counters, inside)))
    }

    /// Whether the settings switch the library off.
    pub(super) fn is_off(&self) -> bool {
        self.internal_comm().is_some_and(|internal| internal.settings.mode == Mode::Off)
    }

    /// Returns the number of calls that a communicator must have had before its calls are handled.
    fn first_calls(&self) -> u32 {
        self.internal_comm().map_or(0, |internal| match internal.settings.mode {
            Mode::Always | Mode::Off => 0,
            _ => internal.settings.after,
        })
    }

    /// Decides whether the library handles the calls of a communicator. Collective.
    fn handling(&self, comm: Handle) -> Result<Handling<B>, Error> {
        if self.backend.is_inter(comm)? {
            return Ok(Handling::PassedThrough(Reason::Intercommunicator));
        }
        if self.backend.size(comm)? == 1 {
            return Ok(Handling::PassedThrough(Reason::OneRank));
        }
        let internal = match comm == self.backend.comm_world() {
            true => Some(self.make_internal_comm()?),
            false => self.internal_comm(),
        };
        let internal = match internal {
            Some(internal) => internal,
            None => {
                let mut used = [self.private.load(Ordering::Relaxed) as u64];
                self.backend.agree(comm, AgreeOp::Max, &mut used)?;
                if used[0] >= QUOTA as u64 {
                    return Ok(Handling::PassedThrough(Reason::Quota));
                }
                self.private.fetch_add(1, Ordering::Relaxed);
                Arc::new(InternalComm::new(self.backend, comm, self.active.clone())?)
            }
        };
        if internal.settings.mode == Mode::Off {
            return Ok(Handling::PassedThrough(Reason::Off));
        }
        match Communicator::new(internal, comm) {
            Ok(communicator) => Ok(Handling::Handled(Arc::new(communicator))),
            Err(Refusal::PassThrough(reason)) => Ok(Handling::PassedThrough(reason)),
            Err(Refusal::Error(error)) => Err(error),
        }
    }

    /// Returns the state of a communicator, if the library handles its calls. Collective at first use.
    pub(super) fn communicator(&self, comm: Handle) -> Result<Option<&Communicator<B>>, Error> {
        Ok(match &self.entry(comm)?.handling {
            Handling::Handled(communicator) => Some(communicator),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::place_of;

    /// MPICH's handles of the world and of the first communicators that a program makes have different places in the table.
    #[test]
    fn the_world_and_the_first_others_are_remembered_together() {
        let mut places: Vec<usize> = [0x4400_0000].into_iter().chain(0x8400_0000..0x8400_0007).map(place_of).collect();
        places.sort_unstable();
        assert_eq!(places, (0..8).collect::<Vec<_>>());
    }
}

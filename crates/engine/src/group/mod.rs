//! The ranks of a communicator, and the messages by which they agree before they have a plan.

mod calibrate;
mod internal;
mod translation;

use std::panic::catch_unwind;
use std::sync::Arc;

use bruckner_mpi::{AgreeOp, Handle, TagRange};
use bruckner_runtime::TranslateRanks as _;
use bruckner_schedule::{Level, Rank, Topology};

pub(crate) use internal::InternalComm;
pub(crate) use translation::RankTranslation;

use crate::Error;
use crate::backend::{Backend, Fault};
use crate::reason::Reason;
use crate::refusal::Refusal;
use internal::TagSearch;

/// The ranks of a user's communicator, and the tags of their messages on the internal communicator.
pub(crate) struct Group<B: Backend> {
    pub(crate) internal: Arc<InternalComm<B>>,
    pub(crate) comm: Handle,
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    pub(crate) translation: Arc<RankTranslation>,
    /// Tags of the group's messages: the first is for agreements, the others are for plans.
    pub(crate) tags: TagRange,
}

impl<B: Backend> Drop for Group<B> {
    fn drop(&mut self) {
        self.internal.free_tags(self.tags);
    }
}

impl<B: Backend> Group<B> {
    /// Creates the group of a communicator, and its topology. Collective. Returns the reason, the same on all ranks, if the library cannot
    /// handle the communicator's calls.
    pub(crate) fn new(internal: Arc<InternalComm<B>>, comm: Handle) -> Result<(Group<B>, Topology), Refusal> {
        let backend = internal.backend;
        let (rank, size) = (backend.rank(comm)?, backend.size(comm)?);
        let names: Option<Vec<u32>> = backend.translate(comm, internal.comm)?.into_iter().collect();
        // All ranks detect a process that is not in the internal communicator, and return here without communicating, because that process
        // may not have loaded the library.
        let Some(names) = names else { return Err(Reason::OutsideWorld.into()) };
        let placed = |name: &u32| {
            let region = |level| u64::from(internal.places.region_of(level, Rank(*name)));
            (region(Level::NODE), region(Level::SOCKET))
        };
        let places: Vec<(u64, u64)> = names.iter().map(placed).collect();
        let topology = catch_unwind(|| Topology::of(&places)).ok();
        // Only this agreement uses the user's communicator; later agreements use the internal communicator with the tags that are taken
        // here.
        let agree = |how, words: &mut [u64]| Ok(backend.agree(comm, how, words)?);
        let able = topology.is_some() && !backend.has_device();
        let (tags, topology) = match (internal.take_tags(rank == 0, able, agree)?, topology) {
            (TagSearch::Range(tags), Some(topology)) => (tags, topology),
            (TagSearch::Nothing, _) => return Err(Reason::NoTags.into()),
            _ => return Err(Reason::Unprepared.into()),
        };
        let translation = Arc::new(RankTranslation::of(names));
        Ok((Group { internal, comm, rank: Rank(rank), size, translation, tags }, topology))
    }

    pub(crate) fn backend(&self) -> &'static B {
        self.internal.backend
    }

    /// Whether a test injects this fault on this rank.
    pub(crate) fn fails(&self, fault: Fault) -> bool {
        self.backend().fails(fault, self.translation.translate(self.rank))
    }

    /// Returns the tag of messages by which ranks agree.
    pub(crate) fn agreement_tag(&self) -> u32 {
        self.tags.first
    }

    /// Combines the numbers of all ranks by messages. Collective. In each round every rank receives from a rank twice as far away as in
    /// the round before. A number may arrive twice, which does not change the result of any combination in [`AgreeOp`]. Messages of
    /// consecutive agreements cannot be confused, because a rank receives from a different sender in each round, and MPI keeps the order
    /// of messages from one sender.
    pub(crate) fn agree(&self, how: AgreeOp, numbers: &mut [u64]) -> Result<(), Error> {
        let mut distance = 1;
        while distance < self.size {
            let name = |rank: u32| self.translation.translate(Rank(rank % self.size));
            let (to, from) = (name(self.rank.0 + distance), name(self.rank.0 + self.size - distance));
            let mine: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
            let mut theirs = vec![0u8; mine.len()];
            self.internal.exchange(Some((to, &mine)), Some((from, &mut theirs)), self.agreement_tag())?;
            for (number, bytes) in numbers.iter_mut().zip(theirs.as_chunks().0) {
                *number = how.join(*number, u64::from_ne_bytes(*bytes));
            }
            distance *= 2;
        }
        Ok(())
    }

    /// Waits until all ranks of the group have entered this function. Collective.
    pub(crate) fn barrier(&self) -> Result<(), Error> {
        self.agree(AgreeOp::Max, &mut [0])
    }

    /// Takes a range of tags for a persistent operation; `None`, on all ranks, if none is left. Collective.
    pub(crate) fn take_tags(&self) -> Result<Option<TagRange>, Error> {
        let agree = |how, words: &mut [u64]| self.agree(how, words);
        match self.internal.take_tags(self.rank.0 == 0, true, agree)? {
            TagSearch::Range(tags) => Ok(Some(tags)),
            TagSearch::Nothing | TagSearch::Unable => Ok(None),
        }
    }
}

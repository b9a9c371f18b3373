//! The ranks of a communicator, and how they talk before there is a plan: by messages on the internal communicator.

mod calibrate;
mod internal;
mod translation;

use std::panic::catch_unwind;
use std::sync::Arc;

use bruckner_mpi::{Agree, Handle, TagRange};
use bruckner_runtime::Names as _;
use bruckner_schedule::{Level, Rank, Topology};

pub(crate) use internal::InternalComm;
pub(crate) use translation::RankTranslation;

use crate::Error;
use crate::backend::{Backend, Fault};
use crate::reason::Reason;
use crate::refusal::Refusal;
use internal::Found;

/// The ranks of a communicator.
pub(crate) struct Group<B: Backend> {
    pub(crate) internal: Arc<InternalComm<B>>,
    pub(crate) comm: Handle,
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    pub(crate) translation: Arc<RankTranslation>,
    /// The first is that of messages by which ranks agree; plans have the others.
    pub(crate) tags: TagRange,
}

impl<B: Backend> Drop for Group<B> {
    fn drop(&mut self) {
        self.internal.free_tags(self.tags);
    }
}

impl<B: Backend> Group<B> {
    /// The ranks of a communicator, and their topology. Collective. Where the library cannot handle its calls: the reason, on all ranks.
    pub(crate) fn new(internal: Arc<InternalComm<B>>, comm: Handle) -> Result<(Group<B>, Topology), Refusal> {
        let backend = internal.backend;
        let (rank, size) = (backend.rank(comm)?, backend.size(comm)?);
        let names: Option<Vec<u32>> = backend.translate(comm, internal.comm)?.into_iter().collect();
        // Where processes of two worlds meet, all see it; those of the other world may not have the library.
        let Some(names) = names else { return Err(Reason::OutsideWorld.into()) };
        let placed = |name: &u32| {
            let region = |level| u64::from(internal.places.region_of(level, Rank(*name)));
            (region(Level::NODE), region(Level::SOCKET))
        };
        let places: Vec<(u64, u64)> = names.iter().map(placed).collect();
        let topology = catch_unwind(|| Topology::of(&places)).ok();
        // The one agreement that goes by the user's communicator: afterwards there are tags.
        let agree = |how, words: &mut [u64]| Ok(backend.agree(comm, how, words)?);
        let able = topology.is_some() && !backend.has_device();
        let (tags, topology) = match (internal.take_tags(rank == 0, able, agree)?, topology) {
            (Found::Range(tags), Some(topology)) => (tags, topology),
            (Found::Nothing, _) => return Err(Reason::NoTags.into()),
            _ => return Err(Reason::Unprepared.into()),
        };
        let translation = Arc::new(RankTranslation::of(names));
        Ok((Group { internal, comm, rank: Rank(rank), size, translation, tags }, topology))
    }

    pub(crate) fn backend(&self) -> &'static B {
        self.internal.backend
    }

    /// Whether a fault is to happen here.
    pub(crate) fn fails(&self, fault: Fault) -> bool {
        self.backend().fails(fault, self.translation.peer(self.rank))
    }

    /// The tag of messages by which ranks agree.
    pub(crate) fn agreement_tag(&self) -> u32 {
        self.tags.first
    }

    /// Makes numbers the same on all ranks, by messages of their own: in each round each rank hears from one that is twice as far away, and
    /// hearing of a number twice does no harm. Collective. Messages of consecutive agreements cannot be mixed up, because the rounds of
    /// an agreement have different senders.
    pub(crate) fn agree(&self, how: Agree, numbers: &mut [u64]) -> Result<(), Error> {
        let mut distance = 1;
        while distance < self.size {
            let name = |rank: u32| self.translation.peer(Rank(rank % self.size));
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

    /// Waits until all ranks have come. Collective.
    pub(crate) fn barrier(&self) -> Result<(), Error> {
        self.agree(Agree::Max, &mut [0])
    }

    /// Tags for a plan of its own, if there are any. Collective.
    pub(crate) fn take_tags(&self) -> Result<Option<TagRange>, Error> {
        let agree = |how, words: &mut [u64]| self.agree(how, words);
        match self.internal.take_tags(self.rank.0 == 0, true, agree)? {
            Found::Range(tags) => Ok(Some(tags)),
            Found::Nothing | Found::Unable => Ok(None),
        }
    }
}

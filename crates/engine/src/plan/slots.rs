//! Tags and memory of persistent operations, which later operations reuse.
//!
//! Each operation has tags and memory of its own, so that ranks may start operations in any order. Allocating these takes several
//! agreements and a new segment. When an operation is freed, its tags, memory and plan stay in a *slot* of its communicator, and the next
//! operation of the same purpose takes them: making and freeing an operation in a loop costs one agreement each time.
//! All ranks of a communicator make its operations in the same order, so they have the same slots for the same purposes. A rank may free
//! an operation at any time, so ranks agree on the slots that are free on all of them.

use std::hash::BuildHasher as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bruckner_algorithms::Expression;
use bruckner_choose::Kind;
use bruckner_mpi::{AgreeOp, TagRange};
use rustc_hash::FxBuildHasher;
use smallvec::{SmallVec, smallvec};

use super::plans::Prepared;
use super::store::Store;
use super::workspace::Workspace;
use crate::Error;
use crate::backend::Backend;
use crate::cache::PlanId;
use crate::group::Group;
use crate::normalize::CallSignature;

/// Maximum number of slots of a communicator.
const SLOTS: usize = 512;

/// Bit set of free slots, in words. Three words are stored inline: one for 64 slots, and two for a hash of the call, which ranks compare.
type Free = SmallVec<[u64; 3]>;
const BITS: usize = u64::BITS as usize;

fn is_set(words: &[u64], at: usize) -> bool {
    words.get(at / BITS).is_some_and(|word| word >> (at % BITS) & 1 == 1)
}

/// Number of an operation, in the order in which a communicator's operations are made. A slot is identified by the operation that used it
/// last.
type OperationNumber = u64;

/// Properties that an operation must share with the last user of a slot to use the slot; the same on all ranks.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Purpose {
    pub(crate) kind: Kind,
    /// The algorithm that the caller named, if any.
    pub(crate) asked: Option<Expression>,
    /// Whether the plan must have only one round.
    pub(crate) one_round: bool,
    /// How often the decisions of the communicator were invalidated before the operation was made.
    pub(crate) revision: u64,
}

/// Tags and memory of one operation, with the plans made for them.
pub(crate) struct Resources<B: Backend> {
    pub(crate) store: Store<B>,
    pub(crate) tags: TagRange,
    /// The plan that the operation has taken out of the store.
    taken: Option<PlanId>,
    /// The slot to which the resources return when the operation is freed; `None` if all slots were taken.
    slot: Option<OperationNumber>,
}

struct Slot<B: Backend> {
    purpose: Purpose,
    turn: OperationNumber,
    /// Resources of the slot; `None` while an operation of this rank uses them.
    free: Option<Resources<B>>,
}

struct Table<B: Backend> {
    slots: Vec<Slot<B>>,
    turn: OperationNumber,
}

/// The slots of a communicator.
pub(crate) struct Slots<B: Backend>(Mutex<Table<B>>);

impl<B: Backend> Default for Slots<B> {
    fn default() -> Slots<B> {
        Slots(Mutex::new(Table { slots: Vec::new(), turn: 0 }))
    }
}

impl<B: Backend> Table<B> {
    /// Returns the slots that are free on this rank, as bits.
    fn free(&self) -> Free {
        let mut words: Free = smallvec![0; self.slots.len().div_ceil(BITS)];
        for (at, _) in self.slots.iter().enumerate().filter(|(_, slot)| slot.free.is_some()) {
            words[at / BITS] |= 1 << (at % BITS);
        }
        words
    }

    /// Takes the resources of a slot of this purpose that is free on all ranks.
    fn take(&mut self, free: &[u64], purpose: &Purpose) -> Option<Resources<B>> {
        let mut slots = self.slots.iter_mut().enumerate();
        let (_, slot) = slots.find(|(at, slot)| is_set(free, *at) && slot.purpose == *purpose)?;
        self.turn += 1;
        slot.turn = self.turn;
        Some(Resources { slot: Some(self.turn), ..slot.free.take()? })
    }

    /// Removes slots of the table that are free on all ranks, the least recently used first, until the table has at most `most` slots or
    /// no such slot is left. Returns the resources of the removed slots.
    fn shrink(&mut self, free: &[u64], most: usize) -> Vec<Resources<B>> {
        let turn_of_free = |(at, slot): (usize, &Slot<B>)| is_set(free, at).then_some(slot.turn);
        let mut oldest: Vec<OperationNumber> = self.slots.iter().enumerate().filter_map(turn_of_free).collect();
        oldest.sort_unstable();
        oldest.truncate(self.slots.len().saturating_sub(most));
        let removed = self.slots.extract_if(.., |slot| oldest.binary_search(&slot.turn).is_ok());
        removed.filter_map(|slot| slot.free).collect()
    }

    /// Opens a slot, unless the communicator has the maximum number of slots.
    fn open(&mut self, purpose: Purpose) -> Option<OperationNumber> {
        if self.slots.len() >= SLOTS {
            return None;
        }
        self.turn += 1;
        self.slots.push(Slot { purpose, turn: self.turn, free: None });
        Some(self.turn)
    }

    /// Puts an operation's resources back into its slot. Returns the resources if the operation has no slot.
    fn put_back(&mut self, resources: Resources<B>) -> Option<Resources<B>> {
        let turn = resources.slot;
        match self.slots.iter_mut().find(|slot| Some(slot.turn) == turn) {
            Some(slot) => slot.free.replace(resources),
            None => Some(resources),
        }
    }
}

impl<B: Backend> Resources<B> {
    fn new(tags: TagRange, slot: Option<OperationNumber>) -> Resources<B> {
        Resources { store: Store::new(Workspace::of_operation()), tags, taken: None, slot }
    }

    /// Takes a plan out of the store, for an operation.
    pub(crate) fn plan(&mut self, version: PlanId) -> Prepared<B> {
        self.taken = Some(version);
        self.store.plans.versions.get(version).prepared.take().unwrap_or(Prepared::Native)
    }

    /// Puts the plan that was taken out back into the store.
    fn put_back(&mut self, plan: Prepared<B>) {
        if let Some(version) = self.taken.take() {
            self.store.plans.versions.get(version).prepared = Some(plan);
        }
    }

    /// Frees tags, memory and plans.
    pub(crate) fn free(self, group: &Group<B>) {
        let Resources { store, tags, .. } = self;
        store.free(group);
        group.internal.free_tags(tags);
    }
}

impl<B: Backend> Slots<B> {
    fn table(&self) -> MutexGuard<'_, Table<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns tags and memory for an operation, either taken over from an operation that was freed on all ranks, or new. `None`, on all
    /// ranks, if no tags are left. Collective.
    pub(crate) fn take(
        &self,
        group: &Group<B>,
        purpose: Purpose,
        signature: &CallSignature,
    ) -> Result<Option<Resources<B>>, Error> {
        // Ranks that make different calls have different hashes, which shows here, or differ when they agree on a new plan.
        let label = FxBuildHasher.hash_one((&purpose, signature));
        let mut free = self.table().free();
        free.extend([label, !label]);
        group.agree(AgreeOp::And, &mut free)?;
        let (inverse, label) = (free.pop(), free.pop());
        if inverse != label.map(|label| !label) {
            return Ok(group.take_tags()?.map(|tags| Resources::new(tags, None)));
        }
        if let Some(resources) = self.table().take(&free, &purpose) {
            return Ok(Some(resources));
        }
        let mut tags = group.take_tags()?;
        // If no tags are left, the tags of all free slots are given back.
        let most = if tags.is_some() { SLOTS - 1 } else { 0 };
        let removed = self.table().shrink(&free, most);
        removed.into_iter().for_each(|resources| resources.free(group));
        if tags.is_none() {
            tags = group.take_tags()?;
        }
        Ok(tags.map(|tags| Resources::new(tags, self.table().open(purpose))))
    }

    /// Removes the slot of an operation that turned out not to be plannable and is passed through to the MPI, and frees its resources.
    /// Collective: all ranks remove the same slot, so their tables stay equal.
    pub(crate) fn remove(&self, group: &Group<B>, resources: Resources<B>) {
        let turn = resources.slot;
        self.table().slots.retain(|slot| Some(slot.turn) != turn);
        resources.free(group);
    }

    /// Keeps the plan, tags and memory of a freed operation for the next one.
    pub(crate) fn put_back(&self, group: &Group<B>, mut resources: Resources<B>, plan: Prepared<B>) {
        resources.put_back(plan);
        let left = self.table().put_back(resources);
        if let Some(resources) = left {
            resources.free(group);
        }
    }

    /// Frees the resources of all slots, when the communicator is freed.
    pub(crate) fn free(&mut self, group: &Group<B>) {
        let slots = std::mem::take(&mut self.table().slots);
        slots.into_iter().filter_map(|slot| slot.free).for_each(|resources| resources.free(group));
    }
}

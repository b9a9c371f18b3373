//! What is kept for a user's communicator: where its ranks are, its tags, its segments, and its plans.

mod agreed;
mod gauge;
mod hidden;
mod keeper;
mod make;
mod memo;
mod names;
mod plans;
mod room;
mod slots;

use std::hash::BuildHasher as _;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bruckner_choose::{
    Assignment, Choice, Gauged, Kind, KindId, Menus, OnlineTuning, Reason as Chosen, Rules, choose,
};
use bruckner_mpi::{Agree, Handle, TagRange};
use bruckner_runtime::{Extent, Limits, Names as _, Needs, Scratch};
use bruckner_schedule::{Level, Rank, Topology};
use rustc_hash::FxBuildHasher;

pub(crate) use hidden::Hidden;
pub(crate) use make::{Site, Stopped};
pub(crate) use memo::{Arguments, Bytes, Memo, Memos, Natives, arguments, is_built_in};
pub(crate) use plans::{Plans, Prepared, VersionId};
pub(crate) use room::Room;
pub(crate) use slots::{Purpose, Resources};

use crate::Error;
use crate::backend::{Backend, Fault};
use crate::normalize::{CallSignature, NormalizedCall};
use crate::parts::Parts;
use crate::progress::{Taken, Turn};
use crate::reason::Reason;
use crate::refusal::Refusal;
use hidden::Found;
use make::Attempt;
use names::RankNames;
use plans::{Candidate, Form, Look, Version};
use slots::Slots;

/// Plans, the memory that they share, and calls that are known to be served by one.
pub(crate) struct Store<B: Backend> {
    pub(crate) plans: Plans<B>,
    pub(crate) room: Room,
    pub(crate) memos: Memos,
}

impl<B: Backend> Store<B> {
    pub(crate) fn new(room: Room) -> Store<B> {
        Store { plans: Plans::default(), room, memos: Memos::default() }
    }
}

/// What serves a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) id: VersionId,
    pub(crate) kind: Kind,
    pub(crate) kind_id: KindId,
    /// Bytes of the largest block, or of the vector.
    pub(crate) bytes: u64,
    pub(crate) assignment: Assignment,
    /// Whether it stands in for what serves calls of this kind, and cannot be had for this one.
    pub(crate) fallback: bool,
}

/// What changes from call to call.
pub(crate) struct State<B: Backend> {
    pub(crate) store: Store<B>,
    pub(crate) staged_input: Scratch,
    pub(crate) staged_output: Scratch,
    pub(crate) rules: Rules,
    pub(crate) topology: Arc<Topology>,
    pub(crate) menus: Arc<Menus>,
    pub(crate) tuning: OnlineTuning,
    /// What messages were found to take, where that was measured.
    pub(crate) gauged: Option<Gauged>,
    /// Whether ranks have agreed that one of them may have buffers in device memory.
    pub(crate) device: bool,
    pub(crate) calls: u64,
    /// How often plans were forgotten.
    pub(crate) revision: u64,
}

impl<B: Backend> State<B> {
    /// From now on everything is the MPI's own: ranks have agreed that a buffer may be in device memory.
    pub(crate) fn leave_to_mpi(&mut self) {
        self.forget();
        self.device = true;
    }

    /// Whether a call is known to go to the MPI.
    pub(crate) fn is_native(&self, signature: &CallSignature) -> bool {
        self.store.plans.is_native(&self.menus.kind(&signature.question()))
    }

    /// What serves a call, and why.
    pub(crate) fn why(&mut self, served: &Served) -> Arc<Choice> {
        let choice = self.store.plans.versions.get(served.id).choice.clone();
        let candidates = self.store.plans.known(&served.kind);
        let named = |at: usize| candidates[at].choice.expression.clone();
        match self.tuning.reason(served.kind_id, served.bytes, served.assignment, named) {
            Some(reason) => Arc::new(Choice { reason, expression: choice.expression.clone() }),
            None => choice,
        }
    }

    /// All plans go: what chooses them has changed.
    pub(crate) fn forget(&mut self) {
        self.store.memos.clear();
        self.store.plans.clear();
        self.tuning = OnlineTuning::default();
        self.revision += 1;
    }
}

/// A user's communicator.
pub(crate) struct Communicator<B: Backend> {
    pub(crate) hidden: Arc<Hidden<B>>,
    pub(crate) comm: Handle,
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    pub(crate) names: Arc<RankNames>,
    tags: TagRange,
    /// Taken while a call runs. Whoever finds it taken does not wait.
    state: Turn<State<B>>,
    /// Plans, tags and memory of freed persistent operations.
    slots: Mutex<Slots<B>>,
}

impl<B: Backend> Drop for Communicator<B> {
    fn drop(&mut self) {
        // No MPI call: this may be a delete callback.
        let left: Vec<_> = self.slots.get_mut().unwrap_or_else(PoisonError::into_inner).drain().collect();
        left.into_iter().for_each(|resources| self.dissolve(resources));
        // Nobody runs a plan on its segments any more.
        self.state.get_mut().forget();
        let rented = self.state.get_mut().store.room.leave();
        rented.into_iter().flatten().for_each(|rented| self.hidden.keeper.put_back(rented));
        self.hidden.give_back(self.tags);
    }
}

impl<B: Backend> Communicator<B> {
    /// What is kept for a communicator whose ranks have these names on a hidden one. Collective; where it cannot be
    /// served, the reason, on all ranks.
    pub(crate) fn new(hidden: Arc<Hidden<B>>, comm: Handle) -> Result<Communicator<B>, Refusal> {
        let backend = hidden.backend;
        let (rank, size) = (backend.rank(comm)?, backend.size(comm)?);
        let names: Option<Vec<u32>> = backend.translate(comm, hidden.comm)?.into_iter().collect();
        // Where processes of two worlds meet, all see it; those of the other world may not have the library.
        let Some(names) = names else { return Err(Reason::OutsideWorld.into()) };
        let placed = |name: &u32| {
            let region = |level| u64::from(hidden.places.region_of(level, Rank(*name)));
            (region(Level::NODE), region(Level::SOCKET))
        };
        let places: Vec<(u64, u64)> = names.iter().map(placed).collect();
        let topology = catch_unwind(|| Topology::of(&places)).ok();
        // The one agreement that goes by the user's communicator: afterwards there are tags.
        let agree = |how, words: &mut [u64]| Ok(backend.agree(comm, how, words)?);
        let able = topology.is_some() && !backend.has_device();
        let (tags, topology) = match (hidden.take_tags(rank == 0, able, agree)?, topology) {
            (Found::Range(tags), Some(topology)) => (tags, topology),
            (Found::Nothing, _) => return Err(Reason::NoTags.into()),
            _ => return Err(Reason::Unprepared.into()),
        };
        let topology = hidden.keeper.topology(topology);
        let state = State {
            store: Store::new(Room::of_communicator()),
            menus: hidden.menus(&topology, None),
            tuning: OnlineTuning::default(),
            staged_input: Scratch::new(0),
            staged_output: Scratch::new(0),
            rules: hidden.settings.rules.clone(),
            topology: topology.clone(),
            gauged: None,
            device: false,
            calls: 0,
            revision: 0,
        };
        let names = Arc::new(RankNames::of(names));
        let (state, slots) = (Turn::new(state), Mutex::default());
        let mut communicator =
            Communicator { hidden, comm, rank: Rank(rank), size, names, tags, state, slots };
        if let Some(gauged) = communicator.gauged(&topology)? {
            let state = communicator.state.get_mut();
            state.menus = communicator.hidden.menus(&topology, Some(&gauged));
            state.gauged = Some(gauged);
        }
        Ok(communicator)
    }

    /// Takes the state for a call. It goes back also when the call panics.
    pub(crate) fn take(&self) -> Result<Taken<'_, State<B>>, Error> {
        self.state.try_take().ok_or(Error::Plan("another thread is in a collective on this communicator"))
    }

    /// Where its ranks are, and what messages were found to take, as text.
    pub(crate) fn texts(&self) -> (String, String) {
        self.take().map_or_else(
            |_| Default::default(),
            |state| (state.topology.to_string(), state.gauged.map_or_else(String::new, |g| g.to_string())),
        )
    }

    fn backend(&self) -> &'static B {
        self.hidden.backend
    }

    /// Whether a fault is to happen here.
    fn fails(&self, fault: Fault) -> bool {
        self.backend().fails(fault, self.names.peer(self.rank))
    }

    /// The tag of messages by which ranks agree; plans have those behind it.
    fn agreeing(&self) -> u32 {
        self.tags.first
    }

    /// Makes numbers the same on all ranks, by messages of their own: in each round everybody hears from twice as far, and
    /// hearing of a number twice does no harm. Collective. Messages of one agreement and the next cannot be mixed up:
    /// no two rounds of one have the same sender.
    pub(crate) fn agree(&self, how: Agree, numbers: &mut [u64]) -> Result<(), Error> {
        let mut distance = 1;
        while distance < self.size {
            let name = |rank: u32| self.names.peer(Rank(rank % self.size));
            let (to, from) = (name(self.rank.0 + distance), name(self.rank.0 + self.size - distance));
            let mine: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
            let mut theirs = vec![0u8; mine.len()];
            self.hidden.exchange(Some((to, &mine)), Some((from, &mut theirs)), self.agreeing())?;
            for (number, bytes) in numbers.iter_mut().zip(theirs.as_chunks().0) {
                *number = how.join(*number, u64::from_ne_bytes(*bytes));
            }
            distance *= 2;
        }
        Ok(())
    }

    /// Tags for a plan of its own. Collective.
    pub(crate) fn more_tags(&self) -> Result<Option<TagRange>, Error> {
        let agree = |how, words: &mut [u64]| self.agree(how, words);
        match self.hidden.take_tags(self.rank.0 == 0, true, agree)? {
            Found::Range(tags) => Ok(Some(tags)),
            Found::Nothing | Found::Unable => Ok(None),
        }
    }

    /// The plan for a call, bound to its sizes. Making one is collective; whether there is one depends on what all ranks
    /// share. `None`, on all ranks, if they have found that they are not in the same call: that is not kept.
    pub(crate) fn plan_for(
        &self,
        state: &mut State<B>,
        normalized: &mut NormalizedCall,
    ) -> Result<Option<Served>, Error> {
        state.calls += 1;
        loop {
            let question = normalized.signature.question();
            let (kind, bytes) = (state.menus.kind(&question), question.bytes());
            let State { store, topology, menus, rules, device, calls, tuning, .. } = &mut *state;
            let site = Site { topology, tags: self.tags, one_round: false };
            let choices = || choices(&kind, menus, rules, *device);
            let settings = &self.hidden.settings;
            let tuned = settings.watch && settings.check == 0;
            let candidates = store.plans.of(kind, choices).0;
            let kind_id = tuning.kind(kind);
            let rivals = || match tuned {
                true => {
                    let rivals = menus.rivals(&question, &candidates[0].choice);
                    rivals.into_iter().map(|rival| Candidate::number(candidates, rival)).collect()
                }
                false => Vec::new(),
            };
            let fingerprint = || FxBuildHasher.hash_one(&normalized.signature);
            let assignment = tuning.assign(kind_id, bytes, fingerprint, rivals);
            match self.prepare(store, &site, kind, choices, assignment.candidate(), normalized) {
                Ok((id, candidate)) => {
                    store.plans.versions.get(id).looked_for = *calls;
                    let asked = assignment.candidate();
                    let fallback = candidate != asked;
                    if fallback && assignment.is_in_trial() {
                        tuning.exclude(kind_id, bytes, asked);
                    }
                    let assignment = if fallback { Assignment::Regular(candidate) } else { assignment };
                    return Ok(Some(Served { id, kind, kind_id, bytes, assignment, fallback }));
                }
                Err(Stopped::Device) => state.leave_to_mpi(),
                Err(Stopped::Different) => {
                    // Nothing but native can serve such calls.
                    if assignment.is_in_trial() {
                        tuning.stop(kind_id, bytes);
                    }
                    return Ok(None);
                }
                Err(Stopped::Failed(error)) => return Err(error),
            }
        }
    }

    /// The plan of a store for a call, and whose it is: by an algorithm that is asked for, or the first of which there is one, or can be.
    /// Collective if one must be made, or room for it.
    pub(crate) fn prepare(
        &self,
        store: &mut Store<B>,
        site: &Site<'_>,
        kind: Kind,
        choices: impl FnOnce() -> Vec<Choice>,
        asked: usize,
        normalized: &mut NormalizedCall,
    ) -> Result<(VersionId, usize), Stopped> {
        let Store { plans, room, memos } = store;
        let (candidates, versions) = plans.of(kind, choices);
        // One of them is the MPI's own function, which always fits.
        for at in [asked].into_iter().chain((0..candidates.len()).filter(|at| *at != asked)) {
            let candidate = &mut candidates[at];
            let id = match candidate.find(versions, &mut normalized.signature.problem, site.topology) {
                Look::Version(id) => id,
                Look::Nothing if candidate.is_native() => candidate.put_native(versions),
                Look::Nothing => {
                    // Plans may be dropped: memos, which do not look, start anew.
                    memos.clear();
                    let form =
                        Form::of(&normalized.signature.problem, site.topology, &candidate.choice.expression);
                    match self.make(site, normalized, &form, &candidate.choice.expression)? {
                        Attempt::Made(made, extent) => candidate.put(versions, form, Some(made), extent),
                        Attempt::Refused => candidate.put(versions, form, None, Extent::default()),
                        Attempt::Stopped(why) => return Err(why),
                    }
                }
                Look::Unfit => continue,
            };
            // What is served so has the same form as what cannot be.
            let parts = matches!(versions.get(id).prepared, Some(Prepared::Parts(_)));
            if parts && Parts::of(&candidate.choice.expression, &normalized.signature).is_none() {
                continue;
            }
            if self.fit(versions.get(id), normalized, site.topology, room, memos)? {
                return Ok((id, at));
            }
        }
        unreachable!("the MPI's own function fits")
    }

    /// Waits until all ranks have come. Collective.
    pub(crate) fn meet(&self) -> Result<(), Error> {
        self.agree(Agree::Max, &mut [0])
    }

    /// Makes ranks begin a call of a look together. Collective.
    pub(crate) fn gather_for(&self, served: &Served) -> Result<(), Error> {
        match served.assignment {
            Assignment::FromBarrier(_) => self.meet(),
            Assignment::Regular(_) | Assignment::Following(_) => Ok(()),
        }
    }

    /// Concludes from how long a call of a look took; what was seen, if it was the last. Collective then.
    pub(crate) fn looked(
        &self,
        state: &mut State<B>,
        served: &Served,
        took: Duration,
    ) -> Result<Vec<(Arc<Choice>, f64)>, Error> {
        let Served { kind_id, bytes, assignment, .. } = *served;
        if !assignment.is_in_trial() {
            return Ok(Vec::new());
        }
        let State { tuning, store, .. } = state;
        let Some(mut times) = tuning.add_time(kind_id, bytes, took.as_nanos() as u64) else {
            return Ok(Vec::new());
        };
        // Whoever is in another look, in a call that is not the same, is found out.
        let label = tuning.fingerprint(kind_id, bytes);
        times.extend([label, !label]);
        self.agree(Agree::Max, &mut times)?;
        store.memos.clear();
        let candidates = store.plans.known(&served.kind);
        match (times.pop(), times.pop()) {
            (Some(inverse), Some(label)) if inverse == !label => {
                let seen = tuning.conclude(kind_id, bytes, &times, |at| candidates[at].is_native());
                Ok(seen.into_iter().map(|(at, time)| (candidates[at].choice.clone(), time)).collect())
            }
            _ => {
                tuning.stop(kind_id, bytes);
                Ok(Vec::new())
            }
        }
    }

    /// Whether a plan may have as much room, of which so much could not be had before.
    #[inline]
    pub(crate) fn may_have(&self, needs: &Needs, too_much: usize) -> bool {
        needs.temporary as u64 <= self.hidden.settings.memory && needs.most() < too_much
    }

    /// Makes a plan ready for a call, with as much room as it takes; whether that can be, on all ranks.
    fn fit(
        &self,
        version: &mut Version<B>,
        normalized: &NormalizedCall,
        topology: &Topology,
        room: &mut Room,
        memos: &mut Memos,
    ) -> Result<bool, Error> {
        let plan = match &mut version.prepared {
            None => return Ok(false),
            Some(Prepared::Native | Prepared::Parts(_) | Prepared::Sized(_)) => return Ok(true),
            Some(Prepared::Ready(plan)) => plan,
        };
        let problem = &normalized.signature.problem;
        let needs = version.extent.needs(plan.compiled().even, problem, &Limits::MEASURED);
        if !self.may_have(&needs, version.too_much) {
            return Ok(false);
        }
        if room.lacks(&needs) {
            memos.clear();
            if !self.make_room(topology, room, &needs)? {
                version.too_much = needs.most();
                return Ok(false);
            }
        }
        plan.set_segments(&room.segments);
        plan.bind(problem);
        if normalized.user_op.is_some() || version.combine != Some(normalized.signature.combine) {
            plan.set_reduction(normalized.reduction(self.backend()));
            version.combine = Some(normalized.signature.combine);
        }
        Ok(true)
    }
}

/// The algorithms for a kind of call, best first.
pub(crate) fn choices(kind: &Kind, menus: &Menus, rules: &Rules, device: bool) -> Vec<Choice> {
    match device {
        true => vec![Choice::native(Chosen::Device)],
        false => choose(kind, menus, rules),
    }
}

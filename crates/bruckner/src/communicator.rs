//! What is kept for a user's communicator: where its ranks are, its tags, its segments, and its plans.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use bruckner_algorithms::expression::Plain;
use bruckner_algorithms::lower::OnNode;
use bruckner_algorithms::{Expression, Task, plan};
use bruckner_mpi::{Agree, Flavour, Function, Messages, Mpi, TagRange, Word, has_device_runtime};
use bruckner_runtime::segment::Lease;
use bruckner_runtime::{Compiled, Names, Plan, Scratch, Segment, Segments, compile, sized};
use bruckner_schedule::{Code, Counts, Level, Rank, Topology};
use rustc_hash::FxBuildHasher;

use crate::Error;
use crate::choose::{self, Choice, Circumstances, choose};
use crate::fault;
use crate::hidden::{Found, Hidden};
use crate::memo::Memos;
use crate::normal::{Key, Normal};
use crate::settings::Rules;

/// Levels that can have segments here: node and socket.
const LEVELS: usize = 2;

/// The most plans that a communicator keeps.
const PLANS: usize = 256;

/// A choice of native takes no room and is kept; calls that repeat it need not be counted, so they need not be seen.
const NEVER_EVICTED: u64 = u64::MAX;

/// The same where nobody had to be asked. There may be one for each size that a program ever uses: now and then they are
/// forgotten, by each rank when it likes.
const FORGETTABLE: u64 = u64::MAX - 1;
const FORGETTABLES: usize = 1024;

/// Why a communicator is not served where device memory may be.
pub(crate) const DEVICE: &str = "a rank has a GPU runtime loaded: buffers may be in device memory";

/// The names of a communicator's ranks on the hidden one.
pub(crate) enum RankNames {
    Same,
    Listed(Vec<u32>),
}

impl Names for RankNames {
    fn peer(&self, rank: Rank) -> u32 {
        match self {
            RankNames::Same => rank.0,
            RankNames::Listed(names) => names[rank.0 as usize],
        }
    }
}

/// The memory of plans: segments of the regions that a rank is in, how large their parts are (the same on all ranks), and
/// what is this rank's alone.
pub(crate) struct Room {
    pub(crate) segments: Segments,
    parts: [usize; LEVELS],
    pub(crate) temporary: Scratch,
}

impl Room {
    pub(crate) fn none() -> Room {
        Room { segments: vec![None; LEVELS], parts: [0; LEVELS], temporary: Scratch::new(0) }
    }
}

/// A plan that was made, or why there is none.
pub(crate) enum Prepared {
    Ready(Box<Plan<Messages>>),
    Sized(Box<sized::Plan<Messages>>),
    Native,
}

/// What came of an attempt to make a plan; the same on all ranks.
pub(crate) enum Attempt {
    Made(Prepared),
    /// It cannot be had on some rank.
    Refused,
    /// A rank has noticed that buffers may be in device memory.
    Device,
    /// Ranks are not in the same call, as far as a plan is concerned: other types, other lists of counts. Some of that is wrong
    /// and forgiven, and how much only the MPI knows.
    Different,
}

/// The first of some choices that could be planned; the same on all ranks.
pub(crate) enum First {
    Made(Prepared, Choice),
    /// As in an [`Attempt`].
    Device,
    /// As in an [`Attempt`].
    Different,
}

/// Native, for what may be in device memory.
fn in_device_memory() -> Choice {
    Choice { expression: Expression::Plain(Plain::Native), why: DEVICE.to_owned() }
}

/// A plan with the algorithm it is by, and the last call that used it.
pub(crate) struct Slot {
    pub(crate) prepared: Box<Prepared>,
    pub(crate) choice: Choice,
    /// The call that used it last, for eviction; see [`NEVER_EVICTED`] and [`FORGETTABLE`].
    pub(crate) used: u64,
    /// The call that last looked for it in the map.
    pub(crate) looked_for: u64,
}

/// Where a plan is made, and for what.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) topology: &'a Arc<Topology>,
    pub(crate) tags: TagRange,
    pub(crate) normal: &'a Normal,
    /// Whether only a plan of one round will do.
    pub(crate) one_round: bool,
}

/// What changes from call to call.
pub(crate) struct State {
    pub(crate) plans: HashMap<Key, Slot, FxBuildHasher>,
    /// How many of them count, and how many may be forgotten.
    kept: usize,
    forgettable: usize,
    pub(crate) memos: Memos,
    pub(crate) room: Room,
    pub(crate) staged_input: Scratch,
    pub(crate) staged_output: Scratch,
    pub(crate) rules: Rules,
    pub(crate) topology: Arc<Topology>,
    /// Whether ranks have agreed that one of them may have buffers in device memory.
    pub(crate) device: bool,
    pub(crate) calls: u64,
}

impl State {
    /// From now on everything is the MPI's own: ranks have agreed that a buffer may be in device memory.
    pub(crate) fn leave_to_mpi(&mut self) {
        self.forget();
        self.device = true;
    }

    /// Whether a call is known to go to the MPI.
    pub(crate) fn is_native(&self, key: &Key) -> bool {
        self.plans.get(key).is_some_and(|slot| matches!(*slot.prepared, Prepared::Native))
    }

    /// All plans go: what chooses them has changed.
    pub(crate) fn forget(&mut self) {
        self.memos.clear();
        self.plans.clear();
        (self.kept, self.forgettable) = (0, 0);
    }
}

/// A user's communicator.
pub(crate) struct Communicator {
    pub(crate) hidden: Arc<Hidden>,
    pub(crate) comm: Word,
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    pub(crate) names: RankNames,
    tags: TagRange,
    /// Taken out while a call runs, so that no lock is held across one.
    state: AtomicPtr<State>,
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // No MPI call: this may be a delete callback.
        let state = *self.state.get_mut();
        if !state.is_null() {
            // SAFETY: made by `new`, and nobody has it.
            drop(unsafe { Box::from_raw(state) });
        }
        self.hidden.give_back(self.tags);
    }
}

/// A communicator's state, taken for a call. It goes back also when the call panics.
pub(crate) struct Taken<'a> {
    communicator: &'a Communicator,
    state: *mut State,
}

impl Deref for Taken<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        // SAFETY: a state that `take` took, so that nobody else has it.
        unsafe { &*self.state }
    }
}

impl DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: as above.
        unsafe { &mut *self.state }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.communicator.state.store(self.state, Ordering::Release);
    }
}

impl Communicator {
    /// What is kept for a communicator whose ranks have these names on a hidden one. Collective; where it cannot be
    /// served, the reason, on all ranks.
    pub(crate) fn new(hidden: Arc<Hidden>, comm: Word) -> Result<Result<Communicator, &'static str>, Error> {
        let mpi = hidden.mpi;
        let (rank, size) = (mpi.rank(comm)?, mpi.size(comm)?);
        let names: Option<Vec<u32>> = mpi.translate(comm, hidden.comm)?.into_iter().collect();
        // Where processes of two worlds meet, all see it; those of the other world may not have the library.
        let Some(names) = names else { return Ok(Err("not inside MPI_COMM_WORLD")) };
        let placed = |name: &u32| {
            let place = hidden.places[*name as usize];
            (place.node, place.socket)
        };
        let places: Vec<(u64, u64)> = names.iter().map(placed).collect();
        let topology = catch_unwind(|| Topology::of(&places)).ok();
        // The one agreement that goes by the user's communicator: afterwards there are tags.
        let agree = |how, words: &mut [u64]| Ok(mpi.agree(comm, how, words)?);
        let able = topology.is_some() && !has_device_runtime();
        let (tags, topology) = match (hidden.take_tags(rank == 0, able, agree)?, topology) {
            (Found::Range(tags), Some(topology)) => (tags, topology),
            (Found::Nothing, _) => return Ok(Err("no tags are left")),
            _ => return Ok(Err("a rank has a GPU runtime loaded, or failed to prepare")),
        };
        let same =
            names.len() == hidden.places.len() && names.iter().enumerate().all(|(i, n)| i as u32 == *n);
        let state = State {
            plans: HashMap::default(),
            kept: 0,
            forgettable: 0,
            memos: Memos::default(),
            room: Room::none(),
            staged_input: Scratch::new(0),
            staged_output: Scratch::new(0),
            rules: hidden.settings.rules.clone(),
            topology: Arc::new(topology),
            device: false,
            calls: 0,
        };
        let names = if same { RankNames::Same } else { RankNames::Listed(names) };
        let state = AtomicPtr::new(Box::into_raw(Box::new(state)));
        Ok(Ok(Communicator { hidden, comm, rank: Rank(rank), size, names, tags, state }))
    }

    /// Takes the state for a call.
    pub(crate) fn take(&self) -> Result<Taken<'_>, Error> {
        let state = self.state.swap(std::ptr::null_mut(), Ordering::Acquire);
        if state.is_null() {
            return Err(Error::Plan("another thread is in a collective on this communicator"));
        }
        Ok(Taken { communicator: self, state })
    }

    /// Where its ranks are, as text.
    pub(crate) fn topology_text(&self) -> String {
        self.take().map_or_else(|_| String::new(), |state| state.topology.to_string())
    }

    fn mpi(&self) -> &'static Mpi {
        self.hidden.mpi
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

    /// Sees to it that a call has a plan. Making one is collective; whether there is one depends on what all ranks share.
    /// `false`, on all ranks, if they have found that they are not in the same call: that is not kept.
    pub(crate) fn prepare(&self, state: &mut State, normal: &Normal) -> Result<bool, Error> {
        state.calls += 1;
        if !state.plans.contains_key(&normal.key) {
            if state.kept >= PLANS {
                state.memos.clear();
                let oldest = state.plans.iter().min_by_key(|(_, plan)| plan.used).map(|(key, _)| key.clone());
                oldest.and_then(|key| state.plans.remove(&key));
                state.kept -= 1;
            }
            if state.forgettable >= FORGETTABLES {
                state.memos.clear();
                state.plans.retain(|_, slot| slot.used != FORGETTABLE);
                state.forgettable = 0;
            }
            let choices = self.choices(&normal.key, state);
            let native = Expression::Plain(Plain::Native);
            let alone = choices.first().is_none_or(|choice| choice.expression == native);
            let topology = state.topology.clone();
            let site = Site { topology: &topology, tags: self.tags, normal, one_round: false };
            let (made, choice) = match self.first(&site, choices, &mut state.room)? {
                First::Made(made, choice) => (made, choice),
                First::Device => {
                    state.leave_to_mpi();
                    (Prepared::Native, in_device_memory())
                }
                First::Different => return Ok(false),
            };
            // The room may have grown: memos, which do not look, start anew.
            state.memos.clear();
            let used = match (&made, alone) {
                (Prepared::Native, true) => FORGETTABLE,
                (Prepared::Native, false) => NEVER_EVICTED,
                _ => 0,
            };
            state.kept += usize::from(used == 0);
            state.forgettable += usize::from(used == FORGETTABLE);
            let slot = Slot { prepared: Box::new(made), choice, used, looked_for: 0 };
            state.plans.insert(normal.key.clone(), slot);
        }
        let entry = state.plans.get_mut(&normal.key).expect("just looked for or made");
        entry.looked_for = state.calls;
        if entry.used < FORGETTABLE {
            entry.used = state.calls;
        }
        if let Prepared::Ready(plan) = &mut *entry.prepared {
            // The room may have grown since.
            plan.set_segments(&state.room.segments);
        }
        Ok(true)
    }

    /// The algorithms for a call, best first.
    pub(crate) fn choices(&self, key: &Key, state: &State) -> Vec<Choice> {
        if state.device {
            return vec![in_device_memory()];
        }
        let (settings, mpi) = (&self.hidden.settings, self.mpi().name());
        let narrow = !self.mpi().has(Function::Allgatherv, Flavour::Blocking, true);
        let (topology, rules) = (&*state.topology, &state.rules);
        choose(key, &Circumstances { topology, rules, settings, mpi, narrow })
    }

    /// The first of some choices that can be planned. Collective.
    pub(crate) fn first(
        &self,
        site: &Site<'_>,
        choices: Vec<Choice>,
        room: &mut Room,
    ) -> Result<First, Error> {
        let mut refused = String::new();
        for mut choice in choices {
            if choice.expression == Expression::Plain(Plain::Native) {
                choice.why = refused + &choice.why;
                return Ok(First::Made(Prepared::Native, choice));
            }
            match self.make(site, &choice.expression, room)? {
                Attempt::Made(made) => return Ok(First::Made(made, choice)),
                Attempt::Device => return Ok(First::Device),
                Attempt::Different => return Ok(First::Different),
                Attempt::Refused => {}
            }
            if choice.why == "asked for" {
                refused = format!("`{}` was asked for, but does not fit; ", choice.expression);
            }
        }
        let expression = Expression::Plain(Plain::Native);
        Ok(First::Made(Prepared::Native, Choice { expression, why: refused + "no algorithm fits" }))
    }

    /// Makes a plan. Collective: all ranks agree on whether it can be had, and on how much room it needs.
    pub(crate) fn make(
        &self,
        site: &Site<'_>,
        expression: &Expression,
        room: &mut Room,
    ) -> Result<Attempt, Error> {
        let on_node = if self.hidden.pool.is_some() { OnNode::Segment } else { OnNode::Messages };
        let tried = self.attempt(site, expression, room, on_node)?;
        let refused = matches!(tried, Attempt::Refused);
        if refused && on_node == OnNode::Segment && expression.shares_memory() {
            return self.attempt(site, expression, room, OnNode::Messages);
        }
        Ok(tried)
    }

    /// One way to make a plan; refused on all ranks if it cannot be had on any.
    fn attempt(
        &self,
        site: &Site<'_>,
        expression: &Expression,
        room: &mut Room,
        on_node: OnNode,
    ) -> Result<Attempt, Error> {
        let Site { topology, tags, normal, one_round } = *site;
        let key = &normal.key;
        let mpi = self.mpi();
        let local = key.counts == Counts::Local;
        // A panic here is one rank's own: it must reach the agreement like everybody.
        let planned = catch_unwind(AssertUnwindSafe(|| {
            fault::strike("plan", self.names.peer(self.rank));
            let (mut compiled, mut sized_plan) = (None, None);
            if let Some((problem, code)) = &self.code(topology, key, expression, on_node) {
                let (names, tag, messages) = (&self.names, tags.first + 1, &self.hidden.messages);
                if local {
                    sized_plan = sized::Plan::new(problem, code, names, tag, messages).ok();
                } else {
                    compiled = compile(problem, topology, self.rank, code, names, tag).ok();
                }
            }
            (compiled, sized_plan)
        }));
        let (compiled, sized_plan) = planned.unwrap_or_default();
        // One agreement: failed here, tags, memory, the room in each level's segment (1 more, so that 0 is none), and whether
        // buffers may be in device memory.
        let mut needs = [0u64; 8 + LEVELS];
        needs[3 + LEVELS] = u64::from(has_device_runtime());
        // And that it is the same call: the greatest of all numbers for it must also be the least.
        let call = FxBuildHasher.hash_one(key);
        (needs[4 + LEVELS], needs[5 + LEVELS]) = (call, !call);
        let bytes = if matches!(key.counts, Counts::Listed(_)) { 0 } else { choose::bytes(key) };
        (needs[6 + LEVELS], needs[7 + LEVELS]) = (bytes, !bytes);
        needs[0] = u64::from(compiled.is_none() && sized_plan.is_none());
        if let Some(plan) = &sized_plan {
            needs[0] = u64::from(one_round && !plan.one_round);
            needs[1] = u64::from(plan.tags) + 1;
        }
        if let Some(compiled) = &compiled {
            needs[0] = u64::from(one_round && !compiled.one_round);
            needs[1] = u64::from(compiled.tags) + 1;
            needs[2] = compiled.needs.temporary as u64;
            let within = needs[2] <= self.hidden.settings.memory;
            if within && !room.temporary.try_grow(compiled.needs.temporary) {
                needs[0] = 1;
            }
            for (level, need) in compiled.shared.iter().enumerate() {
                match need {
                    Some(_) if level >= LEVELS => needs[0] = 1,
                    Some(bytes) => needs[3 + level] = *bytes as u64 + 1,
                    None => {}
                }
            }
        }
        self.agree(Agree::Max, &mut needs)?;
        if needs[4 + LEVELS] != !needs[5 + LEVELS] {
            // The MPI's own function would truncate, or leave some waiting.
            let sized = needs[6 + LEVELS] == !needs[7 + LEVELS];
            return if sized { Ok(Attempt::Different) } else { Err(Error::Mpi(mpi.truncated())) };
        }
        if needs[3 + LEVELS] != 0 {
            return Ok(Attempt::Device);
        }
        if needs[0] != 0 || needs[1] >= tags.count.into() || needs[2] > self.hidden.settings.memory {
            return Ok(Attempt::Refused);
        }
        for level in 0..LEVELS {
            let Some(part) = needs[3 + level].checked_sub(1) else { continue };
            let missing = room.segments[level].is_none() || room.parts[level] < part as usize;
            if missing && !self.grow(topology, room, level, part as usize)? {
                return Ok(Attempt::Refused);
            }
        }
        if let Some(plan) = sized_plan {
            return Ok(Attempt::Made(Prepared::Sized(Box::new(plan))));
        }
        let compiled: Compiled = compiled.expect("agreed on by all");
        let messages = &self.hidden.messages;
        let (segments, reduction) = (room.segments.clone(), normal.reduction(mpi));
        let plan = Plan::new(compiled, messages, segments, reduction, messages.patience());
        Ok(Attempt::Made(Prepared::Ready(Box::new(plan))))
    }

    /// This rank's program.
    fn code(
        &self,
        topology: &Arc<Topology>,
        key: &Key,
        expression: &Expression,
        on_node: OnNode,
    ) -> Option<(bruckner_schedule::Problem, Code)> {
        let task = Task {
            collective: key.collective,
            topology: Topology::clone(topology),
            counts: key.counts.clone(),
            element: key.element,
            order: key.order,
        };
        let plan = plan(&task, expression).ok()?;
        let code = plan.code(self.rank, expression, on_node)?;
        Some((plan.problem, code))
    }

    /// Makes larger segments for the regions of a level. Collective; whether it could be done is agreed on.
    fn grow(&self, topology: &Topology, room: &mut Room, level: usize, part: usize) -> Result<bool, Error> {
        let part = part.max(4096).next_power_of_two();
        let region = {
            let level = Level(level as u8);
            topology.span(level, topology.region_of(level, self.rank))
        };
        let members = region.len() as u32;
        let me = topology.position(self.rank) - region.start;
        let bytes = Segment::bytes(members, part);
        let pool = self.hidden.shared_by(region.clone().map(|at| self.names.peer(topology.rank_at(at))));
        // The first of a region lends, and tells the others where.
        let offset = if me == 0 {
            let lent = pool.and_then(|pool| pool.lend(bytes, members));
            let offset = lent.map_or(u64::MAX, |offset| offset as u64);
            for at in region.clone().skip(1) {
                let peer = self.names.peer(topology.rank_at(at));
                self.hidden.tell(peer, self.agreeing(), &offset.to_le_bytes())?;
            }
            offset
        } else {
            let mut offset = [0u8; 8];
            let peer = self.names.peer(topology.rank_at(region.start));
            self.hidden.hear(peer, self.agreeing(), &mut offset)?;
            u64::from_le_bytes(offset)
        };
        let mut made = None;
        if let Some(pool) = pool.filter(|_| offset != u64::MAX) {
            // SAFETY: lent to the members of this region, of whom this is one.
            let lease = unsafe { Lease::new(pool, offset as usize) };
            let mut shares = Segment::shares(members, part, me);
            if shares.all(|(at, len)| pool.reserve(offset as usize + at, len)) {
                // SAFETY: the memory is new and zero, as large as it must be, and lives as long as the lease.
                let segment = unsafe { Segment::new(lease.start(), members, me, part, Box::new(lease)) };
                made = Some(Arc::new(segment));
            }
        }
        let mut all = [u64::from(made.is_some())];
        self.agree(Agree::Min, &mut all)?;
        if all[0] == 0 {
            return Ok(false);
        }
        room.segments[level] = made;
        room.parts[level] = part;
        Ok(true)
    }
}

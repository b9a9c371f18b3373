//! What is kept for a user's communicator: where its ranks are, its tags, its segments, and its plans.

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use bruckner_algorithms::lower::{self, OnNode, Purpose};
use bruckner_algorithms::{Expression, plan};
use bruckner_mpi::{Agree, Flavour, Function, Mpi, TagRange, Word, has_device_runtime};
use bruckner_runtime::{
    Address, Extent, Limits, Names, Needs, Plan, Reduction, Scratch, Segment, Segments, Target, compile,
    sized,
};
use bruckner_schedule::{Level, Rank, Topology};

use crate::Error;
use crate::agreed::{Agreed, Planned};
use crate::choose::{self, Choice, Circumstances, Kind, choose};
use crate::fault;
use crate::hidden::{Found, Hidden};
use crate::keeper::{Program, Rented};
use crate::memo::Memos;
use crate::normal::{Common, Normal};
use crate::plans::{Form, Look, Plans, Prepared, Slot, task};
use crate::settings::Rules;

/// Levels that can have segments here: node and socket.
pub(crate) const LEVELS: usize = 2;

/// Why a communicator is not served where device memory may be.
pub(crate) const DEVICE: &str = "a rank has a GPU runtime loaded: buffers may be in device memory";

/// The names of a communicator's ranks on the hidden one.
pub(crate) enum RankNames {
    /// At equal distances, as those of rows and columns are: no list is kept.
    Strided {
        first: u32,
        step: u32,
    },
    Listed(Vec<u32>),
}

impl RankNames {
    fn of(names: Vec<u32>) -> RankNames {
        let (first, second) = (names[0], names.get(1).copied().unwrap_or(names[0]));
        match second.checked_sub(first) {
            Some(step) if names.iter().enumerate().all(|(i, n)| *n == first + i as u32 * step) => {
                RankNames::Strided { first, step }
            }
            _ => RankNames::Listed(names),
        }
    }
}

impl Names for RankNames {
    fn peer(&self, rank: Rank) -> u32 {
        match self {
            RankNames::Strided { first, step } => first + rank.0 * step,
            RankNames::Listed(names) => names[rank.0 as usize],
        }
    }
}

/// The memory of plans: segments of the regions that a rank is in, and what is this rank's alone. How large they are is the
/// same on all ranks.
pub(crate) struct Room {
    pub(crate) segments: Segments,
    rented: [Option<Rented>; LEVELS],
    parts: [usize; LEVELS],
    pub(crate) temporary: Scratch,
    reserved: usize,
}

impl Room {
    pub(crate) fn none() -> Room {
        Room {
            segments: vec![None; LEVELS],
            rented: [const { None }; LEVELS],
            parts: [0; LEVELS],
            temporary: Scratch::new(0),
            reserved: 0,
        }
    }

    /// Whether there is less than is needed.
    fn lacks(&self, needs: &Needs) -> bool {
        let lacks = |level: usize| needs.parts[level].is_some_and(|part| self.parts[level] < part);
        needs.temporary > self.reserved || (0..LEVELS).any(lacks)
    }
}

/// Plans, the memory that they share, and calls that are known to be served by one.
pub(crate) struct Store {
    pub(crate) plans: Plans,
    pub(crate) room: Room,
    pub(crate) memos: Memos,
}

impl Store {
    pub(crate) fn new() -> Store {
        Store { plans: Plans::default(), room: Room::none(), memos: Memos::default() }
    }
}

/// What came of an attempt to make a plan; the same on all ranks.
enum Attempt {
    /// A plan, and the room that it needs on any rank.
    Made(Prepared, Extent),
    /// It cannot be had on some rank.
    Refused,
    Stopped(Stopped),
}

/// Why nothing is planned though something could be; the same on all ranks.
pub(crate) enum Stopped {
    /// A rank has noticed that buffers may be in device memory.
    Device,
    /// Ranks are not in the same call, as far as a plan is concerned: other types, other lists of counts. Some of that is wrong
    /// and forgiven, and how much only the MPI knows.
    Different,
}

/// Where plans are made.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) topology: &'a Arc<Topology>,
    pub(crate) tags: TagRange,
    /// Whether only a plan of one round will do.
    pub(crate) one_round: bool,
}

/// What changes from call to call.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) staged_input: Scratch,
    pub(crate) staged_output: Scratch,
    pub(crate) rules: Rules,
    pub(crate) topology: Arc<Topology>,
    pub(crate) limits: choose::Limits,
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
    pub(crate) fn is_native(&self, common: &Common) -> bool {
        self.store.plans.is_native(&self.limits.kind(common))
    }

    /// All plans go: what chooses them has changed.
    pub(crate) fn forget(&mut self) {
        self.store.memos.clear();
        self.store.plans.clear();
    }
}

/// A user's communicator.
pub(crate) struct Communicator {
    pub(crate) hidden: Arc<Hidden>,
    pub(crate) comm: Word,
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    pub(crate) names: Arc<RankNames>,
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
            let mut state = unsafe { Box::from_raw(state) };
            let rented = std::mem::take(&mut state.store.room.rented);
            drop(state);
            rented.into_iter().flatten().for_each(|rented| self.hidden.keeper.put_back(rented));
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
            let region = |level| u64::from(hidden.places.region_of(level, Rank(*name)));
            (region(Level::NODE), region(Level::SOCKET))
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
        let state = State {
            store: Store::new(),
            limits: limits(mpi, &topology),
            staged_input: Scratch::new(0),
            staged_output: Scratch::new(0),
            rules: hidden.settings.rules.clone(),
            topology: hidden.keeper.topology(topology),
            device: false,
            calls: 0,
        };
        let names = Arc::new(RankNames::of(names));
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

    /// Where ranks are placed otherwise, other sizes are short.
    pub(crate) fn limits(&self, topology: &Topology) -> choose::Limits {
        limits(self.mpi(), topology)
    }

    /// The plan for a call, bound to its sizes. Making one is collective; whether there is one depends on what all ranks
    /// share. `None`, on all ranks, if they have found that they are not in the same call: that is not kept.
    pub(crate) fn plan_for(
        &self,
        state: &mut State,
        normal: &mut Normal,
    ) -> Result<Option<NonNull<Slot>>, Error> {
        state.calls += 1;
        loop {
            let kind = state.limits.kind(&normal.common);
            let State { store, topology, rules, device, calls, .. } = &mut *state;
            let site = Site { topology, tags: self.tags, one_round: false };
            let choices = || self.choices(&kind, topology, rules, *device);
            match self.prepare(store, &site, kind, choices, normal)? {
                Ok(mut slot) => {
                    // SAFETY: just found, in a store that nobody else has.
                    unsafe { slot.as_mut() }.looked_for = *calls;
                    return Ok(Some(slot));
                }
                Err(Stopped::Device) => state.leave_to_mpi(),
                Err(Stopped::Different) => return Ok(None),
            }
        }
    }

    /// The algorithms for a kind of call, best first.
    pub(crate) fn choices(
        &self,
        kind: &Kind,
        topology: &Topology,
        rules: &Rules,
        device: bool,
    ) -> Vec<Choice> {
        match device {
            true => vec![Choice::native(DEVICE)],
            false => choose(kind, &Circumstances { topology, rules, settings: &self.hidden.settings }),
        }
    }

    /// The plan of a store for a call: by the first algorithm of which there is one, or can be. Collective if one must be
    /// made, or room for it.
    pub(crate) fn prepare(
        &self,
        store: &mut Store,
        site: &Site<'_>,
        kind: Kind,
        choices: impl FnOnce() -> Vec<Choice>,
        normal: &mut Normal,
    ) -> Result<Result<NonNull<Slot>, Stopped>, Error> {
        let Store { plans, room, memos } = store;
        let candidates = plans.of(kind, choices);
        let mut at = 0;
        loop {
            let (before, rest) = candidates.split_at_mut(at);
            // The last of them is the MPI's own function, which always fits.
            let candidate = &mut rest[0];
            let slot = match candidate.find(&mut normal.common.problem, site.topology) {
                Look::Slot(slot) => slot,
                Look::Nothing if candidate.is_native() => candidate.put_native(before),
                Look::Nothing => {
                    // Plans may be dropped: memos, which do not look, start anew.
                    memos.clear();
                    let form = Form::of(&normal.common.problem, site.topology, &candidate.choice.expression);
                    match self.make(site, normal, &form, &candidate.choice.expression)? {
                        Attempt::Made(made, extent) => candidate.put(form, Some(made), extent),
                        Attempt::Refused => candidate.put(form, None, Extent::default()),
                        Attempt::Stopped(why) => return Ok(Err(why)),
                    }
                }
                Look::Unfit => {
                    at += 1;
                    continue;
                }
            };
            let slot = candidate.slot(slot);
            if self.fit(slot, normal, site.topology, room, memos)? {
                return Ok(Ok(NonNull::from(slot)));
            }
            at += 1;
        }
    }

    /// Makes a plan ready for a call, with as much room as it takes; whether that can be, on all ranks.
    fn fit(
        &self,
        slot: &mut Slot,
        normal: &Normal,
        topology: &Topology,
        room: &mut Room,
        memos: &mut Memos,
    ) -> Result<bool, Error> {
        let plan = match &mut slot.prepared {
            None => return Ok(false),
            Some(Prepared::Native | Prepared::Sized(_)) => return Ok(true),
            Some(Prepared::Ready(plan)) => plan,
        };
        let problem = &normal.common.problem;
        let needs = slot.extent.needs(plan.compiled().even, problem, &Limits::MEASURED);
        if needs.temporary as u64 > self.hidden.settings.memory || needs.most() >= slot.too_much {
            return Ok(false);
        }
        if room.lacks(&needs) {
            memos.clear();
            if !self.make_room(topology, room, &needs)? {
                slot.too_much = needs.most();
                return Ok(false);
            }
        }
        plan.set_segments(&room.segments);
        plan.bind(problem);
        if normal.foreign.is_some() || slot.combine != Some(normal.common.combine) {
            plan.set_reduction(normal.reduction(self.mpi()));
            slot.combine = Some(normal.common.combine);
        }
        Ok(true)
    }

    /// Makes a plan. Collective: all ranks agree on whether it can be had.
    fn make(
        &self,
        site: &Site<'_>,
        normal: &Normal,
        form: &Form,
        expression: &Expression,
    ) -> Result<Attempt, Error> {
        let on_node = if self.hidden.pool.is_some() { OnNode::Segment } else { OnNode::Messages };
        let tried = self.attempt(site, normal, form, expression, on_node)?;
        let refused = matches!(tried, Attempt::Refused);
        if refused && on_node == OnNode::Segment && expression.shares_memory() {
            return self.attempt(site, normal, form, expression, OnNode::Messages);
        }
        Ok(tried)
    }

    /// One way to make a plan; refused on all ranks if it cannot be had on any.
    fn attempt(
        &self,
        site: &Site<'_>,
        normal: &Normal,
        form: &Form,
        expression: &Expression,
        on_node: OnNode,
    ) -> Result<Attempt, Error> {
        let (common, messages) = (&normal.common, &self.hidden.messages);
        let keeper = &self.hidden.keeper;
        let program = Program {
            topology: Arc::as_ptr(site.topology) as usize,
            rank: self.rank,
            collective: common.problem.collective,
            pieces: common.problem.pieces,
            order: common.problem.order,
            expression: expression.clone(),
            form: form.clone(),
            on_node,
        };
        // A panic here is one rank's own: it must reach the agreement like everybody.
        let planned = catch_unwind(AssertUnwindSafe(|| {
            fault::strike("plan", self.names.peer(self.rank));
            if let Some(compiled) = keeper.get(&program) {
                return Some(Planned::Compiled(compiled));
            }
            let plan = plan(&task(&common.problem, site.topology), expression).ok()?.for_every_size();
            let room = if form.even == Some(false) { lower::Room::Own } else { lower::Room::Shared };
            let code = plan.code(self.rank, expression, on_node, room)?;
            let Some(even) = form.even else {
                let (names, tag) = (&*self.names, site.tags.first + 1);
                let plan = sized::Plan::new(&plan.problem, &code, names, tag, messages).ok()?;
                return Some(Planned::Sized(Box::new(plan)));
            };
            let orders_memory = Purpose::expected(expression, site.topology) == Purpose::OrdersMemory;
            let target = Target { topology: site.topology, even, orders_memory };
            let compiled = Arc::new(compile(&plan.problem, self.rank, &code, &target).ok()?);
            keeper.put(program, site.topology, compiled.clone());
            Some(Planned::Compiled(compiled))
        }));
        let planned = planned.unwrap_or_default();
        let mut needs = Agreed::of(planned.as_ref(), site.one_round);
        needs.say_what_for(common, form);
        self.agree(Agree::Max, &mut needs.0)?;
        let mpi = self.mpi();
        if !needs.same_call() {
            // The MPI's own function would truncate, or leave some waiting.
            return match needs.same_size() {
                true => Ok(Attempt::Stopped(Stopped::Different)),
                false => Err(Error::Mpi(mpi.truncated())),
            };
        }
        if needs.has_device() {
            return Ok(Attempt::Stopped(Stopped::Device));
        }
        if needs.failed() || needs.is_mixed() || needs.tags() >= site.tags.count.into() {
            return Ok(Attempt::Refused);
        }
        let extent = needs.extent();
        Ok(match planned.expect("agreed on by all") {
            Planned::Sized(plan) => Attempt::Made(Prepared::Sized(plan), extent),
            Planned::Compiled(compiled) => {
                let (segments, reduction) = (vec![None; LEVELS], Reduction::None);
                let address = Address { names: self.names.clone(), tag: site.tags.first + 1 };
                let plan = Plan::new(compiled, address, messages, segments, reduction, messages.patience());
                Attempt::Made(Prepared::Ready(Box::new(plan)), extent)
            }
        })
    }

    /// Makes more room. Collective; whether it could be had is agreed on.
    fn make_room(&self, topology: &Topology, room: &mut Room, needs: &Needs) -> Result<bool, Error> {
        let mut enough = true;
        if needs.temporary > room.reserved {
            enough = room.temporary.try_grow(needs.temporary.next_power_of_two());
        }
        // Segments of communicators that are gone first; but a rank may be late to leave one.
        for fresh in [false, true] {
            let mut had = enough;
            let mut rented: [Option<(usize, Rented)>; LEVELS] = [const { None }; LEVELS];
            for (level, rented) in rented.iter_mut().enumerate() {
                if let Some(part) = needs.parts[level].filter(|part| *part > room.parts[level]) {
                    let part = part.max(4096).next_power_of_two();
                    *rented = self.segment(topology, level, part, fresh)?.map(|rented| (part, rented));
                    had &= rented.is_some();
                }
            }
            let mut all = [u64::from(had)];
            self.agree(Agree::Min, &mut all)?;
            let rented = rented.into_iter().enumerate().filter_map(|(level, rented)| Some((level, rented?)));
            if all[0] == 0 {
                // Nobody keeps what others may lack. Then all have given back what they do not use, and there may be more.
                rented.for_each(drop);
                self.hidden.keeper.give_back();
                self.agree(Agree::Min, &mut all)?;
                continue;
            }
            room.reserved = room.reserved.max(needs.temporary.next_power_of_two());
            for (level, (part, rented)) in rented {
                (room.parts[level], room.segments[level]) = (part, Some(rented.segment.clone()));
                room.rented[level] = Some(rented);
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// A segment for the ranks of this one's region of a level, if it can be had. Collective.
    fn segment(
        &self,
        topology: &Topology,
        level: usize,
        part: usize,
        fresh: bool,
    ) -> Result<Option<Rented>, Error> {
        let region = {
            let level = Level(level as u8);
            topology.span(level, topology.region_of(level, self.rank))
        };
        let names: Box<[u32]> = region.clone().map(|at| self.names.peer(topology.rank_at(at))).collect();
        let (members, me) = (names.len() as u32, topology.position(self.rank) - region.start);
        let Some(pool) = self.hidden.shared_by(names.iter().copied()) else { return Ok(None) };
        // The first of a region finds one, and tells the others where: on a page, so that bits are left to say more.
        const NOWHERE: u64 = u64::MAX;
        let keeper = &self.hidden.keeper;
        if me == 0 {
            let idle = if fresh { None } else { keeper.rent(|idle| idle.suits(&names, part)) };
            let lent = || pool.lend(Segment::bytes(members, part), members);
            let offset = match &idle {
                Some(idle) => idle.offset as u64 | 1,
                None => lent().map_or(NOWHERE, |offset| offset as u64),
            };
            for name in &names[1..] {
                self.hidden.tell(*name, self.agreeing(), &offset.to_le_bytes())?;
            }
            return Ok(match idle {
                None if offset == NOWHERE => None,
                None => Rented::new(pool, offset as usize, names, me, part),
                idle => idle,
            });
        }
        let mut offset = [0u8; 8];
        self.hidden.hear(names[0], self.agreeing(), &mut offset)?;
        Ok(match u64::from_le_bytes(offset) {
            NOWHERE => None,
            offset if offset & 1 == 1 => {
                keeper.rent(|idle| idle.offset as u64 == offset - 1 && idle.suits(&names, part))
            }
            offset => Rented::new(pool, offset as usize, names, me, part),
        })
    }
}

/// What sizes are short on a communicator.
fn limits(mpi: &Mpi, topology: &Topology) -> choose::Limits {
    let narrow = !mpi.has(Function::Allgatherv, Flavour::Blocking, true);
    choose::Limits::new(topology, mpi.name(), narrow)
}

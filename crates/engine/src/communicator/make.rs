//! Making plans, and room for them. Collective: what any rank lacks, all do without.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bruckner_algorithms::lower::{self, OnNode, Purpose};
use bruckner_algorithms::{Expression, plan_on};
use bruckner_mpi::{Agree, TagRange};
use bruckner_runtime::{
    Address, Extent, Names as _, Needs, Plan, Reduction, Segment, Size, Target, compile, sized,
};
use bruckner_schedule::{Level, Topology};

use super::Communicator;
use super::agreed::{Agreed, Planned};
use super::keeper::{Program, Rented};
use super::plans::{Form, Prepared, task};
use super::room::{LEVELS, Room};
use crate::Error;
use crate::backend::{Backend, Fault, Wire as _};
use crate::normalize::NormalizedCall;
use crate::parts::Parts;

/// What came of an attempt to make a plan; the same on all ranks.
pub(super) enum Attempt<B: Backend> {
    /// A plan, and the room that it needs on any rank.
    Made(Prepared<B>, Extent),
    /// It cannot be had on some rank.
    Refused,
    Stopped(Stopped),
}

/// Why nothing is planned though something could be; but for what failed, the same on all ranks.
pub(crate) enum Stopped {
    /// A rank has noticed that buffers may be in device memory.
    Device,
    /// Ranks are not in the same call, as far as a plan is concerned: other types, other lists of counts. Some of that is wrong
    /// and forgiven, and how much only the MPI knows.
    Different,
    /// Something went wrong while they agreed.
    Failed(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::Failed(error)
    }
}

/// Where plans are made.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) topology: &'a Arc<Topology>,
    pub(crate) tags: TagRange,
    /// Whether only a plan of one round will do.
    pub(crate) one_round: bool,
}

impl<B: Backend> Communicator<B> {
    /// Makes a plan. Collective: all ranks agree on whether it can be had.
    pub(super) fn make(
        &self,
        site: &Site<'_>,
        normalized: &NormalizedCall,
        form: &Form,
        expression: &Expression,
    ) -> Result<Attempt<B>, Error> {
        let shared = self.hidden.pool.is_some() && (self.hidden.reads || !expression.reads_buffers());
        let on_node = if shared { OnNode::Segment } else { OnNode::Messages };
        let tried = self.attempt(site, normalized, form, expression, on_node)?;
        let refused = matches!(tried, Attempt::Refused);
        if refused && on_node == OnNode::Segment && expression.shares_memory() {
            return self.attempt(site, normalized, form, expression, OnNode::Messages);
        }
        Ok(tried)
    }

    /// One way to make a plan; refused on all ranks if it cannot be had on any.
    fn attempt(
        &self,
        site: &Site<'_>,
        normalized: &NormalizedCall,
        form: &Form,
        expression: &Expression,
        on_node: OnNode,
    ) -> Result<Attempt<B>, Error> {
        let (signature, wire) = (&normalized.signature, &self.hidden.wire);
        let keeper = &self.hidden.keeper;
        let program = Program {
            topology: Arc::as_ptr(site.topology) as usize,
            rank: self.rank,
            collective: signature.problem.collective,
            pieces: signature.problem.pieces,
            order: signature.problem.order,
            expression: expression.clone(),
            form: form.clone(),
            on_node,
        };
        // A panic here is one rank's own: it must reach the agreement like everybody.
        let planned: Option<Planned<B>> = catch_unwind(AssertUnwindSafe(|| {
            assert!(!self.fails(Fault::Plan), "a fault on purpose");
            if let Some(parts) = Parts::of(expression, signature) {
                return Some(Planned::Parts(parts));
            }
            if let Some(compiled) = keeper.get(&program) {
                return Some(Planned::Compiled(compiled));
            }
            let task = task(&signature.problem, site.topology);
            let plan = plan_on(&task, expression, on_node).ok()?.for_every_size();
            let room = if form.even == Some(false) { lower::Room::Own } else { lower::Room::Shared };
            let code = plan.code(self.rank, expression, on_node, room)?;
            let Some(even) = form.even else {
                let (names, tag) = (&*self.names, site.tags.first + 1);
                let plan = sized::Plan::new(&plan.problem, &code, names, tag, wire).ok()?;
                return Some(Planned::Sized(Box::new(plan)));
            };
            let orders_memory = plan.purpose == Purpose::OrdersMemory;
            let target = Target { topology: site.topology, even, orders_memory };
            let compiled = Arc::new(compile(&plan.problem, self.rank, &code, &target).ok()?);
            keeper.put(program, site.topology, compiled.clone());
            Some(Planned::Compiled(compiled))
        }))
        .unwrap_or_default();
        let mut needs = Agreed::of(planned.as_ref(), site.one_round, self.backend().has_device());
        needs.say_what_for(signature, form, expression);
        self.agree(Agree::Max, &mut needs.0)?;
        if !needs.same_call() {
            // The MPI's own function would truncate, or leave some waiting.
            return match needs.same_size() {
                true => Ok(Attempt::Stopped(Stopped::Different)),
                false => Err(Error::Mpi(self.backend().truncated())),
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
            Planned::Parts(parts) => Attempt::Made(Prepared::Parts(parts), extent),
            Planned::Sized(plan) => Attempt::Made(Prepared::Sized(plan), extent),
            Planned::Compiled(compiled) => {
                let (segments, reduction) = (vec![None; LEVELS], Reduction::None);
                let address = Address { names: self.names.clone(), tag: site.tags.first + 1 };
                let plan = Plan::new(compiled, address, wire, segments, reduction, wire.backoff());
                Attempt::Made(Prepared::Ready(Box::new(plan)), extent)
            }
        })
    }

    /// Makes more room. Collective; whether it could be had is agreed on.
    pub(super) fn make_room(
        &self,
        topology: &Topology,
        room: &mut Room,
        needs: &Needs,
    ) -> Result<bool, Error> {
        let mut enough = !self.fails(Fault::Memory);
        if needs.temporary > room.reserved {
            enough &= room.temporary.try_grow(needs.temporary.next_power_of_two());
        }
        // Segments of communicators that are gone first; but a rank may be late to leave one.
        for fresh in [false, true] {
            let mut had = enough;
            let mut rented: [Option<(Size, Rented)>; LEVELS] = [const { None }; LEVELS];
            for (level, rented) in rented.iter_mut().enumerate() {
                let there = room.sizes[level];
                if let Some(need) = needs.parts[level].filter(|need| !there.has(*need)) {
                    let size = room.larger(topology.largest(Level(level as u8)), there, need);
                    *rented = self.segment(topology, level, size, fresh)?.map(|rented| (size, rented));
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
            for (level, (size, rented)) in rented {
                (room.sizes[level], room.segments[level]) = (size, Some(rented.segment.clone()));
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
        size: Size,
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
            let idle = if fresh { None } else { keeper.rent(|idle| idle.suits(&names, size)) };
            let lent = || pool.lend(Segment::bytes(members, size), members);
            let offset = match &idle {
                Some(idle) => idle.offset as u64 | 1,
                None => lent().map_or(NOWHERE, |offset| offset as u64),
            };
            for name in &names[1..] {
                self.hidden.tell(*name, self.agreeing(), &offset.to_le_bytes())?;
            }
            return Ok(match idle {
                None if offset == NOWHERE => None,
                None => Rented::new(pool, offset as usize, names, me, size),
                idle => idle,
            });
        }
        let mut offset = [0u8; 8];
        self.hidden.hear(names[0], self.agreeing(), &mut offset)?;
        Ok(match u64::from_le_bytes(offset) {
            NOWHERE => None,
            offset if offset & 1 == 1 => {
                keeper.rent(|idle| idle.offset as u64 == offset - 1 && idle.suits(&names, size))
            }
            offset => Rented::new(pool, offset as usize, names, me, size),
        })
    }
}

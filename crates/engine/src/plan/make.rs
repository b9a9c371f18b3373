//! Making plans, and room for them. Collective: what any rank lacks, all do without.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bruckner_algorithms::lower::{self, OnNode, Purpose};
use bruckner_algorithms::{Expression, plan_on};
use bruckner_mpi::{Agree, TagRange};
use bruckner_runtime::{
    Address, Compiled, Extent, Names as _, Needs, Plan, Reduction, Segment, Size, Target, compile, sized,
};
use bruckner_schedule::{Counts, Level, Topology};

use super::agreement::Agreement;
use super::parts::Parts;
use super::plans::Prepared;
use super::workspace::{LEVELS, Workspace};
use crate::Error;
use crate::backend::{Backend, Fault, Wire as _};
use crate::group::Group;
use crate::normalize::NormalizedCall;
use crate::reuse::{PlanForm, ProgramKey, SharedSegment, task};

/// A rank's program, ready for its executor.
enum Planned<B: Backend> {
    Compiled(Arc<Compiled>),
    Sized(Box<sized::Plan<B::Wire>>),
    Parts(Parts),
}

/// The result of an attempt to make a plan; the same on all ranks.
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

impl<B: Backend> Group<B> {
    /// Makes a plan. Collective: all ranks agree on whether it can be had.
    pub(super) fn make(
        &self,
        site: &Site<'_>,
        normalized: &NormalizedCall,
        form: &PlanForm,
        expression: &Expression,
    ) -> Result<Attempt<B>, Error> {
        let shared = self.internal.pool.is_some() && (self.internal.reads || !expression.reads_buffers());
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
        form: &PlanForm,
        expression: &Expression,
        on_node: OnNode,
    ) -> Result<Attempt<B>, Error> {
        let (signature, wire) = (&normalized.signature, &self.internal.wire);
        let reuse = &self.internal.reuse;
        let program = ProgramKey {
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
            if let Some(compiled) = reuse.get(&program) {
                return Some(Planned::Compiled(compiled));
            }
            let task = task(&signature.problem, site.topology);
            let plan = plan_on(&task, expression, on_node).ok()?.for_every_size();
            let workspace = if form.even == Some(false) { lower::Room::Own } else { lower::Room::Shared };
            let code = plan.code(self.rank, expression, on_node, workspace)?;
            let Some(even) = form.even else {
                let (names, tag) = (&*self.translation, site.tags.first + 1);
                let plan = sized::Plan::new(&plan.problem, &code, names, tag, wire).ok()?;
                return Some(Planned::Sized(Box::new(plan)));
            };
            let orders_memory = plan.purpose == Purpose::OrdersMemory;
            let target = Target { topology: site.topology, even, orders_memory };
            let compiled = Arc::new(compile(&plan.problem, self.rank, &code, &target).ok()?);
            reuse.put(program, site.topology, compiled.clone());
            Some(Planned::Compiled(compiled))
        }))
        .unwrap_or_default();
        let listed = matches!(signature.problem.counts, Counts::Listed(_));
        let bytes = if listed { 0 } else { signature.bytes() };
        let mut agreement =
            Agreement::about((signature, form, expression), bytes, self.backend().has_device());
        match &planned {
            Some(Planned::Parts(_)) if !site.one_round => {}
            Some(Planned::Sized(plan)) if !site.one_round || plan.one_round => agreement.add_sized(plan),
            Some(Planned::Compiled(compiled)) if !site.one_round || compiled.one_round => {
                agreement.add_compiled(compiled);
            }
            _ => agreement.fail(),
        }
        let mut words = agreement.to_words();
        self.agree(Agree::Max, &mut words)?;
        let agreement = Agreement::of_words(&words);
        if !agreement.is_one_call() {
            // The MPI's own function would truncate, or leave some waiting.
            return match agreement.is_one_size() {
                true => Ok(Attempt::Stopped(Stopped::Different)),
                false => Err(Error::Mpi(self.backend().truncated())),
            };
        }
        if agreement.has_device() {
            return Ok(Attempt::Stopped(Stopped::Device));
        }
        if agreement.has_failed() || agreement.tags >= site.tags.count.into() {
            return Ok(Attempt::Refused);
        }
        let extent = agreement.extent();
        Ok(match planned.expect("agreed on by all") {
            Planned::Parts(parts) => Attempt::Made(Prepared::Parts(parts), extent),
            Planned::Sized(plan) => Attempt::Made(Prepared::Sized(plan), extent),
            Planned::Compiled(compiled) => {
                let (segments, reduction) = (vec![None; LEVELS], Reduction::None);
                let address = Address { names: self.translation.clone(), tag: site.tags.first + 1 };
                let plan = Plan::new(compiled, address, wire, segments, reduction, wire.backoff());
                Attempt::Made(Prepared::Ready(Box::new(plan)), extent)
            }
        })
    }

    /// Makes more room. Collective; whether it could be had is agreed on.
    pub(super) fn make_room(
        &self,
        topology: &Topology,
        workspace: &mut Workspace,
        needs: &Needs,
    ) -> Result<bool, Error> {
        let mut enough = !self.fails(Fault::Memory);
        if needs.temporary > workspace.reserved {
            enough &= workspace.temporary.try_grow(needs.temporary.next_power_of_two());
        }
        // Segments of communicators that are gone first; but a rank may be late to leave one.
        for fresh in [false, true] {
            let mut had = enough;
            let mut leased: [Option<(Size, SharedSegment)>; LEVELS] = [const { None }; LEVELS];
            for (level, leased) in leased.iter_mut().enumerate() {
                let there = workspace.sizes[level];
                if let Some(need) = needs.parts[level].filter(|need| !there.has(*need)) {
                    let size = workspace.larger(topology.largest(Level(level as u8)), there, need);
                    *leased = self.segment(topology, level, size, fresh)?.map(|leased| (size, leased));
                    had &= leased.is_some();
                }
            }
            let mut all = [u64::from(had)];
            self.agree(Agree::Min, &mut all)?;
            let leased = leased.into_iter().enumerate().filter_map(|(level, leased)| Some((level, leased?)));
            if all[0] == 0 {
                // Nobody keeps what others may lack. Then all have given back what they do not use, and there may be more.
                leased.for_each(drop);
                self.internal.reuse.free_segments();
                self.agree(Agree::Min, &mut all)?;
                continue;
            }
            workspace.reserved = workspace.reserved.max(needs.temporary.next_power_of_two());
            for (level, (size, leased)) in leased {
                (workspace.sizes[level], workspace.segments[level]) = (size, Some(leased.segment.clone()));
                workspace.leased[level] = Some(leased);
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
    ) -> Result<Option<SharedSegment>, Error> {
        let region = {
            let level = Level(level as u8);
            topology.span(level, topology.region_of(level, self.rank))
        };
        let names: Box<[u32]> =
            region.clone().map(|at| self.translation.peer(topology.rank_at(at))).collect();
        let (members, me) = (names.len() as u32, topology.position(self.rank) - region.start);
        let Some(pool) = self.internal.shared_by(names.iter().copied()) else { return Ok(None) };
        // The first of a region finds one, and tells the others where: on a page, so that bits are left to say more.
        const NOWHERE: u64 = u64::MAX;
        let reuse = &self.internal.reuse;
        if me == 0 {
            let idle = if fresh { None } else { reuse.take_segment(|idle| idle.suits(&names, size)) };
            let lent = || pool.lend(Segment::bytes(members, size), members);
            let offset = match &idle {
                Some(idle) => idle.offset as u64 | 1,
                None => lent().map_or(NOWHERE, |offset| offset as u64),
            };
            for name in &names[1..] {
                self.internal.tell(*name, self.agreement_tag(), &offset.to_le_bytes())?;
            }
            return Ok(match idle {
                None if offset == NOWHERE => None,
                None => SharedSegment::new(pool, offset as usize, names, me, size),
                idle => idle,
            });
        }
        let mut offset = [0u8; 8];
        self.internal.hear(names[0], self.agreement_tag(), &mut offset)?;
        Ok(match u64::from_le_bytes(offset) {
            NOWHERE => None,
            offset if offset & 1 == 1 => {
                reuse.take_segment(|idle| idle.offset as u64 == offset - 1 && idle.suits(&names, size))
            }
            offset => SharedSegment::new(pool, offset as usize, names, me, size),
        })
    }
}

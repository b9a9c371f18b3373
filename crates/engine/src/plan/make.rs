//! Makes plans and allocates their memory. Collective: if any rank cannot make a plan or allocate its memory, no rank uses the plan.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bruckner_algorithms::lower::{self, MessagePurpose, OnNode};
use bruckner_algorithms::{Expression, plan_on};
use bruckner_mpi::{AgreeOp, TagRange};
use bruckner_runtime::{
    Address, Compiled, Executable, Extent, Needs, Reduction, Segment, SegmentSize, Target, TranslateRanks as _,
    compile, sized,
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

/// A rank's program, in the form that its executor runs.
enum Planned<B: Backend> {
    Compiled(Arc<Compiled>),
    Sized(Box<sized::SizedExecutable<B::Wire>>),
    Parts(Parts),
}

/// The result of an attempt to make a plan; the same on all ranks.
pub(super) enum Attempt<B: Backend> {
    /// A plan, and the most memory that it needs on any rank.
    Made(Prepared<B>, Extent),
    /// Some rank cannot make the plan.
    Refused,
    Stopped(Stopped),
}

/// Why making a plan was abandoned for all candidates; the same on all ranks, except for errors.
pub(crate) enum Stopped {
    /// Some rank may have buffers in device memory.
    Device,
    /// Ranks make calls that differ in datatypes or lists of counts, so no plan can handle all of them. Some such calls are invalid but
    /// tolerated by the MPI, so only the MPI can handle them.
    Different,
    /// An error occurred while ranks agreed on the plan.
    Failed(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::Failed(error)
    }
}

/// The topology and tags for which plans are made.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) topology: &'a Arc<Topology>,
    pub(crate) tags: TagRange,
    /// Whether the plan must have only one round.
    pub(crate) one_round: bool,
}

impl<B: Backend> Group<B> {
    /// Makes a plan. Collective: all ranks agree on whether it can be made.
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
        if refused && on_node == OnNode::Segment && expression.groups_regions() {
            return self.attempt(site, normalized, form, expression, OnNode::Messages);
        }
        Ok(tried)
    }

    /// Tries to make a plan in which ranks of a node exchange data by `on_node`: through a segment, or by messages. Refused on all ranks
    /// if any of them cannot make it.
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
        // A panic may occur on one rank only, which must still take part in the agreement.
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
            let workspace = if form.even == Some(false) { lower::LineMemory::Own } else { lower::LineMemory::Shared };
            let code = plan.code(self.rank, expression, on_node, workspace)?;
            let Some(even) = form.even else {
                let (names, tag) = (&*self.translation, site.tags.first + 1);
                let plan = sized::SizedExecutable::new(&plan.problem, &code, names, tag, wire).ok()?;
                return Some(Planned::Sized(Box::new(plan)));
            };
            let orders_memory = plan.purpose == MessagePurpose::OrdersMemory;
            let target = Target { topology: site.topology, even, orders_memory };
            let compiled = Arc::new(compile(&plan.problem, self.rank, &code, &target).ok()?);
            reuse.put(program, site.topology, compiled.clone());
            Some(Planned::Compiled(compiled))
        }))
        .unwrap_or_default();
        let listed = matches!(signature.problem.counts, Counts::Listed(_));
        let bytes = if listed { 0 } else { signature.bytes() };
        let mut agreement = Agreement::about((signature, form, expression), bytes, self.backend().has_device());
        match &planned {
            Some(Planned::Parts(_)) if !site.one_round => {}
            Some(Planned::Sized(plan)) if !site.one_round || plan.one_round => agreement.add_sized(plan),
            Some(Planned::Compiled(compiled)) if !site.one_round || compiled.one_round => {
                agreement.add_compiled(compiled);
            }
            _ => agreement.fail(),
        }
        let mut words = agreement.to_words();
        self.agree(AgreeOp::Max, &mut words)?;
        let agreement = Agreement::of_words(&words);
        if !agreement.is_one_call() {
            // If sizes differ, the MPI's own function would truncate data, or leave some ranks waiting.
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
                let address = Address { ranks: self.translation.clone(), tag: site.tags.first + 1 };
                let plan = Executable::new(compiled, address, wire, segments, reduction, wire.backoff());
                Attempt::Made(Prepared::Ready(Box::new(plan)), extent)
            }
        })
    }

    /// Enlarges the workspace to `needs`. Collective: all ranks agree on whether they could allocate it.
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
        // First tries idle segments of freed communicators, then new ones, because some rank may not yet have left an idle segment.
        for fresh in [false, true] {
            let mut had = enough;
            let mut leased: [Option<(SegmentSize, SharedSegment)>; LEVELS] = [const { None }; LEVELS];
            for (level, leased) in leased.iter_mut().enumerate() {
                let there = workspace.sizes[level];
                if let Some(need) = needs.parts[level].filter(|need| !there.has(*need)) {
                    let size = workspace.larger(topology.largest(Level(level as u8)), there, need);
                    *leased = self.segment(topology, level, size, fresh)?.map(|leased| (size, leased));
                    had &= leased.is_some();
                }
            }
            let mut all = [u64::from(had)];
            self.agree(AgreeOp::Min, &mut all)?;
            let leased = leased.into_iter().enumerate().filter_map(|(level, leased)| Some((level, leased?)));
            if all[0] == 0 {
                // No rank keeps a segment that another rank could not get. After this agreement all ranks have freed their idle segments,
                // so there may be more memory.
                leased.for_each(drop);
                self.internal.reuse.free_segments();
                self.agree(AgreeOp::Min, &mut all)?;
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

    /// Returns a segment for the ranks of this rank's region at a level, if there is memory for it. Collective.
    fn segment(
        &self,
        topology: &Topology,
        level: usize,
        size: SegmentSize,
        fresh: bool,
    ) -> Result<Option<SharedSegment>, Error> {
        let region = {
            let level = Level(level as u8);
            topology.span(level, topology.region_of(level, self.rank))
        };
        let names: Box<[u32]> = region.clone().map(|at| self.translation.translate(topology.rank_at(at))).collect();
        let (members, me) = (names.len() as u32, topology.position(self.rank) - region.start);
        let Some(pool) = self.internal.shared_by(names.iter().copied()) else { return Ok(None) };
        // The first rank of a region finds a segment and sends its offset to the others. Offsets are multiples of a page, so the lowest
        // bit can mark an idle segment.
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
                self.internal.send(*name, self.agreement_tag(), &offset.to_le_bytes())?;
            }
            return Ok(match idle {
                None if offset == NOWHERE => None,
                None => SharedSegment::new(pool, offset as usize, names, me, size),
                idle => idle,
            });
        }
        let mut offset = [0u8; 8];
        self.internal.recv(names[0], self.agreement_tag(), &mut offset)?;
        Ok(match u64::from_le_bytes(offset) {
            NOWHERE => None,
            offset if offset & 1 == 1 => {
                reuse.take_segment(|idle| idle.offset as u64 == offset - 1 && idle.suits(&names, size))
            }
            offset => SharedSegment::new(pool, offset as usize, names, me, size),
        })
    }
}

//! Plans with their memory, and the cache of the calls that they run.

use bruckner_choose::{Choice, Kind};
use bruckner_runtime::{Extent, Limits, Needs};
use bruckner_schedule::Topology;

use super::make::{Attempt, Site, Stopped};
use super::parts::Parts;
use super::plans::{PlanSearch, Plans, Prepared, Version};
use super::workspace::Workspace;
use crate::Error;
use crate::backend::Backend;
use crate::cache::{CallCache, PlanId};
use crate::group::Group;
use crate::normalize::NormalizedCall;
use crate::reuse::PlanForm;

/// The plans of a communicator or of a persistent operation, with their memory.
pub(crate) struct Store<B: Backend> {
    pub(crate) plans: Plans<B>,
    pub(crate) workspace: Workspace,
    /// Cache of calls; cleared whenever plans or their memory change.
    pub(crate) calls: CallCache,
}

impl<B: Backend> Store<B> {
    pub(crate) fn new(workspace: Workspace) -> Store<B> {
        Store { plans: Plans::default(), workspace, calls: CallCache::default() }
    }

    /// Drops all plans.
    pub(crate) fn forget(&mut self) {
        self.calls.clear();
        self.plans.clear();
    }

    /// Drops all plans, and gives their segments to the cache for later communicators. No rank may run a plan on them any more.
    pub(crate) fn free(mut self, group: &Group<B>) {
        self.forget();
        let segments = self.workspace.leave();
        segments.into_iter().flatten().for_each(|segment| group.internal.reuse.keep_segment(segment));
    }

    /// Returns the plan for a call and the index of its candidate. Tries candidate `asked` first, then the others in order, until one has
    /// a plan or a plan can be made for it. Collective if a plan or its memory must be made.
    pub(crate) fn prepare(
        &mut self,
        group: &Group<B>,
        site: &Site<'_>,
        kind: Kind,
        choices: impl FnOnce() -> Vec<Choice>,
        asked: usize,
        normalized: &mut NormalizedCall,
    ) -> Result<(PlanId, usize), Stopped> {
        let Store { plans, workspace, calls } = self;
        let (candidates, versions) = plans.of(kind, choices);
        // One of the candidates is the MPI's own function, which always fits.
        for at in [asked].into_iter().chain((0..candidates.len()).filter(|at| *at != asked)) {
            let candidate = &mut candidates[at];
            let choice = candidate.choice.clone();
            let expression = &choice.expression;
            let id = match candidate.find(versions, &mut normalized.signature.problem, site.topology) {
                PlanSearch::Version(id) => id,
                PlanSearch::Nothing if candidate.is_native() => candidate.put_native(versions),
                PlanSearch::Nothing => {
                    // Storing a new plan may drop an old one, to which cached calls may refer.
                    calls.clear();
                    let form = PlanForm::of(&normalized.signature.problem, site.topology, expression);
                    match group.make(site, normalized, &form, expression)? {
                        Attempt::Made(made, extent) => candidate.put(versions, form, Some(made), extent),
                        Attempt::Refused => candidate.put(versions, form, None, Extent::default()),
                        Attempt::Stopped(why) => return Err(why),
                    }
                }
                PlanSearch::Unfit => continue,
            };
            // The form of a plan does not show whether a composition can handle a call, so each call is checked.
            let parts = matches!(versions.get(id).prepared, Some(Prepared::Parts(_)));
            if parts && Parts::of(expression, &normalized.signature).is_none() {
                continue;
            }
            if fit(group, versions.get(id), normalized, site.topology, workspace, calls)? {
                return Ok((id, at));
            }
        }
        unreachable!("the MPI's own function fits")
    }
}

/// Whether a plan may allocate the memory that it needs. The memory must be within the limit of the settings, and smaller than `too_much`
/// bytes, an allocation that has failed before.
#[inline]
pub(crate) fn may_have<B: Backend>(group: &Group<B>, needs: &Needs, too_much: usize) -> bool {
    needs.temporary as u64 <= group.internal.settings.max_plan_bytes && needs.most() < too_much
}

/// Prepares a plan for a call: allocates its memory, and binds it to the call's sizes. Returns, the same on all ranks, whether that was
/// possible.
fn fit<B: Backend>(
    group: &Group<B>,
    version: &mut Version<B>,
    normalized: &NormalizedCall,
    topology: &Topology,
    workspace: &mut Workspace,
    calls: &mut CallCache,
) -> Result<bool, Error> {
    let plan = match &mut version.prepared {
        None => return Ok(false),
        Some(Prepared::Native | Prepared::Parts(_) | Prepared::Sized(_)) => return Ok(true),
        Some(Prepared::Ready(plan)) => plan,
    };
    let problem = &normalized.signature.problem;
    let needs = version.extent.needs(plan.compiled().even, problem, &Limits::MEASURED);
    if !may_have(group, &needs, version.failed_allocation) {
        return Ok(false);
    }
    if workspace.lacks(&needs) {
        calls.clear();
        if !group.make_room(topology, workspace, &needs)? {
            version.failed_allocation = needs.most();
            return Ok(false);
        }
    }
    plan.set_segments(&workspace.segments);
    plan.bind(problem);
    if normalized.user_op.is_some() || version.combine != Some(normalized.signature.combine) {
        plan.set_reduction(normalized.reduction(group.backend()));
        version.combine = Some(normalized.signature.combine);
    }
    Ok(true)
}

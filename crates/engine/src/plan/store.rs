//! Plans with their memory, and the calls that are known to be run by them.

use bruckner_choose::{Choice, Kind};
use bruckner_runtime::{Extent, Limits, Needs};
use bruckner_schedule::Topology;

use super::make::{Attempt, Site, Stopped};
use super::parts::Parts;
use super::plans::{Found, Plans, Prepared, Version};
use super::workspace::Workspace;
use crate::Error;
use crate::backend::Backend;
use crate::cache::{CallCache, PlanId};
use crate::group::Group;
use crate::normalize::NormalizedCall;
use crate::reuse::PlanForm;

/// The plans of a communicator, or of an operation.
pub(crate) struct Store<B: Backend> {
    pub(crate) plans: Plans<B>,
    pub(crate) workspace: Workspace,
    /// Cleared whenever plans or their memory change.
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

    /// Drops all plans, and leaves their segments to communicators that come later. No rank runs a plan on them any more.
    pub(crate) fn free(mut self, group: &Group<B>) {
        self.forget();
        let segments = self.workspace.leave();
        segments.into_iter().flatten().for_each(|segment| group.internal.reuse.keep_segment(segment));
    }

    /// The plan for a call and the number of its candidate: that of the candidate that is asked for, or of the first that has a plan, or for
    /// which one can be made. Collective if one must be made, or memory for it.
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
        // One of them is the MPI's own function, which always fits.
        for at in [asked].into_iter().chain((0..candidates.len()).filter(|at| *at != asked)) {
            let candidate = &mut candidates[at];
            let choice = candidate.choice.clone();
            let expression = &choice.expression;
            let id = match candidate.find(versions, &mut normalized.signature.problem, site.topology) {
                Found::Version(id) => id,
                Found::Nothing if candidate.is_native() => candidate.put_native(versions),
                Found::Nothing => {
                    // Plans may be dropped.
                    calls.clear();
                    let form = PlanForm::of(&normalized.signature.problem, site.topology, expression);
                    match group.make(site, normalized, &form, expression)? {
                        Attempt::Made(made, extent) => candidate.put(versions, form, Some(made), extent),
                        Attempt::Refused => candidate.put(versions, form, None, Extent::default()),
                        Attempt::Stopped(why) => return Err(why),
                    }
                }
                Found::Unfit => continue,
            };
            // Compositions share a form with calls that they cannot handle.
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

/// Whether a plan may have as much memory, of which `too_much` could not be had before.
#[inline]
pub(crate) fn may_have<B: Backend>(group: &Group<B>, needs: &Needs, too_much: usize) -> bool {
    needs.temporary as u64 <= group.internal.settings.memory && needs.most() < too_much
}

/// Makes a plan ready for a call, with as much memory as it takes; whether that can be, on all ranks.
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
    if !may_have(group, &needs, version.too_much) {
        return Ok(false);
    }
    if workspace.lacks(&needs) {
        calls.clear();
        if !group.make_room(topology, workspace, &needs)? {
            version.too_much = needs.most();
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

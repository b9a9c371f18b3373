//! The plans of a communicator: the candidate algorithms for each kind of call, best first, and the plans of each candidate. A plan works
//! for blocks of any size, so a call with a new size is usually only a lookup.

use std::collections::HashMap;
use std::panic::catch_unwind;
use std::sync::Arc;

use bruckner_algorithms::exchange::Exchange;
use bruckner_algorithms::{Expression, plan};
use bruckner_choose::{Choice, Kind, Name, Reason};
use bruckner_runtime::{Executable, Extent, sized};
use bruckner_schedule::{Problem, Topology};
use rustc_hash::FxBuildHasher;

use super::parts::Parts;
use crate::backend::Backend;
use crate::cache::PlanId;
use crate::normalize::Combine;
use crate::reuse::{PlanForm, task};

/// Maximum number of plans of a candidate. Only algorithms that sort ranks by their counts may need more.
const PLANS: usize = 64;

/// A plan, in the form in which it is executed.
pub(crate) enum Prepared<B: Backend> {
    /// A plan for sizes that all ranks know.
    Ready(Box<Executable<B::Wire>>),
    /// A plan for an alltoallv, in which each rank knows only its own sizes.
    Sized(Box<sized::SizedExecutable<B::Wire>>),
    /// A composition of other functions of the MPI.
    Parts(Parts),
    /// The MPI's own function of the same name.
    Native,
}

/// A plan of an algorithm for one [`PlanForm`].
pub(crate) struct Version<B: Backend> {
    form: PlanForm,
    /// The plan; `None` if it could not be made, which is not tried again.
    pub(crate) prepared: Option<Prepared<B>>,
    pub(crate) choice: Arc<Choice>,
    /// The most memory that the plan needs on any rank.
    pub(crate) extent: Extent,
    /// Bytes of memory that could not be allocated for the plan; `usize::MAX` if that never happened.
    pub(crate) failed_allocation: usize,
    /// Whether the plan's algorithm is the first candidate for the kind of call.
    pub(crate) is_preferred: bool,
    /// The reduction that the plan performs in its executions, as last set; `None` if it was never set.
    pub(crate) combine: Option<Combine>,
    /// Number of the communicator's call for which this plan was last looked up.
    pub(crate) last_lookup: u64,
}

impl<B: Backend> Version<B> {
    /// Whether the MPI's own function of the same name handles the call.
    pub(crate) fn is_the_call_itself(&self) -> bool {
        matches!(self.prepared, None | Some(Prepared::Native))
    }

    /// Whether the plan also handles a problem with other lists of counts. That holds if it neither sorts ranks by counts nor cuts blocks
    /// into pieces.
    pub(crate) fn is_for_any_lists(&self, problem: &Problem) -> bool {
        self.form.orders.is_empty() && problem.pieces == 1
    }
}

/// Returns the number of pieces into which an algorithm cuts blocks; 1 if the algorithm does not fit the task.
fn pieces(problem: &Problem, topology: &Topology, expression: &Expression) -> u64 {
    let planned = catch_unwind(|| plan(&task(problem, topology), expression).map(|plan| plan.problem.pieces));
    planned.ok().and_then(Result::ok).unwrap_or(1)
}

/// An algorithm for a kind of call, with its plans.
pub(crate) struct Candidate {
    pub(crate) choice: Arc<Choice>,
    /// Whether this is the first candidate for the kind of call.
    is_preferred: bool,
    /// Number of pieces into which the algorithm cuts blocks, once known.
    pieces: Option<u64>,
    versions: Vec<PlanId>,
}

/// The result of a search for the plan of a problem.
pub(crate) enum PlanSearch {
    /// The number of the plan for the problem.
    Version(PlanId),
    /// No plan was made for the problem yet.
    Nothing,
    /// The algorithm cannot cut the problem's blocks into its number of pieces.
    Unfit,
}

impl Candidate {
    fn all(choices: Vec<Choice>) -> Vec<Candidate> {
        let choices = choices.into_iter().enumerate();
        let candidate = |(at, choice)| Candidate {
            choice: Arc::new(choice),
            is_preferred: at == 0,
            pieces: None,
            versions: Vec::new(),
        };
        choices.map(candidate).collect()
    }

    /// Returns the index of an algorithm among the candidates for a kind of call; adds it at the end if it is new.
    pub(crate) fn number(all: &mut Vec<Candidate>, expression: Expression) -> usize {
        let known = all.iter().position(|candidate| candidate.choice.expression == expression);
        known.unwrap_or_else(|| {
            let reason = Reason::InTrial { beside: all[0].choice.expression.clone() };
            let choice = Arc::new(Choice { expression, reason });
            all.push(Candidate { choice, is_preferred: false, pieces: None, versions: Vec::new() });
            all.len() - 1
        })
    }

    pub(crate) fn is_native(&self) -> bool {
        self.choice.is_native()
    }

    /// Cuts the problem's blocks into the pieces that the algorithm needs, and looks up the plan for the problem.
    #[inline]
    pub(crate) fn find<B: Backend>(
        &mut self,
        versions: &Versions<B>,
        problem: &mut Problem,
        topology: &Topology,
    ) -> PlanSearch {
        if self.is_native() {
            return self.versions.first().map_or(PlanSearch::Nothing, |id| PlanSearch::Version(*id));
        }
        let pieces = *self.pieces.get_or_insert_with(|| pieces(problem, topology, &self.choice.expression));
        if problem.set_pieces(pieces).is_err() {
            return PlanSearch::Unfit;
        }
        let form = PlanForm::of(problem, topology, &self.choice.expression);
        match self.versions.iter().find(|id| versions.0[id.0].form == form) {
            Some(id) => PlanSearch::Version(*id),
            None => PlanSearch::Nothing,
        }
    }

    /// Stores the result of planning for a form. Replaces the oldest plan if there are too many.
    pub(crate) fn put<B: Backend>(
        &mut self,
        versions: &mut Versions<B>,
        form: PlanForm,
        prepared: Option<Prepared<B>>,
        extent: Extent,
    ) -> PlanId {
        let version = Version {
            form,
            prepared,
            choice: self.choice.clone(),
            extent,
            failed_allocation: usize::MAX,
            is_preferred: self.is_preferred,
            combine: None,
            last_lookup: 0,
        };
        let id = if self.versions.len() >= PLANS {
            let id = self.versions.remove(0);
            versions.0[id.0] = version;
            id
        } else {
            versions.0.push(version);
            PlanId(versions.0.len() - 1)
        };
        self.versions.push(id);
        id
    }

    /// Stores the MPI's own function as the plan.
    pub(crate) fn put_native<B: Backend>(&mut self, versions: &mut Versions<B>) -> PlanId {
        let form = PlanForm { even: None, orders: Box::default(), through: Exchange::Barrier };
        self.put(versions, form, Some(Prepared::Native), Extent::default())
    }
}

/// All plans of a communicator, by [`PlanId`].
pub(crate) struct Versions<B: Backend>(Vec<Version<B>>);

impl<B: Backend> Versions<B> {
    #[inline]
    pub(crate) fn get(&mut self, id: PlanId) -> &mut Version<B> {
        &mut self.0[id.0]
    }
}

/// The candidates of a communicator for each kind of call, and their plans.
pub(crate) struct Plans<B: Backend> {
    candidates: HashMap<Kind, Vec<Candidate>, FxBuildHasher>,
    pub(crate) versions: Versions<B>,
}

impl<B: Backend> Default for Plans<B> {
    fn default() -> Plans<B> {
        Plans { candidates: HashMap::default(), versions: Versions(Vec::new()) }
    }
}

impl<B: Backend> Plans<B> {
    /// Returns the candidates for a kind of call, made from `choices` at first use, and all plans.
    pub(crate) fn of(
        &mut self,
        kind: Kind,
        choices: impl FnOnce() -> Vec<Choice>,
    ) -> (&mut Vec<Candidate>, &mut Versions<B>) {
        let candidates = self.candidates.entry(kind).or_insert_with(|| Candidate::all(choices()));
        (candidates, &mut self.versions)
    }

    /// Returns the candidates for a kind of call; an empty list if there was no such call before.
    pub(crate) fn known(&self, kind: &Kind) -> &[Candidate] {
        self.candidates.get(kind).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether calls of a kind are known to be passed through.
    pub(crate) fn is_native(&self, kind: &Kind) -> bool {
        self.known(kind).first().is_some_and(Candidate::is_native)
    }

    /// Returns, of all plans for a collective, the plan that was looked up last.
    pub(crate) fn newest(&self, name: Name) -> Option<&Version<B>> {
        let kinds = self.candidates.iter().filter(|(kind, _)| kind.name == name);
        let all = kinds.flat_map(|(_, candidates)| candidates).flat_map(|candidate| &candidate.versions);
        all.map(|id| &self.versions.0[id.0]).max_by_key(|version| version.last_lookup)
    }

    pub(crate) fn clear(&mut self) {
        *self = Plans::default();
    }
}

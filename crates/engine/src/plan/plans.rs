//! The plans of a communicator: for each kind of call the algorithms that may serve it, best first, and for each of these a
//! plan for blocks of any size. A new size is a look.

use std::collections::HashMap;
use std::panic::catch_unwind;
use std::sync::Arc;

use bruckner_algorithms::exchange::Exchange;
use bruckner_algorithms::{Expression, plan};
use bruckner_choose::{Choice, Kind, Name, Reason};
use bruckner_runtime::{Extent, Plan, sized};
use bruckner_schedule::{Problem, Topology};
use rustc_hash::FxBuildHasher;

use super::parts::Parts;
use crate::backend::Backend;
use crate::cache::PlanId;
use crate::normalize::Combine;
use crate::reuse::{PlanForm, task};

/// The most plans that an algorithm has. Only one that orders ranks by their counts may want more.
const PLANS: usize = 64;

/// A plan that was made.
pub(crate) enum Prepared<B: Backend> {
    /// For sizes that all ranks know.
    Ready(Box<Plan<B::Wire>>),
    /// For sizes that each rank knows for itself.
    Sized(Box<sized::Plan<B::Wire>>),
    /// Others of the MPI's own functions.
    Parts(Parts),
    /// The MPI's own function.
    Native,
}

/// A plan of an algorithm, for one form of sizes.
pub(crate) struct Version<B: Backend> {
    form: PlanForm,
    /// None if it could not be made, which is so for good.
    pub(crate) prepared: Option<Prepared<B>>,
    pub(crate) choice: Arc<Choice>,
    /// The room that it needs on any rank.
    pub(crate) extent: Extent,
    /// Bytes of room that could not be had.
    pub(crate) too_much: usize,
    /// Whether it is by the first of all algorithms for its kind of call.
    pub(crate) is_preferred: bool,
    /// The reduction that the plan is set to.
    pub(crate) combine: Option<Combine>,
    /// The call that last looked for it.
    pub(crate) looked_for: u64,
}

impl<B: Backend> Version<B> {
    /// Whether the MPI's own function of the same name serves.
    pub(crate) fn is_the_call_itself(&self) -> bool {
        matches!(self.prepared, None | Some(Prepared::Native))
    }

    /// Whether it serves a problem with other lists as well: it neither orders ranks by them nor cuts blocks.
    pub(crate) fn is_for_any_lists(&self, problem: &Problem) -> bool {
        self.form.orders.is_empty() && problem.pieces == 1
    }
}

/// Into how many pieces an algorithm cuts blocks. One that does not fit a task cuts nothing.
fn pieces(problem: &Problem, topology: &Topology, expression: &Expression) -> u64 {
    let planned = catch_unwind(|| plan(&task(problem, topology), expression).map(|plan| plan.problem.pieces));
    planned.ok().and_then(Result::ok).unwrap_or(1)
}

/// An algorithm for a kind of call.
pub(crate) struct Candidate {
    pub(crate) choice: Arc<Choice>,
    /// Whether it is the first.
    is_preferred: bool,
    /// Into how many pieces it cuts blocks, once that is known.
    pieces: Option<u64>,
    versions: Vec<PlanId>,
}

/// The result of a search for the plan of a problem.
pub(crate) enum Found {
    /// This version.
    Version(PlanId),
    /// Nothing was planned yet.
    Nothing,
    /// Blocks cannot be cut so.
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

    /// The number of an algorithm among those for a kind of call; it is put behind them if it is new.
    pub(crate) fn number(all: &mut Vec<Candidate>, expression: Expression) -> usize {
        let known = all.iter().position(|candidate| candidate.choice.expression == expression);
        known.unwrap_or_else(|| {
            let reason = Reason::Tried { beside: all[0].choice.expression.clone() };
            let choice = Arc::new(Choice { expression, reason });
            all.push(Candidate { choice, is_preferred: false, pieces: None, versions: Vec::new() });
            all.len() - 1
        })
    }

    pub(crate) fn is_native(&self) -> bool {
        self.choice.is_native()
    }

    /// The version for a problem, which is cut as the algorithm wants it.
    #[inline]
    pub(crate) fn find<B: Backend>(
        &mut self,
        versions: &Versions<B>,
        problem: &mut Problem,
        topology: &Topology,
    ) -> Found {
        if self.is_native() {
            return self.versions.first().map_or(Found::Nothing, |id| Found::Version(*id));
        }
        let pieces = *self.pieces.get_or_insert_with(|| pieces(problem, topology, &self.choice.expression));
        if problem.set_pieces(pieces).is_err() {
            return Found::Unfit;
        }
        let form = PlanForm::of(problem, topology, &self.choice.expression);
        match self.versions.iter().find(|id| versions.0[id.0].form == form) {
            Some(id) => Found::Version(*id),
            None => Found::Nothing,
        }
    }

    /// Keeps what came of planning for a form. The oldest version makes room where there are too many.
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
            too_much: usize::MAX,
            is_preferred: self.is_preferred,
            combine: None,
            looked_for: 0,
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

    /// Keeps the MPI's own function.
    pub(crate) fn put_native<B: Backend>(&mut self, versions: &mut Versions<B>) -> PlanId {
        let form = PlanForm { even: None, orders: Box::default(), through: Exchange::Meeting };
        self.put(versions, form, Some(Prepared::Native), Extent::default())
    }
}

/// All versions of a communicator's plans.
pub(crate) struct Versions<B: Backend>(Vec<Version<B>>);

impl<B: Backend> Versions<B> {
    #[inline]
    pub(crate) fn get(&mut self, id: PlanId) -> &mut Version<B> {
        &mut self.0[id.0]
    }
}

/// All plans of a communicator.
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
    /// The algorithms for a kind of call, and all versions.
    pub(crate) fn of(
        &mut self,
        kind: Kind,
        choices: impl FnOnce() -> Vec<Choice>,
    ) -> (&mut Vec<Candidate>, &mut Versions<B>) {
        let candidates = self.candidates.entry(kind).or_insert_with(|| Candidate::all(choices()));
        (candidates, &mut self.versions)
    }

    /// The algorithms for a kind of call that came before.
    pub(crate) fn known(&self, kind: &Kind) -> &[Candidate] {
        self.candidates.get(kind).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether calls of a kind are known to go to the MPI.
    pub(crate) fn is_native(&self, kind: &Kind) -> bool {
        self.known(kind).first().is_some_and(Candidate::is_native)
    }

    /// The version for a collective that was last looked for.
    pub(crate) fn newest(&self, name: Name) -> Option<&Version<B>> {
        let kinds = self.candidates.iter().filter(|(kind, _)| kind.name == name);
        let all = kinds.flat_map(|(_, candidates)| candidates).flat_map(|candidate| &candidate.versions);
        all.map(|id| &self.versions.0[id.0]).max_by_key(|version| version.looked_for)
    }

    pub(crate) fn clear(&mut self) {
        *self = Plans::default();
    }
}

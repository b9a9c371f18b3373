//! Decides which algorithm handles a call: by the algorithms that the user named, the decision table for the communicator's placement, and
//! online tuning. All ranks decide the same.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use bruckner_algorithms::Expression;
use bruckner_choose::{
    Assignment, Calibration, Choice, DecisionTables, Kind, KindId, OnlineTuning, Question, Reason, Rules, choose,
};
use bruckner_schedule::Topology;
use rustc_hash::FxBuildHasher;

use crate::normalize::CallSignature;

/// The inputs of a communicator's decisions.
pub(crate) struct Decider {
    /// The algorithms that the user named.
    pub(crate) rules: Rules,
    pub(crate) topology: Arc<Topology>,
    pub(crate) tables: Arc<DecisionTables>,
    pub(crate) tuning: OnlineTuning,
    /// Whether online tuning is on.
    pub(crate) tuned: bool,
    /// Message times that calibration has measured; `None` if there was no calibration.
    pub(crate) calibration: Option<Calibration>,
    /// Whether ranks have agreed that one of them may have buffers in device memory.
    pub(crate) device: bool,
    /// Number of times that the communicator's decisions were invalidated.
    pub(crate) revision: u64,
}

/// A decision: which of the candidates for a kind of call handles a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision {
    pub(crate) kind: Kind,
    pub(crate) kind_id: KindId,
    /// Bytes of the largest block, or of the vector.
    pub(crate) bytes: u64,
    pub(crate) assignment: Assignment,
}

impl Decider {
    /// Returns the kind of a call.
    pub(crate) fn kind(&self, question: &Question<'_>) -> Kind {
        self.tables.kind(question)
    }

    /// Returns the candidates for a kind of call, best first.
    pub(crate) fn choices(&self, kind: &Kind) -> Vec<Choice> {
        match self.device {
            true => vec![Choice::native(Reason::Device)],
            false => choose(kind, &self.tables, &self.rules),
        }
    }

    /// Decides which candidate handles a call, and counts the call. `first` is the best candidate for the kind of call; `number` returns
    /// the index of an alternative among the candidates.
    pub(crate) fn decide(
        &mut self,
        kind: Kind,
        signature: &CallSignature,
        first: &Choice,
        number: impl FnMut(Expression) -> usize,
    ) -> Decision {
        let Decider { tables, tuning, tuned, .. } = self;
        let question = signature.question();
        let (bytes, kind_id) = (question.bytes(), tuning.kind(kind));
        let alternatives = || match tuned {
            true => tables.alternatives(&question, first).into_iter().map(number).collect(),
            false => Vec::new(),
        };
        let fingerprint = || FxBuildHasher.hash_one(signature);
        let assignment = tuning.assign(kind_id, bytes, fingerprint, alternatives);
        Decision { kind, kind_id, bytes, assignment }
    }

    /// Assigns another candidate to a call that the assigned one cannot handle, and excludes the latter from the trial, if there is one.
    pub(crate) fn replace(&mut self, decision: &mut Decision, candidate: usize) {
        let Decision { kind_id, bytes, assignment, .. } = *decision;
        if assignment.is_in_trial() {
            self.tuning.exclude(kind_id, bytes, assignment.candidate());
        }
        decision.assignment = Assignment::Regular(candidate);
    }

    /// If a call belongs to a trial, ends the trial, and stops online tuning for calls of its kind and size class.
    pub(crate) fn stop_trial(&mut self, decision: &Decision) {
        if decision.assignment.is_in_trial() {
            self.tuning.stop(decision.kind_id, decision.bytes);
        }
    }

    /// Resets online tuning, because the inputs of decisions have changed.
    pub(crate) fn forget(&mut self) {
        self.tuning = OnlineTuning::default();
        self.revision += 1;
    }
}

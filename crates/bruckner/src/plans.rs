//! The plans of a communicator: for each kind of call the algorithms that may serve it, best first, and for each of these a
//! plan for blocks of any size. A new size is a look.

use std::collections::HashMap;
use std::panic::catch_unwind;
use std::sync::Arc;

use bruckner_algorithms::expression::Plain;
use bruckner_algorithms::{Expression, Task, orders, plan};
use bruckner_mpi::Messages;
use bruckner_runtime::{Extent, Plan, sized};
use bruckner_schedule::{Counts, Problem, Topology};
use rustc_hash::FxBuildHasher;

use crate::call::Name;
use crate::choose::{ASKED_FOR, Choice, Kind};
use crate::normal::Combine;

/// The most plans that an algorithm has. Only one that orders ranks by their counts may want more.
const PLANS: usize = 64;

/// A plan that was made.
pub(crate) enum Prepared {
    Ready(Box<Plan<Messages>>),
    Sized(Box<sized::Plan<Messages>>),
    Native,
}

/// What a plan of an algorithm is for: sizes that are all equal, or others, which the algorithm takes in the same order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Form {
    /// None where each rank knows only its own sizes.
    pub(crate) even: Option<bool>,
    pub(crate) orders: Box<[u32]>,
}

impl Form {
    /// That of a problem, cut as an algorithm wants it.
    pub(crate) fn of(problem: &Problem, topology: &Topology, expression: &Expression) -> Form {
        let even = (problem.counts != Counts::Local).then(|| problem.equal().is_some());
        let orders = match expression.reorders() {
            false => Box::default(),
            true => orders(&task(problem, topology), expression).into(),
        };
        Form { even, orders }
    }
}

/// A problem as a task for algorithms.
pub(crate) fn task(problem: &Problem, topology: &Topology) -> Task {
    Task {
        collective: problem.collective,
        topology: topology.clone(),
        counts: problem.counts.clone(),
        element: problem.element,
        order: problem.order,
    }
}

/// A plan with the algorithm that it is by.
pub(crate) struct Slot {
    form: Form,
    /// None if it could not be made, which is so for good.
    pub(crate) prepared: Option<Prepared>,
    pub(crate) choice: Arc<Choice>,
    /// The room that it needs on any rank.
    pub(crate) extent: Extent,
    /// Bytes of room that could not be had.
    pub(crate) too_much: usize,
    /// Whether it is by the first of all algorithms for its kind of call.
    pub(crate) is_preferred: bool,
    /// What the plan combines with, at present.
    pub(crate) combine: Option<Combine>,
    /// The call that last looked for it.
    pub(crate) looked_for: u64,
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
    slots: Vec<Slot>,
}

/// What was found for a problem.
pub(crate) enum Look {
    Slot(usize),
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
            slots: Vec::new(),
        };
        choices.map(candidate).collect()
    }

    pub(crate) fn is_native(&self) -> bool {
        self.choice.expression == Expression::Plain(Plain::Native)
    }

    /// The plan for a problem, which is cut as the algorithm wants it.
    #[inline]
    pub(crate) fn find(&mut self, problem: &mut Problem, topology: &Topology) -> Look {
        if self.is_native() {
            return if self.slots.is_empty() { Look::Nothing } else { Look::Slot(0) };
        }
        let pieces = *self.pieces.get_or_insert_with(|| pieces(problem, topology, &self.choice.expression));
        if problem.set_pieces(pieces).is_err() {
            return Look::Unfit;
        }
        let form = Form::of(problem, topology, &self.choice.expression);
        match self.slots.iter().position(|slot| slot.form == form) {
            Some(at) => Look::Slot(at),
            None => Look::Nothing,
        }
    }

    /// Keeps what came of planning for a form; where.
    pub(crate) fn put(&mut self, form: Form, prepared: Option<Prepared>, extent: Extent) -> usize {
        if self.slots.len() >= PLANS {
            self.slots.remove(0);
        }
        self.slots.push(Slot {
            form,
            prepared,
            choice: self.choice.clone(),
            extent,
            too_much: usize::MAX,
            is_preferred: self.is_preferred,
            combine: None,
            looked_for: 0,
        });
        self.slots.len() - 1
    }

    /// Keeps the MPI's own function as the last resort behind others.
    pub(crate) fn put_native(&mut self, before: &[Candidate]) -> usize {
        if let Some(asked) = before.iter().find(|other| other.choice.why == ASKED_FOR) {
            let why =
                format!("`{}` was asked for, but does not fit; {}", asked.choice.expression, self.choice.why);
            self.choice = Arc::new(Choice { why, ..Choice::clone(&self.choice) });
        }
        self.put(Form { even: None, orders: Box::default() }, Some(Prepared::Native), Extent::default())
    }

    pub(crate) fn slot(&mut self, at: usize) -> &mut Slot {
        &mut self.slots[at]
    }
}

/// All plans of a communicator.
#[derive(Default)]
pub(crate) struct Plans(HashMap<Kind, Vec<Candidate>, FxBuildHasher>);

impl Plans {
    /// The algorithms for a kind of call.
    pub(crate) fn of(&mut self, kind: Kind, choices: impl FnOnce() -> Vec<Choice>) -> &mut Vec<Candidate> {
        self.0.entry(kind).or_insert_with(|| Candidate::all(choices()))
    }

    /// Whether calls of a kind are known to go to the MPI.
    pub(crate) fn is_native(&self, kind: &Kind) -> bool {
        self.0.get(kind).and_then(|candidates| candidates.first()).is_some_and(Candidate::is_native)
    }

    /// The plan for a collective that was last looked for.
    pub(crate) fn newest(&self, name: Name) -> Option<&Slot> {
        let kinds = self.0.iter().filter(|(kind, _)| kind.name == name);
        let slots = kinds.flat_map(|(_, candidates)| candidates).flat_map(|candidate| &candidate.slots);
        slots.max_by_key(|slot| slot.looked_for)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

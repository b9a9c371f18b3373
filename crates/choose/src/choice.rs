//! The algorithms for a kind of call, best first.

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_algorithms::properties::{Placement, properties};
use bruckner_algorithms::work::{self, work};
use bruckner_schedule::{Collective, Level, Order, Topology};

use crate::kind::{Kind, Size};
use crate::name::Name;
use crate::reason::{Lack, Reason};
use crate::rules::Rules;

/// An algorithm, and why it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The algorithm.
    pub expression: Expression,
    /// Why it.
    pub reason: Reason,
}

impl Choice {
    /// The MPI's own function.
    pub fn native(reason: Reason) -> Choice {
        Choice { expression: native(), reason }
    }

    /// Whether it is the MPI's own function.
    pub fn is_native(&self) -> bool {
        self.expression == native()
    }
}

/// What the settings say about choosing; the same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// Every call that any right algorithm can serve is served.
    pub always: bool,
    /// Ranks may get different roundings of one floating-point result.
    pub fast_math: bool,
}

/// What a choice depends on besides the call; the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// Where ranks are.
    pub topology: &'a Topology,
    /// What the user named.
    pub rules: &'a Rules,
    /// What the settings say.
    pub policy: Policy,
}

/// The algorithms for a call, best first, each with the reason for it. The first that can be planned serves; the last is
/// always `native`, the MPI's own function.
pub fn choose(kind: &Kind, at: &Circumstances<'_>) -> Vec<Choice> {
    let mut choices = Vec::new();
    let mut refused = None;
    if let Some(expression) = at.rules.of(kind.name) {
        match lacks(kind, expression, at) {
            None => choices.push(Choice { expression: expression.clone(), reason: Reason::Asked }),
            Some(lack) => refused = Some((expression.clone(), lack)),
        }
    }
    let (text, reason) = default(kind, at);
    let expression = parsed(text);
    let serves = expression != native() && lacks(kind, &expression, at).is_none();
    if serves {
        choices.push(Choice { expression, reason: reason.clone().instead_of(refused.as_ref()) });
    }
    // Lists of numbers that are no C integers can only be served.
    let beyond = kind.size == Size::Beyond;
    if at.policy.always || beyond {
        let right = fallbacks(kind.collective).iter().map(|text| parsed(text));
        let right = right.filter(|expression| lacks(kind, expression, at).is_none());
        let reason = if beyond { Reason::BeyondMpi } else { Reason::Always };
        choices.extend(right.map(|expression| Choice { expression, reason: reason.clone() }));
    }
    let reason = if serves { Reason::NothingFits } else { reason.instead_of(refused.as_ref()) };
    choices.push(Choice::native(reason));
    choices
}

fn native() -> Expression {
    Expression::Plain(Plain::Native)
}

fn parsed(text: &str) -> Expression {
    text.parse().expect("an expression of this file")
}

/// What is right wherever it can be planned at all.
fn fallbacks(collective: Collective) -> &'static [&'static str] {
    match collective {
        Collective::Allgather => &["locality(node)", "bruck(2)", "ring", "spread-out"],
        Collective::Allreduce => &["locality(node)", "recursive-doubling", "rabenseifner", "ring"],
        Collective::ReduceScatter => &["locality(node)", "recursive-halving", "ring", "spread-out"],
        Collective::Alltoall => &["locality(node)", "bruck(2)", "pairwise", "spread-out"],
    }
}

/// What an algorithm lacks that a call needs.
fn lacks(kind: &Kind, expression: &Expression, at: &Circumstances<'_>) -> Option<Lack> {
    if *expression == native() {
        return None;
    }
    if work(kind.collective, expression, at.topology) > work::MOST {
        return Some(Lack::Bound);
    }
    let has = properties(kind.collective, expression, Placement::of(at.topology), at.topology.ranks());
    if kind.order == Order::Ranks && !has.ordered {
        return Some(Lack::Order);
    }
    if kind.shows_order && !has.consistent && !at.policy.fast_math {
        return Some(Lack::Consistency);
    }
    None
}

/// What is best as far as anybody knows, and why.
fn default(kind: &Kind, at: &Circumstances<'_>) -> (&'static str, Reason) {
    let nodes = at.topology.regions(Level::NODE);
    let one_node = nodes == 1;
    let spread = nodes > 1 && nodes < at.topology.ranks();
    let (any_order, local, short) = (kind.order == Order::Any, kind.local, kind.size == Size::Short);
    match kind.name {
        Name::Barrier if one_node => ("shm", Reason::BarrierOnNode),
        Name::Allreduce if one_node && short => ("shm", Reason::ShortOnNode),
        // Ranks would choose differently where their sizes do, and a root may be far ahead of the others, or behind them.
        Name::Bcast => ("native", Reason::BroadcastForgives),
        Name::Reduce => ("native", Reason::RunsAhead),
        Name::Allgather if one_node && short => ("shm", Reason::ShortOnNode),
        Name::ReduceScatter if one_node && any_order && short => ("shm", Reason::ShortOnNode),
        Name::Alltoall if one_node && !local && short => ("locality(node)", Reason::ShortOnNode),
        Name::Allgather | Name::Allreduce if spread && short => ("locality(node)", Reason::ShortBetweenNodes),
        Name::Alltoall if spread && !local && short => ("locality(node)", Reason::ShortBetweenNodes),
        Name::Alltoall if local => ("native", Reason::LocalSizes),
        _ if !any_order => ("native", Reason::NotCommutative),
        _ if one_node => ("native", Reason::LongOnNode),
        _ if spread => ("native", Reason::LongBetweenNodes),
        _ => ("native", Reason::OnePerNode),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Question, Thresholds, Vendor};
    use bruckner_schedule::{Counts, Problem};

    fn problem(collective: Collective, order: Order, count: u64) -> Problem {
        Problem { collective, ranks: 8, counts: Counts::Equal(count), pieces: 1, element: 8, order }
    }

    /// The choices for a call on a topology, as texts.
    fn of(question: &Question<'_>, topology: &str, rules: &str, always: bool) -> Vec<(String, String)> {
        let (topology, rules) = (topology.parse().unwrap(), rules.parse().unwrap());
        let policy = Policy { always, ..Policy::default() };
        let at = Circumstances { topology: &topology, rules: &rules, policy };
        let kind = Thresholds::new(&topology, Vendor::Mpich, false).kind(question);
        let text = |choice: Choice| (choice.expression.to_string(), choice.reason.to_string());
        choose(&kind, &at).into_iter().map(text).collect()
    }

    #[test]
    fn an_algorithm_that_lacks_what_a_call_needs_is_never_chosen() {
        let sum = problem(Collective::Allreduce, Order::Any, 1);
        let allreduce = |shows_order| Question { name: Name::Allreduce, problem: &sum, shows_order };
        let rules = "allreduce=8(1 1 1)";
        // Integers may be added in any order; the bits of floats must be the same on all ranks.
        assert_eq!(of(&allreduce(false), "2x4", rules, false)[0].0, "8(1 1 1)");
        let found = of(&allreduce(true), "2x4", rules, false);
        assert_eq!(found[0].0, "locality(node)");
        assert!(
            found[0].1.starts_with("`8(1 1 1)` was asked for, but its floating-point results may differ")
        );
        // Order is kept by few.
        let ordered = problem(Collective::Allreduce, Order::Ranks, 1);
        let needs_order = Question { name: Name::Allreduce, problem: &ordered, shows_order: true };
        for always in [false, true] {
            for topology in ["2x4", "2x4:cyclic", "1x8"] {
                for (text, _) in of(&needs_order, topology, "allreduce=ring", always) {
                    let (expression, topology) = (text.parse().unwrap(), topology.parse().unwrap());
                    let has = properties(Collective::Allreduce, &expression, Placement::of(&topology), 8);
                    assert!(text == "native" || has.ordered, "{text} on {topology}");
                }
            }
        }
    }

    #[test]
    fn native_is_the_last_resort_and_says_why() {
        let of = |count, rules, always| {
            let problem = problem(Collective::Allgather, Order::Any, count);
            let question = Question { name: Name::Allgather, problem: &problem, shows_order: false };
            of(&question, "1x8", rules, always)
        };
        let long = of(1 << 20, "", false);
        assert_eq!(long.len(), 1);
        assert_eq!(long[0].0, "native");
        assert!(long[0].1.starts_with("long, on one node"));
        assert!(of(1 << 20, "", true).len() > 2);
        assert_eq!(of(1, "", false)[0].0, "shm");
        assert_eq!(of(1, "allgather=native", false)[0], ("native".into(), "asked for".into()));
    }
}

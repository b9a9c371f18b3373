//! Ranked list of the algorithms for a kind of call.

use bruckner_algorithms::Expression;
use bruckner_schedule::Collective;

use crate::choice::Choice;
use crate::kind::{Kind, SizeClass};
use crate::reason::Reason;
use crate::rules::Rules;
use crate::table::DecisionTables;

/// Returns the algorithms for a kind of call, best first, each with its reason. An algorithm that the user selected in `rules` comes
/// first, if it has the required properties. The engine uses the first algorithm that can be planned for the communicator; the last is
/// always `native`, the MPI's own function.
pub fn choose(kind: &Kind, tables: &DecisionTables, rules: &Rules) -> Vec<Choice> {
    let lacks = |expression: &Expression| tables.lacks(kind.collective, kind.order, kind.shows_order, expression);
    let (last, mut choices): (Vec<Choice>, Vec<Choice>) = tables.choices(kind).into_iter().partition(Choice::is_native);
    // If each rank has its own count and the total in bytes exceeds a C integer, the MPI has no function for the call, so the library must
    // handle it.
    let beyond = kind.size == SizeClass::Beyond;
    if tables.policy().always || beyond {
        let right = fallbacks(kind.collective).iter().map(|text| parsed(text));
        let right = right.filter(|expression| lacks(expression).is_none());
        let reason = if beyond { Reason::BeyondMpi } else { Reason::Always };
        choices.extend(right.map(|expression| Choice { expression, reason: reason.clone() }));
    }
    choices.push(last.into_iter().next().unwrap_or_else(|| Choice::native(Reason::NothingFits)));
    let Some(asked) = rules.of(kind.name) else { return choices };
    let lack = lacks(asked);
    let instead = |Choice { expression, reason }| Choice { expression, reason: reason.instead_of(asked, lack) };
    let first = lack.is_none().then(|| Choice { expression: asked.clone(), reason: Reason::Requested });
    first.into_iter().chain(choices.into_iter().map(instead)).collect()
}

fn parsed(text: &str) -> Expression {
    text.parse().expect("an expression of this file")
}

/// Returns the algorithms of a collective that are tried after the ranked ones if the library must handle the call.
fn fallbacks(collective: Collective) -> &'static [&'static str] {
    match collective {
        Collective::Allgather => &["locality(node)", "bruck(2)", "ring", "spread-out"],
        Collective::Allreduce => &["locality(node)", "recursive-doubling", "rabenseifner", "ring"],
        Collective::ReduceScatter => &["locality(node)", "recursive-halving", "ring", "spread-out"],
        Collective::Alltoall => &["locality(node)", "bruck(2)", "pairwise", "spread-out"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ability, Knowledge, Name, Policy, Question, Vendor};
    use bruckner_algorithms::properties::{RankPlacement, properties};
    use bruckner_schedule::{Counts, Order, Problem, Topology};
    use std::sync::Arc;

    fn problem(collective: Collective, order: Order, count: u64) -> Problem {
        Problem { collective, ranks: 8, counts: Counts::Equal(count), pieces: 1, element: 8, order }
    }

    /// Returns the choices for a call on a topology, as texts.
    fn of(question: &Question<'_>, topology: &str, rules: &str, always: bool) -> Vec<(String, String)> {
        let topology: Arc<Topology> = Arc::new(topology.parse().unwrap());
        let policy = Policy { always, ..Policy::default() };
        let tables =
            DecisionTables::new(topology, Arc::new(Knowledge::defaults(Vendor::Mpich)), policy, Ability::default());
        let text = |choice: Choice| (choice.expression.to_string(), choice.reason.to_string());
        choose(&tables.kind(question), &tables, &rules.parse().unwrap()).into_iter().map(text).collect()
    }

    #[test]
    fn an_algorithm_that_lacks_what_a_call_needs_is_never_chosen() {
        let sum = problem(Collective::Allreduce, Order::Any, 1);
        let allreduce =
            |shows_order| Question { name: Name::Allreduce, problem: &sum, is_order_sensitive: shows_order };
        let rules = "allreduce=8(1 1 1)";
        // Integers may be added in any order; floating-point sums must have the same bits on all ranks.
        assert_eq!(of(&allreduce(false), "2x4", rules, false)[0].0, "8(1 1 1)");
        let found = of(&allreduce(true), "2x4", rules, false);
        assert!(found[0].0.contains("node"), "{found:?}");
        assert!(
            found[0].1.starts_with("`8(1 1 1)` was selected by the user, but its floating-point results may differ")
        );
        // Few algorithms keep rank order.
        let ordered = problem(Collective::Allreduce, Order::Ranks, 1);
        let needs_order = Question { name: Name::Allreduce, problem: &ordered, is_order_sensitive: true };
        for always in [false, true] {
            for topology in ["2x4", "2x4:cyclic", "1x8"] {
                for (text, _) in of(&needs_order, topology, "allreduce=ring", always) {
                    let (expression, topology) = (text.parse().unwrap(), topology.parse().unwrap());
                    let has = properties(Collective::Allreduce, &expression, RankPlacement::of(&topology), 8);
                    assert!(text == "native" || has.ordered, "{text} on {topology}");
                }
            }
        }
    }

    #[test]
    fn native_is_the_last_resort_and_says_why() {
        let of = |count, rules, always| {
            let problem = problem(Collective::Allgather, Order::Any, count);
            let question = Question { name: Name::Allgather, problem: &problem, is_order_sensitive: false };
            of(&question, "1x8", rules, always)
        };
        let long = of(1 << 24, "", false);
        assert_eq!(long.len(), 1);
        assert_eq!(long[0].0, "native");
        assert!(
            long[0].1.starts_with("no algorithm is predicted to be at least 1.4x faster than the MPI; "),
            "{}",
            long[0].1
        );
        assert!(of(1 << 24, "", true).len() > 2);
        assert_eq!(of(1, "", false)[0].0, "shm");
        assert!(of(1, "", false)[0].1.contains("predicted from the default machine model"));
        assert_eq!(of(1, "allgather=native", false)[0], ("native".into(), "selected by the user".into()));
        // The algorithm that the user selected may turn out not to fit.
        for always in [false, true] {
            let asked = of(1, "allgather=ring", always);
            assert_eq!(asked[0], ("ring".into(), "selected by the user".into()));
            let instead = |(_, why): &(String, String)| {
                why.starts_with("`ring` was selected by the user, but cannot be planned for this communicator; ")
            };
            assert!(asked.len() > 2 && asked[1..].iter().all(instead), "{asked:?}");
        }
    }
}

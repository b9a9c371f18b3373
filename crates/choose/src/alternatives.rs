//! Algorithms that online tuning compares with the selected one, because they would be the fastest if the machine parameters were wrong.

use bruckner_algorithms::Expression;
use bruckner_model::Machine;

use crate::choice::{Choice, native};
use crate::kind::Question;
use crate::reason::Reason;
use crate::table::{CandidateSet, DecisionTables, Requirement};

/// Largest factor by which latencies are assumed to be wrong.
const WRONG: f64 = 10.0;

impl DecisionTables {
    /// Returns the algorithms that might be faster than `serving`, the one in use, for calls such as `question`. The list begins with the
    /// MPI's own function, unless that is in use. It is empty if the algorithm must not change: because other algorithms could give
    /// results with other bits, because each rank knows only its own message sizes, or because the user selected an algorithm or set
    /// `BRUCKNER=always`.
    pub fn alternatives(&self, question: &Question<'_>, serving: &Choice) -> Vec<Expression> {
        let kind = self.kind(question);
        let need = Requirement::of(&kind);
        if kind.local || (need.is_order_sensitive() && !self.policy().fast_math) || self.policy().always {
            return Vec::new();
        }
        let field = CandidateSet::new(self, need);
        let best = |machine: &Machine| {
            let ranked = field.ranked(machine, question.bytes());
            ranked.into_iter().next().map(|best| best.expression)
        };
        let machine = &self.source(need).machine;
        let mut alternatives: Vec<Expression> = match serving.reason {
            Reason::Measured { .. } if serving.is_native() => best(machine).into_iter().collect(),
            Reason::Measured { .. } => Vec::new(),
            Reason::Predicted(_) | Reason::BelowMargin { .. } => {
                // On several nodes the latency between nodes is scaled; on one node, the latency on the node.
                let slower = |by: f64| match self.shape().nodes {
                    1 => machine.scale_latencies(1.0, by),
                    _ => machine.scale_latencies(by, 1.0),
                };
                let other = [1.0, WRONG, 1.0 / WRONG].map(|by| best(&slower(by)));
                other.into_iter().flatten().collect()
            }
            _ => return Vec::new(),
        };
        alternatives.insert(0, native());
        let mut seen = vec![serving.expression.clone()];
        alternatives.retain(|alternative| {
            let new = !seen.contains(alternative);
            seen.push(alternative.clone());
            new
        });
        alternatives
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ability, Knowledge, Name, Policy, Rules, Shape, ShapeResults, TuningResult, Vendor, choose};
    use bruckner_schedule::{Collective, Counts, Problem, Topology};
    use std::sync::Arc;

    /// Returns the algorithm that is selected for an allgather or allreduce of 64 bytes, and its alternatives.
    fn of(topology: &str, name: Name, shows_order: bool, won: Option<&str>) -> (String, Vec<String>) {
        let topology: Arc<Topology> = Arc::new(topology.parse().unwrap());
        let collective = if name == Name::Allreduce { Collective::Allreduce } else { Collective::Allgather };
        let problem = Problem::new(collective, topology.ranks(), Counts::Equal(8), 8).unwrap();
        let mut known = Knowledge::defaults(Vendor::OpenMpi);
        let results = won.into_iter().map(|winner| TuningResult::won(name, 64, winner)).collect();
        known.results = vec![ShapeResults { shape: Shape::of(&topology), results }];
        let tables = DecisionTables::new(topology, Arc::new(known), Policy::default(), Ability::default());
        let question = Question { name, problem: &problem, is_order_sensitive: shows_order };
        let serving = choose(&tables.kind(&question), &tables, &Rules::default()).remove(0);
        let alternatives = tables.alternatives(&question, &serving);
        (serving.expression.to_string(), alternatives.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_only_the_model_says_has_rivals() {
        let (serving, alternatives) = of("4x16", Name::Allgather, false, None);
        assert!(alternatives.len() <= 4 && alternatives[0] == "native", "{alternatives:?}");
        assert!(!alternatives.contains(&serving) && serving != "native");
        // Here the MPI's own function won the tuning run on one node.
        let (serving, alternatives) = of("1x4", Name::Allgather, false, Some("native"));
        assert_eq!((serving.as_str(), &alternatives[..]), ("native", &["shm".to_owned()][..]));
    }

    #[test]
    fn what_was_raced_is_held_against_native_alone() {
        let (serving, alternatives) = of("4x4", Name::Allgather, false, Some("ring"));
        assert_eq!((serving.as_str(), &alternatives[..]), ("ring", &["native".to_owned()][..]));
    }

    #[test]
    fn what_rounds_has_none() {
        assert_eq!(of("4x16", Name::Allreduce, true, None).1, [] as [&str; 0]);
        assert!(!of("4x16", Name::Allreduce, false, None).1.is_empty());
    }
}

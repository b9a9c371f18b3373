//! Alternatives that online tuning compares with the selected algorithm: those that would be best if the machine parameters were wrong.

use bruckner_algorithms::Expression;
use bruckner_model::Machine;

use crate::choice::{Choice, native};
use crate::kind::Question;
use crate::menu::{Field, Menus, Need};
use crate::reason::Reason;

/// Factor by which machine parameters are assumed to be wrong at most.
const WRONG: f64 = 10.0;

impl Menus {
    /// Returns the algorithms that might be faster than `serving` for calls such as `question`, including the MPI's own function unless
    /// `serving` is that function. Returns none if the algorithm must not change, because the results would have other bits or because the
    /// user selected it.
    pub fn rivals(&self, question: &Question<'_>, serving: &Choice) -> Vec<Expression> {
        let kind = self.kind(question);
        let need = Need::of(&kind);
        if kind.local || (need.rounds() && !self.policy().fast_math) || self.policy().always {
            return Vec::new();
        }
        let field = Field::new(self, need);
        let best = |machine: &Machine| {
            let ranked = field.ranked(machine, question.bytes());
            ranked.into_iter().next().map(|best| best.expression)
        };
        let machine = &self.source(need).machine;
        let mut rivals: Vec<Expression> = match serving.reason {
            Reason::Raced { .. } if serving.is_native() => best(machine).into_iter().collect(),
            Reason::Raced { .. } => Vec::new(),
            Reason::Predicted(_) | Reason::NotWorth { .. } => {
                // On several nodes the latency between nodes is scaled; on one node, the latency on the node.
                let slower = |by: f64| match self.shape().nodes {
                    1 => machine.with_latencies(1.0, by),
                    _ => machine.with_latencies(by, 1.0),
                };
                let other = [1.0, WRONG, 1.0 / WRONG].map(|by| best(&slower(by)));
                other.into_iter().flatten().collect()
            }
            _ => return Vec::new(),
        };
        rivals.insert(0, native());
        let mut seen = vec![serving.expression.clone()];
        rivals.retain(|rival| {
            let new = !seen.contains(rival);
            seen.push(rival.clone());
            new
        });
        rivals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ability, Knowledge, Name, Policy, Raced, Rules, Shape, Vendor, Verdict, choose};
    use bruckner_schedule::{Collective, Counts, Problem, Topology};
    use std::sync::Arc;

    /// Returns the algorithm that is selected for an allgather or allreduce of 64 bytes, and its alternatives.
    fn of(topology: &str, name: Name, shows_order: bool, won: Option<&str>) -> (String, Vec<String>) {
        let topology: Arc<Topology> = Arc::new(topology.parse().unwrap());
        let collective = if name == Name::Allreduce { Collective::Allreduce } else { Collective::Allgather };
        let problem = Problem::new(collective, topology.ranks(), Counts::Equal(8), 8).unwrap();
        let mut known = Knowledge::nominal(Vendor::OpenMpi);
        let verdicts = won.into_iter().map(|winner| Verdict::won(name, 64, winner)).collect();
        known.raced = vec![Raced { shape: Shape::of(&topology), verdicts }];
        let menus = Menus::new(topology, Arc::new(known), Policy::default(), Ability::default());
        let question = Question { name, problem: &problem, shows_order };
        let serving = choose(&menus.kind(&question), &menus, &Rules::default()).remove(0);
        let rivals = menus.rivals(&question, &serving);
        (serving.expression.to_string(), rivals.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_only_the_model_says_has_rivals() {
        let (serving, rivals) = of("4x16", Name::Allgather, false, None);
        assert!(rivals.len() <= 4 && rivals[0] == "native", "{rivals:?}");
        assert!(!rivals.contains(&serving) && serving != "native");
        // Here the MPI's own function won the tuning run on one node.
        let (serving, rivals) = of("1x4", Name::Allgather, false, Some("native"));
        assert_eq!((serving.as_str(), &rivals[..]), ("native", &["shm".to_owned()][..]));
    }

    #[test]
    fn what_was_raced_is_held_against_native_alone() {
        let (serving, rivals) = of("4x4", Name::Allgather, false, Some("ring"));
        assert_eq!((serving.as_str(), &rivals[..]), ("ring", &["native".to_owned()][..]));
    }

    #[test]
    fn what_rounds_has_none() {
        assert_eq!(of("4x16", Name::Allreduce, true, None).1, [] as [&str; 0]);
        assert!(!of("4x16", Name::Allreduce, false, None).1.is_empty());
    }
}

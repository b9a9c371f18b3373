//! Algorithms that the user selected for collectives.

use std::collections::BTreeMap;
use std::str::FromStr;

use bruckner_algorithms::Expression;
use bruckner_schedule::Collective;

use crate::name::Name;

/// Algorithms that the user selected for collectives, written as `allreduce=locality(node); allgather=sparbit`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules(BTreeMap<Name, Expression>);

/// Error for a rule that cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{rule}`: {why}")]
pub struct BadRule {
    /// Text of the rule.
    pub rule: String,
    /// Description of the error, with the expected text.
    pub why: String,
}

impl FromStr for Rules {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Rules, BadRule> {
        let mut rules = BTreeMap::new();
        for rule in text.split(';').map(str::trim).filter(|rule| !rule.is_empty()) {
            let bad = |why: String| BadRule { rule: rule.to_owned(), why };
            let (name, expression) = rule.split_once('=').ok_or_else(|| bad("expected COLLECTIVE=ALGORITHM".into()))?;
            let name = Name::read(name.trim()).ok_or_else(|| bad(format!("expected one of {}", Name::list())))?;
            let expression = expression.trim().parse().map_err(|e| bad(format!("{e}")))?;
            if let (Expression::File(written), Some(wanted)) = (&expression, Collective::from_name(name.text()))
                && written.collective() != wanted
            {
                return Err(bad(format!("the algorithm in the file is for {}", written.purpose())));
            }
            rules.insert(name, expression);
        }
        Ok(Rules(rules))
    }
}

impl Rules {
    /// Adds the rules of `other`, which replace existing rules for the same collectives.
    pub fn extend(&mut self, other: Rules) {
        self.0.extend(other.0);
    }

    /// Returns the algorithm that the user selected for a collective.
    pub fn of(&self, name: Name) -> Option<&Expression> {
        self.0.get(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_refused_with_the_reason() {
        let rules: Rules = "allreduce=locality(node); allgather = sparbit;".parse().unwrap();
        assert_eq!(rules.of(Name::Allreduce).unwrap().to_string(), "locality(node)");
        assert_eq!(rules.of(Name::Allgather).unwrap().to_string(), "sparbit");
        assert!(rules.of(Name::Bcast).is_none());
        let text = |rules: &str| rules.parse::<Rules>().unwrap_err().to_string();
        assert_eq!(text("allreduce"), "`allreduce`: expected COLLECTIVE=ALGORITHM");
        assert!(text("scan=ring").starts_with("`scan=ring`: expected one of allgather, allreduce"));
        assert!(text("allreduce=rnig").starts_with("`allreduce=rnig`: "));
    }
}

//! Which algorithm serves a call: what was asked for, or a sound default, from what all ranks share.

use std::collections::BTreeMap;

use bruckner_algorithms::Expression;
use bruckner_schedule::{Counts, Level, Order, Topology};

use crate::Error;
use crate::call::Name;
use crate::normal::Key;

/// Algorithms that were asked for: `allreduce=locality(node); allgather=sparbit`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rules(BTreeMap<&'static str, Expression>);

impl std::str::FromStr for Rules {
    type Err = Error;

    fn from_str(text: &str) -> Result<Rules, Error> {
        let mut rules = BTreeMap::new();
        for rule in text.split(';').map(str::trim).filter(|rule| !rule.is_empty()) {
            let bad = |why: String| Error::Argument(format!("`{rule}`: {why}"));
            let (name, expression) =
                rule.split_once('=').ok_or_else(|| bad("expected COLLECTIVE=ALGORITHM".into()))?;
            let name = Name::ALL.into_iter().find(|n| n.text() == name.trim()).ok_or_else(|| {
                let names: Vec<&str> = Name::ALL.iter().map(|n| n.text()).collect();
                bad(format!("expected one of {}", names.join(", ")))
            })?;
            let expression = expression.trim().parse().map_err(|e| bad(format!("{e}")))?;
            rules.insert(name.text(), expression);
        }
        Ok(Rules(rules))
    }
}

impl Rules {
    /// Adds rules; a later one for the same collective wins.
    pub(crate) fn extend(&mut self, other: Rules) {
        self.0.extend(other.0);
    }

    fn of(&self, name: Name) -> Option<&Expression> {
        self.0.get(name.text())
    }
}

/// Bytes of the largest block, or of the vector.
fn bytes(key: &Key) -> u64 {
    let elements = match &key.counts {
        Counts::Equal(n) => *n,
        Counts::Root { count, .. } => *count,
        Counts::Listed(counts) => counts.iter().copied().max().unwrap_or(0),
        Counts::Local => 0,
    };
    elements * u64::from(key.element)
}

/// Up to how many bytes shared memory wins on one node.
struct OneNode {
    allreduce: u64,
    allgather: u64,
    reduce_scatter: u64,
    alltoall: u64,
}

/// As measured by `cargo testbed onnode` on two cores, until a profile of the machine says better: the MPIs copy straight
/// from one process to another above, and are best left to it.
fn one_node_limits(mpi: &str) -> OneNode {
    const K: u64 = 1 << 10;
    if mpi.starts_with("Open MPI") {
        OneNode { allreduce: 16 * K, allgather: 4 * K, reduce_scatter: 64 * K, alltoall: 4 * K }
    } else if mpi.starts_with("MPICH") {
        OneNode { allreduce: 16 * K, allgather: 16 * K, reduce_scatter: 64 * K, alltoall: 16 * K }
    } else {
        OneNode { allreduce: 2 * K, allgather: 2 * K, reduce_scatter: 16 * K, alltoall: 4 * K }
    }
}

/// The algorithm for a call on an MPI of this version; `native` where nothing is known to be better.
pub(crate) fn choose(key: &Key, topology: &Topology, rules: &Rules, mpi: &str) -> Expression {
    if let Some(expression) = rules.of(key.name) {
        return expression.clone();
    }
    let read = |text: &str| text.parse().expect("an expression");
    let (nodes, bytes) = (topology.regions(Level::NODE), bytes(key));
    let one_node = nodes == 1 && topology.ranks() > 1;
    let spread = nodes > 1 && nodes < topology.ranks();
    let ordered = key.order == Order::Ranks && !topology.is_in_rank_order();
    let (any_order, local) = (key.order == Order::Any, key.counts == Counts::Local);
    let limits = one_node_limits(mpi);
    match key.name {
        _ if ordered => read("native"),
        Name::Barrier if one_node => read("shm"),
        Name::Allreduce if one_node && bytes <= limits.allreduce => read("shm"),
        Name::Allgather | Name::Bcast if one_node && bytes <= limits.allgather => read("shm"),
        Name::Reduce if one_node && any_order && bytes <= limits.allgather => read("shm"),
        Name::ReduceScatter if one_node && any_order && bytes <= limits.reduce_scatter => read("shm"),
        Name::Alltoall if one_node && !local && bytes <= limits.alltoall => read("locality(node)"),
        Name::Allgather | Name::Allreduce if spread && bytes <= 8 << 10 => read("locality(node)"),
        Name::Alltoall if spread && !local && bytes <= 1 << 10 => read("locality(node)"),
        _ => read("native"),
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

//! Which algorithm serves a call: what was asked for, or a sound default, from what all ranks share.

use std::ops::RangeInclusive;

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_algorithms::properties::{Placement, properties};
use bruckner_algorithms::work::{self, work};
use bruckner_schedule::{Collective, Counts, Level, Order, Problem, Topology};

use crate::call::Name;
use crate::normal::Common;
use crate::settings::{Mode, Rules, Settings};

/// How much data a call has, as far as algorithms are chosen by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Size {
    Short,
    Long,
    /// More than the MPI has a function for.
    Beyond,
}

/// A call without its size: all that algorithms are chosen by. Equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Kind {
    pub(crate) name: Name,
    pub(crate) collective: Collective,
    pub(crate) order: Order,
    /// Whether the order of operands may show in the result.
    pub(crate) shows_order: bool,
    /// Whether each rank knows only its own sizes.
    pub(crate) local: bool,
    pub(crate) size: Size,
}

/// Up to how many bytes calls are short, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    short: [u64; Name::ALL.len()],
    /// Whether the MPI knows only C integers as counts.
    narrow: bool,
}

impl Limits {
    /// Those of a communicator whose ranks are placed so.
    pub(crate) fn new(topology: &Topology, mpi: &str, narrow: bool) -> Limits {
        let (nodes, on_one) = (topology.regions(Level::NODE), one_node_limits(mpi));
        let one_node = nodes == 1;
        let spread = nodes > 1 && nodes < topology.ranks();
        let limit = |here: u64, between: u64| match (one_node, spread) {
            (true, _) => here,
            (false, true) => between,
            (false, false) => 0,
        };
        let short = Name::ALL.map(|name| match name {
            Name::Allreduce => limit(on_one.allreduce, 8 << 10),
            Name::Allgather => limit(on_one.allgather, 8 << 10),
            Name::ReduceScatter => limit(on_one.reduce_scatter, 0),
            Name::Alltoall => limit(on_one.alltoall, 1 << 10),
            Name::Bcast | Name::Reduce | Name::Barrier => 0,
        });
        Limits { short, narrow }
    }

    /// From how many bytes to how many calls are of the same kind as one whose blocks have all the same size.
    pub(crate) fn alike(&self, common: &Common) -> RangeInclusive<u64> {
        let short = self.short[common.name as usize];
        if common.bytes() <= short { 0..=short } else { short + 1..=u64::MAX }
    }

    /// The kind of a call.
    pub(crate) fn kind(&self, common: &Common) -> Kind {
        let Common { name, ref problem, combine } = *common;
        let size = if self.narrow && too_many(problem) {
            Size::Beyond
        } else if common.bytes() <= self.short[name as usize] {
            Size::Short
        } else {
            Size::Long
        };
        Kind {
            name,
            collective: problem.collective,
            order: problem.order,
            shows_order: combine.shows_order(),
            local: common.is_local(),
            size,
        }
    }
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

/// Why an algorithm is used that a user named.
pub(crate) const ASKED_FOR: &str = "asked for";

/// An algorithm, and why it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    pub(crate) expression: Expression,
    pub(crate) why: String,
}

impl Choice {
    /// The MPI's own function.
    pub(crate) fn native(why: &str) -> Choice {
        Choice { expression: native(), why: why.to_owned() }
    }
}

/// What a choice depends on besides the call; the same on all ranks.
pub(crate) struct Circumstances<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) rules: &'a Rules,
    pub(crate) settings: &'a Settings,
}

/// The algorithms for a call, best first, each with the reason for it. The first that can be planned serves; if none can,
/// or if one of them is `native`, the MPI's own function does.
pub(crate) fn choose(kind: &Kind, at: &Circumstances<'_>) -> Vec<Choice> {
    let mut choices = Vec::new();
    let mut refused = String::new();
    if let Some(expression) = at.rules.of(kind.name) {
        match lacks(kind, expression, at) {
            None => choices.push(Choice { expression: expression.clone(), why: ASKED_FOR.into() }),
            Some(what) => refused = format!("`{expression}` was asked for, but {what}; "),
        }
    }
    let (text, why) = default(kind, at);
    let expression: Expression = text.parse().expect("an expression");
    let serves = expression != native() && lacks(kind, &expression, at).is_none();
    if serves {
        choices.push(Choice { expression, why: format!("{refused}{why}") });
    }
    // Lists of numbers that are no C integers can only be served.
    let beyond = kind.size == Size::Beyond;
    if at.settings.mode == Mode::Always || beyond {
        let right = fallbacks(kind.collective).iter().map(|text| text.parse().expect("an expression"));
        let right = right.filter(|expression| lacks(kind, expression, at).is_none());
        let why = if beyond { "the MPI has no function for so many" } else { "BRUCKNER=always" };
        choices.extend(right.map(|expression| Choice { expression, why: why.into() }));
    }
    let why = match serves {
        true => "no algorithm fits".to_owned(),
        false => format!("{refused}{why}"),
    };
    choices.push(Choice { expression: native(), why });
    choices
}

/// Whether counts that are listed are no C integers.
fn too_many(problem: &Problem) -> bool {
    match &problem.counts {
        Counts::Listed(counts) => counts.iter().sum::<u64>() * u64::from(problem.element) > i32::MAX as u64,
        _ => false,
    }
}

fn native() -> Expression {
    Expression::Plain(Plain::Native)
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
fn lacks(kind: &Kind, expression: &Expression, at: &Circumstances<'_>) -> Option<&'static str> {
    if *expression == native() {
        return None;
    }
    if work(kind.collective, expression, at.topology) > work::MOST {
        return Some("planning it for so many ranks would take too long");
    }
    let has = properties(kind.collective, expression, Placement::of(at.topology), at.topology.ranks());
    if kind.order == Order::Ranks && !has.ordered {
        return Some("it does not keep the order of ranks, and the operation is not commutative");
    }
    if kind.shows_order && !has.consistent && !at.settings.fast_math {
        return Some("its floating-point results may differ between ranks");
    }
    None
}

/// What is best as far as anybody knows, and why.
fn default(kind: &Kind, at: &Circumstances<'_>) -> (&'static str, &'static str) {
    const SHORT: &str = "short, on one node: by shared memory";
    const NEAR: &str = "short, on several nodes: few messages between them";
    let nodes = at.topology.regions(Level::NODE);
    let one_node = nodes == 1;
    let spread = nodes > 1 && nodes < at.topology.ranks();
    let (any_order, local, short) = (kind.order == Order::Any, kind.local, kind.size == Size::Short);
    match kind.name {
        Name::Barrier if one_node => ("shm", "on one node: by shared memory"),
        Name::Allreduce if one_node && short => ("shm", SHORT),
        // Ranks would choose differently where their sizes do, and a root may be far ahead of the others, or behind them.
        Name::Bcast => ("native", "receivers may expect more than is sent: the MPI forgives that"),
        Name::Reduce => ("native", "ranks may run ahead of the root: the MPI lets them"),
        Name::Allgather if one_node && short => ("shm", SHORT),
        Name::ReduceScatter if one_node && any_order && short => ("shm", SHORT),
        Name::Alltoall if one_node && !local && short => ("locality(node)", SHORT),
        Name::Allgather | Name::Allreduce if spread && short => ("locality(node)", NEAR),
        Name::Alltoall if spread && !local && short => ("locality(node)", NEAR),
        Name::Alltoall if local => ("native", "sizes are known only locally: nothing is known to be better"),
        _ if !any_order => ("native", "the operation is not commutative: nothing is known to be better"),
        _ if one_node => ("native", "long, on one node: the MPI copies straight from process to process"),
        _ if spread => ("native", "long, on several nodes: nothing is known to be better"),
        _ => ("native", "one rank on each node: nothing is known to be better"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normal::Combine;
    use bruckner_runtime::reduce::{Kind, Operation};

    fn call(name: Name, collective: Collective, order: Order, combine: Combine, count: u64) -> Common {
        let counts = Counts::Equal(count);
        let problem = Problem { collective, ranks: 8, counts, pieces: 1, element: 8, order };
        Common { name, problem, combine }
    }

    /// The choices for a call on a topology, as texts.
    fn of(call: &Common, topology: &str, rules: &str, mode: Mode) -> Vec<(String, String)> {
        let settings = Settings { mode, ..Settings::default() };
        let (topology, rules) = (topology.parse().unwrap(), rules.parse().unwrap());
        let at = Circumstances { topology: &topology, rules: &rules, settings: &settings };
        let kind = Limits::new(&topology, "MPICH 5", false).kind(call);
        choose(&kind, &at).into_iter().map(|choice| (choice.expression.to_string(), choice.why)).collect()
    }

    #[test]
    fn an_algorithm_that_lacks_what_a_call_needs_is_never_chosen() {
        let sum = Combine::Kernel(Operation::Sum, Kind::F64);
        let (name, collective) = (Name::Allreduce, Collective::Allreduce);
        let rules = "allreduce=8(1 1 1)";
        // Integers may be added in any order; the bits of floats must be the same on all ranks.
        let whole = Combine::Kernel(Operation::Sum, Kind::I64);
        assert_eq!(
            of(&call(name, collective, Order::Any, whole, 1), "2x4", rules, Mode::On)[0].0,
            "8(1 1 1)"
        );
        // NaN and signed zeros make a maximum depend on the order, too.
        for combine in
            [(Operation::Max, Kind::F64), (Operation::Min, Kind::F32), (Operation::MaxLoc, Kind::F64Index)]
        {
            let combine = Combine::Kernel(combine.0, combine.1);
            let found = of(&call(name, collective, Order::Any, combine, 1), "2x4", rules, Mode::On);
            assert_eq!(found[0].0, "locality(node)");
        }
        let found = of(&call(name, collective, Order::Any, sum, 1), "2x4", rules, Mode::On);
        assert_eq!(found[0].0, "locality(node)");
        assert!(
            found[0].1.starts_with("`8(1 1 1)` was asked for, but its floating-point results may differ")
        );
        // Order is kept by few.
        for mode in [Mode::On, Mode::Always] {
            for topology in ["2x4", "2x4:cyclic", "1x8"] {
                let needs_order = call(name, collective, Order::Ranks, Combine::Foreign, 1);
                for (text, _) in of(&needs_order, topology, "allreduce=ring", mode) {
                    let (expression, topology) = (text.parse().unwrap(), topology.parse().unwrap());
                    let has = properties(collective, &expression, Placement::of(&topology), 8);
                    assert!(text == "native" || has.ordered, "{text} on {topology}");
                }
            }
        }
    }

    #[test]
    fn native_is_the_last_resort_and_says_why() {
        let gather =
            |count| call(Name::Allgather, Collective::Allgather, Order::Any, Combine::Nothing, count);
        let long = of(&gather(1 << 20), "1x8", "", Mode::On);
        assert_eq!(long.len(), 1);
        assert_eq!(long[0].0, "native");
        assert!(long[0].1.starts_with("long, on one node"));
        assert!(of(&gather(1 << 20), "1x8", "", Mode::Always).len() > 2);
        assert_eq!(of(&gather(1), "1x8", "", Mode::On)[0].0, "shm");
        assert_eq!(
            of(&gather(1), "1x8", "allgather=native", Mode::On)[0],
            ("native".into(), "asked for".into())
        );
    }
}

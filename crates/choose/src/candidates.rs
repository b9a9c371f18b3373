//! Selects the few candidate algorithms that are compared for a collective on communicators of one shape (nodes, and ranks on each).
//!
//! Candidates are algorithms that were the fastest in some case of docs/theory/measured.md or are the fastest in some case by the cost model,
//! with parameters that suit the number of nodes N: Bruck's radix is 2, ⌈√N⌉ or N. Between nodes there are leaders, lanes and
//! locality-aware algorithms, a reduce_scatter with an allgather for an allreduce, and pipelines for long vectors; on one node, several
//! shared-memory algorithms. The caller removes candidates that cannot be planned for the number of ranks.

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::{Lanes, Plain};
use bruckner_model::Shape;
use bruckner_schedule::{Collective, Level, Topology};

use crate::knowledge::{Origin, Vendor};

/// Numbers of parts into which pipelined candidates split their data.
const PARTS: [u32; 2] = [4, 16];
/// Number of messages that a rank sends at once if it exchanges data with several nodes.
const PORTS: u32 = 4;
/// Number of concurrent messages of a rank that a prediction is trusted for if they were not measured together.
const AT_ONCE: u32 = 8;

fn plain(plain: Plain) -> Expression {
    Expression::Plain(plain)
}

fn locality(lanes: Lanes) -> Expression {
    Expression::Locality { level: Level::NODE, inside: Box::new(plain(Plain::Shm)), lanes }
}

fn leader(between: Expression, leaders: u32) -> Expression {
    Expression::Leader { level: Level::NODE, between: Box::new(between), leaders }
}

fn lanes(between: Expression) -> Expression {
    Expression::MultiLane { level: Level::NODE, between: Box::new(between) }
}

fn rsag(of: Expression) -> Expression {
    Expression::ReduceScatterAllgather(Box::new(of))
}

/// Returns the allreduces by recursive halving and doubling: with the nearest partners first, and with the most distant ones first.
fn halvings() -> [Expression; 2] {
    [plain(Plain::Rabenseifner), rsag(plain(Plain::RecursiveDoubling))]
}

/// Returns the alltoalls among `members` ranks in which every rank sends its blocks directly to their destinations: to all at once, to
/// some at once, or to one after the other.
fn spread_outs(members: u32) -> Vec<Expression> {
    let some = (members - 1 > AT_ONCE).then_some(Expression::SpreadOut { window: AT_ONCE });
    [Some(plain(Plain::SpreadOut)), some, Some(plain(Plain::Pairwise))].into_iter().flatten().collect()
}

/// Returns the candidate radices for Bruck's algorithm among `members` ranks: 2, and ⌈√members⌉ if that is larger.
fn radices(members: u32) -> impl Iterator<Item = u32> {
    let root = (2..members).find(|root| u64::from(*root) * u64::from(*root) >= members.into());
    [Some(2), root.filter(|root| *root > 2)].into_iter().flatten()
}

/// Returns the candidate allgather algorithms among `members` ranks.
fn gathers(members: u32) -> Vec<Expression> {
    let mut gathers: Vec<Expression> = radices(members).map(Expression::Bruck).collect();
    gathers.push(plain(Plain::SpreadOut));
    gathers.push(plain(Plain::Ring));
    gathers
}

/// Largest block in bytes, and smallest number of ranks, with which all MPIs use Bruck's algorithm for an alltoall. MPICH and its
/// derivatives use it up to 256 bytes from 8 ranks on; Open MPI, below 512 bytes from 16 ranks on.
const SHORT_ALLTOALL: (u64, u32) = (256, 16);

/// Returns the algorithms that an MPI without node awareness may use for blocks of `bytes`. The MPI is assumed to use the algorithm that
/// is the fastest on its default machine model.
pub(crate) fn native_models(collective: Collective, shape: Shape, vendor: Vendor, bytes: u64) -> Vec<Expression> {
    let bruck = Expression::Bruck(2);
    let even = shape.ranks().is_power_of_two();
    match collective {
        Collective::Allgather => {
            let doubling = if even { plain(Plain::RecursiveDoubling) } else { bruck };
            vec![doubling, plain(Plain::Ring)]
        }
        Collective::ReduceScatter => {
            let halving = if even { plain(Plain::RecursiveHalving) } else { bruck };
            // Open MPI's `MPI_Reduce_scatter_block` has no ring, and the algorithm that it uses above 512 KiB is even slower.
            let ring = (!matches!(vendor, Vendor::OpenMpi4 | Vendor::OpenMpi)).then_some(plain(Plain::Ring));
            [halving].into_iter().chain(ring).collect()
        }
        Collective::Allreduce => {
            vec![plain(Plain::RecursiveDoubling), plain(Plain::Rabenseifner), plain(Plain::Ring)]
        }
        Collective::Alltoall => {
            let (short, many) = SHORT_ALLTOALL;
            match bytes <= short && shape.ranks() >= many {
                true => vec![bruck],
                false => vec![bruck, plain(Plain::SpreadOut), plain(Plain::Pairwise)],
            }
        }
    }
}

/// Returns the MPI's own node-aware algorithm, if it has one: Open MPI 5 executes an allgather through one leader on each node.
pub(crate) fn node_aware_native_model(collective: Collective, shape: Shape, vendor: Vendor) -> Option<Expression> {
    let knows = vendor == Vendor::OpenMpi && collective == Collective::Allgather;
    (knows && shape.nodes > 1 && shape.on_node > 1).then(|| leader(Expression::Bruck(2), 1))
}

/// Returns the algorithms that may be faster than the MPI's own function.
pub(crate) fn candidates(collective: Collective, shape: Shape) -> Vec<Expression> {
    if shape.ranks() < 2 {
        return Vec::new();
    }
    if shape.nodes == 1 {
        return on_node(collective, shape.on_node);
    }
    let nodes = shape.nodes;
    if shape.on_node == 1 {
        return match collective {
            Collective::Allgather | Collective::ReduceScatter => gathers(nodes),
            Collective::Allreduce => {
                let mut all = vec![plain(Plain::RecursiveDoubling), plain(Plain::SpreadOut)];
                all.extend(halvings());
                all.extend(gathers(nodes).into_iter().map(rsag));
                all
            }
            Collective::Alltoall => {
                let mut all = spread_outs(nodes);
                all.push(Expression::Bruck(2));
                all
            }
        };
    }
    let mut near = vec![locality(Lanes::ALL)];
    if nodes > shape.on_node + 1 && collective != Collective::Alltoall {
        near.push(locality(Lanes::PerRank(PORTS)));
    }
    let pipelines = |of: Expression| PARTS.map(|parts| Expression::Pipeline { parts, of: Box::new(of.clone()) });
    match collective {
        Collective::Allgather | Collective::ReduceScatter => {
            near.extend(gathers(nodes).into_iter().map(lanes));
            near.extend([plain(Plain::SpreadOut), Expression::Bruck(2)].map(|between| leader(between, 1)));
            near.extend(pipelines(lanes(plain(Plain::Ring))));
            // With the nearest partners first, the longest messages of a reduce_scatter stay on a node.
            if collective == Collective::ReduceScatter && shape.ranks().is_power_of_two() {
                near.push(plain(Plain::RecursiveDoubling));
            }
        }
        Collective::Allreduce => {
            let scattered: Vec<Expression> = near.iter().cloned().map(rsag).collect();
            near.extend(scattered);
            let short = [plain(Plain::SpreadOut), plain(Plain::RecursiveDoubling)];
            near.extend(short.iter().cloned().map(|between| leader(between, 1)));
            near.extend(short.into_iter().map(lanes));
            near.extend(gathers(nodes).into_iter().map(|of| lanes(rsag(of))));
            near.extend(halvings().map(lanes));
            near.push(plain(Plain::Rabenseifner));
            near.extend(pipelines(lanes(plain(Plain::Ring))));
        }
        Collective::Alltoall => {
            near.push(leader(plain(Plain::SpreadOut), 1));
            if shape.on_node >= 4 {
                near.push(leader(plain(Plain::SpreadOut), 2));
            }
            near.extend(spread_outs(nodes).into_iter().map(lanes));
            near.extend(spread_outs(shape.ranks()));
        }
    }
    near
}

/// Returns an algorithm that distinguishes the sockets of a node, if nodes have several. The cost formulas know only nodes, so this
/// candidate is considered only in tuning runs, which measure it.
pub(crate) fn socket_aware(collective: Collective, topology: &Topology) -> Option<Expression> {
    let (nodes, parts) = (topology.regions(Level::NODE), topology.regions(Level::SOCKET));
    let several = parts > nodes && topology.ranks() > parts && collective != Collective::Alltoall;
    let parts = Expression::Locality { level: Level::SOCKET, inside: Box::new(plain(Plain::Shm)), lanes: Lanes::ALL };
    several.then(|| match nodes {
        1 => parts,
        _ => Expression::Locality { level: Level::NODE, inside: Box::new(parts), lanes: Lanes::ALL },
    })
}

/// Returns compositions of a collective from other functions of the MPI, such as a reduce and a broadcast for an allreduce. Compositions
/// may be the fastest where the MPI violates its own performance guidelines. The cost model cannot predict that, so they are only measured
/// in tuning runs.
pub(crate) fn compositions(collective: Collective) -> &'static [Plain] {
    match collective {
        Collective::Allreduce => &[Plain::NativeRooted, Plain::NativeRsag],
        Collective::Allgather => &[Plain::NativeRooted],
        Collective::ReduceScatter | Collective::Alltoall => &[],
    }
}

/// Whether the predicted advantage of an algorithm depends on a machine parameter that was not measured. Calibration times one message at
/// a time, so the cost of many concurrent messages of a rank is unknown. Without any measurement, predictions for pipelines and for one
/// rank per node are not trusted either.
pub(crate) fn depends_on_unmeasured(expression: &Expression, shape: Shape, origin: Origin) -> bool {
    let many = |between: &Expression, others: u32| match between {
        Expression::Plain(Plain::SpreadOut) => others > AT_ONCE,
        Expression::Bruck(radix) => *radix > AT_ONCE,
        _ => false,
    };
    let at_once = || match expression {
        Expression::Leader { between, .. } | Expression::MultiLane { between, .. } => {
            many(if let Expression::ReduceScatterAllgather(of) = &**between { of } else { between }, shape.nodes - 1)
        }
        other => many(other, shape.ranks() - 1),
    };
    let default = || shape.on_node == 1 || matches!(expression, Expression::Pipeline { .. });
    shape.nodes > 1
        && match origin {
            Origin::Profile => false,
            Origin::Calibrated | Origin::Oversubscribed => at_once(),
            Origin::Default => default() || at_once(),
        }
}

/// Returns the algorithms that may be faster than the MPI's own function on a communicator within one node.
fn on_node(collective: Collective, ranks: u32) -> Vec<Expression> {
    match collective {
        Collective::Allgather | Collective::ReduceScatter => vec![plain(Plain::Shm), plain(Plain::Direct)],
        Collective::Alltoall => vec![locality(Lanes::ALL), plain(Plain::Direct)],
        Collective::Allreduce => {
            let mut all = vec![plain(Plain::Shm), plain(Plain::ShmRotate)];
            if ranks > 2 {
                all.push(plain(Plain::ShmSplit));
            }
            if ranks >= 16 {
                all.push(Expression::ShmTree(8));
            }
            all.push(plain(Plain::Direct));
            all
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected algorithms are those in the sources of Open MPI 5.0 (`coll/tuned`, `coll/han`) and MPICH 4.
    #[test]
    fn what_mpis_do_by_themselves() {
        let names = |all: &[Expression]| all.iter().map(Expression::to_string).collect::<Vec<_>>();
        let shape = |text: &str| Shape::of(&text.parse().unwrap());
        let does = |collective, text, vendor, bytes| names(&native_models(collective, shape(text), vendor, bytes));
        let any = ["bruck(2)", "spread-out", "pairwise"];
        for vendor in [Vendor::OpenMpi, Vendor::Mpich, Vendor::Other] {
            assert_eq!(does(Collective::Alltoall, "4x4", vendor, 256), ["bruck(2)"]);
            assert_eq!(does(Collective::Alltoall, "4x4", vendor, 257), any);
            assert_eq!(does(Collective::Alltoall, "5x3", vendor, 256), any);
        }
        let scatter = |text, vendor| does(Collective::ReduceScatter, text, vendor, 8);
        assert_eq!(scatter("4x4", Vendor::OpenMpi), ["recursive-halving"]);
        assert_eq!(scatter("5x3", Vendor::OpenMpi), ["bruck(2)"]);
        assert_eq!(scatter("4x4", Vendor::Mpich), ["recursive-halving", "ring"]);
        let leads = |text, vendor| {
            let on_nodes = |collective| node_aware_native_model(collective, shape(text), vendor);
            names(&Collective::ALL.into_iter().filter_map(on_nodes).collect::<Vec<_>>())
        };
        assert_eq!(leads("4x4", Vendor::OpenMpi), ["leader(node, between=bruck(2))"]);
        for (text, vendor) in [("1x16", Vendor::OpenMpi), ("16x1", Vendor::OpenMpi), ("4x4", Vendor::Mpich)] {
            assert_eq!(leads(text, vendor), [] as [&str; 0]);
        }
    }

    /// Socket-aware candidates exist only where nodes have several sockets with several ranks, and all of them can be planned.
    #[test]
    fn parts_of_nodes_count_where_there_are_some() {
        use bruckner_algorithms::{Task, plan};
        let found = |text: &str, collective| {
            let topology: Topology = text.parse().unwrap();
            let found = socket_aware(collective, &topology)?;
            let task = Task::new(collective, topology).bytes(4096);
            assert!(plan(&task, &found).is_ok(), "{collective} {found} on {text}");
            Some(found.to_string())
        };
        for collective in [Collective::Allgather, Collective::Allreduce, Collective::ReduceScatter] {
            assert_eq!(found("4+4", collective).as_deref(), Some("locality(socket)"));
            assert_eq!(found("2+2,2+2", collective).as_deref(), Some("locality(node, inside=locality(socket))"));
            assert_eq!(found("4x4", collective), None);
            assert_eq!(found("1+1,1+1", collective), None);
        }
        assert_eq!(found("4+4", Collective::Alltoall), None);
    }

    /// Every candidate can be planned and has a cost formula for its shape, and its name can be parsed back.
    #[test]
    fn candidates_can_be_planned() {
        use bruckner_algorithms::{Task, plan};
        use bruckner_model::Sketch;
        for text in ["4x4", "8x2", "2x8", "5,3,2", "3x5:cyclic", "6x1", "1x2", "1x8", "1x24", "7x3"] {
            let topology: Topology = text.parse().unwrap();
            let shape = Shape::of(&topology);
            for collective in Collective::ALL {
                let all = candidates(collective, shape);
                assert!(!all.is_empty());
                for expression in all.into_iter().chain(native_models(collective, shape, Vendor::Other, 1 << 20)) {
                    let printed = expression.to_string();
                    assert_eq!(printed.parse(), Ok(expression.clone()), "{printed}");
                    let task = Task::new(collective, topology.clone()).bytes(4096);
                    assert!(plan(&task, &expression).is_ok(), "{collective} {printed} on {text}");
                    assert!(Sketch::of(collective, &expression, shape, 4096).is_some(), "{printed}");
                }
            }
        }
    }
}

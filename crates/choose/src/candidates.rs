//! Which algorithms are worth comparing for a collective on a shape: by rule, few.
//!
//! Everything that has won somewhere in docs/measured.md or by the model, in forms that suit the number of nodes: Bruck's radix and
//! Jocksch's ports are 2, ⌈√N⌉ and N of N nodes; between nodes one port, all of them, or halves; leaders, lanes and locality;
//! pipelines for long vectors; and on one node shared memory in its forms. What cannot be planned for so many ranks is left out by whoever
//! asks.

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::{Lanes, Plain};
use bruckner_model::Shape;
use bruckner_schedule::{Collective, Level, Topology};

use crate::knowledge::{Origin, Vendor};

/// Parts of a pipeline.
const PARTS: [u32; 2] = [4, 16];
/// Messages of a rank at once, where it reaches several nodes.
const PORTS: u32 = 4;

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

fn halves(of: Expression) -> Expression {
    Expression::Halves(Box::new(of))
}

/// Radices for so many members: 2, and ⌈√N⌉ where that is another.
fn radices(members: u32) -> impl Iterator<Item = u32> {
    let root = (2..members).find(|root| u64::from(*root) * u64::from(*root) >= members.into());
    [Some(2), root.filter(|root| *root > 2)].into_iter().flatten()
}

/// Ways to gather among so many members.
fn gathers(members: u32) -> Vec<Expression> {
    let mut gathers: Vec<Expression> = radices(members).map(Expression::Bruck).collect();
    gathers.push(plain(Plain::SpreadOut));
    gathers.push(plain(Plain::Ring));
    gathers
}

/// MPIs do short alltoalls by Bruck's algorithm: up to so many bytes, from so many ranks on. MPICH and what comes from it, up to 256 and from 8;
/// Open MPI, below 512 and from 16.
const SHORT_ALLTOALL: (u64, u32) = (256, 16);

/// What an MPI that knows nothing of nodes may do with blocks of so many bytes: the best of these stands for it where nothing was measured.
pub(crate) fn natives(collective: Collective, shape: Shape, vendor: Vendor, bytes: u64) -> Vec<Expression> {
    let bruck = Expression::Bruck(2);
    let even = shape.ranks().is_power_of_two();
    match collective {
        Collective::Allgather => {
            let doubling = if even { plain(Plain::RecursiveDoubling) } else { bruck };
            vec![doubling, plain(Plain::Ring)]
        }
        Collective::ReduceScatter => {
            let halving = if even { plain(Plain::RecursiveHalving) } else { bruck };
            // Open MPI's MPI_Reduce_scatter_block has no ring; what it does above 512 KiB is slower still.
            let ring = (vendor != Vendor::OpenMpi).then_some(plain(Plain::Ring));
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

/// What an MPI does that knows nodes: Open MPI 5 has a leader on each for its allgather.
pub(crate) fn native_on_nodes(collective: Collective, shape: Shape, vendor: Vendor) -> Option<Expression> {
    let knows = vendor == Vendor::OpenMpi && collective == Collective::Allgather;
    (knows && shape.nodes > 1 && shape.on_node > 1).then(|| leader(Expression::Bruck(2), 1))
}

/// Algorithms that may be better than the MPI's own.
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
                all.extend(gathers(nodes).into_iter().map(halves));
                all
            }
            Collective::Alltoall => {
                vec![plain(Plain::SpreadOut), plain(Plain::Pairwise), Expression::Bruck(2)]
            }
        };
    }
    let mut near = vec![locality(Lanes::ALL)];
    if nodes > shape.on_node + 1 && collective != Collective::Alltoall {
        near.push(locality(Lanes::Each(PORTS)));
    }
    let pipelines =
        |of: Expression| PARTS.map(|parts| Expression::Pipeline { parts, of: Box::new(of.clone()) });
    match collective {
        Collective::Allgather | Collective::ReduceScatter => {
            near.extend(gathers(nodes).into_iter().map(lanes));
            near.extend([plain(Plain::SpreadOut), Expression::Bruck(2)].map(|between| leader(between, 1)));
            near.extend(pipelines(lanes(plain(Plain::Ring))));
        }
        Collective::Allreduce => {
            let scattered: Vec<Expression> = near.iter().cloned().map(halves).collect();
            near.extend(scattered);
            let short = [plain(Plain::SpreadOut), plain(Plain::RecursiveDoubling)];
            near.extend(short.iter().cloned().map(|between| leader(between, 1)));
            near.extend(short.into_iter().map(lanes));
            near.extend(gathers(nodes).into_iter().map(|of| lanes(halves(of))));
            near.extend(pipelines(lanes(plain(Plain::Ring))));
        }
        Collective::Alltoall => {
            near.push(leader(plain(Plain::SpreadOut), 1));
            if shape.on_node >= 4 {
                near.push(leader(plain(Plain::SpreadOut), 2));
            }
            near.extend([plain(Plain::SpreadOut), plain(Plain::Pairwise)].map(lanes));
            near.extend([plain(Plain::SpreadOut), plain(Plain::Pairwise)]);
        }
    }
    near
}

/// What looks at the parts of nodes, too, where they have several. Sketches know only nodes, so this is only raced.
pub(crate) fn by_levels(collective: Collective, topology: &Topology) -> Option<Expression> {
    let (nodes, parts) = (topology.regions(Level::NODE), topology.regions(Level::SOCKET));
    let several = parts > nodes && topology.ranks() > parts && collective != Collective::Alltoall;
    let parts =
        Expression::Locality { level: Level::SOCKET, inside: Box::new(plain(Plain::Shm)), lanes: Lanes::ALL };
    several.then(|| match nodes {
        1 => parts,
        _ => Expression::Locality { level: Level::NODE, inside: Box::new(parts), lanes: Lanes::ALL },
    })
}

/// The MPI's own functions, put together otherwise than it does: they may win where it breaks its own guidelines, which no model knows, so
/// they are only raced.
pub(crate) fn compositions(collective: Collective) -> &'static [Plain] {
    match collective {
        Collective::Allreduce => &[Plain::NativeRooted, Plain::NativeHalves],
        Collective::Allgather => &[Plain::NativeRooted],
        Collective::ReduceScatter | Collective::Alltoall => &[],
    }
}

/// Whether an algorithm's advantage hangs on what nobody has measured. At first use, messages are measured one at a time, so nothing is known of many
/// messages of a rank together. Where nothing was measured, the same holds for the parts of a pipeline, and where every rank is alone on its node.
pub(crate) fn is_bold(expression: &Expression, shape: Shape, origin: Origin) -> bool {
    const AT_ONCE: u32 = 8;
    let many = |between: &Expression, others: u32| match between {
        Expression::Plain(Plain::SpreadOut) => others > AT_ONCE,
        Expression::Bruck(radix) => *radix > AT_ONCE,
        _ => false,
    };
    let at_once = || match expression {
        Expression::Leader { between, .. } | Expression::MultiLane { between, .. } => {
            many(if let Expression::Halves(of) = &**between { of } else { between }, shape.nodes - 1)
        }
        other => many(other, shape.ranks() - 1),
    };
    let usual = || shape.on_node == 1 || matches!(expression, Expression::Pipeline { .. });
    shape.nodes > 1
        && match origin {
            Origin::Profile => false,
            Origin::ThisRun | Origin::Crowded => at_once(),
            Origin::Nominal => usual() || at_once(),
        }
}

/// The same on one node.
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

    /// As read in their sources: Open MPI 5.0 (`coll/tuned`, `coll/han`) and MPICH 4.
    #[test]
    fn what_mpis_do_by_themselves() {
        let names = |all: &[Expression]| all.iter().map(Expression::to_string).collect::<Vec<_>>();
        let shape = |text: &str| Shape::of(&text.parse().unwrap());
        let does = |collective, text, vendor, bytes| names(&natives(collective, shape(text), vendor, bytes));
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
            let on_nodes = |collective| native_on_nodes(collective, shape(text), vendor);
            names(&Collective::ALL.into_iter().filter_map(on_nodes).collect::<Vec<_>>())
        };
        assert_eq!(leads("4x4", Vendor::OpenMpi), ["leader(node, between=bruck(2))"]);
        for (text, vendor) in [("1x16", Vendor::OpenMpi), ("16x1", Vendor::OpenMpi), ("4x4", Vendor::Mpich)] {
            assert_eq!(leads(text, vendor), [] as [&str; 0]);
        }
    }

    /// Only where nodes have parts; and it can be planned.
    #[test]
    fn parts_of_nodes_count_where_there_are_some() {
        use bruckner_algorithms::{Task, plan};
        let found = |text: &str, collective| {
            let topology: Topology = text.parse().unwrap();
            let found = by_levels(collective, &topology)?;
            let task = Task::new(collective, topology).bytes(4096);
            assert!(plan(&task, &found).is_ok(), "{collective} {found} on {text}");
            Some(found.to_string())
        };
        for collective in [Collective::Allgather, Collective::Allreduce, Collective::ReduceScatter] {
            assert_eq!(found("4+4", collective).as_deref(), Some("locality(socket)"));
            assert_eq!(
                found("2+2,2+2", collective).as_deref(),
                Some("locality(node, inside=locality(socket))")
            );
            assert_eq!(found("4x4", collective), None);
            assert_eq!(found("1+1,1+1", collective), None);
        }
        assert_eq!(found("4+4", Collective::Alltoall), None);
    }

    /// All that may be chosen can be planned and sketched where it is a candidate, and is written as users write it.
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
                for expression in all.into_iter().chain(natives(collective, shape, Vendor::Other, 1 << 20)) {
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

//! Compares messages and blocks of every algorithm with the formulas of the papers.

use bruckner_algorithms::{Task, plan};
use bruckner_schedule::verify::{Traffic, verify};
use bruckner_schedule::{Collective, Counts, End, LocalOp, Message, Rank};

/// Returns the traffic of each rank in a verified schedule of one element per block (for an allreduce, one per rank).
fn traffic(collective: Collective, topology: &str, expression: &str) -> Vec<Traffic> {
    let task = Task::new(collective, topology.parse().unwrap());
    let elements = if collective == Collective::Allreduce { task.topology.ranks().into() } else { 1 };
    let task = task.counts(Counts::Equal(elements));
    let plan = plan(&task, &expression.parse().unwrap()).unwrap_or_else(|e| panic!("{expression}: {e}"));
    let report = verify(&plan.schedule().flatten());
    assert!(report.is_correct(), "{collective} {expression} on {topology}: {}", report.violations[0]);
    report.traffic
}

/// (messages, elements) that every rank sends, which must be the same for all.
fn each(collective: Collective, p: u64, expression: &str) -> (u64, u64) {
    let all = traffic(collective, &format!("{p}x1"), expression);
    let sums = |t: &Traffic| (t.messages.iter().sum::<u64>(), t.elements.iter().sum::<u64>());
    assert!(all.windows(2).all(|w| sums(&w[0]) == sums(&w[1])), "{expression} on {p}: ranks differ");
    sums(&all[0])
}

fn log2(p: u64) -> u64 {
    p.next_power_of_two().trailing_zeros().into()
}

#[test]
fn allgather_and_its_reverse() {
    for collective in [Collective::Allgather, Collective::ReduceScatter] {
        for p in 2..34 {
            assert_eq!(each(collective, p, "ring"), (p - 1, p - 1));
            assert_eq!(each(collective, p, "spread-out"), (p - 1, p - 1));
            assert_eq!(each(collective, p, "pairwise"), (p - 1, p - 1));
            assert_eq!(each(collective, p, "sparbit"), (log2(p), p - 1));
            assert_eq!(each(collective, p, "bruck(2)"), (log2(p), p - 1));
            if p % 2 == 0 {
                assert_eq!(each(collective, p, "neighbor-exchange"), (p / 2, p - 1));
            }
            if p.is_power_of_two() {
                let name = if collective == Collective::Allgather { "doubling" } else { "halving" };
                assert_eq!(each(collective, p, &format!("recursive-{name}")), (log2(p), p - 1));
            }
        }
        // Radix k: k − 1 ports in each of ⌈log_k p⌉ steps, where p is a power of k.
        assert_eq!(each(collective, 27, "bruck(3)"), (6, 26));
        assert_eq!(each(collective, 64, "bruck(4)"), (9, 63));
    }
    assert_eq!(each(Collective::Allgather, 160, "160(10 4 2)"), (10 + 4 + 2, 159));
    assert_eq!(each(Collective::ReduceScatter, 160, "160(-2 -4 -10)"), (16, 159));
}

#[test]
fn allreduce() {
    for p in 2..34 {
        assert_eq!(each(Collective::Allreduce, p, "ring"), (2 * (p - 1), 2 * (p - 1)));
        assert_eq!(each(Collective::Allreduce, p, "sparbit"), (log2(p), p * (p - 1)));
        if p.is_power_of_two() {
            assert_eq!(each(Collective::Allreduce, p, "recursive-doubling"), (log2(p), p * log2(p)));
            assert_eq!(each(Collective::Allreduce, p, "rabenseifner"), (2 * log2(p), 2 * (p - 1)));
        }
    }
}

#[test]
fn alltoall() {
    for p in 2..34 {
        assert_eq!(each(Collective::Alltoall, p, "spread-out"), (p - 1, p - 1));
        assert_eq!(each(Collective::Alltoall, p, "pairwise"), (p - 1, p - 1));
        assert_eq!(each(Collective::Alltoall, p, "bruck(2)"), each(Collective::Alltoall, p, "modified-bruck(2)"));
        if p.is_power_of_two() {
            assert_eq!(each(Collective::Alltoall, p, "bruck(2)"), (log2(p), p / 2 * log2(p)));
        }
    }
}

/// Non-local messages and elements of the busiest rank, and of a whole node.
fn nonlocal(collective: Collective, topology: &str, expression: &str, per_node: usize) -> [u64; 4] {
    let all = traffic(collective, topology, expression);
    let most = |of: &dyn Fn(&Traffic) -> u64| all.iter().map(of).max().unwrap_or(0);
    let node = |of: &dyn Fn(&Traffic) -> u64| {
        all.chunks(per_node).map(|ranks| ranks.iter().map(of).sum::<u64>()).max().unwrap_or(0)
    };
    let (messages, elements) = (|t: &Traffic| t.messages[0], |t: &Traffic| t.elements[0]);
    [most(&messages), most(&elements), node(&messages), node(&elements)]
}

#[test]
fn between_nodes() {
    let of = |collective, expression| nonlocal(collective, "16x4", expression, 4);
    use Collective::{Allgather, Allreduce, Alltoall, ReduceScatter};
    for collective in [Allgather, ReduceScatter] {
        // 16 regions of 4: h grows by a factor of 5 per step, so two steps; the node gets 60 blocks, the lower bound.
        assert_eq!(of(collective, "locality(node)"), [2, 24, 7, 60]);
        // The paper leaves one lane idle: 16 = 4², two steps, and 4 + 16 values sent by the busiest rank. Its Eq. 4 has b/p_ℓ, which would
        // be 16; that holds only if there are as many regions as a region has ranks.
        assert_eq!(of(collective, "locality(node, lanes=paper)"), [2, 20, 6, 60]);
        // One leader runs a ring among 16 nodes with 4 blocks per node; four lanes share the same data.
        assert_eq!(of(collective, "leader(node, between=ring)"), [15, 60, 15, 60]);
        assert_eq!(of(collective, "lanes(node, between=ring)"), [15, 15, 60, 60]);
        assert_eq!(of(collective, "lanes(node, between=bruck(2))"), [4, 15, 16, 60]);
    }
    // The vector has 64 elements. NAP sends it whole, twice; leaders send what their allreduce sends among 16 nodes.
    assert_eq!(of(Allreduce, "locality(node)")[..2], [2, 128]);
    assert_eq!(of(Allreduce, "leader(node, between=recursive-doubling)"), [4, 256, 4, 256]);
    assert_eq!(of(Allreduce, "leader(node, between=ring)"), [30, 120, 30, 120]);
    assert_eq!(of(Allreduce, "lanes(node, between=ring)"), [30, 30, 120, 120]);
    // All 16 blocks from node to node go in one message: at most ⌈15/4⌉ messages per rank instead of 60.
    assert_eq!(of(Alltoall, "locality(node)"), [4, 4 * 16, 15, 240]);
    assert_eq!(of(Alltoall, "spread-out"), [60, 60, 240, 240]);
    assert_eq!(of(Alltoall, "leader(node, between=pairwise)"), [15, 240, 15, 240]);
    assert_eq!(of(Alltoall, "lanes(node, between=pairwise)"), [15, 60, 60, 240]);
    // Radix 2 among 16 nodes: 4 messages of 8 times 16 blocks.
    assert_eq!(of(Alltoall, "leader(node, between=bruck(2))"), [4, 4 * 8 * 16, 4, 4 * 8 * 16]);
}

/// A pipeline of n parts sends n times as many messages and the same data.
#[test]
fn pipelines() {
    for p in 2..20 {
        assert_eq!(each(Collective::Allreduce, p, "pipeline(3, ring)").0, 3 * 2 * (p - 1));
        assert_eq!(each(Collective::Allgather, p, "pipeline(3, bruck(2))"), (3 * log2(p), p - 1));
        assert_eq!(each(Collective::ReduceScatter, p, "pipeline(2, sparbit)"), (2 * log2(p), p - 1));
    }
}

/// Checks allreduces by factorizations (Jocksch et al.). One with a reduce_scatter and an allgather takes ⌈log2 p⌉ steps in each of the two
/// and sends 2(p − 1)/p of the vector. One with an allgather only takes ⌈log2 p⌉ steps. Each of these sends the whole vector if p is a power
/// of two, and at most twice as much otherwise.
#[test]
fn factors_and_ports() {
    let ones = |sign: &str, p: u64| vec![format!("{sign}1"); log2(p) as usize].join(" ");
    for p in 2..34 {
        let whole = format!("{p}({}) {p}({})", ones("-", p), ones("", p));
        assert_eq!(each(Collective::Allreduce, p, &whole), (2 * log2(p), 2 * (p - 1)));
        let (messages, sent) = each(Collective::Allreduce, p, &format!("{p}({})", ones("", p)));
        assert_eq!(messages, log2(p));
        if p.is_power_of_two() {
            assert_eq!(sent, p * log2(p));
        }
        assert!(sent >= p * log2(p) && sent < 2 * p * log2(p));
    }
}

/// Returns the number of cache lines transferred between cores on one node if a line of data lies beside its owner's flag: one for each
/// flag that a rank waits for.
fn lines_that_travel(ranks: u32, expression: &str) -> usize {
    let task = Task::new(Collective::Allreduce, ranks.to_string().parse().unwrap());
    let schedule = plan(&task, &expression.parse().unwrap()).unwrap().schedule();
    let locals = schedule.ranks.values().flatten().flat_map(|round| &round.local);
    locals.filter(|local| matches!(local, LocalOp::Wait { .. })).count()
}

#[test]
fn a_tree_moves_fewer_cache_lines() {
    assert_eq!(lines_that_travel(64, "shm"), 64 * 63);
    // Seven ranks of each group to their leader, the leaders among each other, and back from the leaders.
    assert_eq!(lines_that_travel(64, "shm-tree(8)"), 8 * 7 + 8 * 7 + 8 * 7);
    assert_eq!(lines_that_travel(10, "shm-tree(4)"), 7 + 3 * 2 + 7);
    assert_eq!(lines_that_travel(3, "shm-tree(4)"), 2 + 2);
}

/// Ports times regions exceed 32 bits: every rank still receives every other block once.
#[test]
fn very_many_ports_on_very_many_nodes() {
    for (nodes, ports) in [(65_537u32, 65_535), (70_000, 69_000), (65_538, 1 << 20)] {
        let task = Task::new(Collective::Allgather, format!("{nodes}x1").parse().unwrap());
        let expression = format!("locality(node, ports={ports})").parse().unwrap();
        let plan = plan(&task, &expression).unwrap();
        let rounds = plan.rounds(Rank(0));
        let received = rounds.iter().flat_map(|round| &round.messages).filter(|m| m.end == End::Recv);
        assert_eq!(received.map(Message::len).sum::<u64>(), u64::from(nodes) - 1, "{nodes} nodes, {ports} ports");
    }
}

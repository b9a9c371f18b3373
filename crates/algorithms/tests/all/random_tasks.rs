//! Random uneven topologies, ragged counts and parameters, by every algorithm: each plan is verified, lowered both ways, verified again,
//! and run on data. A failing case is shrunk before it is printed.

use bruckner_algorithms::lower::{OnNode, lower};
use bruckner_algorithms::{Expression, Task, plan};
use bruckner_schedule::verify::verify;
use bruckner_schedule::{Collective, Counts, Rank, Topology, interpret};
use proptest::prelude::*;

/// Nodes of one to five ranks, with or without sockets, in any placement.
fn topology() -> impl Strategy<Value = Topology> {
    let node = prop_oneof![
        3 => (1u32..6).prop_map(|ranks| ranks.to_string()),
        1 => (1u32..4, 1u32..4).prop_map(|(a, b)| format!("{a}+{b}")),
    ];
    let placement =
        prop_oneof![Just(String::new()), Just(":cyclic".into()), (0u32..99).prop_map(|s| format!(":permuted={s}"))];
    (prop::collection::vec(node, 1..6), placement)
        .prop_map(|(nodes, placement)| format!("{}{placement}", nodes.join(",")).parse().expect("a topology"))
}

fn counts() -> impl Strategy<Value = Kind> {
    prop_oneof![
        (0u64..4).prop_map(Kind::Equal),
        prop::collection::vec(0u64..5, 30).prop_map(Kind::Listed),
        (0u32..30, 0u64..4).prop_map(|(root, count)| Kind::Root(root, count)),
        Just(Kind::Local),
    ]
}

/// Counts before the number of ranks is known.
#[derive(Clone, Debug)]
enum Kind {
    Equal(u64),
    Listed(Vec<u64>),
    Root(u32, u64),
    Local,
}

impl Kind {
    /// Returns counts of this kind, or others if the collective does not have this kind.
    fn counts(&self, collective: Collective, p: u32) -> Counts {
        match (self, collective) {
            (Kind::Local, Collective::Alltoall) => Counts::Local,
            (Kind::Listed(counts), Collective::Allgather | Collective::ReduceScatter) => {
                Counts::Listed(counts.iter().copied().cycle().take(p as usize).collect())
            }
            (Kind::Root(root, count), Collective::Allgather | Collective::ReduceScatter) => {
                Counts::Root { root: Rank(root % p), count: *count }
            }
            (Kind::Equal(n), _) => Counts::Equal(*n),
            (Kind::Listed(counts), _) => Counts::Equal(counts[0]),
            _ => Counts::Equal(1),
        }
    }
}

/// Patterns, with R in place of a radix.
const PATTERNS: [&str; 7] =
    ["ring", "neighbor-exchange", "recursive-doubling", "bruck(R)", "sparbit", "spread-out", "reorder(bruck(R))"];

fn expression() -> impl Strategy<Value = String> {
    let pattern =
        || (prop::sample::select(&PATTERNS[..]), 2u32..7).prop_map(|(text, r)| text.replace('R', &r.to_string()));
    let plain =
        prop::sample::select(&["shm", "rabenseifner", "recursive-halving", "pairwise"][..]).prop_map(str::to_owned);
    let level = || prop::sample::select(&["node", "socket"][..]);
    let lanes = || prop::sample::select(&["all", "paper"][..]);
    let inside = prop_oneof![
        Just("shm".to_owned()),
        Just("bruck(2)".into()),
        Just("spread-out".into()),
        Just("pairwise".into()),
        Just("locality(socket)".into())
    ];
    let one = prop_oneof![
        2 => pattern(),
        1 => plain,
        1 => (2u32..7).prop_map(|r| format!("modified-bruck({r})")),
        2 => (level(), inside, lanes()).prop_map(|(l, i, n)| format!("locality({l}, inside={i}, lanes={n})")),
        2 => (level(), pattern(), 1u32..4).prop_map(|(l, b, n)| format!("leader({l}, between={b}, leaders={n})")),
        1 => (level(), pattern()).prop_map(|(l, b)| format!("lanes({l}, between={b})")),
        1 => (level(), prop::sample::select(&["pairwise", "bruck(2)", "bruck(3)"][..])).prop_map(|(l, b)| format!("lanes({l}, between={b})")),
    ];
    (one, 1u32..4, 0u32..4)
        .prop_map(|(one, parts, how)| if how == 0 { format!("pipeline({parts}, {one})") } else { one })
}

/// Checks a task by an expression: `Ok(false)` if the algorithm cannot handle the task, `Err` with the reason if it is wrong.
fn judge(task: &Task, expression: &Expression, seed: u64) -> Result<bool, String> {
    let Ok(plan) = plan(task, expression) else { return Ok(false) };
    let schedule = plan.schedule();
    for (form, program) in [
        ("schedule", schedule.flatten()),
        ("program", lower(&schedule, OnNode::Segment)),
        ("program on messages", lower(&schedule, OnNode::Messages)),
    ] {
        let report = verify(&program);
        if let Some(violation) = report.violations.first() {
            return Err(format!("{form}: {violation}"));
        }
        let mut claiming = program;
        claiming.claims.consistent = report.consistent && task.collective.reduces();
        claiming.claims.ordered = report.ordered && task.collective.reduces();
        interpret::check(&[&claiming, &claiming], seed).map_err(|failure| format!("{form}: {failure}"))?;
    }
    Ok(true)
}

#[test]
fn random_tasks_are_right() {
    let cases = 2500;
    let fitting = std::cell::Cell::new(0u32);
    let config =
        ProptestConfig { cases, failure_persistence: None, max_global_rejects: 100_000, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let collective = prop::sample::select(&Collective::ALL[..]);
    let tasks = (collective, topology(), counts(), expression(), any::<u64>());
    let result = runner.run(&tasks, |(collective, topology, kind, text, seed)| {
        let counts = kind.counts(collective, topology.ranks());
        let task = Task::new(collective, topology).counts(counts);
        let expression: Expression = text.parse().expect("an expression");
        match judge(&task, &expression, seed) {
            Ok(true) => {
                fitting.set(fitting.get() + 1);
                Ok(())
            }
            Ok(false) => Err(TestCaseError::reject("does not fit")),
            Err(reason) => Err(TestCaseError::fail(format!(
                "bruckner verify {} --topology {} --algorithm '{expression}', counts {}: {reason}",
                task.collective, task.topology, task.counts
            ))),
        }
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert!(fitting.get() >= cases);
}

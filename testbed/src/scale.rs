//! `cargo testbed scale`: the table and the figure of docs/theory/scale.md: what one rank plans, stores and sends as the number of ranks grows.

use anyhow::{Context as _, Result, ensure};
use bruckner_algorithms::lower::{LineMemory, OnNode};
use bruckner_algorithms::planning_work::{MAX_RUNS, planning_work};
use bruckner_algorithms::{Expression, Task, plan};
use bruckner_render::{Chart, Figure, Point, Scale, Series};
use bruckner_runtime::readback::bound_actions;
use bruckner_runtime::{Limits, Target, compile};
use bruckner_schedule::Collective::{self, Allgather, Allreduce, Alltoall, ReduceScatter};
use bruckner_schedule::{Counts, End, Level, Problem, Rank, Topology};

use crate::mpis::root;

/// The algorithms of the table: node-aware ones, and others beside them.
const ALGORITHMS: [(Collective, &str); 6] = [
    (Allreduce, "locality(node)"),
    (Allreduce, "recursive-doubling"),
    (Allgather, "locality(node)"),
    (Allgather, "sparbit"),
    (ReduceScatter, "locality(node)"),
    (Alltoall, "bruck(2)"),
];

/// Numbers of nodes, each with [`PER_NODE`] ranks.
const NODES: [u32; 6] = [64, 256, 1024, 4096, 16_384, 65_536];
const PER_NODE: u32 = 16;

/// Work of one rank for a collective with 8 bytes.
struct Row {
    nodes: u32,
    rounds: usize,
    messages: usize,
    bytes: u64,
    /// Actions of the plan and bytes of temporary memory; `None` if planning would exceed its limit.
    plan: Option<(usize, usize)>,
}

impl Row {
    fn of(collective: Collective, expression: &Expression, nodes: u32) -> Result<Row> {
        let topology: Topology = format!("{nodes}x{PER_NODE}").parse()?;
        let task = Task::new(collective, topology);
        let plan = plan(&task, expression)?;
        let rank = Rank(task.topology.ranks() / 2 + 5);
        let limited = planning_work(collective, expression, &task.topology) > MAX_RUNS;
        let rounds = if limited { Vec::new() } else { plan.rounds(rank) };
        let sent = rounds.iter().flat_map(|round| &round.messages).filter(|message| {
            message.end == End::Send && task.topology.outermost_difference(rank, message.peer) == Some(Level::NODE)
        });
        let elements = |places: &[bruckner_schedule::Place]| -> u64 {
            places.iter().filter_map(|place| plan.problem.elements_of(&place.set)).sum()
        };
        let (messages, elements) =
            sent.fold((0, 0), |(count, sum), message| (count + 1, sum + elements(&message.places)));
        let with_messages = rounds.iter().filter(|round| !round.messages.is_empty()).count();
        let element = u64::from(plan.problem.element);
        let stored = if limited {
            None
        } else {
            let plan = plan.for_every_size();
            let code = plan.code(rank, expression, OnNode::Segment, LineMemory::Shared).context("no code")?;
            let target = Target { topology: &task.topology, even: true, orders_memory: true };
            let compiled = compile(&plan.problem, rank, &code, &target)?;
            let problem = Problem { counts: Counts::Equal(plan.problem.pieces), ..plan.problem };
            let actions = bound_actions(&compiled, &problem, &Limits::MEASURED).len();
            Some((actions, compiled.extent.needs(true, &problem, &Limits::MEASURED).temporary))
        };
        Ok(Row { nodes, rounds: with_messages, messages, bytes: elements * element, plan: stored })
    }

    fn text(&self) -> String {
        let ranks = self.nodes * PER_NODE;
        match self.plan {
            Some((actions, temporary)) => format!(
                "{:<34} {ranks:>8} {:>7} {:>9} {:>9} {actions:>8} {temporary:>10}",
                "", self.rounds, self.messages, self.bytes
            ),
            None => format!("{:<34} {ranks:>8}  no candidate: planning would exceed its limit", ""),
        }
    }
}

/// Prints the table and writes the figure. With `check`, compares both with the files instead.
pub(crate) fn run(check: bool) -> Result<()> {
    let mut text = format!(
        "{:<34} {:>8} {:>7} {:>9} {:>9} {:>8} {:>10}\n",
        "one rank, 16 ranks per node", "ranks", "rounds", "messages", "bytes", "actions", "temporary"
    );
    let mut series = Vec::new();
    for (collective, algorithm) in ALGORITHMS {
        let expression: Expression = algorithm.parse()?;
        text += &format!("{collective} {algorithm}\n");
        let mut points = Vec::new();
        for (at, nodes) in NODES.into_iter().enumerate() {
            let row = Row::of(collective, &expression, nodes)?;
            text += &format!("{}\n", row.text());
            if let Some((actions, _)) = row.plan {
                let y = actions as f64;
                points.push(Point { x: at as f64, y, low: y, high: y });
            }
        }
        series.push(Series { name: format!("{collective} {algorithm}"), points });
    }
    let chart = Chart {
        title: "actions of one rank's plan".into(),
        categories: NODES.iter().map(|nodes| format!("2^{}", (nodes * PER_NODE).ilog2())).collect(),
        x: "ranks".into(),
        y: "actions".into(),
        scale: Scale::Count,
        series,
        marks: Vec::new(),
        vertical_lines: Vec::new(),
    };
    let figure = Figure { title: "Plans of one rank, 16 ranks per node".into(), charts: vec![chart] }.svg()?;
    let (page, picture) = (root().join("docs/theory/scale.md"), root().join("docs/theory/scale.svg"));
    if !check {
        print!("{text}");
        std::fs::write(picture, figure)?;
        return Ok(());
    }
    ensure!(std::fs::read_to_string(page)?.contains(&text), "docs/theory/scale.md has another table than:\n{text}");
    ensure!(std::fs::read_to_string(picture)? == figure, "docs/theory/scale.svg is another figure");
    println!("docs/theory/scale.md and its figure are up to date");
    Ok(())
}

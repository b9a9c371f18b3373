//! `bruckner explain … --algorithm all`: every algorithm for a collective, what it sends between nodes beside the least
//! that is possible, and its properties.

use std::fmt::Write;

use anyhow::Result;
use bruckner_algorithms::catalogue::kinds;
use bruckner_algorithms::properties::{Placement, properties};
use bruckner_algorithms::{Expression, Plan, Task, plan};
use bruckner_schedule::bound::{Party, bound};
use bruckner_schedule::{Counts, End, Level, Payload, Rank, Round, Topology};

use crate::table::{apart, elements};

/// Above so many ranks only those of three nodes are looked at.
const MANY: u32 = 2048;

/// The nodes that are looked at.
fn nodes(topology: &Topology) -> Vec<u32> {
    let nodes = topology.regions(Level::NODE);
    let mut looked_at =
        if topology.ranks() > MANY { vec![0, nodes / 2, nodes - 1] } else { (0..nodes).collect() };
    looked_at.dedup();
    looked_at
}

/// Messages and elements between nodes: sent or received, whichever is more.
#[derive(Clone, Copy, Default)]
struct Traffic {
    messages: [u64; 2],
    elements: [u64; 2],
}

impl Traffic {
    fn of(plan: &Plan, rank: Rank, rounds: &[Round]) -> Traffic {
        let mut traffic = Traffic::default();
        for message in rounds.iter().flat_map(|round| &round.messages) {
            if apart(&plan.topology, rank, message.peer) == 0 && message.payload == Payload::Data {
                let end = usize::from(message.end == End::Recv);
                traffic.messages[end] += 1;
                traffic.elements[end] += elements(plan, message).unwrap_or(0);
            }
        }
        traffic
    }

    fn add(&mut self, other: Traffic) {
        for end in [0, 1] {
            self.messages[end] += other.messages[end];
            self.elements[end] += other.elements[end];
        }
    }

    fn most(&mut self, other: Traffic) {
        let larger = |a: [u64; 2], b: [u64; 2]| if b.iter().max() > a.iter().max() { b } else { a };
        self.messages = larger(self.messages, other.messages);
        self.elements = larger(self.elements, other.elements);
    }
}

/// One line: rounds of the busiest rank, messages and bytes of the busiest rank and node, properties.
fn line(task: &Task, expression: &Expression) -> Result<String> {
    let plan = plan(task, expression)?;
    let topology = &plan.topology;
    let (mut rounds, mut rank, mut node) = (0, Traffic::default(), Traffic::default());
    for number in nodes(topology) {
        let mut sum = Traffic::default();
        for member in topology.span(Level::NODE, number).map(|at| topology.rank_at(at)) {
            let schedule = plan.rounds(member);
            rounds = rounds.max(schedule.iter().filter(|round| !round.messages.is_empty()).count());
            let traffic = Traffic::of(&plan, member, &schedule);
            rank.most(traffic);
            sum.add(traffic);
        }
        node.most(sum);
    }
    let most = |both: [u64; 2]| both[0].max(both[1]);
    let bytes = |both: [u64; 2]| match task.counts {
        Counts::Local => "later".to_owned(),
        _ => (most(both) * u64::from(task.element)).to_string(),
    };
    let said = properties(task.collective, expression, Placement::of(topology), topology.ranks());
    let yes = |so| match (task.collective.reduces(), so) {
        (false, _) => "",
        (_, true) => "yes",
        (_, false) => "no",
    };
    Ok(format!(
        "{:<42} {rounds:>6} {:>9} {:>9} {:>12} {:>12}  {:<10} {}",
        expression.to_string(),
        most(rank.messages),
        most(node.messages),
        bytes(rank.elements),
        bytes(node.elements),
        yes(said.consistent),
        yes(said.ordered)
    ))
}

/// The table.
pub(crate) fn overview(task: &Task) -> Result<String> {
    let topology = &task.topology;
    let kinds = kinds(task.collective, topology);
    let problem = plan(task, &kinds[0])?.problem;
    let least = bound(&problem, topology, Party::Node, 1);
    let element = u64::from(task.element);
    let mut text = String::new();
    writeln!(
        text,
        "{}, counts {} of {element} bytes, on {topology}: between nodes\n",
        task.collective, task.counts
    )?;
    writeln!(text, "{:<42} {:>6} {:>9} {:>9} {:>12} {:>12}", "", "", "messages", "", "bytes", "")?;
    writeln!(
        text,
        "{:<42} {:>6} {:>9} {:>9} {:>12} {:>12}  consistent ordered",
        "algorithm", "rounds", "rank", "node", "rank", "node"
    )?;
    writeln!(
        text,
        "{:<42} {:>6} {:>9} {:>9} {:>12} {:>12}",
        "at least",
        least.rounds,
        least.messages_of_rank(),
        least.messages,
        least.elements_of_rank().unwrap_or(0) * element,
        least.elements.unwrap_or(0) * element
    )?;
    for expression in &kinds {
        // What does not fit the task says why.
        match line(task, expression) {
            Ok(line) => writeln!(text, "{line}")?,
            Err(refusal) => writeln!(text, "{:<42} {refusal}", expression.to_string())?,
        }
    }
    if topology.ranks() > MANY {
        writeln!(text, "\nThe first, a middle and the last node were looked at.")?;
    }
    Ok(text.lines().map(|line| line.trim_end().to_owned() + "\n").collect())
}

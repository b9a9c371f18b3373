//! `bruckner explain … --algorithm all`: table of every algorithm for a collective, with its traffic between nodes, the lower bounds, and
//! its properties.

use anyhow::Result;
use bruckner_algorithms::catalogue::kinds;
use bruckner_algorithms::properties::{RankPlacement, properties};
use bruckner_algorithms::{Expression, Task, TaskPlan, plan};
use bruckner_schedule::bound::{Unit, bound};
use bruckner_schedule::{Counts, End, Level, Payload, Rank, Round, Topology};
use serde_json::{Value, json};

use crate::columns::{self, numbers, words};
use crate::table::{apart, elements};

/// Above this number of ranks, only the ranks of three nodes are planned.
const MANY: u32 = 2048;

/// Returns the nodes whose ranks are planned: all, or the first, a middle and the last one of a large topology.
fn nodes(topology: &Topology) -> Vec<u32> {
    let nodes = topology.regions(Level::NODE);
    let mut looked_at = if topology.ranks() > MANY { vec![0, nodes / 2, nodes - 1] } else { (0..nodes).collect() };
    looked_at.dedup();
    looked_at
}

/// Messages and elements between nodes, as `[sent, received]`.
#[derive(Clone, Copy, Default)]
struct Traffic {
    messages: [u64; 2],
    elements: [u64; 2],
}

impl Traffic {
    fn of(plan: &TaskPlan, rank: Rank, rounds: &[Round]) -> Traffic {
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

/// Row of the table: rounds of the busiest rank, messages and bytes between nodes as `[of the busiest rank, of the busiest node]`, and
/// properties.
struct Line {
    rounds: u64,
    messages: [u64; 2],
    /// Bytes between nodes; `None` if each rank knows only its own sizes (alltoallv).
    bytes: Option<[u64; 2]>,
    /// For reductions: whether all ranks get the same bits, and whether operands are combined in rank order.
    properties: Option<[bool; 2]>,
}

impl Line {
    fn of(task: &Task, expression: &Expression) -> Result<Line> {
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
        let bytes = |both: [u64; 2]| most(both) * u64::from(task.element);
        let said = properties(task.collective, expression, RankPlacement::of(topology), topology.ranks());
        Ok(Line {
            rounds: rounds as u64,
            messages: [most(rank.messages), most(node.messages)],
            bytes: (task.counts != Counts::Local).then(|| [bytes(rank.elements), bytes(node.elements)]),
            properties: task.collective.reduces().then_some([said.consistent, said.ordered]),
        })
    }

    /// Returns the lower bounds of the task. `any` is an arbitrary algorithm that fits, used to build the problem.
    fn least(task: &Task, any: &Expression) -> Result<Line> {
        let problem = plan(task, any)?.problem;
        let least = bound(&problem, &task.topology, Unit::Node, 1);
        let bytes = |elements: Option<u64>| elements.unwrap_or(0) * u64::from(task.element);
        Ok(Line {
            rounds: least.rounds.into(),
            messages: [least.messages_of_rank(), least.messages],
            bytes: Some([bytes(least.elements_of_rank()), bytes(least.elements)]),
            properties: None,
        })
    }

    fn cells(&self) -> [String; 7] {
        let [rank, node] = self.messages.map(|messages| messages.to_string());
        let bytes = |of: usize| self.bytes.map_or("unknown".to_owned(), |bytes| bytes[of].to_string());
        let yes = |of: usize| match self.properties {
            None => String::new(),
            Some(both) => if both[of] { "yes" } else { "no" }.to_owned(),
        };
        [self.rounds.to_string(), rank, node, bytes(0), bytes(1), yes(0), yes(1)]
    }

    fn json(&self) -> Value {
        let both = |of: Option<[u64; 2]>| of.map(|[rank, node]| json!({ "rank": rank, "node": node }));
        json!({
            "rounds": self.rounds,
            "messages_between_nodes": both(Some(self.messages)),
            "bytes_between_nodes": both(self.bytes),
            "consistent": self.properties.map(|both| both[0]),
            "ordered": self.properties.map(|both| both[1]),
        })
    }
}

/// Table of all algorithms of a task. An algorithm that does not fit the task has an error instead of a row.
pub(crate) struct Overview {
    task: Task,
    least: Line,
    all: Vec<(Expression, Result<Line>)>,
}

impl Overview {
    pub(crate) fn of(task: &Task) -> Result<Overview> {
        let kinds = kinds(task.collective, &task.topology);
        let least = Line::least(task, &kinds[0])?;
        let of = |expression: Expression| {
            let line = Line::of(task, &expression);
            (expression, line)
        };
        Ok(Overview { task: task.clone(), least, all: kinds.into_iter().map(of).collect() })
    }

    pub(crate) fn table(&self) -> String {
        let Task { collective, counts, element, topology, .. } = &self.task;
        let sizes = format!("counts {counts}, elements of {element} bytes");
        let mut text = format!("{collective} on {topology}, {sizes}; messages and bytes between nodes:\n\n");
        let mut head = vec![words("\nalgorithm"), numbers("\nrounds")];
        head.extend(["messages\nof a rank", "\nof a node", "bytes\nof a rank", "\nof a node"].map(numbers));
        head.extend(["\nconsistent", "\nordered", "\n"].map(words));
        let row = |name: &str, cells: [String; 7], why: String| {
            [name.to_owned()].into_iter().chain(cells).chain([why]).collect::<Vec<_>>()
        };
        let mut rows = vec![row("lower bound", self.least.cells(), String::new())];
        for (expression, line) in &self.all {
            let name = expression.to_string();
            rows.push(match line {
                Ok(line) => row(&name, line.cells(), String::new()),
                Err(why) => row(&name, Default::default(), why.to_string()),
            });
        }
        text += &columns::table(&head, &rows);
        if topology.ranks() > MANY {
            text += "\nOnly the ranks of the first, a middle and the last node were planned.\n";
        }
        text
    }

    pub(crate) fn json(&self) -> String {
        let Task { collective, counts, element, topology, .. } = &self.task;
        let of = |(expression, line): &(Expression, Result<Line>)| {
            let mut said = match line {
                Ok(line) => line.json(),
                Err(why) => json!({ "refused": why.to_string() }),
            };
            said["algorithm"] = expression.to_string().into();
            said
        };
        let document = json!({
            "collective": collective.to_string(),
            "counts": counts.to_string(),
            "element": element,
            "topology": topology.to_string(),
            "at_least": self.least.json(),
            "algorithms": self.all.iter().map(of).collect::<Vec<_>>(),
        });
        format!("{document:#}\n")
    }
}

//! Sketches: cost formulas of algorithms, evaluated without planning. A sketch describes the work of the rank that has the most to do. It
//! depends only on the algorithm's expression, the shape of the communicator (nodes, and ranks on each) and the message size. Like an
//! algorithm, it has parts: messages among members of a group (`among`), and the work of the ranks of a node before and after (`regional`,
//! `on_node`).
//!
//! Evaluating a sketch takes a microsecond and making a plan takes milliseconds, so all algorithms can be ranked for all sizes before any
//! is planned. A test compares sketches with simulations of the plans.
//!
//! ```
//! use bruckner_model::{Machine, Shape, Sketch};
//! use bruckner_schedule::Collective;
//! let shape = Shape::of(&"10000x128".parse().unwrap());
//! let lassen = Machine::builtin("lassen").unwrap();
//! let time = |algorithm: &str| {
//!     let expression = algorithm.parse().unwrap();
//!     Sketch::of(Collective::Allreduce, &expression, shape, 8).unwrap().on(&lassen)
//! };
//! assert!(time("locality(node)") < time("recursive-doubling"));
//! ```

mod among;
mod on_node;
mod regional;

use bruckner_algorithms::Expression;
use bruckner_schedule::{Collective, Level, Topology};

use crate::machine::Machine;
use crate::steps::{LinkClass, LocalWork};

/// Shape of a communicator: the numbers that costs depend on. Nodes of different sizes count as if all were as large as the largest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// Number of nodes.
    pub nodes: u32,
    /// Number of ranks on each node.
    pub on_node: u32,
    /// Whether the ranks of each node are consecutive.
    pub in_order: bool,
}

impl Shape {
    /// Returns the shape of `topology`.
    pub fn of(topology: &Topology) -> Shape {
        Shape {
            nodes: topology.regions(Level::NODE),
            on_node: topology.largest(Level::NODE),
            in_order: topology.is_in_rank_order(),
        }
    }

    /// Returns the number of ranks on all nodes.
    pub fn ranks(self) -> u32 {
        self.nodes.saturating_mul(self.on_node)
    }
}

impl std::fmt::Display for Shape {
    /// Writes the shape as a topology, such as `4x16` or `4x16:cyclic`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}{}", self.nodes, self.on_node, if self.in_order { "" } else { ":cyclic" })
    }
}

/// One stage of an algorithm: local work and concurrent messages, which a rank repeats `times` times. Numbers of bytes and messages may be
/// fractions.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Stage {
    times: f64,
    /// Number of ranks of a node that send at the same time.
    senders: u32,
    reach: LinkClass,
    /// Number of messages that the rank sends at once; it receives as many.
    messages: f64,
    /// Size of each message in bytes.
    bytes: f64,
    /// Size in bytes of a message that another rank of the node sends to another node during the stage; 0 if there is none. The stage lasts at
    /// least as long as the transfer of this message.
    beside: f64,
    work: Bytes,
    meetings: f64,
    waits: f64,
}

/// Local work as in [`LocalWork`], but with fractional numbers.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Bytes {
    copied: f64,
    shared: f64,
    read: f64,
    asked: f64,
    reduced: f64,
}

const NOTHING: Stage = Stage {
    times: 1.0,
    senders: 1,
    reach: LinkClass::Network,
    messages: 0.0,
    bytes: 0.0,
    beside: 0.0,
    work: Bytes { copied: 0.0, shared: 0.0, read: 0.0, asked: 0.0, reduced: 0.0 },
    meetings: 0.0,
    waits: 0.0,
};

impl Stage {
    fn copies(bytes: f64) -> Stage {
        Stage { work: Bytes { copied: bytes, ..NOTHING.work }, ..NOTHING }
    }

    fn shares(bytes: f64) -> Stage {
        Stage { work: Bytes { shared: bytes, ..NOTHING.work }, ..NOTHING }
    }

    fn reduces(bytes: f64) -> Stage {
        Stage { work: Bytes { reduced: bytes, ..NOTHING.work }, ..NOTHING }
    }

    /// Makes a stage that reads another rank's memory by a system call.
    fn reads(bytes: f64) -> Stage {
        Stage { work: Bytes { read: bytes, asked: 1.0, ..NOTHING.work }, ..NOTHING }
    }

    fn meets() -> Stage {
        Stage { meetings: 1.0, ..NOTHING }
    }

    fn waits() -> Stage {
        Stage { waits: 1.0, ..NOTHING }
    }

    fn times(self, times: f64) -> Stage {
        Stage { times, ..self }
    }

    /// Returns two times of the stage on a machine, in seconds: the time of its local work, and the time of its messages.
    fn on(&self, machine: &Machine, on_node: u32) -> [f64; 2] {
        let costs = &machine.rank;
        let mut wire = 0.0;
        if self.messages > 0.0 {
            let bytes = self.bytes as u64;
            let protocol = machine.link(self.reach).protocol(bytes);
            let mut share = 0.0;
            if self.reach == LinkClass::Network {
                let node = f64::from(self.senders) / machine.node_rate(bytes);
                share = self.bytes * node.max(1.0 / machine.rank_rate(bytes));
            }
            let started = (self.messages - 1.0) * machine.gap(self.reach);
            let longest = started + self.bytes * protocol.per_byte;
            wire = protocol.latency + longest.max(self.messages * share) + 4.0 * costs.overhead * self.messages;
        }
        if self.beside > 0.0 {
            let bytes = self.beside as u64;
            wire = wire.max(self.beside / machine.node_rate(bytes).min(machine.rank_rate(bytes)));
        }
        let whole = |part: f64| part as u64;
        let Bytes { copied, shared, read, asked, reduced } = self.work;
        let work = machine.work(&LocalWork {
            copied_bytes: whole(copied),
            segment_bytes: whole(shared),
            read_bytes: whole(read),
            syscalls: asked as u32,
            reduced_bytes: whole(reduced),
        });
        let meetings = if self.meetings > 0.0 { self.meetings * machine.barrier(on_node) } else { 0.0 };
        [self.times * (work + meetings + self.waits * machine.flag()), self.times * wire]
    }
}

/// Cost formula of an algorithm: the stages of the rank that has the most to do.
#[derive(Clone, PartialEq, Debug)]
pub struct Sketch {
    stages: Vec<Stage>,
    on_node: u32,
    /// Number of equal parts into which a pipeline divides the data; 1 without a pipeline. `stages` are the stages of one part.
    parts: u32,
}

impl Sketch {
    /// Makes the sketch (cost formula) of an algorithm, if its formula is known. `bytes` is what each rank sends in an allgather, what it
    /// receives in a reduce_scatter, what it sends to one other rank in an alltoall, and the whole vector in an allreduce.
    pub fn of(collective: Collective, expression: &Expression, shape: Shape, bytes: u64) -> Option<Sketch> {
        let (parts, of) = match expression {
            Expression::Pipeline { parts, of } => ((*parts).max(1), &**of),
            other => (1, other),
        };
        let part = bytes as f64 / f64::from(parts);
        Some(Sketch { stages: stages(collective, of, shape, part)?, on_node: shape.on_node, parts })
    }

    /// Returns the predicted time on a machine, in seconds.
    pub fn on(&self, machine: &Machine) -> f64 {
        let [work, wire] = self.stages.iter().fold([0.0; 2], |[work, wire], stage| {
            let [more_work, more_wire] = stage.on(machine, self.on_node);
            [work + more_work, wire + more_wire]
        });
        // While the messages of one part are in transfer, ranks do the local work of another part.
        work + wire + f64::from(self.parts - 1) * work.max(wire)
    }
}

fn stages(collective: Collective, expression: &Expression, shape: Shape, bytes: f64) -> Option<Vec<Stage>> {
    match expression {
        // A reduce_scatter of pieces of the vector, then an allgather of the reduced pieces.
        Expression::ReduceScatterAllgather(of) if collective == Collective::Allreduce && of.groups_regions() => {
            let piece = bytes / f64::from(shape.ranks());
            let mut scatter = stages(Collective::ReduceScatter, of, shape, piece)?;
            scatter.extend(stages(Collective::Allgather, of, shape, piece)?);
            Some(scatter)
        }
        _ if shape.nodes == 1
            && let Some(stages) = on_node::stages(collective, expression, shape.on_node, bytes) =>
        {
            Some(stages)
        }
        Expression::Locality { .. } | Expression::Leader { .. } | Expression::MultiLane { .. } => {
            regional::stages(collective, expression, shape, bytes)
        }
        _ => {
            let members = among::Members { count: shape.ranks(), at: among::At::Ranks(shape) };
            let around = among::input_copies(collective, members.count, bytes);
            let messages = members.stages(collective, expression, bytes)?;
            Some([vec![around], messages].concat())
        }
    }
}

#[cfg(test)]
mod tests {
    use bruckner_algorithms::{Task, plan};

    use super::*;
    use crate::simulation::Simulation;

    /// Times by the cost formulas (sketches) of the algorithms that may be selected are close to simulations of their plans.
    #[test]
    fn sketches_are_near_what_plans_take() {
        let machines = ["emulated-cluster", "lassen", "gigabit-ethernet"].map(|name| Machine::builtin(name).unwrap());
        let gathers: &[&str] = &[
            "bruck(2)",
            "bruck(4)",
            "ring",
            "neighbor-exchange",
            "recursive-doubling",
            "recursive-halving",
            "sparbit",
            "pairwise",
            "spread-out",
            "locality(node)",
            "locality(node, ports=4)",
            "leader(node, between=bruck(2))",
            "leader(node, between=spread-out)",
            "lanes(node, between=bruck(2))",
            "lanes(node, between=spread-out)",
            "lanes(node, between=ring)",
            "shm",
            "direct",
        ];
        let cases: [(Collective, &[&str]); 4] = [
            (Collective::Allgather, gathers),
            (Collective::ReduceScatter, gathers),
            (
                Collective::Allreduce,
                &[
                    "recursive-doubling",
                    "rabenseifner",
                    "rsag(recursive-doubling)",
                    "ring",
                    "locality(node)",
                    "locality(node, ports=4)",
                    "leader(node, between=spread-out)",
                    "leader(node, between=recursive-doubling)",
                    "lanes(node, between=spread-out)",
                    "lanes(node, between=recursive-doubling)",
                    "lanes(node, between=ring)",
                    "lanes(node, between=rsag(spread-out))",
                    "rsag(locality(node))",
                    "rsag(locality(node, ports=4))",
                    "shm",
                    "shm-split",
                    "shm-rotate",
                    "shm-tree(4)",
                    "direct",
                ],
            ),
            (
                Collective::Alltoall,
                &[
                    "spread-out",
                    "spread-out(window=4)",
                    "pairwise",
                    "bruck(2)",
                    "modified-bruck(2)",
                    "locality(node)",
                    "leader(node, between=spread-out)",
                    "leader(node, between=spread-out, leaders=2)",
                    "lanes(node, between=pairwise)",
                    "direct",
                ],
            ),
        ];
        let mut errors = Vec::new();
        for (collective, algorithms) in cases {
            for text in ["4x4", "8x2", "2x8", "16x4", "1x8", "32x1"] {
                let topology: Topology = text.parse().unwrap();
                for (algorithm, bytes) in algorithms.iter().flat_map(|a| [8, 4096, 262_144].map(|n| (*a, n))) {
                    let expression = algorithm.parse().unwrap();
                    let task = Task::new(collective, topology.clone()).bytes(bytes);
                    let Ok(plan) = plan(&task, &expression) else { continue };
                    // With one rank on each node, node-aware algorithms have no work within a node.
                    if text == "32x1" && algorithm.contains("node") {
                        continue;
                    }
                    let Some(sketch) = Sketch::of(collective, &expression, Shape::of(&topology), bytes) else {
                        continue;
                    };
                    let played = Simulation::of(&plan).unwrap();
                    for machine in &machines {
                        let expected = played.run(machine).unwrap().last();
                        let error = (sketch.on(machine) / expected).ln();
                        errors.push(error.abs());
                    }
                }
            }
        }
        errors.sort_by(f64::total_cmp);
        let at = |part: f64| errors[(errors.len() as f64 * part) as usize].exp() - 1.0;
        let found = [0.5, 0.9, 0.99].map(at);
        assert!(errors.len() > 2000 && found[0] < 0.02 && found[1] < 0.2 && found[2] < 0.8, "{found:?}");
    }
}

//! What an algorithm costs by formula, without planning anything: what the busiest rank does, from the expression, the shape of the
//! communicator and the size. Algorithms are composed here as they are in plans: messages among members (`among`), and what ranks of a
//! node do before and after (`regional`, `on_node`).
//!
//! A sketch takes a microsecond where a plan takes milliseconds, so that all algorithms can be ranked for all sizes before any
//! is planned. A test holds sketches to the simulation of the plans.
//!
//! ```
//! use bruckner_model::{Machine, Shape, Sketch};
//! use bruckner_schedule::Collective;
//! let shape = Shape::of(&"10000x128".parse().unwrap());
//! let lassen = Machine::known("lassen").unwrap();
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
use crate::steps::{Reach, Work};

/// What counts of a topology: uneven nodes are taken to be as large as the largest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// How many nodes there are.
    pub nodes: u32,
    /// How many ranks each has.
    pub on_node: u32,
    /// Whether ranks of a node follow each other.
    pub in_order: bool,
}

impl Shape {
    /// That of a topology.
    pub fn of(topology: &Topology) -> Shape {
        Shape {
            nodes: topology.regions(Level::NODE),
            on_node: topology.largest(Level::NODE),
            in_order: topology.is_in_rank_order(),
        }
    }

    /// How many ranks there are.
    pub fn ranks(self) -> u32 {
        self.nodes.saturating_mul(self.on_node)
    }
}

impl std::fmt::Display for Shape {
    /// As a topology of this shape is written.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}{}", self.nodes, self.on_node, if self.in_order { "" } else { ":cyclic" })
    }
}

/// Something that the busiest rank does a number of times. Bytes need not be whole.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Stage {
    times: f64,
    /// How many ranks of a node send at once.
    senders: u32,
    reach: Reach,
    /// Sent at once, and as many received.
    messages: f64,
    /// Of each.
    bytes: f64,
    work: Bytes,
    meetings: f64,
    waits: f64,
}

/// [`Work`] of which there may be fractions.
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
    reach: Reach::Network,
    messages: 0.0,
    bytes: 0.0,
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

    /// Asks the kernel for another rank's bytes.
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

    /// What it takes, by itself and on the wire.
    fn on(&self, machine: &Machine, on_node: u32) -> [f64; 2] {
        let costs = &machine.rank;
        let mut wire = 0.0;
        if self.messages > 0.0 {
            let bytes = self.bytes as u64;
            let protocol = machine.wire(self.reach).protocol(bytes);
            let mut share = 0.0;
            if self.reach == Reach::Network {
                let node = machine.limit(bytes).map_or(0.0, |rate| f64::from(self.senders) / rate);
                share = self.bytes * node.max(costs.rate.map_or(0.0, |rate| 1.0 / rate));
            }
            let started = (self.messages - 1.0) * machine.gap(self.reach);
            let longest = started + self.bytes * protocol.per_byte;
            wire =
                protocol.latency + longest.max(self.messages * share) + 4.0 * costs.overhead * self.messages;
        }
        let whole = |part: f64| part as u64;
        let Bytes { copied, shared, read, asked, reduced } = self.work;
        let work = machine.work(&Work {
            copied: whole(copied),
            shared: whole(shared),
            read: whole(read),
            asked: asked as u32,
            reduced: whole(reduced),
        });
        let meetings = if self.meetings > 0.0 { self.meetings * machine.meeting(on_node) } else { 0.0 };
        [self.times * (work + meetings + self.waits * machine.flag()), self.times * wire]
    }
}

/// What the busiest rank does.
#[derive(Clone, PartialEq, Debug)]
pub struct Sketch {
    stages: Vec<Stage>,
    on_node: u32,
    /// How many parts follow each other through all stages, of which these are for one.
    parts: u32,
}

impl Sketch {
    /// That of an algorithm for so many bytes, if it is known. Bytes are as everywhere: of an allgather what each rank sends, of a
    /// reduce_scatter what it receives, of an alltoall what goes from one to one other, of an allreduce the vector.
    pub fn of(collective: Collective, expression: &Expression, shape: Shape, bytes: u64) -> Option<Sketch> {
        let (parts, of) = match expression {
            Expression::Pipeline { parts, of } => ((*parts).max(1), &**of),
            other => (1, other),
        };
        let part = bytes as f64 / f64::from(parts);
        Some(Sketch { stages: stages(collective, of, shape, part)?, on_node: shape.on_node, parts })
    }

    /// What it takes on a machine, in seconds.
    pub fn on(&self, machine: &Machine) -> f64 {
        let [work, wire] = self.stages.iter().fold([0.0; 2], |[work, wire], stage| {
            let [more_work, more_wire] = stage.on(machine, self.on_node);
            [work + more_work, wire + more_wire]
        });
        // While one part is on the wire, others are worked on.
        work + wire + f64::from(self.parts - 1) * work.max(wire)
    }
}

fn stages(collective: Collective, expression: &Expression, shape: Shape, bytes: f64) -> Option<Vec<Stage>> {
    match expression {
        // A reduce_scatter of pieces of the vector, and an allgather of them.
        Expression::Halves(of) if collective == Collective::Allreduce => {
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
            let around = among::around(collective, members.count, bytes);
            let messages = members.stages(collective, expression, bytes)?;
            Some([vec![around], messages].concat())
        }
    }
}

#[cfg(test)]
mod tests {
    use bruckner_algorithms::{Task, plan};

    use super::*;
    use crate::played::Played;

    /// Sketches of everything that is chosen from, against the simulation of the plans.
    #[test]
    fn sketches_are_near_what_plans_take() {
        let machines =
            ["emulated-cluster", "lassen", "gigabit-ethernet"].map(|name| Machine::known(name).unwrap());
        let gathers: &[&str] = &[
            "bruck(2)",
            "bruck(4)",
            "ring",
            "recursive-doubling",
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
                    "ring",
                    "locality(node)",
                    "locality(node, ports=4)",
                    "leader(node, between=spread-out)",
                    "leader(node, between=recursive-doubling)",
                    "lanes(node, between=spread-out)",
                    "lanes(node, between=recursive-doubling)",
                    "lanes(node, between=ring)",
                    "lanes(node, between=halves(spread-out))",
                    "halves(locality(node))",
                    "halves(locality(node, ports=4))",
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
                    "pairwise",
                    "bruck(2)",
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
                for (algorithm, bytes) in algorithms.iter().flat_map(|a| [8, 4096, 262_144].map(|n| (*a, n)))
                {
                    let expression = algorithm.parse().unwrap();
                    let task = Task::new(collective, topology.clone()).bytes(bytes);
                    let Ok(plan) = plan(&task, &expression) else { continue };
                    // Where ranks are alone on their nodes, what knows nodes does nothing there.
                    if text == "32x1" && algorithm.contains("node") {
                        continue;
                    }
                    let Some(sketch) = Sketch::of(collective, &expression, Shape::of(&topology), bytes)
                    else {
                        continue;
                    };
                    let played = Played::of(&plan).unwrap();
                    for machine in &machines {
                        let expected = played.on(machine).unwrap().last();
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

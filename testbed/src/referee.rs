//! `cargo testbed referee`: compares the times of our simulator with those of SimGrid, which gets only message traces from us.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use bruckner_algorithms::catalogue::kinds;
use bruckner_algorithms::lower::{OnNode, lower};
use bruckner_algorithms::{Expression, Task, TaskPlan, plan};
use bruckner_model::machine::{Costs, Injection, Link, Machine, Protocol};
use bruckner_model::steps::{CostStep, Steps};
use bruckner_model::{Simulation, program_steps, steps_of};
use bruckner_render::ti;
use bruckner_schedule::{Collective, Level, Program, Rank, Topology};

use crate::mpis::{home, root};
use crate::setup::{self, run_checked};

/// A network to simulate: latency in seconds and seconds per byte within a node (`near`) and between nodes (`far`), and the bytes per
/// second that a node can send, and receive (`limit`). Networks are slow, because SimGrid rounds times to nanoseconds.
#[derive(Clone, Copy)]
struct Network {
    name: &'static str,
    per_node: u32,
    near: (f64, f64),
    far: (f64, f64),
    limit: f64,
}

/// In the flat network, a node sends and receives at the rate of one message, as in a machine file without a limit.
const NETWORKS: [Network; 2] = [
    Network { name: "flat", per_node: 1, near: (1e-3, 1e-6), far: (1e-3, 1e-6), limit: 1e6 },
    Network { name: "nodes of 8", per_node: 8, near: (3e-4, 2e-7), far: (2e-3, 1e-6), limit: 2.5e6 },
];

/// Bytes that SimGrid adds to each message: at 1 MB/s, an empty message takes 16 µs more than the latency.
const HEADER: u64 = 16;

/// Bytes of a block; for an allreduce, of the vector.
const BYTES: u64 = 1000;

/// Options of SimGrid for a network without its corrections and thresholds.
const PLAIN: [&str; 9] = [
    "smpi/bw-factor:0:1",
    "smpi/lat-factor:0:1",
    "network/TCP-gamma:0",
    "network/weight-S:0",
    "network/crosstraffic:0",
    "smpi/wtime:0",
    "smpi/simulate-computation:no",
    // Every message waits for its receiver, and blocks its sender.
    "smpi/async-small-thresh:0",
    "smpi/send-is-detached-thresh:0",
];

impl Network {
    fn machine(&self) -> Machine {
        let wire = |(latency, per_byte): (f64, f64)| Link {
            source: String::new(),
            gap: None,
            protocols: vec![Protocol { below: None, latency, per_byte, rendezvous: true, injection: None }],
        };
        Machine {
            name: self.name.to_owned(),
            about: String::new(),
            network: wire(self.far),
            node: None,
            socket: Some(wire(self.near)),
            injection: (self.per_node > 1).then(|| Injection { rate: self.limit, source: String::new() }),
            // SimGrid's star of links cannot limit what one rank exchanges with other nodes.
            rank: Costs {
                rate: (self.per_node > 1).then_some(1e15),
                share: Some(0.0),
                flag: Some(0.0),
                ..Costs::default()
            },
            predictions: None,
        }
    }
}

/// Source of the messages to compare: a plan, or a program lowered to messages only.
enum Traced {
    Plain(TaskPlan),
    Lowered(Program),
}

impl Traced {
    fn of(plan: TaskPlan, expression: &Expression) -> Traced {
        // A rank that is alone on its node does not share memory.
        match expression.groups_regions() && plan.topology.largest(Level::NODE) > 1 {
            true => Traced::Lowered(lower(&plan.schedule(), OnNode::Messages)),
            false => Traced::Plain(plan),
        }
    }

    fn steps(&self, rank: Rank) -> Steps {
        match self {
            Traced::Plain(plan) => steps_of(plan, rank),
            Traced::Lowered(program) => program_steps(program, rank),
        }
    }

    /// Simulates with the header that SimGrid adds to each message.
    fn played(&self, topology: &Topology) -> Result<Simulation> {
        let with_headers = |rank| {
            let mut steps = self.steps(rank);
            for step in &mut steps.steps {
                if let CostStep::Send { bytes, .. } | CostStep::Recv { bytes, .. } = step {
                    *bytes += HEADER;
                }
            }
            steps
        };
        Ok(Simulation::new(topology, with_headers, |_| 0.0)?)
    }
}

/// Paths of SimGrid's compiled programs and of their input files.
struct Referee {
    replay: PathBuf,
    platform: PathBuf,
    traces: PathBuf,
    hosts: PathBuf,
}

impl Referee {
    fn new() -> Result<Referee> {
        setup::install(&["libsimgrid-dev", "g++"])?;
        let (sources, place) = (root().join("testbed/referee"), home().join("referee"));
        std::fs::create_dir_all(&place)?;
        let (replay, platform) = (place.join("replay"), place.join("platform.so"));
        run_checked(
            Command::new("smpicxx").args(["-std=c++17", "-O2", "-o"]).arg(&replay).arg(sources.join("replay.cpp")),
        )?;
        run_checked(
            Command::new("g++")
                .args(["-std=c++17", "-O2", "-fPIC", "-shared", "-o"])
                .arg(&platform)
                .arg(sources.join("platform.cpp"))
                .arg("-lsimgrid"),
        )?;
        Ok(Referee { replay, platform, traces: place.join("traces"), hosts: place.join("hosts") })
    }

    /// Simulates with SimGrid; returns the time at which the last rank is done, in seconds.
    fn time(&self, network: &Network, ranks: u32, traced: &Traced) -> Result<f64> {
        if self.traces.exists() {
            std::fs::remove_dir_all(&self.traces)?;
        }
        std::fs::create_dir_all(&self.traces)?;
        for rank in (0..ranks).map(Rank) {
            std::fs::write(self.traces.join(format!("{rank}.txt")), ti(rank, &traced.steps(rank)))?;
        }
        let hosts: String = (0..ranks).map(|rank| format!("host{rank}\n")).collect();
        std::fs::write(&self.hosts, hosts)?;
        let mut run = Command::new("smpirun");
        let number = |number: f64| format!("{number:e}");
        run.env("NODES", (ranks / network.per_node).to_string())
            .env("PER_NODE", network.per_node.to_string())
            .env("NEAR_LATENCY", number(network.near.0))
            .env("NEAR_RATE", number(1.0 / network.near.1))
            .env("FAR_LATENCY", number(network.far.0))
            .env("FAR_RATE", number(1.0 / network.far.1))
            .env("LIMIT", number(network.limit));
        run.args(["-no-privatize", "-np", &ranks.to_string(), "-platform"]).arg(&self.platform);
        run.arg("-hostfile").arg(&self.hosts);
        run.args(PLAIN.map(|option| format!("--cfg={option}")));
        run.arg(&self.replay).arg(&self.traces).arg(ranks.to_string());
        let output = run.output().context("smpirun")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let time = text.lines().find_map(|line| line.strip_prefix("through ")?.trim().parse().ok());
        time.with_context(|| format!("{text}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// Whether any of three ranks (0, 1 and p/2) sends more than 4 log2 p messages.
fn is_linear(steps: &dyn Fn(Rank) -> Steps, ranks: u32) -> bool {
    let has_many = |rank| {
        let messages = |step: &&CostStep| matches!(step, CostStep::Send { .. });
        let sends = steps(Rank(rank)).steps.iter().filter(messages).count();
        sends > 4 * ranks.ilog2() as usize
    };
    [0, 1, ranks / 2].into_iter().any(has_many)
}

/// Compares every kind of algorithm of every collective. Above 256 ranks, algorithms in which a rank sends many messages are left out.
pub(crate) fn run(sizes: &[u32]) -> Result<()> {
    let referee = Referee::new()?;
    let (mut worst, mut cases): (f64, u32) = (0.0, 0);
    println!(
        "{:<14} {:<42} {:>6} {:<12} {:>12} {:>12} {:>8}",
        "", "algorithm", "ranks", "network", "SimGrid", "ours", "difference"
    );
    for &ranks in sizes {
        for network in &NETWORKS {
            let shape = format!("{}x{}", ranks / network.per_node, network.per_node);
            let topology: Topology = shape.parse()?;
            for collective in
                [Collective::Allgather, Collective::ReduceScatter, Collective::Allreduce, Collective::Alltoall]
            {
                for expression in kinds(collective, &topology) {
                    let task = Task::new(collective, topology.clone()).bytes(BYTES);
                    let Ok(plan) = plan(&task, &expression) else { continue };
                    let is_long = |steps: &dyn Fn(Rank) -> Steps| ranks > 256 && is_linear(steps, ranks);
                    if is_long(&|rank| steps_of(&plan, rank)) {
                        continue;
                    }
                    // Without shared memory, ranks of a node may exchange many more messages; in an alltoall, one for each pair of ranks.
                    let shares = expression.groups_regions() && network.per_node > 1;
                    if ranks > 256 && shares && collective == Collective::Alltoall {
                        continue;
                    }
                    let traced = Traced::of(plan, &expression);
                    if is_long(&|rank| traced.steps(rank)) {
                        continue;
                    }
                    let ours = traced.played(&topology)?.run(&network.machine())?.last();
                    let theirs = referee.time(network, ranks, &traced)?;
                    let apart = (ours / theirs - 1.0).abs();
                    let remark = if apart > 0.01 { "  more than 1 %" } else { "" };
                    println!(
                        "{:<14} {:<42} {ranks:>6} {:<12} {:>9.2} ms {:>9.2} ms {:>6.3} %{remark}",
                        collective.to_string(),
                        expression.to_string(),
                        network.name,
                        theirs * 1e3,
                        ours * 1e3,
                        apart * 100.0
                    );
                    worst = worst.max(apart);
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} cases, largest difference {:.3} %", worst * 100.0);
    let _ = std::fs::remove_dir_all(Path::new(&referee.traces));
    if worst > 0.01 {
        bail!("the simulator and SimGrid differ by more than 1 %");
    }
    Ok(())
}

//! Costs of shared memory on a node: each cost is calibrated with a collective that depends on it.

use std::time::Instant;

use anyhow::{Context, Result};
use bruckner::{Communicator, Input, Operation};
use bruckner_algorithms::{Task, plan};
use bruckner_engine::Mpi;
use bruckner_engine::mpi::AgreeOp;
use bruckner_measure::median;
use bruckner_model::{Machine, Simulation, fit};
use bruckner_schedule::{Collective, Topology};

use super::messages::Ranks;

/// A collective of a node's ranks that calibrates one cost.
struct Trial {
    collective: Collective,
    algorithm: &'static str,
    bytes: u64,
    set: fn(&mut Machine, f64),
}

/// The order matters: each trial uses the costs found by those before it.
const TRIALS: [Trial; 5] = [
    Trial {
        collective: Collective::Allgather,
        algorithm: "shm",
        bytes: 8,
        set: |machine, value| machine.rank.flag = Some(value),
    },
    Trial {
        collective: Collective::Allgather,
        algorithm: "shm",
        bytes: 32768,
        set: |machine, value| machine.rank.share = Some(value),
    },
    Trial {
        collective: Collective::Allreduce,
        algorithm: "shm",
        bytes: 32768,
        set: |machine, value| machine.rank.reduce = value,
    },
    Trial {
        collective: Collective::Allgather,
        algorithm: "direct",
        bytes: 4096,
        set: |machine, value| machine.rank.ask = value,
    },
    Trial {
        collective: Collective::Allgather,
        algorithm: "direct",
        bytes: 1 << 20,
        set: |machine, value| machine.rank.read = value,
    },
];

const BLOCKS: usize = 7;
/// Duration of a block in seconds.
const BLOCK: f64 = 0.01;

/// Measures the costs of a machine within nodes. Collective; every rank gets the same costs.
pub(crate) fn find(mpi: &Mpi, all: &Ranks, machine: &mut Machine) -> Result<()> {
    machine.rank.copy = all.slowest(copy())?;
    let node = Communicator::world()?.node_communicator()?;
    let (me, ranks) = (node.rank()?, node.size()?);
    // Nodes may have different numbers of ranks: the node with most ranks counts.
    let mut fullest = [u64::from(ranks)];
    mpi.agree(mpi.comm_world(), AgreeOp::Max, &mut fullest)?;
    if fullest[0] < 2 {
        return Ok(());
    }
    let topology: Topology = format!("1x{}", fullest[0]).parse()?;
    // A cost that cannot be measured counts as 0; `None` would mean the cost of a message.
    (machine.rank.flag, machine.rank.share) = (Some(0.0), Some(0.0));
    for trial in &TRIALS {
        let took = if ranks > 1 { trial.time(node, me, ranks)? } else { Some(0.0) };
        let Some(took) = agreed(all, took)? else { continue };
        let task = Task::new(trial.collective, topology.clone()).bytes(trial.bytes);
        let planned = plan(&task, &trial.algorithm.parse().context(trial.algorithm)?)?;
        fit::fit_cost(machine, &Simulation::of(&planned)?, took, trial.set)?;
    }
    Ok(())
}

/// Returns the maximum over all ranks, or `None` if any rank has no value.
fn agreed(ranks: &Ranks, mine: Option<f64>) -> Result<Option<f64>> {
    let found = ranks.slowest(mine.unwrap_or(f64::INFINITY))?;
    Ok(found.is_finite().then_some(found))
}

impl Trial {
    /// Measures seconds per call, or returns `None` if the algorithm cannot be planned here.
    fn time(&self, node: Communicator, me: u32, ranks: u32) -> Result<Option<f64>> {
        let elements = self.bytes as usize / 8;
        let input: Vec<f64> = (0..elements).map(|n| f64::from(me) + n as f64).collect();
        let reduces = self.collective == Collective::Allreduce;
        let mut output = vec![0.0; if reduces { elements } else { elements * ranks as usize }];
        let collective = match reduces {
            true => node.allreduce(Input::Elements(&input), &mut output, Operation::Sum)?,
            false => node.allgather(Input::Elements(&input), &mut output)?,
        };
        let Ok(mut planned) = collective.plan(self.algorithm) else { return Ok(None) };
        let mut count = 10;
        let mut times = Vec::new();
        for block in 0..=BLOCKS {
            let start = Instant::now();
            for _ in 0..count {
                planned.run()?;
            }
            let took = start.elapsed().as_secs_f64() / f64::from(count);
            match block {
                0 => {
                    // All ranks must run the same number of calls.
                    let mut longest = [took];
                    node.allreduce(Input::InPlace, &mut longest, Operation::Max)?.run()?;
                    count = (BLOCK / longest[0]).clamp(3.0, 10000.0) as u32;
                }
                _ => times.push(took),
            }
        }
        Ok(Some(median(&times)))
    }
}

/// Measures the seconds per byte of a copy within a rank's memory.
fn copy() -> f64 {
    const BYTES: usize = 1 << 18;
    let (from, mut to) = (vec![1u8; BYTES], vec![0u8; BYTES]);
    let times = (0..9).map(|_| {
        let start = Instant::now();
        for _ in 0..20 {
            std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from));
        }
        start.elapsed().as_secs_f64() / 20.0 / BYTES as f64
    });
    median(&times.collect::<Vec<_>>())
}

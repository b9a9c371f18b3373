//! What both subcommands ask: which collective, how much, by which algorithm.

use anyhow::{Context, Result, bail, ensure};
use bruckner_algorithms::{Expression, Plan, Task, plan};
use bruckner_schedule::{Collective, Counts, Order, Rank, Topology};
use clap::Args;

/// How much each rank has.
#[derive(Args, Clone, Debug)]
pub(crate) struct Sizes {
    /// Bytes: of each rank's block (allgather), of the vector (allreduce, bcast, reduce), of each rank's result
    /// (reduce_scatter), or from one rank to one other (alltoall)
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) bytes: u64,
    /// Elements of 8 bytes in each rank's block, such as 2,0,3,1; or `local` for an alltoall whose sizes each
    /// rank knows only for itself
    #[arg(long, value_name = "LIST", conflicts_with = "bytes")]
    pub(crate) counts: Option<String>,
    /// Root of a bcast or reduce
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub(crate) root: u32,
    /// The operation is not commutative: combine in rank order
    #[arg(long)]
    pub(crate) ordered: bool,
}

/// The collectives by the names that users know.
pub(crate) const COLLECTIVES: [&str; 7] =
    ["allgather", "allreduce", "reduce_scatter", "alltoall", "bcast", "reduce", "barrier"];

impl Sizes {
    /// The task that these sizes make of a collective.
    pub(crate) fn task(&self, collective: &str, topology: &Topology) -> Result<Task> {
        let (collective, rooted) = match collective {
            "barrier" => {
                let mut task = Task::new(Collective::Allgather, topology.clone());
                task.element = 0;
                return Ok(task);
            }
            "bcast" => (Collective::Allgather, true),
            "reduce" => (Collective::ReduceScatter, true),
            name => (
                Collective::from_name(name).with_context(|| {
                    format!("there is no collective `{name}`; there are {}", COLLECTIVES.join(", "))
                })?,
                false,
            ),
        };
        let mut task = Task::new(collective, topology.clone()).bytes(self.bytes);
        if let Some(counts) = &self.counts {
            ensure!(!rooted, "a bcast or reduce has one size: use --bytes");
            task.element = 8;
            task.counts = match counts.as_str() {
                "local" => Counts::Local,
                list => Counts::Listed(
                    list.split(',')
                        .map(str::parse)
                        .collect::<Result<_, _>>()
                        .with_context(|| format!("--counts takes numbers such as 2,0,3, not `{list}`"))?,
                ),
            };
        } else if rooted {
            let Counts::Equal(count) = task.counts else {
                bail!("a bcast or reduce has one size: use --bytes")
            };
            ensure!(
                self.root < topology.ranks(),
                "root {} is not one of {} ranks",
                self.root,
                topology.ranks()
            );
            task.counts = Counts::Root { root: Rank(self.root), count };
        }
        if self.ordered {
            task.order = Order::Ranks;
        }
        Ok(task)
    }
}

/// The algorithm to look at where none is named.
pub(crate) fn default_algorithm(collective: &str) -> &'static str {
    match collective {
        "bcast" | "barrier" => "sparbit",
        "alltoall" => "bruck(2)",
        _ => "locality(node)",
    }
}

/// Finds the plan, or says why there is none.
pub(crate) fn find_plan(task: &Task, algorithm: &str) -> Result<(Expression, Plan)> {
    let expression: Expression = algorithm.parse().context("--algorithm")?;
    let plan = plan(task, &expression)?;
    Ok((expression, plan))
}

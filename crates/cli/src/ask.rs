//! Parsing of arguments that several subcommands share: the collective, its sizes and the algorithm.

use anyhow::{Context, Result, anyhow, bail, ensure};
use bruckner_algorithms::catalogue::kinds;
use bruckner_algorithms::expression::nearest;
use bruckner_algorithms::user_schedule::{embed_files, strip_files};
use bruckner_algorithms::{Expression, ExpressionError, Task, TaskPlan, plan};
pub(crate) use bruckner_config::parse_bytes;
use bruckner_schedule::{Collective, Counts, Order, Rank, Topology};
use clap::Args;

/// Size of a collective call, and options that belong to it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Sizes {
    /// Message size, such as 8, 64K or 1MiB: the size of each rank's block (allgather), the whole vector (allreduce, bcast, reduce), each
    /// rank's result (reduce_scatter), or the block from each rank to each other (alltoall)
    #[arg(long, value_name = "N", default_value = "8", value_parser = parse_bytes)]
    pub(crate) bytes: u64,
    /// Blocks of different sizes: the number of 8-byte elements in each rank's block, such as 2,0,3,1; or `local` for an alltoallv, in
    /// which each rank knows only the sizes of the blocks that it sends and receives
    #[arg(long, value_name = "LIST", conflicts_with = "bytes")]
    pub(crate) counts: Option<String>,
    /// Root of a bcast or reduce
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub(crate) root: u32,
    /// Assume an operation that is not commutative: operands must be combined in rank order
    #[arg(long)]
    pub(crate) ordered: bool,
}

/// Names of the collectives that the command supports.
pub(crate) const COLLECTIVES: [&str; 7] =
    ["allgather", "allreduce", "reduce_scatter", "alltoall", "bcast", "reduce", "barrier"];

/// Parses the name of a collective in any of its MPI forms: `allreduce`, `MPI_Iallreduce`, `MPI_Allgatherv`, `MPI_Allreduce_init_c`; the
/// result is one of [`COLLECTIVES`].
pub(crate) fn collective(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    let mut name = lower.strip_prefix("pmpi_").or(lower.strip_prefix("mpi_")).unwrap_or(&lower);
    for ending in ["_c", "_init", "_block"] {
        name = name.strip_suffix(ending).unwrap_or(name);
    }
    let known = |name: &str| COLLECTIVES.into_iter().find(|known| *known == name);
    let forms = [Some(name), name.strip_prefix('i'), name.strip_suffix('v')];
    let both = name.strip_prefix('i').and_then(|name| name.strip_suffix('v'));
    match forms.into_iter().chain([both]).flatten().find_map(known) {
        Some(name) => Ok(name.to_owned()),
        None => Err(format!("{}expected one of {}", did_you_mean(name, COLLECTIVES), COLLECTIVES.join(", "))),
    }
}

/// Parses the name of a collective, or `all`.
pub(crate) fn collective_or_all(text: &str) -> Result<String, String> {
    if text == "all" { Ok(text.to_owned()) } else { collective(text) }
}

/// Returns "did you mean NAME? " if one of the names is similar to `text`, otherwise an empty string.
pub(crate) fn did_you_mean<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(text, names).map_or_else(String::new, |name| format!("did you mean {name}? "))
}

impl Sizes {
    /// Returns the task of a collective with these sizes.
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
                    format!("unknown collective `{name}`; expected one of {}", COLLECTIVES.join(", "))
                })?,
                false,
            ),
        };
        let mut task = Task::new(collective, topology.clone()).bytes(self.bytes);
        if let Some(counts) = &self.counts {
            ensure!(!rooted, "bcast and reduce have one size for all ranks: use --bytes instead of --counts");
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
                bail!("bcast and reduce have one size for all ranks: use --bytes instead of --counts")
            };
            ensure!(
                self.root < topology.ranks(),
                "root {} does not exist: there are {} ranks, numbered from 0",
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

/// Returns the algorithm that `bruckner verify` uses if the user names none.
pub(crate) fn default_algorithm(collective: &str) -> &'static str {
    match collective {
        "bcast" | "barrier" => "sparbit",
        "alltoall" => "bruck(2)",
        _ => "locality(node)",
    }
}

/// Parses an algorithm expression, reading the files that it names.
pub(crate) fn expression(text: &str) -> Result<Expression> {
    let read = |name: &str| std::fs::read_to_string(name).map_err(|error| error.to_string());
    let whole = embed_files(text, read).map_err(|why| anyhow!("--algorithm {why}"))?;
    whole.parse().map_err(|error: ExpressionError| anyhow!("--algorithm: {}", strip_files(&error.to_string())))
}

/// Plans the task by the named algorithm; the error lists the algorithms that do fit.
pub(crate) fn find_plan(task: &Task, algorithm: &str) -> Result<(Expression, TaskPlan)> {
    let expression = expression(algorithm)?;
    match plan(task, &expression) {
        Ok(plan) => Ok((expression, plan)),
        Err(why) => {
            let others = kinds(task.collective, &task.topology);
            let fits = others.iter().filter(|other| plan(task, other).is_ok()).map(ToString::to_string);
            bail!("{why}; algorithms that can be used here: {}", fits.collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in
            [("8", 8), ("64K", 65536), ("64k", 65536), ("1MiB", 1 << 20), ("2 GiB", 2 << 30), ("7B", 7)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        assert!(["", "K", "-8", "8x", "1.5M", "99999999999G"].iter().all(|text| parse_bytes(text).is_err()));
        assert_eq!(parse_bytes("64KB").unwrap_err(), "KB is ambiguous: write 64K, which means 64 KiB");
    }

    #[test]
    fn collectives_have_many_names() {
        for (text, name) in [
            ("allreduce", "allreduce"),
            ("MPI_Allreduce", "allreduce"),
            ("MPI_Iallreduce", "allreduce"),
            ("PMPI_Allgatherv", "allgather"),
            ("allgatherv", "allgather"),
            ("MPI_Ialltoallv", "alltoall"),
            ("MPI_Reduce_scatter_block", "reduce_scatter"),
            ("MPI_Allreduce_init_c", "allreduce"),
            ("MPI_Ibarrier", "barrier"),
        ] {
            assert_eq!(collective(text).as_deref(), Ok(name), "{text}");
        }
        assert!(collective("alreduce").unwrap_err().starts_with("did you mean allreduce? expected one of allgather, "));
        assert!(collective("gather").unwrap_err().contains("expected one of allgather"));
        assert!(collective("xyz").unwrap_err().starts_with("expected one of "));
        assert!(collective("all").is_err() && collective_or_all("all").is_ok());
    }
}

//! The measurements of testbed/data/pico.csv, and which algorithm of ours each algorithm there is.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_choose::Vendor;
use bruckner_model::Shape;
use bruckner_schedule::Collective;

use crate::mpis::root;

/// One job on one machine: all its rows were measured on the same nodes. Written as `mare_nostrum 60x1, 2025-06-05T20-58-44`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Job {
    pub(super) system: String,
    pub(super) mpi: String,
    pub(super) archive: String,
    nodes: String,
    on_node: u32,
}

/// Algorithm of a row.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Algorithm {
    /// The MPI's default.
    Default,
    /// An algorithm that was selected or written by the authors of the measurements, with the same messages as this algorithm of ours.
    Mapped(Expression),
}

/// A measured time: the median, and the quartiles, of the slowest rank's time, in seconds.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) collective: Collective,
    pub(super) algorithm: Algorithm,
    /// Whether the algorithm is the MPI's, not one that the authors wrote with the MPI's point-to-point functions.
    pub(super) is_mpis: bool,
    /// Size as in a [`bruckner_algorithms::Task`]: of the vector in an allreduce, otherwise of one block.
    pub(super) bytes: u64,
    /// Size of the whole vector, or of all blocks of a rank together.
    pub(super) total: u64,
    pub(super) median: f64,
    pub(super) quartiles: [f64; 2],
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}x{}, {}", self.system, self.nodes, self.on_node, self.archive)
    }
}

impl Job {
    /// Returns the number of nodes and of ranks on each. Fugaku's nodes are written by the dimensions of its torus.
    pub(super) fn shape(&self) -> Shape {
        let nodes = self.nodes.split('x').filter_map(|side| side.parse::<u32>().ok()).product();
        Shape { nodes, on_node: self.on_node, in_order: true }
    }

    /// Returns a description of the machine.
    pub(super) fn about(&self) -> String {
        let (system, network) = match self.system.as_str() {
            "fugaku" => ("Fugaku (RIKEN)", "Tofu-D"),
            "leonardo" => ("Leonardo (CINECA), booster", "Dragonfly+"),
            "lumi" => ("LUMI (CSC), standard-g", "Slingshot"),
            _ => ("MareNostrum 5 (BSC), accelerated", "fat tree"),
        };
        format!("{system}: {network}; one rank on each of {} nodes, {}", self.shape().nodes, self.mpi)
    }

    /// Returns the MPI whose sources say what its default is. Those of Cray's and Fujitsu's MPIs are not public.
    pub(super) fn vendor(&self) -> Vendor {
        match self.mpi.starts_with("OMPI") {
            true => Vendor::OpenMpi4,
            false => Vendor::Other,
        }
    }
}

#[cfg(test)]
impl Job {
    /// Makes a job with one rank on each node.
    pub(super) fn of(system: &str, nodes: &str) -> Job {
        Job { system: system.into(), mpi: String::new(), archive: String::new(), nodes: nodes.into(), on_node: 1 }
    }
}

/// Returns the collective of a row, if the model knows it.
fn collective(name: &str) -> Option<Collective> {
    Collective::ALL.into_iter().find(|collective| collective.to_string() == name)
}

/// Returns the algorithm of ours that sends the same messages as an algorithm of the data. Names are those of the data's authors: without
/// `_ompi` and `_mpich` (an algorithm of the MPI), `_over` (their own code), and Fugaku's `default-`.
fn like(collective: Collective, name: &str) -> Option<Expression> {
    let ending = ["_ompi", "_mpich", "_over"].into_iter().find_map(|ending| name.strip_suffix(ending));
    let name = ending.or_else(|| name.strip_prefix("default-"))?.replace('-', "_");
    let plain = match (collective, name.as_str()) {
        (_, "ring") => Plain::Ring,
        (Collective::Allgather | Collective::Allreduce, "recursive_doubling") => Plain::RecursiveDoubling,
        (Collective::Allreduce, "rabenseifner") => Plain::Rabenseifner,
        (Collective::Allgather, "neighbor") => Plain::NeighborExchange,
        (Collective::Allgather, "sparbit") => Plain::Sparbit,
        (Collective::Allgather, "k_bruck" | "brucks" | "bruck") => return Some(Expression::Bruck(2)),
        (Collective::ReduceScatter, "recursive_halving") => Plain::RecursiveHalving,
        // Near first.
        (Collective::ReduceScatter, "recursive_distance_doubling") => Plain::RecursiveDoubling,
        (Collective::ReduceScatter | Collective::Alltoall, "pairwise") => Plain::Pairwise,
        // `linear_sync` was measured without a limit on messages under way, and takes as long as `linear`.
        (Collective::Alltoall, "linear" | "linear_sync") => Plain::SpreadOut,
        (Collective::Alltoall, "modified_bruck") => return Some(Expression::ModifiedBruck(2)),
        _ => return None,
    };
    Some(Expression::Plain(plain))
}

/// Returns the rows that the model can say something about, by job. Rows on GPUs, of a changed MPI, of algorithms that we do not have, and of
/// selections without effect are left out.
pub(super) fn jobs() -> Result<BTreeMap<Job, Vec<Row>>> {
    let file = root().join("testbed/data/pico.csv");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let mut jobs: BTreeMap<Job, Vec<Row>> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        ensure!(fields.len() == 17, "{line}: expected 17 fields");
        let [system, mpi, nodes, on_node, name, algorithm, bytes, _, median, low, high, _, _, ranks, kind, run, _] =
            fields[..]
        else {
            continue;
        };
        let Some(collective) = collective(name) else { continue };
        let known = match kind {
            "default" => Some(Algorithm::Default),
            "forced" | "own" => like(collective, algorithm).map(Algorithm::Mapped),
            _ => None,
        };
        let Some(algorithm) = known else { continue };
        // Buffers on GPUs, and an MPI that the authors changed.
        if mpi.contains("cuda") || mpi.starts_with("custom") {
            continue;
        }
        let archive = run.split('/').next().unwrap_or_default();
        let job = Job {
            system: system.into(),
            mpi: mpi.into(),
            archive: archive.into(),
            nodes: nodes.into(),
            on_node: on_node.parse()?,
        };
        let (total, ranks): (u64, u64) = (bytes.parse()?, ranks.parse()?);
        ensure!(u64::from(job.shape().ranks()) == ranks || system == "lumi", "{line}: not {ranks} ranks");
        // Blocks have whole elements of four bytes.
        let bytes = if collective == Collective::Allreduce { total } else { total / 4 / ranks * 4 };
        let seconds = |field: &str| field.parse::<f64>().map(|us| us * 1e-6);
        jobs.entry(job).or_default().push(Row {
            collective,
            algorithm,
            is_mpis: kind != "own",
            bytes,
            total,
            median: seconds(median)?,
            quartiles: [seconds(low)?, seconds(high)?],
        });
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_data() {
        let like = |collective, name| like(collective, name).map(|algorithm| algorithm.to_string());
        let of = |name| like(Collective::Allgather, name);
        assert_eq!(of("neighbor_ompi").as_deref(), Some("neighbor-exchange"));
        assert_eq!(of("brucks_mpich").as_deref(), Some("bruck(2)"));
        assert_eq!(of("default-recursive-doubling").as_deref(), Some("recursive-doubling"));
        // Fugaku's `linear` allgather is a gather and a broadcast.
        assert_eq!((of("default-linear"), of("bine_send_remap_over"), of("default-default")), (None, None, None));
        let near = like(Collective::ReduceScatter, "recursive_distance_doubling_over");
        assert_eq!(near.as_deref(), Some("recursive-doubling"));
    }

    /// The file has the rows that the page and its source state.
    #[test]
    fn all_rows_are_read() {
        let jobs = jobs().unwrap();
        assert_eq!((jobs.len(), jobs.values().map(Vec::len).sum::<usize>()), (35, 2076));
        assert_eq!(Job::of("fugaku", "8x8x8").shape().nodes, 512);
    }
}

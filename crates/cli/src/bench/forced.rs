//! Settings that force an MPI to another algorithm than the one it would choose.

use bruckner::Name;
use bruckner_measure::native;

use super::problem::{Problem, Size};

/// A setting that forces the MPI to a certain algorithm: environment variables and a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Forced {
    pub(crate) name: String,
    pub(crate) variables: Vec<(String, String)>,
}

/// Returns the name of the measured MPI function, without `MPI_`.
fn function(problem: &Problem) -> &'static str {
    let listed = matches!(problem.size, Size::Counts(_));
    match (problem.name, listed) {
        (Name::Allgather, false) => "allgather",
        (Name::Allgather, true) => "allgatherv",
        (Name::Allreduce, _) => "allreduce",
        (Name::ReduceScatter, false) => "reduce_scatter_block",
        (Name::ReduceScatter, true) => "reduce_scatter",
        (Name::Alltoall, false) => "alltoall",
        (Name::Alltoall, true) => "alltoallv",
        (Name::Bcast, _) => "bcast",
        (Name::Reduce, _) => "reduce",
        (Name::Barrier, _) => "barrier",
    }
}

/// Returns all settings of an MPI for a collective. `mpi` is its name and version.
pub(crate) fn all(mpi: &str, problem: &Problem) -> Vec<Forced> {
    let function = function(problem);
    if mpi.starts_with("Open MPI") {
        open_mpi(function)
    } else if mpi.starts_with("MPICH") {
        mpich(function)
    } else if mpi.starts_with("Intel") {
        intel(function)
    } else {
        Vec::new()
    }
}

fn forced(name: impl Into<String>, variables: &[(&str, &str)]) -> Forced {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Forced { name: native::forced(&name.into()), variables }
}

/// Returns the entry of a table for a function.
fn of<T: Copy>(table: &[(&str, T)], function: &str) -> T {
    table.iter().find(|(name, _)| *name == function).expect("tables have every function").1
}

/// Algorithms of `coll_tuned_*_algorithm` in Open MPI 4.1 and 5.0, except those for two ranks only.
const TUNED: [(&str, &[&str]); 10] = [
    ("allgather", &["linear", "bruck", "recursive_doubling", "ring", "neighbor", "sparbit"]),
    ("allgatherv", &["default", "bruck", "ring", "neighbor", "sparbit"]),
    ("allreduce", &["basic_linear", "nonoverlapping", "recursive_doubling", "ring", "segmented_ring", "rabenseifner"]),
    ("alltoall", &["linear", "pairwise", "modified_bruck", "linear_sync"]),
    ("alltoallv", &["basic_linear", "pairwise"]),
    ("barrier", &["linear", "double_ring", "recursive_doubling", "bruck", "tree"]),
    (
        "bcast",
        &[
            "basic_linear",
            "chain",
            "pipeline",
            "split_binary_tree",
            "binary_tree",
            "binomial",
            "knomial",
            "scatter_allgather",
            "scatter_allgather_ring",
        ],
    ),
    ("reduce", &["linear", "chain", "pipeline", "binary", "binomial", "in-order_binary", "rabenseifner"]),
    ("reduce_scatter", &["non-overlapping", "recursive_halving", "ring", "butterfly"]),
    ("reduce_scatter_block", &["basic_linear", "recursive_doubling", "recursive_halving", "butterfly"]),
];

/// Returns the settings of Open MPI. Version 5 gives its HAN component priority over `tuned`, so HAN has to be disabled for an algorithm
/// of `tuned` to take effect.
fn open_mpi(function: &str) -> Vec<Forced> {
    const NO_HAN: (&str, &str) = ("OMPI_MCA_coll", "^han");
    const DYNAMIC: (&str, &str) = ("OMPI_MCA_coll_tuned_use_dynamic_rules", "1");
    let variable = format!("OMPI_MCA_coll_tuned_{function}_algorithm");
    let tuned = |algorithm: &&str| forced(format!("tuned {algorithm}"), &[NO_HAN, DYNAMIC, (&variable, algorithm)]);
    std::iter::once(forced("without HAN", &[NO_HAN])).chain(of(&TUNED, function).iter().map(tuned)).collect()
}

/// For each function, the algorithms of MPICH's upper layer and the number of compositions in its device layer. An older version ignores
/// names that it does not have.
const MPICH: [(&str, (&[&str], u32)); 10] = [
    ("allgather", (&["brucks", "k_brucks", "recursive_doubling", "ring", "recexch_doubling", "recexch_halving"], 2)),
    ("allgatherv", (&["brucks", "recursive_doubling", "ring"], 0)),
    (
        "allreduce",
        (
            &[
                "smp",
                "recursive_doubling",
                "recursive_multiplying",
                "reduce_scatter_allgather",
                "tree",
                "recexch",
                "ring",
                "k_reduce_scatter_allgather",
            ],
            3,
        ),
    ),
    ("alltoall", (&["brucks", "k_brucks", "pairwise", "scattered"], 2)),
    ("alltoallv", (&["scattered"], 0)),
    ("barrier", (&["smp", "k_dissemination", "recexch"], 2)),
    (
        "bcast",
        (
            &[
                "binomial",
                "smp",
                "scatter_recursive_doubling_allgather",
                "scatter_ring_allgather",
                "pipelined_tree",
                "tree",
            ],
            3,
        ),
    ),
    ("reduce", (&["binomial", "smp", "reduce_scatter_gather"], 3)),
    ("reduce_scatter", (&["noncommutative", "pairwise", "recursive_doubling", "recursive_halving"], 0)),
    ("reduce_scatter_block", (&["noncommutative", "pairwise", "recursive_doubling", "recursive_halving"], 0)),
];

/// Returns the settings of MPICH. Algorithms belong to the upper layer, which is used only where the device layer is disabled for the
/// collective; compositions belong to the device layer.
fn mpich(function: &str) -> Vec<Forced> {
    let (algorithms, compositions) = of(&MPICH, function);
    let variable = |rest: &str| format!("MPIR_CVAR_{}_{rest}", function.to_uppercase());
    let (device, which, composed) =
        (variable("DEVICE_COLLECTIVE"), variable("INTRA_ALGORITHM"), variable("COMPOSITION"));
    let upper = algorithms.iter().map(|algorithm| forced(*algorithm, &[(&device, "0"), (&which, algorithm)]));
    let own =
        (1..=compositions).map(|number| forced(format!("composition {number}"), &[(&composed, &number.to_string())]));
    upper.chain(own).collect()
}

/// Number of algorithms that `I_MPI_ADJUST_*` accepts for each function.
const INTEL: [(&str, u32); 10] = [
    ("allgather", 6),
    ("allgatherv", 7),
    ("allreduce", 24),
    ("alltoall", 5),
    ("alltoallv", 5),
    ("barrier", 9),
    ("bcast", 14),
    ("reduce", 11),
    ("reduce_scatter", 5),
    ("reduce_scatter_block", 3),
];

fn intel(function: &str) -> Vec<Forced> {
    let variable = format!("I_MPI_ADJUST_{}", function.to_uppercase());
    let one = |number: u32| forced(format!("{variable}={number}"), &[(&variable, &number.to_string())]);
    (1..=of(&INTEL, function)).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_its_settings_on_every_mpi() {
        for name in Name::ALL {
            for size in [Size::Bytes(8), Size::Counts(vec![1])] {
                let problem = Problem { name, size };
                for mpi in ["Open MPI v5.0.11", "MPICH Version: 5.0.2", "Intel(R) MPI Library 2021.18"] {
                    assert!(!all(mpi, &problem).is_empty(), "{problem} on {mpi}");
                }
                assert!(all("something else", &problem).is_empty());
            }
        }
        let without = &all("Open MPI v5.0.11", &"allreduce:8".parse().unwrap())[0];
        assert_eq!(without.name, "native: without HAN");
    }
}

//! Default algorithms of the MPIs' own functions, read in their sources: one file for each MPI, with the place of every rule.
//!
//! ```
//! use bruckner_choose::{Vendor, native_algorithm};
//! use bruckner_model::Shape;
//! use bruckner_schedule::Collective;
//! let shape = Shape::of(&"64x16".parse().unwrap());
//! let native = native_algorithm(Vendor::Mpich, Collective::Alltoall, shape, 4096).unwrap();
//! assert_eq!((native.name, native.like.unwrap().to_string().as_str()), ("scattered", "spread-out(window=32)"));
//! assert_eq!(native.place.to_string(), "maint/tuning/coll/mpir/generic.json:459");
//! ```

mod mpich;
mod open_mpi;

use std::fmt;

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_model::Shape;
use bruckner_schedule::Collective;

use crate::knowledge::Vendor;

/// Size of an element in bytes, where rules depend on the number of elements.
const WORD: u64 = 8;

/// A line of an MPI's source. Displayed as `file:line`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceLine {
    /// Path of the file in the MPI's repository.
    pub file: &'static str,
    /// Number of the line, from 1.
    pub line: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Algorithm that an MPI's own function uses.
#[derive(Clone, PartialEq, Debug)]
pub struct NativeAlgorithm {
    /// Name in the MPI's source.
    pub name: &'static str,
    /// Rule that selects it.
    pub place: SourceLine,
    /// Algorithm of ours that sends the same messages between nodes; `None` if there is none.
    pub like: Option<Expression>,
}

fn plain(plain: Plain) -> Expression {
    Expression::Plain(plain)
}

/// Returns what the own function of an MPI does for blocks of `bytes` (in an allreduce, a vector) with a commutative operation; `None` if
/// this is not public. A reduce_scatter is `MPI_Reduce_scatter_block`.
pub fn native_algorithm(vendor: Vendor, collective: Collective, shape: Shape, bytes: u64) -> Option<NativeAlgorithm> {
    if shape.ranks() < 2 {
        return None;
    }
    match vendor {
        Vendor::OpenMpi4 => Some(open_mpi::native(collective, shape, bytes, false)),
        Vendor::OpenMpi => Some(open_mpi::native(collective, shape, bytes, true)),
        Vendor::Mpich => Some(mpich::native(collective, shape, bytes)),
        Vendor::Other => None,
    }
}

/// Returns what `MPI_Reduce_scatter` with equal blocks of `bytes` does. Only Open MPI has other rules for it than for
/// `MPI_Reduce_scatter_block`.
pub fn native_reduce_scatter(vendor: Vendor, shape: Shape, bytes: u64) -> Option<NativeAlgorithm> {
    match vendor {
        Vendor::OpenMpi4 | Vendor::OpenMpi if shape.ranks() > 1 => Some(open_mpi::reduce_scatter(shape.ranks(), bytes)),
        _ => native_algorithm(vendor, Collective::ReduceScatter, shape, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reduce_scatter_with_counts_has_rules_of_its_own() {
        let does = |vendor, topology: &str, bytes| {
            let native = native_reduce_scatter(vendor, Shape::of(&topology.parse().unwrap()), bytes).unwrap();
            (native.name, native.place.line)
        };
        // The rules go by the size of all blocks: 16 blocks of 16 KiB are 262,144 bytes.
        assert_eq!(does(Vendor::OpenMpi, "4x4", 16383), ("recursive_halving", 874));
        assert_eq!(does(Vendor::OpenMpi, "4x4", 16384), ("ring", 876));
        assert_eq!(does(Vendor::OpenMpi4, "64x1", 1 << 20), ("butterfly", 898));
        assert_eq!(does(Vendor::OpenMpi4, "8192x1", 8), ("butterfly", 954));
        assert_eq!(does(Vendor::Mpich, "4x4", 8), ("recursive_halving", 320));
    }

    fn does(vendor: Vendor, collective: Collective, topology: &str, bytes: u64) -> (&'static str, String) {
        let native = native_algorithm(vendor, collective, Shape::of(&topology.parse().unwrap()), bytes).unwrap();
        (native.name, native.like.map_or_else(String::new, |like| like.to_string()))
    }

    #[test]
    fn open_mpi_goes_by_ranks_and_bytes() {
        let does = |collective, topology, bytes| does(Vendor::OpenMpi4, collective, topology, bytes);
        assert_eq!(does(Collective::Allreduce, "4x4", 4095), ("recursive_doubling", "recursive-doubling".into()));
        assert_eq!(does(Collective::Allreduce, "4x4", 4096), ("rabenseifner", "rabenseifner".into()));
        // 16 to 31 elements among 32 to 63 ranks: fewer than pieces.
        assert_eq!(does(Collective::Allreduce, "8x4", 128), ("rabenseifner", String::new()));
        assert_eq!(does(Collective::Allgather, "2x1", 8), ("two_proc", "recursive-doubling".into()));
        assert_eq!(does(Collective::Allgather, "5x3", 1 << 20), ("recursive_doubling", "bruck(2)".into()));
        assert_eq!(does(Collective::Allgather, "16x4", 65_536), ("ring", "ring".into()));
        assert_eq!(does(Collective::Allgather, "4096x2", 1 << 30), ("neighbor", "neighbor-exchange".into()));
        assert_eq!(does(Collective::ReduceScatter, "4x4", 32), ("recursive_halving", "recursive-halving".into()));
        assert_eq!(does(Collective::Alltoall, "4x4", 511), ("modified_bruck", "modified-bruck(2)".into()));
        assert_eq!(does(Collective::Alltoall, "4x4", 512), ("linear_sync", "spread-out".into()));
    }

    #[test]
    fn han_serves_several_ranks_on_several_nodes() {
        let like = |topology, bytes| does(Vendor::OpenMpi, Collective::Allgather, topology, bytes).1;
        assert_eq!(like("4x4", 8), "leader(node, between=recursive-doubling)");
        assert_eq!(like("64x2", 16_384), "leader(node, between=neighbor-exchange)");
        assert_eq!((like("16x1", 8).as_str(), like("1x16", 8).as_str()), ("recursive-doubling", "recursive-doubling"));
        assert!(does(Vendor::OpenMpi, Collective::Allreduce, "4x4", 8).0.starts_with("HAN"));
        assert_eq!(does(Vendor::OpenMpi, Collective::Alltoall, "4x4", 512).0, "linear_sync");
    }

    #[test]
    fn mpich_is_hierarchical_only_in_an_allreduce() {
        let does = |collective, topology, bytes| does(Vendor::Mpich, collective, topology, bytes).1;
        assert_eq!(does(Collective::Allreduce, "4x4", 8), "leader(node, between=recursive-doubling)");
        assert_eq!(does(Collective::Allreduce, "4x4", 32), "leader(node, between=rabenseifner)");
        assert_eq!(does(Collective::Allreduce, "16x1", 64), "recursive-doubling");
        assert_eq!(does(Collective::Allreduce, "1x4", 8), "");
        let line = |bytes| {
            let native =
                native_algorithm(Vendor::Mpich, Collective::Allreduce, Shape::of(&"16x1".parse().unwrap()), bytes);
            native.map(|native| (native.name, native.place.line))
        };
        assert_eq!(line(8), Some(("recursive_doubling", 114)));
        assert_eq!(line(64), Some(("recursive_doubling", 126)));
        assert_eq!(line(128), Some(("reduce_scatter_allgather", 130)));
        assert_eq!(does(Collective::Allgather, "4x4", 32_767), "recursive-doubling");
        assert_eq!(does(Collective::Allgather, "4x4", 32_768), "ring");
        assert_eq!(does(Collective::Allgather, "5x3", 5_461), "bruck(2)");
        assert_eq!(does(Collective::ReduceScatter, "4x4", 32_768), "pairwise");
        assert_eq!(does(Collective::Alltoall, "8x1", 8), "spread-out");
        assert_eq!(does(Collective::Alltoall, "9x1", 256), "bruck(2)");
        assert_eq!(does(Collective::Alltoall, "9x1", 32_769), "pairwise");
    }

    /// Every rule names an algorithm, whatever the number of ranks and bytes, and the algorithms of ours can be planned.
    #[test]
    fn every_rule_holds() {
        use bruckner_algorithms::{Task, plan};
        for vendor in [Vendor::OpenMpi4, Vendor::OpenMpi, Vendor::Mpich] {
            for collective in Collective::ALL {
                for topology in ["2x1", "3x1", "1x7", "4x2", "3x5", "16x2", "40x1", "8x16", "300x1"] {
                    let topology: bruckner_schedule::Topology = topology.parse().unwrap();
                    for bytes in (0..31).map(|power| 1u64 << power) {
                        let shape = Shape::of(&topology);
                        let native = native_algorithm(vendor, collective, shape, bytes).unwrap();
                        let Some(like) = native.like else { continue };
                        if bytes == 8 {
                            let task = Task::new(collective, topology.clone()).bytes(bytes);
                            assert!(plan(&task, &like).is_ok(), "{vendor:?} {collective} {like} on {topology}");
                        }
                    }
                }
            }
        }
        assert_eq!(native_algorithm(Vendor::Other, Collective::Allreduce, Shape::of(&"4x4".parse().unwrap()), 8), None);
    }
}

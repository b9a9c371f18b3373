//! Kinds of calls: all that algorithms are chosen by, with sizes in classes.

use std::ops::RangeInclusive;

use bruckner_schedule::{Collective, Counts, Level, Order, Problem, Topology};

use crate::name::Name;

/// What all ranks share of a call, as far as algorithms are chosen by it.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The collective.
    pub name: Name,
    /// What is to be done.
    pub problem: &'a Problem,
    /// Whether the order of operands may show in the result, though the operation is commutative.
    pub shows_order: bool,
}

impl Question<'_> {
    /// Bytes of the largest block, or of the vector.
    pub fn bytes(&self) -> u64 {
        self.problem.largest() * u64::from(self.problem.element)
    }
}

/// How much data a call has, as far as algorithms are chosen by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Size {
    /// At most the threshold of its collective.
    Short,
    /// More.
    Long,
    /// More than the MPI has a function for.
    Beyond,
}

/// A call without its size. Equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Kind {
    /// The collective.
    pub name: Name,
    /// What it is to algorithms.
    pub collective: Collective,
    /// Whether operands may be reduced in any order.
    pub order: Order,
    /// Whether the order of operands may show in the result.
    pub shows_order: bool,
    /// Whether each rank knows only its own sizes.
    pub local: bool,
    /// How much data there is.
    pub size: Size,
}

/// The MPI whose own functions are the alternative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vendor {
    /// Open MPI.
    OpenMpi,
    /// MPICH.
    Mpich,
    /// Intel MPI, and those that were not measured.
    Other,
}

impl Vendor {
    /// By what the library says of itself.
    pub fn of(version: &str) -> Vendor {
        if version.starts_with("Open MPI") {
            Vendor::OpenMpi
        } else if version.starts_with("MPICH") {
            Vendor::Mpich
        } else {
            Vendor::Other
        }
    }
}

/// Up to how many bytes calls are short, by collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    short: [u64; Name::ALL.len()],
    /// Whether the MPI knows only C integers as counts.
    narrow: bool,
}

impl Thresholds {
    /// Those of a communicator whose ranks are placed so.
    pub fn new(topology: &Topology, vendor: Vendor, narrow: bool) -> Thresholds {
        let (nodes, on_one) = (topology.regions(Level::NODE), one_node(vendor));
        let spread = nodes > 1 && nodes < topology.ranks();
        let limit = |here: u64, between: u64| match nodes {
            1 => here,
            _ if spread => between,
            _ => 0,
        };
        let short = Name::ALL.map(|name| match name {
            Name::Allreduce => limit(on_one.allreduce, BETWEEN_NODES),
            Name::Allgather => limit(on_one.allgather, BETWEEN_NODES),
            Name::ReduceScatter => limit(on_one.reduce_scatter, 0),
            Name::Alltoall => limit(on_one.alltoall, ALLTOALL_BETWEEN_NODES),
            Name::Bcast | Name::Reduce | Name::Barrier => 0,
        });
        Thresholds { short, narrow }
    }

    /// From how many bytes to how many calls are of the same kind as one whose blocks have all the same size.
    pub fn alike(&self, question: &Question<'_>) -> RangeInclusive<u64> {
        let short = self.short[question.name as usize];
        if question.bytes() <= short { 0..=short } else { short + 1..=u64::MAX }
    }

    /// The kind of a call.
    pub fn kind(&self, question: &Question<'_>) -> Kind {
        let Question { name, problem, shows_order } = *question;
        let size = if self.narrow && too_many(problem) {
            Size::Beyond
        } else if question.bytes() <= self.short[name as usize] {
            Size::Short
        } else {
            Size::Long
        };
        let (collective, order, local) = (problem.collective, problem.order, problem.counts == Counts::Local);
        Kind { name, collective, order, shows_order, local, size }
    }
}

/// Up to how many bytes shared memory wins on one node.
struct OneNode {
    allreduce: u64,
    allgather: u64,
    reduce_scatter: u64,
    alltoall: u64,
}

const K: u64 = 1 << 10;

/// As measured by `cargo testbed onnode` with 2 ranks on 2 cores, until a profile of the machine replaces it: the largest
/// power of four at which shared memory was clearly faster. Above, the MPIs copy straight from one process to another. Its
/// time as a share of native's, at the largest size measured that is served:
///
/// | | allreduce | allgather | reduce_scatter | alltoall |
/// |---|---|---|---|---|
/// | Open MPI 5.0 | 0.55 at 16 KiB | 0.54 at 4 KiB | 0.18 at 64 KiB | 0.57 at 4 KiB |
/// | MPICH 5.0 | 0.69 at 16 KiB | 0.51 at 16 KiB | 0.43 at 64 KiB | 0.42 at 16 KiB |
/// | Intel MPI 2021.18 | 0.54 at 512 B | 0.53 at 512 B | 0.80 at 16 KiB | 0.63 at 4 KiB |
fn one_node(vendor: Vendor) -> OneNode {
    match vendor {
        Vendor::OpenMpi => {
            OneNode { allreduce: 16 * K, allgather: 4 * K, reduce_scatter: 64 * K, alltoall: 4 * K }
        }
        Vendor::Mpich => {
            OneNode { allreduce: 16 * K, allgather: 16 * K, reduce_scatter: 64 * K, alltoall: 16 * K }
        }
        Vendor::Other => {
            OneNode { allreduce: 2 * K, allgather: 2 * K, reduce_scatter: 16 * K, alltoall: 4 * K }
        }
    }
}

/// Up to how many bytes few messages between nodes win, as measured on the emulated cluster (4 nodes of 4 ranks, 500 us),
/// until a profile replaces it.
const BETWEEN_NODES: u64 = 8 * K;
/// The same for what an alltoall sends from one rank to another, which travels together with others' data.
const ALLTOALL_BETWEEN_NODES: u64 = K;

/// Whether counts that are listed are no C integers.
fn too_many(problem: &Problem) -> bool {
    match &problem.counts {
        Counts::Listed(counts) => counts.iter().sum::<u64>() * u64::from(problem.element) > i32::MAX as u64,
        _ => false,
    }
}

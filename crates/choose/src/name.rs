//! The collectives by the names that people use.

use std::fmt;

/// A collective, as users name it in settings and reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Name {
    /// `MPI_Allgather`, `MPI_Allgatherv`.
    Allgather,
    /// `MPI_Allreduce`.
    Allreduce,
    /// `MPI_Reduce_scatter`, `MPI_Reduce_scatter_block`.
    ReduceScatter,
    /// `MPI_Alltoall`, `MPI_Alltoallv`.
    Alltoall,
    /// `MPI_Bcast`.
    Bcast,
    /// `MPI_Reduce`.
    Reduce,
    /// `MPI_Barrier`.
    Barrier,
}

impl Name {
    /// All seven.
    pub const ALL: [Name; 7] = [
        Name::Allgather,
        Name::Allreduce,
        Name::ReduceScatter,
        Name::Alltoall,
        Name::Bcast,
        Name::Reduce,
        Name::Barrier,
    ];

    /// As it is written.
    pub fn text(self) -> &'static str {
        match self {
            Name::Allgather => "allgather",
            Name::Allreduce => "allreduce",
            Name::ReduceScatter => "reduce_scatter",
            Name::Alltoall => "alltoall",
            Name::Bcast => "bcast",
            Name::Reduce => "reduce",
            Name::Barrier => "barrier",
        }
    }

    /// Whether one rank gives to all, or gets from all: ranks may run ahead of each other.
    pub fn is_rooted(self) -> bool {
        matches!(self, Name::Bcast | Name::Reduce)
    }

    /// The collective of this name.
    pub fn read(text: &str) -> Option<Name> {
        Name::ALL.into_iter().find(|name| name.text() == text)
    }

    /// All names, for messages to people.
    pub fn list() -> String {
        Name::ALL.map(Name::text).join(", ")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

//! Names of the collectives in settings and reports.

use std::fmt;

/// A collective, as named in settings and reports.
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
    /// All seven collectives.
    pub const ALL: [Name; 7] = [
        Name::Allgather,
        Name::Allreduce,
        Name::ReduceScatter,
        Name::Alltoall,
        Name::Bcast,
        Name::Reduce,
        Name::Barrier,
    ];

    /// Returns the name as it is written in settings and reports.
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

    /// Whether the collective has a root, so that ranks may start a later call before others have finished this one.
    pub fn is_rooted(self) -> bool {
        matches!(self, Name::Bcast | Name::Reduce)
    }

    /// Returns the collective named `text`.
    pub fn read(text: &str) -> Option<Name> {
        Name::ALL.into_iter().find(|name| name.text() == text)
    }

    /// Returns all names, separated by commas, for error messages.
    pub fn list() -> String {
        Name::ALL.map(Name::text).join(", ")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

//! Upper bounds on the work of planning an algorithm, in closed form, from data that is the same on all ranks.
//!
//! A rank's operations name sets of chunks, which are stored as *runs*: regular sequences of chunk numbers. Planning takes time and memory
//! in proportion to the number of runs. Algorithms with one step per peer have as many runs as there are ranks; logarithmic algorithms
//! have a few runs per round. The bounds are generous: a test compares them with the actual number of runs.

use bruckner_schedule::{Collective, Level, Topology};

use crate::expression::{Expression, Lanes, Plain};

/// Maximum number of runs of chunks in any rank's program for which an algorithm is planned; planning then takes about 10 ms.
pub const MAX_RUNS: u64 = 1 << 15;

/// Returns an upper bound on the number of runs of chunks (regular sequences of chunk numbers) in any rank's program.
pub fn planning_work(collective: Collective, expression: &Expression, topology: &Topology) -> u64 {
    let ranks = u64::from(topology.ranks());
    let of = |level: Level| (u64::from(topology.regions(level)), u64::from(topology.largest(level)));
    match expression {
        expression if expression.runs_in_mpi() => 0,
        Expression::Pipeline { parts, of } => u64::from(*parts) * planning_work(collective, of, topology),
        Expression::ReduceScatterAllgather(of) => 2 * planning_work(Collective::Allgather, regular(of), topology),
        Expression::Locality { level, .. } if collective == Collective::Alltoall => {
            let (regions, size) = of(*level);
            64 + 3 * ranks + 16 * (regions + size)
        }
        // A rank that carries the blocks of other ranks of its region handles each block once for each digit of Bruck's route, or once if
        // blocks go directly.
        Expression::Leader { level, between, .. } | Expression::MultiLane { level, between }
            if collective == Collective::Alltoall =>
        {
            let (regions, size) = of(*level);
            let passed = match expression {
                Expression::Leader { leaders, .. } => size.div_ceil((*leaders).max(1).into()),
                _ => 1,
            };
            let digits = match **between {
                Expression::Bruck(radix) => logarithm(radix.into(), regions),
                _ => 1,
            };
            64 + 4 * ranks * passed * digits + 16 * (regions + size)
        }
        Expression::Locality { level, inside, lanes } => {
            let (regions, size) = of(*level);
            let ports = if let Lanes::PerRank(ports) = lanes { u64::from(*ports).min(regions) } else { 1 };
            64 + 16 * size + 16 * ports * logarithm(2, regions) + pattern(Collective::Allgather, inside, size)
        }
        Expression::Leader { level, between, .. } | Expression::MultiLane { level, between } => {
            let (regions, size) = of(*level);
            64 + 16 * size + 2 * pattern(collective, between, regions)
        }
        other => 64 + 2 * pattern(collective, other, ranks),
    }
}

/// Returns an upper bound on the number of runs of chunks that one member needs for a pattern among `members` members.
fn pattern(collective: Collective, expression: &Expression, members: u64) -> u64 {
    match expression {
        // Without a power of two, blocks that travel to distant members first are irregular.
        Expression::Plain(plain)
            if !members.is_power_of_two()
                && matches!(
                    (collective, plain),
                    (Collective::Allgather, Plain::RecursiveHalving)
                        | (Collective::ReduceScatter, Plain::RecursiveDoubling)
                ) =>
        {
            16 * logarithm(2, members) + 4 * members
        }
        Expression::Plain(Plain::RecursiveDoubling | Plain::RecursiveHalving | Plain::Rabenseifner) => {
            16 * logarithm(2, members)
        }
        // The vectors of all members are gathered, and then reduced.
        Expression::Plain(Plain::Sparbit) | Expression::Bruck(_) if collective == Collective::Allreduce => 16 * members,
        Expression::Plain(Plain::Sparbit) => 16 * logarithm(2, members),
        Expression::Bruck(radix) | Expression::ModifiedBruck(radix) => {
            16 * u64::from(*radix) * logarithm((*radix).into(), members)
        }
        // Counts only partial sums that results need (live lines), but there may be one run for each pair of a port of one step and a port
        // of the next.
        Expression::Factors(factors) => {
            factors
                .iter()
                .flat_map(|factor| factor.ports.iter().map(|q| u64::from(q.unsigned_abs()) + 1))
                .fold((0u64, 16u64), |(sum, before), ports| (sum + before * ports, 16 + 16 * ports))
                .0
        }
        Expression::Reorder(of) => members + pattern(collective, of, members),
        Expression::ReduceScatterAllgather(of) => 2 * pattern(Collective::Allgather, regular(of), members),
        Expression::Pipeline { parts, of } => u64::from(*parts) * pattern(collective, of, members),
        Expression::Leader { between: of, .. } => pattern(collective, of, members),
        // One exchange with every other member.
        _ => 16 * members,
    }
}

/// Returns the gathering with as many runs as `of` has in an allreduce, where the pieces of a vector are numbered so that runs are regular.
fn regular(of: &Expression) -> &Expression {
    match of {
        Expression::Plain(Plain::RecursiveHalving) => &Expression::Plain(Plain::RecursiveDoubling),
        other => other,
    }
}

/// Returns the number of digits of `members` in a radix.
fn logarithm(radix: u64, members: u64) -> u64 {
    u64::from(members.max(2).ilog(radix.max(2))) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_count_wherever_they_are() {
        let topology: Topology = "2,2".parse().unwrap();
        for text in ["pipeline(10000, ring)", "lanes(node, between=pipeline(10000, ring))"] {
            assert!(planning_work(Collective::Allreduce, &text.parse().unwrap(), &topology) > MAX_RUNS, "{text}");
        }
    }
}

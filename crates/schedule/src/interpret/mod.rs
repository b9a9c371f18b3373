//! The interpreter: runs a program on data and compares the results with what MPI requires.
//!
//! It cross-checks the verifier and shares no code with it except the language. Buffers hold real data, with junk in words that were never
//! written. Ranks run in a random order. A send completes only after its receive is posted. The data of a message is read and written at
//! random moments among those that MPI allows. A receive may overwrite its slots with junk as soon as it is posted. A wrong program that
//! passes with one seed is likely to fail with another.
//!
//! ```
//! use bruckner_schedule::{interpret, read};
//! let text = "\
//! schedule
//! problem allreduce ranks 2 counts equal 3 element 8
//! topology 2x1
//! claim consistent
//! rank 0
//!   round
//!     send in[0] to 1
//!     recv t0[0] from 1
//!     copy out[0] <- t0[0]
//!     reduce out[0] <- in[0]
//! rank 1
//!   round
//!     send in[0] to 0
//!     recv t0[0] from 0
//!     copy out[0] <- in[0]
//!     reduce out[0] <- t0[0]
//! ";
//! let program = read(text).unwrap().document.to_program();
//! assert_eq!(interpret::check(&[&program], 42), Ok(()));
//! ```

mod buffers;
mod run;

use std::fmt;

use crate::random::{Random, mix};
use crate::{Collective, Order, Program, Rank};

/// Reduction operation `⊕` on two elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElementOperation {
    /// Addition modulo 2^64: detects missing and duplicate contributions.
    Sum,
    /// Composition of affine functions. It is associative but not commutative, so it detects operands out of rank order.
    Compose,
    /// A hash that is not even associative: if results are bitwise equal, their expressions are equal.
    Scramble,
}

impl ElementOperation {
    /// Returns `left ⊕ right`.
    pub fn apply(self, left: u64, right: u64) -> u64 {
        match self {
            ElementOperation::Sum => left.wrapping_add(right),
            ElementOperation::Compose => {
                let ((a, b), (c, d)) = (halves(left), halves(right));
                u64::from(a.wrapping_mul(c)) << 32 | u64::from(a.wrapping_mul(d).wrapping_add(b))
            }
            ElementOperation::Scramble => mix(mix(left ^ 0x5bd1_e995).wrapping_add(right)),
        }
    }
}

fn halves(x: u64) -> (u32, u32) {
    // An even factor would lose information, so the factor is made odd.
    ((x >> 32) as u32 | 1, x as u32)
}

/// Error that the interpreter found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Rank on which the error occurred, if it concerns a single rank.
    pub rank: Option<Rank>,
    /// Description of the error.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(f, "rank {rank}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Test data of one execution: inputs of each rank and required outputs, computed from a seed.
struct Data {
    operation: ElementOperation,
    seed: u64,
}

impl Data {
    /// Returns the number of elements in the chunk from one rank to another, if sizes are known only locally.
    fn pair_len(&self, from: Rank, to: Rank) -> u64 {
        mix(self.seed ^ mix(u64::from(from.0) << 32 | u64::from(to.0))) % 4
    }

    /// Returns element `i` of a chunk of a rank's input.
    fn element(&self, rank: Rank, chunk: u64, i: u64) -> u64 {
        mix(mix(mix(self.seed.wrapping_add(rank.0.into())) ^ chunk).wrapping_add(i))
    }

    fn chunk(&self, program: &Program, rank: Rank, chunk: u64) -> Vec<u64> {
        let len = program.problem.elements(chunk).unwrap_or_else(|| self.pair_len(rank, Rank(chunk as u32)));
        (0..len).map(|i| self.element(rank, chunk, i)).collect()
    }

    /// Returns the output that MPI requires for a chunk on a rank, or `None` if it depends on the order of the reduction.
    fn wanted(&self, program: &Program, rank: Rank, chunk: u64) -> Option<Vec<u64>> {
        let pieces = program.problem.pieces;
        let source = Rank((chunk / pieces) as u32);
        match program.problem.collective {
            Collective::Allgather => Some(self.chunk(program, source, chunk)),
            Collective::Alltoall => Some(self.chunk(program, source, u64::from(rank.0) * pieces + chunk % pieces)),
            _ if self.operation == ElementOperation::Scramble => None,
            _ => {
                let inputs = (0..program.problem.ranks).map(|r| self.chunk(program, Rank(r), chunk));
                inputs
                    .reduce(|left, right| left.iter().zip(&right).map(|(&l, &r)| self.operation.apply(l, r)).collect())
            }
        }
    }
}

/// Runs programs one after another on data generated from `seed` and compares the outputs with the outputs that MPI requires. Sums are
/// always checked. Rank order and bitwise equality on all ranks are checked if all programs claim or need them.
///
/// # Panics
/// If there is no program, or the programs have different topologies.
pub fn check(programs: &[&Program], seed: u64) -> Result<(), Failure> {
    assert!(programs.windows(2).all(|w| w[0].topology == w[1].topology), "one topology");
    let reduces = |program: &&Program| program.problem.collective.reduces();
    let ordered = |p: &&Program| reduces(p) && (p.claims.ordered || p.problem.order == Order::Ranks);
    let mut operations = vec![ElementOperation::Sum];
    if programs.iter().all(ordered) {
        operations.push(ElementOperation::Compose);
    }
    if programs.iter().all(|p| reduces(p) && p.claims.consistent) {
        operations.push(ElementOperation::Scramble);
    }
    let mut random = Random::new(seed);
    operations.into_iter().try_for_each(|operation| run::run(programs, operation, &mut random))
}

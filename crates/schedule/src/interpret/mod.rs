//! The interpreter: runs a program on data and says what comes out.
//!
//! It is the verifier's opposite number and shares nothing with it but the language. Buffers are real, with
//! junk where nothing was written; ranks run in a random order; a send is not done before its receive is
//! there; a message's data is taken and laid down at the worst moment that MPI allows; a receive may spoil
//! its slots as soon as it is posted. A wrong program that looks right on one seed will not on the next.
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

/// What `⊕` does to two elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Addition modulo 2^64: shows missing and doubled contributions.
    Sum,
    /// Composition of affine functions: associative, not commutative, so it shows the order.
    Compose,
    /// A scrambling that is not even associative: equal bits mean equal expressions.
    Scramble,
}

impl Operation {
    /// `left ⊕ right`.
    pub fn apply(self, left: u64, right: u64) -> u64 {
        match self {
            Operation::Sum => left.wrapping_add(right),
            Operation::Compose => {
                let ((a, b), (c, d)) = (halves(left), halves(right));
                u64::from(a.wrapping_mul(c)) << 32 | u64::from(a.wrapping_mul(d).wrapping_add(b))
            }
            Operation::Scramble => mix(mix(left ^ 0x5bd1_e995).wrapping_add(right)),
        }
    }
}

fn halves(x: u64) -> (u32, u32) {
    // An even factor would forget; make it odd.
    ((x >> 32) as u32 | 1, x as u32)
}

/// What went wrong in a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// On which rank, if on one.
    pub rank: Option<Rank>,
    /// What, for a person.
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

/// The data of one execution: what each rank has and what it must get.
struct Data {
    operation: Operation,
    seed: u64,
}

impl Data {
    /// The elements of the chunk from one rank to another, where counts are local.
    fn pair_len(&self, from: Rank, to: Rank) -> u64 {
        mix(self.seed ^ mix(u64::from(from.0) << 32 | u64::from(to.0))) % 4
    }

    /// An element of a rank's input.
    fn element(&self, rank: Rank, chunk: u64, i: u64) -> u64 {
        mix(mix(mix(self.seed.wrapping_add(rank.0.into())) ^ chunk).wrapping_add(i))
    }

    fn chunk(&self, program: &Program, rank: Rank, chunk: u64) -> Vec<u64> {
        let len = program.problem.elements(chunk).unwrap_or_else(|| self.pair_len(rank, Rank(chunk as u32)));
        (0..len).map(|i| self.element(rank, chunk, i)).collect()
    }

    /// What MPI says that a rank's output holds under a chunk number, if the operation fixes it.
    fn wanted(&self, program: &Program, rank: Rank, chunk: u64) -> Option<Vec<u64>> {
        let pieces = program.problem.pieces;
        let source = Rank((chunk / pieces) as u32);
        match program.problem.collective {
            Collective::Allgather => Some(self.chunk(program, source, chunk)),
            Collective::Alltoall => {
                Some(self.chunk(program, source, u64::from(rank.0) * pieces + chunk % pieces))
            }
            _ if self.operation == Operation::Scramble => None,
            _ => {
                let inputs = (0..program.problem.ranks).map(|r| self.chunk(program, Rank(r), chunk));
                inputs.reduce(|left, right| {
                    left.iter().zip(&right).map(|(&l, &r)| self.operation.apply(l, r)).collect()
                })
            }
        }
    }
}

/// Runs programs one after another on data made from `seed` and compares what comes out with what MPI says:
/// sums always, rank order and equal bits on all ranks where the programs claim or need them.
///
/// # Panics
/// If the sequence is empty or its programs are not for one topology.
pub fn check(programs: &[&Program], seed: u64) -> Result<(), Failure> {
    assert!(programs.windows(2).all(|w| w[0].topology == w[1].topology), "one topology");
    let reduces = |program: &&Program| program.problem.collective.reduces();
    let ordered = |p: &&Program| reduces(p) && (p.claims.ordered || p.problem.order == Order::Ranks);
    let mut operations = vec![Operation::Sum];
    if programs.iter().all(ordered) {
        operations.push(Operation::Compose);
    }
    if programs.iter().all(|p| reduces(p) && p.claims.consistent) {
        operations.push(Operation::Scramble);
    }
    let mut random = Random::new(seed);
    operations.into_iter().try_for_each(|operation| run::run(programs, operation, &mut random))
}

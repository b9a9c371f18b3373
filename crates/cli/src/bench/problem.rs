//! Benchmark problem: one collective at one size, with its buffers and its expected result.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use bruckner::{Collective, Communicator, Element, Error, Name, Operation};

/// Size of a problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    /// Equal sizes: bytes, counted as in `bruckner explain --bytes`.
    Bytes(u64),
    /// Unequal sizes: number of 8-byte elements of each rank.
    Counts(Vec<usize>),
}

/// A collective and a size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    pub(crate) name: Name,
    pub(crate) size: Size,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.size {
            Size::Bytes(bytes) => write!(f, "{}:{bytes}", self.name),
            Size::Counts(counts) => {
                let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
                write!(f, "{}:[{}]", self.name, counts.join(","))
            }
        }
    }
}

impl FromStr for Problem {
    type Err = String;

    fn from_str(text: &str) -> Result<Problem, String> {
        let read = || {
            let (name, size) = text.split_once(':')?;
            let size = match size.strip_prefix('[').and_then(|size| size.strip_suffix(']')) {
                Some(list) => Size::Counts(list.split(',').map(|n| n.parse().ok()).collect::<Option<_>>()?),
                None => Size::Bytes(size.parse().ok()?),
            };
            Some(Problem { name: Name::read(name)?, size })
        };
        read().ok_or_else(|| "expected a collective and a size, such as allreduce:8".to_owned())
    }
}

/// An element type with distinguishable test values.
trait Sample: Element + PartialEq {
    fn of(number: u64) -> Self;
}

impl Sample for u8 {
    fn of(number: u64) -> u8 {
        (number % 251) as u8
    }
}

/// Test values are whole numbers, whose sums do not round.
impl Sample for f64 {
    fn of(number: u64) -> f64 {
        number as f64
    }
}

/// Returns element `at` of a rank's input: a pseudo-random number below 1024, so that the sum over all ranks is exact.
fn input_value(rank: usize, at: usize) -> u64 {
    let mixed = (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (at as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 54
}

const ROOT: u32 = 0;

/// A problem with its buffers on this rank.
pub(crate) struct Buffers {
    problem: Problem,
    world: Communicator,
    rank: usize,
    ranks: usize,
    data: Data,
}

/// Maximum bytes of a problem; a larger size is taken for a mistake.
const MAX_BYTES: u64 = 1 << 38;

impl Problem {
    /// Checks what can be checked without the number of ranks: collective and size fit together.
    pub(crate) fn check(&self) -> Result<()> {
        let name = self.name;
        let reduces = matches!(name, Name::Allreduce | Name::Reduce | Name::ReduceScatter);
        match &self.size {
            Size::Bytes(bytes) => {
                let whole = !reduces || bytes.is_multiple_of(8);
                ensure!(whole, "{name} is measured with doubles: --bytes must be a multiple of 8, not {bytes}");
                ensure!(*bytes <= MAX_BYTES, "{bytes} bytes exceed the limit of 256 GiB");
            }
            Size::Counts(counts) => {
                let fits = matches!(name, Name::Allgather | Name::ReduceScatter | Name::Alltoall);
                ensure!(fits, "{name} has one size for all ranks: use --bytes instead of --counts");
                let all = counts.iter().try_fold(0u64, |all, count| all.checked_add((*count as u64).saturating_mul(8)));
                ensure!(all.is_some_and(|all| all <= MAX_BYTES), "these counts exceed the limit of 256 GiB");
            }
        }
        Ok(())
    }
}

/// Buffers of a problem: doubles for reductions, bytes for collectives that only move data.
enum Data {
    Bytes { input: Vec<u8>, output: Vec<u8> },
    Numbers { input: Vec<f64>, output: Vec<f64> },
}

/// Lengths of input and output, in elements.
struct Lengths {
    input: usize,
    output: usize,
}

impl Buffers {
    pub(crate) fn new(problem: &Problem, world: Communicator) -> Result<Buffers> {
        let (rank, ranks) = (world.rank()? as usize, world.size()? as usize);
        if let Size::Counts(counts) = &problem.size {
            ensure!(counts.len() == ranks, "--counts needs one number for each of {ranks} ranks, not {}", counts.len());
        }
        let mut buffers = Buffers {
            problem: problem.clone(),
            world,
            rank,
            ranks,
            data: Data::Bytes { input: Vec::new(), output: Vec::new() },
        };
        let lengths = buffers.lengths()?;
        buffers.data = match problem.name {
            Name::Allreduce | Name::Reduce | Name::ReduceScatter => {
                Data::Numbers { input: zeros(lengths.input)?, output: zeros(lengths.output)? }
            }
            _ => Data::Bytes { input: zeros(lengths.input)?, output: zeros(lengths.output)? },
        };
        Ok(buffers)
    }

    /// Returns the number of elements in a block; an error if blocks have different sizes.
    fn block(&self) -> Result<usize> {
        self.problem.check()?;
        match (&self.problem.size, self.problem.name) {
            (Size::Counts(_), _) => bail!("counts have no common size"),
            (Size::Bytes(bytes), Name::Allreduce | Name::Reduce | Name::ReduceScatter) => Ok(*bytes as usize / 8),
            (Size::Bytes(bytes), _) => Ok(*bytes as usize),
        }
    }

    /// Returns the counts of all ranks in elements of the buffers (doubles or bytes); `None` where all blocks have the same size.
    fn counts(&self) -> Option<Vec<usize>> {
        match (&self.problem.size, self.problem.name) {
            (Size::Bytes(_), _) => None,
            (Size::Counts(counts), Name::ReduceScatter) => Some(counts.clone()),
            (Size::Counts(counts), _) => Some(counts.iter().map(|count| count * 8).collect()),
        }
    }

    fn lengths(&self) -> Result<Lengths> {
        let (ranks, own) = (self.ranks, |counts: &[usize]| counts[self.rank]);
        let (input, output) = match (self.problem.name, self.counts()) {
            (Name::Allgather, Some(counts)) => (own(&counts), counts.iter().sum()),
            (Name::ReduceScatter, Some(counts)) => (counts.iter().sum(), own(&counts)),
            (Name::Alltoall, Some(counts)) => (counts.iter().sum(), own(&counts) * ranks),
            (Name::Barrier, _) => (0, 0),
            (Name::Allgather, None) => (self.block()?, self.block()? * ranks),
            (Name::ReduceScatter, None) => (self.block()? * ranks, self.block()?),
            (Name::Alltoall, None) => (self.block()? * ranks, self.block()? * ranks),
            (Name::Allreduce | Name::Reduce, _) => (self.block()?, self.block()?),
            (Name::Bcast, _) => (0, self.block()?),
        };
        Ok(Lengths { input, output })
    }

    /// Returns the collective on these buffers.
    pub(crate) fn collective(&mut self) -> Result<Collective<'_>, Error> {
        let (world, counts) = (self.world, self.counts());
        match (&mut self.data, self.problem.name, counts) {
            (_, Name::Barrier, _) => world.barrier(),
            (Data::Bytes { output, .. }, Name::Bcast, _) => world.bcast(output, ROOT),
            (Data::Bytes { input, output }, Name::Alltoall, None) => world.alltoall(&*input, output),
            (Data::Bytes { input, output }, Name::Alltoall, Some(counts)) => {
                let received = vec![counts[self.rank]; self.ranks];
                world.alltoallv(&*input, &counts, output, &received)
            }
            (Data::Bytes { input, output }, _, None) => world.allgather(&*input, output),
            (Data::Bytes { input, output }, _, Some(counts)) => world.allgatherv(&*input, output, &counts),
            (Data::Numbers { input, output }, Name::Allreduce, _) => world.allreduce(&*input, output, Operation::Sum),
            (Data::Numbers { input, output }, Name::Reduce, _) => world.reduce(&*input, output, Operation::Sum, ROOT),
            (Data::Numbers { input, output }, _, None) => world.reduce_scatter_block(&*input, output, Operation::Sum),
            (Data::Numbers { input, output }, _, Some(counts)) => {
                world.reduce_scatter(&*input, output, &counts, Operation::Sum)
            }
        }
    }

    /// Fills the input with this rank's test values, and the output with values that no correct result contains.
    pub(crate) fn fill(&mut self) {
        let rank = self.rank;
        let root = self.problem.name == Name::Bcast && rank == ROOT as usize;
        match &mut self.data {
            Data::Bytes { input, output } => {
                input.iter_mut().enumerate().for_each(|(at, byte)| *byte = u8::of(input_value(rank, at)));
                output.fill(255);
                if root {
                    output.iter_mut().enumerate().for_each(|(at, byte)| *byte = u8::of(input_value(rank, at)));
                }
            }
            Data::Numbers { input, output } => {
                input.iter_mut().enumerate().for_each(|(at, number)| *number = f64::of(input_value(rank, at)));
                output.fill(-1.0);
            }
        }
    }

    /// Whether the output on this rank is correct, and the input unchanged.
    pub(crate) fn is_right(&self) -> Result<bool> {
        let given: Vec<u64> = (0..self.lengths()?.input).map(|at| input_value(self.rank, at)).collect();
        match &self.data {
            Data::Bytes { input, output } => Ok(is_all(output, &self.expected()?) && is_all(input, &given)),
            Data::Numbers { input, output } => Ok(is_all(output, &self.expected()?) && is_all(input, &given)),
        }
    }

    /// Returns the expected values of the output; empty where the output is undefined (barrier, reduce on other ranks than the root).
    fn expected(&self) -> Result<Vec<u64>> {
        let (ranks, rank, name) = (self.ranks, self.rank, self.problem.name);
        let sum = |at: usize| (0..ranks).map(|from| input_value(from, at)).sum::<u64>();
        let Lengths { output, .. } = self.lengths()?;
        let counts = match (self.counts(), name) {
            (_, Name::Barrier) => return Ok(Vec::new()),
            (_, Name::Reduce) if rank != ROOT as usize => return Ok(Vec::new()),
            (Some(counts), _) => counts,
            (None, Name::Allreduce | Name::Reduce | Name::Bcast) => vec![0; ranks],
            (None, _) => vec![self.block()?; ranks],
        };
        let mine: usize = counts[..rank].iter().sum();
        Ok(match name {
            Name::Allreduce | Name::Reduce => (0..output).map(sum).collect(),
            Name::Bcast => (0..output).map(|at| input_value(0, at)).collect(),
            Name::ReduceScatter => (0..output).map(|at| sum(mine + at)).collect(),
            Name::Allgather => {
                let block = |from: usize| (0..counts[from]).map(move |at| input_value(from, at));
                (0..ranks).flat_map(block).collect()
            }
            _ => (0..ranks).flat_map(|from| (0..counts[rank]).map(move |at| input_value(from, mine + at))).collect(),
        })
    }
}

/// Allocates `count` zeros, or returns an error if there is not enough memory.
fn zeros<T: Sample>(count: usize) -> Result<Vec<T>> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(count).with_context(|| format!("not enough memory for {count} elements"))?;
    zeros.resize(count, T::of(0));
    Ok(zeros)
}

fn is_all<T: Sample>(output: &[T], expected: &[u64]) -> bool {
    expected.iter().zip(output).all(|(number, element)| *element == T::of(*number))
}

/// Parses a list of counts such as `2,0,3` or `4*2,0*14`, where `4*2` means two fours.
pub(crate) fn counts(text: &str) -> Result<Vec<usize>> {
    let mut counts = Vec::new();
    for part in text.split(',') {
        let (number, times) = part.split_once('*').unwrap_or((part, "1"));
        let read = |text: &str| text.trim().parse::<usize>();
        let (number, times) = read(number)
            .and_then(|number| Ok((number, read(times)?)))
            .with_context(|| format!("--counts takes numbers such as 2,0,3 or 4*2,0*14, not `{text}`"))?;
        ensure!(times <= 1 << 24 && counts.len() <= 1 << 24, "--counts has more numbers than there are ranks");
        counts.extend(std::iter::repeat_n(number, times));
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_may_be_repeated() {
        assert_eq!(counts("2,0*3,7").unwrap(), [2, 0, 0, 0, 7]);
        assert!(counts("2,x").is_err() && counts("").is_err());
    }

    #[test]
    fn problems_read_as_they_print() {
        for text in ["allreduce:8", "allgather:[11308,11308,0,0]", "barrier:0"] {
            assert_eq!(text.parse::<Problem>().unwrap().to_string(), text);
        }
        assert!("allreduce".parse::<Problem>().is_err() && "nothing:8".parse::<Problem>().is_err());
    }
}

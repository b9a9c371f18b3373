//! Runs a program on threads, with data for which the result is known.
#![allow(unsafe_code, dead_code)]

use std::sync::Arc;

use bruckner_runtime::reduce::{ElementType, Operation, Reduction};
use bruckner_runtime::sized::{self, Blocks};
use bruckner_runtime::threads::{Cluster, segment};
use bruckner_runtime::{
    Address, Backoff, Buffers, Executable, IdentityTranslation, Limits, Scratch, SegmentSize, Segments, Target, compile,
};
use bruckner_schedule::{Collective, Counts, Level, Problem, Program, Rank};

/// Number of levels that can have segments.
const LEVELS: usize = 4;

/// How a test runs a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drive {
    Run,
    StartTestWait,
    /// Every second rank, from its second execution on, behaves as if it could not read the buffers of other ranks.
    Refused,
}

/// Returns the segments of each rank, large enough at each level for the largest of `needs`.
pub(crate) fn segments(program: &Program, needs: &[[Option<SegmentSize>; LEVELS]]) -> Vec<Segments> {
    let p = program.problem.ranks as usize;
    let mut all: Vec<Segments> = vec![vec![None; LEVELS]; p];
    for level in 0..LEVELS {
        let sizes: Vec<SegmentSize> = needs.iter().filter_map(|need| need[level]).collect();
        let most = |of: fn(&SegmentSize) -> usize| sizes.iter().map(of).max();
        let Some(part) = most(|size| size.part) else { continue };
        let size = SegmentSize { part, slot: most(|size| size.slot).unwrap_or(0), slots: 2 };
        let level_of = Level(level as u8);
        for region in 0..program.topology.regions(level_of) {
            let span = program.topology.span(level_of, region);
            let members = segment(span.len() as u32, size);
            for (position, member) in span.zip(members) {
                all[program.topology.rank_at(position).0 as usize][level] = Some(member);
            }
        }
    }
    all
}

/// Returns the number of elements of a rank's input or output.
fn lengths(problem: &Problem, rank: Rank, output: bool) -> usize {
    let set = if output { problem.output(rank) } else { problem.input(rank) };
    problem.elements_of(&set).unwrap_or(0) as usize
}

/// Returns element `i` of the input of `rank`, which differs from execution to execution.
fn value(rank: usize, i: usize, execution: usize) -> i64 {
    ((rank + 1) * 1_000_003 + i * 7919 + execution * 104_729) as i64 % 1_000_000_007
}

fn float(rank: usize, i: usize, execution: usize) -> f64 {
    1.0 / (1.0 + value(rank, i, execution) as f64)
}

fn expected(problem: &Problem, rank: usize, execution: usize) -> Vec<i64> {
    let p = problem.ranks as usize;
    let input = |r: usize| -> Vec<i64> {
        (0..lengths(problem, Rank(r as u32), false)).map(|i| value(r, i, execution)).collect()
    };
    match problem.collective {
        Collective::Allgather => (0..p).flat_map(input).collect(),
        Collective::Allreduce => {
            let n = lengths(problem, Rank(0), false);
            (0..n).map(|i| (0..p).fold(0i64, |sum, r| sum.wrapping_add(value(r, i, execution)))).collect()
        }
        Collective::ReduceScatter => {
            let start: usize = (0..rank).map(|r| lengths(problem, Rank(r as u32), true)).sum();
            let n = lengths(problem, Rank(rank as u32), true);
            (start..start + n).map(|i| (0..p).fold(0i64, |sum, r| sum.wrapping_add(value(r, i, execution)))).collect()
        }
        Collective::Alltoall => {
            let n = lengths(problem, Rank(0), false) / p;
            (0..p).flat_map(|from| (0..n).map(move |i| value(from, rank * n + i, execution))).collect()
        }
    }
}

/// Runs a program made for any size on the 8-byte elements of `problem`: three times on integers, with a check of the results, and once on
/// floating-point numbers. Returns the floating-point results of each rank.
pub(crate) fn run(program: &Program, problem: &Problem, orders_memory: bool, drive: Drive) -> Vec<Vec<u64>> {
    assert!(problem.element == 8 || problem.element == 0);
    let (even, limits) = (problem.chunk_elements().is_some(), Limits::MEASURED);
    let target = Target { topology: &program.topology, even, orders_memory };
    let compiled: Vec<_> = program
        .ranks
        .iter()
        .map(|(&rank, code)| {
            compile(&program.problem, rank, code, &target)
                .unwrap_or_else(|error| panic!("{error}: {problem} on {}", program.topology))
        })
        .collect();
    let needs: Vec<_> = compiled.iter().map(|c| c.extent.needs(even, problem, &limits)).collect();
    let segments = segments(program, &needs.iter().map(|needs| needs.parts).collect::<Vec<_>>());
    let cluster = Cluster::new();
    std::thread::scope(|scope| {
        let ranks = compiled.into_iter().zip(segments).enumerate();
        let threads: Vec<_> = ranks
            .map(|(rank, (compiled, segments))| {
                let transport = cluster.rank(rank as u32);
                scope.spawn(move || {
                    let reduction = Reduction::of(Operation::Sum, ElementType::I64).expect("a kernel");
                    let temporary = Scratch::new(compiled.extent.needs(even, problem, &limits).temporary);
                    let (inputs, outputs) =
                        (lengths(problem, Rank(rank as u32), false), lengths(problem, Rank(rank as u32), true));
                    let address = Address { ranks: Arc::new(IdentityTranslation), tag: 100 };
                    let mut plan = Executable::new(
                        Arc::new(compiled),
                        address,
                        &transport,
                        segments,
                        reduction,
                        Backoff::SharedCores,
                    );
                    plan.bind(problem);
                    for execution in 0..4 {
                        let is_float = execution == 3;
                        if is_float {
                            plan.set_reduction(Reduction::of(Operation::Sum, ElementType::F64).expect("a kernel"));
                        }
                        let input: Vec<i64> = (0..inputs)
                            .map(|i| match is_float {
                                true => float(rank, i, execution).to_bits() as i64,
                                false => value(rank, i, execution),
                            })
                            .collect();
                        // One guard element before the output and one after it detect writes out of bounds.
                        let mut output = vec![-1i64; outputs + 2];
                        let buffers = Buffers {
                            input: input.as_ptr().cast(),
                            output: output[1..].as_mut_ptr().cast(),
                            temporary: temporary.start(),
                        };
                        // SAFETY: the buffers have the sizes of the problem, and nobody else uses them.
                        unsafe {
                            if drive == Drive::Refused && execution > 0 && rank % 2 == 1 {
                                plan.refuse_reads();
                            }
                            match drive {
                                Drive::Run => plan.run(&transport, buffers).expect("it runs"),
                                Drive::StartTestWait | Drive::Refused => {
                                    plan.start(&transport, buffers).expect("it starts");
                                    for _ in 0..3 {
                                        plan.test(&transport).expect("it can be tested");
                                    }
                                    plan.wait(&transport).expect("it ends");
                                }
                            }
                        }
                        assert!(!plan.is_active());
                        assert_eq!((output[0], output[outputs + 1]), (-1, -1), "canaries, rank {rank}");
                        let result = &output[1..=outputs];
                        if is_float {
                            return result.iter().map(|x| *x as u64).collect();
                        }
                        if problem.element > 0 {
                            let want = expected(problem, rank, execution);
                            assert_eq!(result, want, "rank {rank}, execution {execution}");
                        }
                    }
                    unreachable!("the last execution returns")
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    })
}

/// Runs an alltoallv, where each rank knows only its own sizes, twice. The size of a block depends on sender, receiver and execution.
pub(crate) fn run_sized(program: &Program) {
    let problem = &program.problem;
    assert_eq!(problem.counts, Counts::Local);
    let p = problem.ranks as usize;
    let size = |from: usize, to: usize, execution: usize| (from * 31 + to * 17 + execution * 5) % 23;
    let cluster = Cluster::new();
    let program = Arc::new(program.clone());
    std::thread::scope(|scope| {
        for rank in 0..p {
            let (transport, program) = (cluster.rank(rank as u32), program.clone());
            scope.spawn(move || {
                let code = &program.ranks[&Rank(rank as u32)];
                let mut plan = sized::SizedExecutable::new(&program.problem, code, &IdentityTranslation, 7, &transport)
                    .expect("a plan");
                for execution in 0..2 {
                    let blocks = |lengths: Vec<usize>| {
                        // Three unused bytes lie before each block.
                        let offsets = lengths.iter().scan(3, |at, n| Some(std::mem::replace(at, *at + n + 3)));
                        Blocks { offsets: offsets.collect(), lengths }
                    };
                    let (sent, received) = (
                        blocks((0..p).map(|to| size(rank, to, execution)).collect()),
                        blocks((0..p).map(|from| size(from, rank, execution)).collect()),
                    );
                    let byte = |from: usize, to: usize, i: usize| (from * 13 + to * 7 + i + execution) as u8;
                    let mut input = vec![0xEEu8; 3 + sent.lengths.iter().map(|n| n + 3).sum::<usize>()];
                    for to in 0..p {
                        for i in 0..sent.lengths[to] {
                            input[sent.offsets[to] + i] = byte(rank, to, i);
                        }
                    }
                    let mut want = vec![0xCCu8; 3 + received.lengths.iter().map(|n| n + 3).sum::<usize>()];
                    let mut output = want.clone();
                    for from in 0..p {
                        for i in 0..received.lengths[from] {
                            want[received.offsets[from] + i] = byte(from, rank, i);
                        }
                    }
                    plan.set_blocks(sent, received);
                    let buffers = sized::Buffers { input: input.as_ptr(), output: output.as_mut_ptr() };
                    // SAFETY: all blocks lie in the buffers.
                    unsafe { plan.run(&transport, buffers) }.expect("it runs");
                    assert_eq!(output, want, "rank {rank}");
                }
            });
        }
    });
}

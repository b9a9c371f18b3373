//! Verification of compiled plans: a task's algorithm is lowered and compiled as at run time, bound to sizes, read back as a program, and
//! verified.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use bruckner_algorithms::catalogue::Entry;
use bruckner_algorithms::lower::{LineMemory, MessagePurpose, OnNode, lower_part};
use bruckner_algorithms::selftest::{self, Tally};
use bruckner_algorithms::{plan, plan_on};
use bruckner_runtime::class::SPREAD_CHUNK_BYTES;
use bruckner_runtime::readback::{BoundActions, BufferPlacement, Mutation, bound_actions, read_back};
use bruckner_runtime::segment::FLAG_DATA_BYTES;
use bruckner_runtime::{Compiled, Limits, Target, compile, sized};
use bruckner_schedule::random::Random;
use bruckner_schedule::verify::verify;
use bruckner_schedule::{Claims, Collective, Counts, Problem, Program, Rank, Topology};

/// A compiled plan, bound to the sizes of a problem on every rank.
pub(crate) struct BoundProgram {
    pub(crate) problem: Problem,
    topology: Topology,
    limits: Limits,
    compiled: Vec<Arc<Compiled>>,
    pub(crate) deeds: Vec<BoundActions>,
    /// For each rank, whether the user's input and output are separate buffers or the same buffer.
    users: Vec<BufferPlacement>,
    claims: Claims,
}

impl BoundProgram {
    /// Converts the bound actions of all ranks back to a program that the verifier can check. An action that cannot be converted is an
    /// error.
    pub(crate) fn read(&self) -> Result<Program, String> {
        let (problem, topology, limits) = (&self.problem, &self.topology, &self.limits);
        let ranks = (0..problem.ranks).map(Rank).map(|rank| {
            let at = rank.0 as usize;
            let (compiled, deeds, user) = (&self.compiled[at], &self.deeds[at], self.users[at]);
            let code = read_back(deeds, compiled, problem, limits, topology, rank, user);
            code.map(|code| (rank, code)).map_err(|misread| format!("rank {rank}, {misread}"))
        });
        Ok(Program {
            problem: problem.clone(),
            topology: topology.clone(),
            overlap: 0,
            claims: self.claims.clone(),
            ranks: ranks.collect::<Result<_, _>>()?,
        })
    }
}

/// Size limits that make the runtime use one data layout and one order of messages, also for small programs. `DENSE`: contiguous chunks,
/// receives posted first. `SPREAD`: a cache line for each chunk, sends first. `BESIDE_FLAGS`: data on the cache lines of flags, and only
/// some messages short enough to be sent first.
const DENSE: Limits = Limits { beside: 0, spread: 0, chunks: 0, short: 0 };
const SPREAD: Limits = Limits { beside: 0, spread: SPREAD_CHUNK_BYTES, chunks: u64::MAX, short: usize::MAX };
const BESIDE_FLAGS: Limits = Limits { beside: FLAG_DATA_BYTES, spread: 0, chunks: 0, short: 1 };

/// Returns the run-time program of an entry in which each rank knows only its own sizes (alltoallv), converted back from its compiled
/// steps.
pub(crate) fn sized(entry: &Entry) -> Result<Program> {
    let Entry { task, expression } = entry;
    let plan = plan(task, expression).map_err(|refusal| anyhow!("{refusal}"))?;
    let purpose = plan.purpose;
    let mut program = lower_part(&plan.schedule(), OnNode::Segment, purpose, LineMemory::Shared);
    for code in program.ranks.values_mut() {
        *code = sized::read_back(code).map_err(|unfit| anyhow!("{unfit}"))?;
    }
    Ok(program)
}

/// Compiles an entry for shared-memory segments and for messages only, and binds each program in every data layout: to the entry's own
/// sizes, and to sizes that divide into equal pieces. Returns each bound program with a description.
pub(crate) fn all(entry: &Entry) -> Result<Vec<(String, BoundProgram)>> {
    let Entry { task, expression } = entry;
    let plan = plan(task, expression).map_err(|refusal| anyhow!("{refusal}"))?;
    let whole = plan.problem.clone();
    let topology = &task.topology;
    let mut problems = vec![whole.clone()];
    if matches!(whole.counts, Counts::Equal(_)) && whole.pieces > 1 {
        problems.push(Problem { counts: Counts::Equal(2 * whole.pieces), ..whole.clone() });
    }
    let shares = expression.groups_regions();
    let mut found = Vec::new();
    for on_node in [OnNode::Segment, OnNode::Messages] {
        if on_node == OnNode::Messages && !shares {
            continue;
        }
        let plan = plan_on(task, expression, on_node).map_err(|refusal| anyhow!("{refusal}"))?;
        let purpose = plan.purpose;
        let schedule = plan.for_every_size().schedule();
        for problem in &problems {
            let even = problem.chunk_elements().is_some();
            let line_memory = if even { LineMemory::Shared } else { LineMemory::Own };
            let program = lower_part(&schedule, on_node, purpose, line_memory);
            let target = Target { topology, even, orders_memory: purpose == MessagePurpose::OrdersMemory };
            let compiled = program.ranks.iter().map(|(&rank, code)| {
                compile(&program.problem, rank, code, &target).map(Arc::new).map_err(|e| anyhow!("{e}"))
            });
            let compiled: Vec<Arc<Compiled>> = compiled.collect::<Result<_>>()?;
            let segments = shares && on_node == OnNode::Segment;
            for (name, limits) in [("dense", DENSE), ("spread", SPREAD), ("beside flags", BESIDE_FLAGS)] {
                // Without a segment the limits change only the order of messages; with equal chunks this layout adds no new order.
                if name == "beside flags" && !segments && even {
                    continue;
                }
                // One-byte elements, so that many fit beside a flag.
                let element = if name == "beside flags" { 1 } else { 8 };
                let problem = Problem { element, ..problem.clone() };
                let deeds: Vec<BoundActions> = compiled.iter().map(|c| bound_actions(c, &problem, &limits)).collect();
                let apart = vec![BufferPlacement::Separate; compiled.len()];
                let running = |users| BoundProgram {
                    problem: problem.clone(),
                    topology: topology.clone(),
                    limits,
                    compiled: compiled.clone(),
                    deeds: deeds.clone(),
                    users,
                    claims: Claims::default(),
                };
                let what = format!("{problem}, {name}, {on_node:?}");
                found.push((what.clone(), running(apart)));
                let users = compiled.iter().map(|compiled| in_place(&problem, compiled));
                let users: Vec<BufferPlacement> = users.collect();
                if name == "dense" && users.contains(&BufferPlacement::InPlace) {
                    found.push((format!("{what}, in place"), running(users)));
                }
            }
        }
    }
    Ok(found)
}

/// Returns the placement of a rank's buffers if the user passes `MPI_IN_PLACE`: the same buffer if the plan allows that, otherwise
/// separate buffers.
fn in_place(problem: &Problem, compiled: &Compiled) -> BufferPlacement {
    let allowed = match problem.collective {
        // In place, the input is one block of the output.
        Collective::Allgather => true,
        // In place, the output is the beginning of the input, even where blocks have different sizes.
        Collective::ReduceScatter => compiled.in_place && compiled.even,
        _ => compiled.in_place,
    };
    if allowed { BufferPlacement::InPlace } else { BufferPlacement::Separate }
}

/// Returns the run-time programs of the reference cases in which each rank knows only its own sizes (alltoallv).
pub(crate) fn sized_probes() -> Result<Vec<Program>> {
    let probes = selftest::tasks().into_iter().filter(|probe| probe.task.counts == Counts::Local);
    probes.map(|probe| sized(&Entry { task: probe.task, expression: probe.expression })).collect()
}

/// Makes `wanted` variants of the compiled reference cases with one small random error each (mutants), and verifies each. Calls `on` with
/// the number of mutants verified so far. Returns the outcomes by kind of error.
pub(crate) fn mutants(wanted: u64, seed: u64, mut on: impl FnMut(u64)) -> Result<BTreeMap<Mutation, Tally>> {
    let mut subjects = Vec::new();
    for probe in selftest::tasks() {
        if probe.task.counts == Counts::Local {
            continue;
        }
        for (what, mut running) in all(&Entry { task: probe.task, expression: probe.expression })? {
            let mut program = running.read().map_err(|misread| anyhow!("{what}: {misread}"))?;
            let report = verify(&program);
            if let Some(violation) = report.violations.first() {
                bail!("{what}: {violation}");
            }
            selftest::claim(&mut program, &report);
            running.claims = program.claims;
            subjects.push(running);
        }
    }
    let mut random = Random::new(seed);
    let mut seen = HashSet::new();
    let mut tallies: BTreeMap<Mutation, Tally> = BTreeMap::new();
    let (mut done, mut fruitless) = (0, 0);
    while done < wanted && fruitless < 200_000 {
        let subject = random.below(subjects.len() as u64) as usize;
        let running = &mut subjects[subject];
        let how = *random.pick(Mutation::ALL).expect("there are kinds");
        let rank = random.below(running.deeds.len() as u64) as usize;
        let Problem { ranks, element, .. } = running.problem;
        let chunk = (running.problem.largest_block().div_ceil(running.problem.pieces) as usize) * element as usize;
        let broken = running.deeds[rank].broken(how, &mut random, ranks, element as usize, chunk);
        let mut hasher = DefaultHasher::new();
        (subject, rank, &broken).hash(&mut hasher);
        let Some(broken) = broken.filter(|_| seen.insert(hasher.finish())) else {
            fruitless += 1;
            continue;
        };
        fruitless = 0;
        let whole = std::mem::replace(&mut running.deeds[rank], broken);
        let tally = tallies.entry(how).or_default();
        match running.read() {
            Err(_) => tally.refused += 1,
            Ok(mutant) => selftest::check_mutant(&mutant, &how, random.bits(), tally),
        }
        running.deeds[rank] = whole;
        done += 1;
        on(done);
    }
    Ok(tallies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bruckner_algorithms::Task;

    /// Regression test: posting first short sends, then receives, then long sends once gave wrong sums.
    #[test]
    fn the_old_order_of_posts_is_refused() {
        let task = Task::new(Collective::Allreduce, "2x1".parse().unwrap()).counts(Counts::Equal(162));
        let expression = "pipeline(5, recursive-doubling)".parse().unwrap();
        let limits = Limits { short: 256, ..DENSE };
        let mut refused = 0;
        for (what, mut running) in all(&Entry { task, expression }).unwrap() {
            assert!(verify(&running.read().unwrap()).is_correct(), "{what}");
            running.deeds.iter_mut().for_each(|deeds| deeds.sort_posts_by_length(limits.short));
            refused += u32::from(!verify(&running.read().unwrap()).is_correct());
        }
        assert!(refused > 0);
    }
}

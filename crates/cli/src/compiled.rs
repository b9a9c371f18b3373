//! What runs, proven: a task's algorithm is lowered and compiled as at run time, bound to sizes, read back as a program, and
//! judged.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use bruckner_algorithms::catalogue::Entry;
use bruckner_algorithms::lower::{OnNode, Purpose, Room, lower_part};
use bruckner_algorithms::plan;
use bruckner_runtime::class::CELL;
use bruckner_runtime::readback::{Deeds, User, deeds, read_back};
use bruckner_runtime::segment::BESIDE;
use bruckner_runtime::{Compiled, Limits, Target, compile, sized};
use bruckner_schedule::{Claims, Collective, Counts, Problem, Program, Rank, Topology};

/// A program for some sizes, as it runs on every rank.
pub(crate) struct Running {
    pub(crate) problem: Problem,
    topology: Topology,
    limits: Limits,
    compiled: Vec<Arc<Compiled>>,
    pub(crate) deeds: Vec<Deeds>,
    /// Where the user's buffers lie on each rank.
    users: Vec<User>,
}

impl Running {
    /// What it does, as a program, or what cannot be read.
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
            claims: Claims::default(),
            ranks: ranks.collect::<Result<_, _>>()?,
        })
    }
}

/// Sizes up to which forms are used, so that each is used by small programs: chunks one behind the other and receives
/// first; every chunk on a cache line of its own and sends first; data beside flags, and some messages short.
const DENSE: Limits = Limits { beside: 0, spread: 0, chunks: 0, short: 0 };
const SPREAD: Limits = Limits { beside: 0, spread: CELL, chunks: u64::MAX, short: usize::MAX };
const BESIDE_FLAGS: Limits = Limits { beside: BESIDE, spread: 0, chunks: 0, short: 1 };

/// What an entry of the catalogue whose sizes are known only locally becomes at run time.
pub(crate) fn sized(entry: &Entry) -> Result<Program> {
    let Entry { task, expression } = entry;
    let plan = plan(task, expression).map_err(|refusal| anyhow!("{refusal}"))?;
    let schedule = plan.schedule();
    let purpose = Purpose::expected(expression, &task.topology);
    let mut program = lower_part(&schedule, OnNode::Segment, purpose, Room::Shared);
    for code in program.ranks.values_mut() {
        *code = sized::read_back(code).map_err(|unfit| anyhow!("{unfit}"))?;
    }
    Ok(program)
}

/// All that an entry of the catalogue becomes at run time, in every class of sizes.
pub(crate) fn all(entry: &Entry) -> Result<Vec<(String, Running)>> {
    let Entry { task, expression } = entry;
    let plan = plan(task, expression).map_err(|refusal| anyhow!("{refusal}"))?;
    let whole = plan.problem.clone();
    let topology = &task.topology;
    let mut problems = vec![whole.clone()];
    if matches!(whole.counts, Counts::Equal(_)) && whole.pieces > 1 {
        problems.push(Problem { counts: Counts::Equal(2 * whole.pieces), ..whole.clone() });
    }
    let schedule = plan.for_every_size().schedule();
    let purpose = Purpose::expected(expression, topology);
    let shares = expression.shares_memory();
    let mut found = Vec::new();
    for on_node in [OnNode::Segment, OnNode::Messages] {
        if on_node == OnNode::Messages && !shares {
            continue;
        }
        for problem in &problems {
            let even = problem.equal().is_some();
            let room = if even { Room::Shared } else { Room::Own };
            let program = lower_part(&schedule, on_node, purpose, room);
            let target = Target { topology, even, orders_memory: purpose == Purpose::OrdersMemory };
            let compiled = program.ranks.iter().map(|(&rank, code)| {
                compile(&program.problem, rank, code, &target).map(Arc::new).map_err(|e| anyhow!("{e}"))
            });
            let compiled: Vec<Arc<Compiled>> = compiled.collect::<Result<_>>()?;
            let segments = shares && on_node == OnNode::Segment;
            for (name, limits) in [("dense", DENSE), ("spread", SPREAD), ("beside flags", BESIDE_FLAGS)] {
                // What does not share memory has only its messages in another order, if they differ.
                if name == "beside flags" && !segments && even {
                    continue;
                }
                // Small elements, so that many lie beside a flag.
                let element = if name == "beside flags" { 1 } else { 8 };
                let problem = Problem { element, ..problem.clone() };
                let deeds: Vec<Deeds> = compiled.iter().map(|c| deeds(c, &problem, &limits)).collect();
                let apart = vec![User::Apart; compiled.len()];
                let running = |users| Running {
                    problem: problem.clone(),
                    topology: topology.clone(),
                    limits,
                    compiled: compiled.clone(),
                    deeds: deeds.clone(),
                    users,
                };
                let what = format!("{problem}, {name}, {on_node:?}");
                found.push((what.clone(), running(apart)));
                let users = compiled.iter().map(|compiled| in_place(&problem, compiled));
                let users: Vec<User> = users.collect();
                if name == "dense" && users.contains(&User::InPlace) {
                    found.push((format!("{what}, in place"), running(users)));
                }
            }
        }
    }
    Ok(found)
}

/// Where buffers lie if the user has input and output in one place and the plan allows that.
fn in_place(problem: &Problem, compiled: &Compiled) -> User {
    let allowed = match problem.collective {
        // A block of the output is the input.
        Collective::Allgather => true,
        // The output is the beginning of the input, wherever blocks of different sizes begin.
        Collective::ReduceScatter => compiled.in_place && compiled.even,
        _ => compiled.in_place,
    };
    if allowed { User::InPlace } else { User::Apart }
}

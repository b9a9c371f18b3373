//! Cross-checks of the verifier and the interpreter.
//!
//! [`mutants`] breaks correct programs and checks that the verifier refuses these mutants; if it accepts one, the interpreter must find
//! that the mutant's results are right. [`random_programs`] generates correct programs and checks that verifier and interpreter both
//! accept them.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use bruckner_schedule::mutate::{Mutation, mutate};
use bruckner_schedule::random::Random;
use bruckner_schedule::verify::{Verification, verify, verify_sequence};
use bruckner_schedule::{Claims, Collective, Counts, Level, Program, Rank, Topology, interpret};

use crate::expression::{Expression, Factor, Lanes, Plain};
use crate::lower::{OnNode, lower};
use crate::plan::{Task, plan};
use crate::reference_cases::{ReferenceCase, neighbour, reference_cases};

/// Counts of outcomes for mutants of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Number of mutants that the verifier refused.
    pub refused: u64,
    /// Number of refused mutants that also failed in the interpreter, which runs each in at most two of the possible orders.
    pub shown: u64,
    /// Number of mutants that the verifier accepted and that gave right results, so that the change made no difference.
    pub equivalent: u64,
    /// Descriptions of mutants that the verifier accepted although results were wrong or a necessary synchronisation was removed.
    pub missed: Vec<String>,
}

impl Tally {
    /// Returns the number of all mutants of this kind.
    pub fn total(&self) -> u64 {
        self.refused + self.equivalent + self.missed.len() as u64
    }
}

/// Number of interpreter runs of a mutant that the verifier accepts.
const TRIES: u64 = 24;

/// Returns the reference cases, and more cases of the same kind with up to 16 ranks.
pub fn tasks() -> Vec<ReferenceCase> {
    let mut tasks = reference_cases();
    let more = [
        ("16x1", Collective::Allgather, Counts::Equal(1), "sparbit"),
        ("4x4", Collective::Allgather, Counts::Equal(1), "locality(node)"),
        ("3x2x2", Collective::Allgather, Counts::Equal(1), "locality(node, inside=locality(socket))"),
        ("4,3,1:cyclic", Collective::Allreduce, Counts::Equal(2), "locality(node, lanes=paper)"),
        ("13x1", Collective::Allreduce, Counts::Equal(13), "13(-1 2 1 2)"),
        ("12x1", Collective::Allreduce, Counts::Equal(12), "3(-2) 4(1 1) 3(2)"),
        ("6", Collective::Allreduce, Counts::Equal(1), "shm"),
        ("10x1", Collective::Alltoall, Counts::Equal(1), "bruck(2)"),
        ("9x1", Collective::Alltoall, Counts::Local, "bruck(3)"),
        ("3,1,4", Collective::Allgather, Counts::Root { root: Rank(3), count: 2 }, "locality(node)"),
        ("4", Collective::Allgather, Counts::Root { root: Rank(2), count: 1 }, "shm"),
        ("4", Collective::ReduceScatter, Counts::Root { root: Rank(1), count: 2 }, "shm"),
        ("3,2", Collective::Allgather, Counts::Root { root: Rank(1), count: 1 }, "leader(node, between=sparbit)"),
        ("2,3,1", Collective::ReduceScatter, Counts::Root { root: Rank(4), count: 1 }, "lanes(node, between=ring)"),
        ("7x1", Collective::Allgather, Counts::Equal(1), "neighbor-exchange"),
        ("6x1", Collective::Allgather, Counts::Equal(1), "recursive-doubling"),
        ("5x1", Collective::ReduceScatter, Counts::Listed(vec![1, 2, 0, 1, 3]), "sparbit"),
        ("8x1", Collective::ReduceScatter, Counts::Equal(1), "recursive-halving"),
        ("4,3,1", Collective::ReduceScatter, Counts::Equal(1), "locality(node)"),
        ("5x1", Collective::Allreduce, Counts::Equal(5), "ring"),
        ("6x1", Collective::Allreduce, Counts::Equal(6), "rabenseifner"),
        ("7x1", Collective::Allreduce, Counts::Equal(2), "recursive-doubling"),
        ("5x1", Collective::Allreduce, Counts::Equal(1), "bruck(2)"),
        ("6x1", Collective::Alltoall, Counts::Equal(1), "modified-bruck(2)"),
        ("5x1", Collective::Alltoall, Counts::Local, "pairwise"),
        ("4,3,1", Collective::Allgather, Counts::Equal(1), "leader(node, between=ring)"),
        ("3,2,3", Collective::Allgather, Counts::Equal(2), "lanes(node, between=bruck(2))"),
        ("3,2", Collective::ReduceScatter, Counts::Equal(1), "lanes(node, between=sparbit)"),
        ("2,2,1", Collective::Allreduce, Counts::Equal(6), "lanes(node, between=ring)"),
        ("2,2,2", Collective::Allreduce, Counts::Equal(3), "leader(node, between=3(1 1))"),
        ("3,2", Collective::Alltoall, Counts::Equal(1), "locality(node)"),
        ("2,2,1", Collective::Alltoall, Counts::Local, "leader(node, between=bruck(2))"),
        ("2,1,2", Collective::Alltoall, Counts::Equal(1), "lanes(node, between=pairwise)"),
        ("4x1", Collective::Allgather, Counts::Root { root: Rank(1), count: 4 }, "pipeline(2, ring)"),
        ("3,1", Collective::Allreduce, Counts::Equal(4), "pipeline(2, locality(node))"),
        ("5x1", Collective::Allgather, Counts::Listed(vec![3, 0, 1, 2, 1]), "reorder(recursive-doubling)"),
    ];
    for (topology, collective, counts, expression) in more {
        tasks.push(ReferenceCase {
            name: expression,
            task: Task::new(collective, topology.parse().expect("a topology")).counts(counts),
            expression: expression.parse().expect("an expression"),
            claims: Claims::default(),
        });
    }
    tasks
}

/// Returns up to three distinct programs for every case: the schedule itself, lowered with segments, and lowered with messages. Each
/// program claims the properties that the verifier found.
fn subjects() -> Vec<Program> {
    let mut programs = Vec::new();
    for probe in tasks() {
        let name = probe.name;
        let schedule = probe.schedule().unwrap_or_else(|e| panic!("{name}: {e}"));
        // With zero counts some barriers order nothing, and mutants without them would all be equivalent to the original.
        let pruned = crate::lower::empty::run(schedule.clone(), crate::lower::MessagePurpose::of(&schedule));
        for mut program in [pruned.flatten(), lower(&schedule, OnNode::Segment), lower(&schedule, OnNode::Messages)] {
            let report = verify(&program);
            assert!(report.is_correct(), "{name}: {}", report.violations[0]);
            claim(&mut program, &report);
            if !programs.contains(&program) {
                programs.push(program);
            }
        }
    }
    programs
}

/// Generates distinct mutants of the programs of [`tasks`] until there are `wanted` or no more are found, and checks each mutant. Calls
/// `on` with the number of mutants checked so far.
pub fn mutants(wanted: u64, seed: u64, on: impl FnMut(u64)) -> BTreeMap<Mutation, Tally> {
    mutants_of(&subjects(), wanted, seed, on)
}

/// Generates and checks mutants of the given correct programs; parameters as for [`mutants`].
pub fn mutants_of(subjects: &[Program], wanted: u64, seed: u64, mut on: impl FnMut(u64)) -> BTreeMap<Mutation, Tally> {
    let mut random = Random::new(seed);
    let mut seen = HashSet::new();
    let mut tallies: BTreeMap<Mutation, Tally> = BTreeMap::new();
    let (mut done, mut fruitless) = (0, 0);
    while done < wanted && fruitless < 200_000 {
        let subject = random.below(subjects.len() as u64) as usize;
        let kind = *random.pick(Mutation::ALL).expect("there are kinds");
        let Some(mutant) = mutate(&subjects[subject], kind, &mut random) else {
            fruitless += 1;
            continue;
        };
        let mut hasher = DefaultHasher::new();
        (subject, mutant.ranks.iter().collect::<Vec<_>>()).hash(&mut hasher);
        if !seen.insert(hasher.finish()) {
            fruitless += 1;
            continue;
        }
        fruitless = 0;
        judge(&mutant, &kind, kind.removes_synchronisation(), random.bits(), tallies.entry(kind).or_default());
        done += 1;
        on(done);
    }
    tallies
}

/// Checks a mutant that may be equivalent to the original: it counts as missed only if the verifier accepts it and it gives wrong results.
pub fn check_mutant(mutant: &Program, what: &dyn std::fmt::Display, seed: u64, tally: &mut Tally) {
    judge(mutant, what, false, seed, tally);
}

fn judge(mutant: &Program, what: &dyn std::fmt::Display, is_needed: bool, seed: u64, tally: &mut Tally) {
    let fails = |seed| interpret::check(&[mutant, mutant, mutant], seed).err();
    let report = verify(mutant);
    if !report.is_correct() {
        tally.refused += 1;
        tally.shown += u64::from(fails(seed).or_else(|| fails(seed + 1)).is_some());
        return;
    }
    let failure = (0..TRIES).find_map(|i| fails(seed.wrapping_add(i)));
    match failure {
        Some(failure) => tally.missed.push(format!("{what}: {failure}\n{mutant}")),
        None if is_needed => {
            tally.missed.push(format!("{what}: accepted although the synchronisation was removed\n{mutant}"));
        }
        None => tally.equivalent += 1,
    }
}

/// Sets the claims of a program to the properties that the verifier found.
pub fn claim(program: &mut Program, report: &Verification) {
    let reduces = program.problem.collective.reduces();
    program.claims.consistent = report.consistent && reduces;
    program.claims.ordered = report.ordered && reduces;
}

/// Outcomes of random programs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RandomOutcome {
    /// Number of programs that the verifier accepted and that gave right results.
    pub right: u64,
    /// Descriptions of programs that the verifier refused.
    pub refused: Vec<String>,
    /// Descriptions of programs that the verifier accepted but that gave wrong results.
    pub wrong: Vec<String>,
}

/// Generates `wanted` programs with random parameters, topologies and counts, as schedules or lowered, and checks each: three executions
/// in sequence, and for some programs also a sequence with another program on the same segment. Calls `on` with the number of programs
/// checked so far.
pub fn random_programs(wanted: u64, seed: u64, mut on: impl FnMut(u64)) -> RandomOutcome {
    let mut random = Random::new(seed);
    let mut grown = RandomOutcome::default();
    let mut done = 0;
    while done < wanted {
        let (task, expression) = random_task(&mut random);
        let Ok(plan) = plan(&task, &expression) else { continue };
        let schedule = plan.schedule();
        for program in [schedule.flatten(), lower(&schedule, OnNode::Segment), lower(&schedule, OnNode::Messages)] {
            if done < wanted {
                check_random(program, &task, &expression, &mut random, &mut grown);
                done += 1;
                on(done);
            }
        }
    }
    grown
}

fn check_random(
    mut program: Program,
    task: &Task,
    expression: &Expression,
    random: &mut Random,
    grown: &mut RandomOutcome,
) {
    let describe = |what: &dyn std::fmt::Display| {
        format!("{} on {}, {:?}, {expression}: {what}", task.collective, task.topology, task.counts)
    };
    let report: Verification = verify(&program);
    if let Some(violation) = report.violations.first() {
        return grown.refused.push(describe(violation));
    }
    claim(&mut program, &report);
    let result = interpret::check(&[&program, &program, &program], random.bits());
    match result.map_err(|failure| describe(&failure)).and_then(|()| beside_another(&program, random)) {
        Ok(()) => grown.right += 1,
        Err(failure) => grown.wrong.push(failure),
    }
}

/// Checks a program in a sequence with another program on the same segment, by verifier and interpreter. Does so for one in four programs
/// on a single node.
fn beside_another(program: &Program, random: &mut Random) -> Result<(), String> {
    let topology = &program.topology;
    if topology.regions(Level::NODE) != 1 || topology.ranks() < 2 || random.below(4) > 0 {
        return Ok(());
    }
    let other = neighbour(program, 1 + random.below(3)).map_err(|e| e.to_string())?;
    let sequence = [program, program, program, &other, program];
    let report = verify_sequence(&sequence);
    if let Some(violation) = report.violations.first() {
        return Err(format!("in sequence with another plan: {violation}"));
    }
    interpret::check(&sequence, random.bits()).map_err(|e| format!("beside another plan: {e}"))
}

fn random_task(random: &mut Random) -> (Task, Expression) {
    let task = |collective, topology: Topology, counts| Task::new(collective, topology).counts(counts);
    let flat = |random: &mut Random| Topology::flat(1 + random.below(16) as u32);
    match random.below(11) {
        0 => {
            let topology = flat(random);
            let counts = gather_counts(topology.ranks(), random);
            (task(Collective::Allgather, topology, counts), Expression::Plain(Plain::Sparbit))
        }
        1 | 2 => {
            let topology = topology(random);
            let counts = gather_counts(topology.ranks(), random);
            (task(Collective::Allgather, topology, counts), locality(random, 2))
        }
        3 => (task(Collective::Allreduce, topology(random), Counts::Equal(random.below(5))), locality(random, 1)),
        4 => {
            let (p, factors) = factors(random);
            let counts = Counts::Equal(random.below(2 * u64::from(p)));
            (task(Collective::Allreduce, Topology::flat(p), counts), Expression::Factors(factors))
        }
        5 => {
            let one: Topology = (1 + random.below(6)).to_string().parse().expect("a topology");
            let collective = [Collective::Allreduce, Collective::Allgather][random.below(2) as usize];
            (task(collective, one, Counts::Equal(random.below(4))), Expression::Plain(Plain::Shm))
        }
        6 => {
            let topology = topology(random);
            let root = Rank(random.below(topology.ranks().into()) as u32);
            let counts = Counts::Root { root, count: random.below(3) };
            let collective = [Collective::ReduceScatter, Collective::Allgather][random.below(2) as usize];
            (task(collective, topology, counts), locality(random, 2))
        }
        7 => {
            let counts = [Counts::Local, Counts::Equal(random.below(3))][random.below(2) as usize].clone();
            (task(Collective::Alltoall, flat(random), counts), Expression::Bruck(2 + random.below(6) as u32))
        }
        _ => {
            let entries = crate::catalogue::entries(1 + random.below(12) as u32);
            let entry = random.pick(&entries).expect("no catalogue is empty");
            (entry.task.clone(), entry.expression.clone())
        }
    }
}

fn gather_counts(p: u32, random: &mut Random) -> Counts {
    match random.below(3) {
        0 => Counts::Equal(random.below(3)),
        1 => Counts::Root { root: Rank(random.below(p.into()) as u32), count: random.below(4) },
        _ => Counts::Listed((0..p).map(|_| random.below(4)).collect()),
    }
}

fn locality(random: &mut Random, depth: u32) -> Expression {
    let lanes = match random.below(4) {
        0 | 1 => Lanes::ALL,
        2 => Lanes::PerRank(2),
        _ => Lanes::Paper,
    };
    let nested = depth > 1 && random.below(2) == 0;
    let level = if depth == 1 && random.below(3) == 0 { Level::SOCKET } else { Level::NODE };
    let inside = if nested {
        Expression::Locality { level: Level::SOCKET, inside: Box::new(Expression::Plain(Plain::Shm)), lanes }
    } else {
        Expression::Plain(Plain::Shm)
    };
    Expression::Locality { level, inside: Box::new(inside), lanes }
}

/// Generates a topology: nodes with or without sockets, of equal or different sizes, in any placement, with at most 16 ranks.
fn topology(random: &mut Random) -> Topology {
    let (mut nodes, mut ranks) = (Vec::new(), 0);
    for _ in 0..1 + random.below(6) {
        let sockets: Vec<String> = (0..1 + random.below(2))
            .map_while(|_| {
                let size = 1 + random.below(4);
                ranks += size;
                (ranks <= 16).then(|| size.to_string())
            })
            .collect();
        if !sockets.is_empty() {
            nodes.push(sockets.join("+"));
        }
    }
    let placement = match random.below(3) {
        0 => String::new(),
        1 => ":cyclic".to_owned(),
        _ => format!(":permuted={}", random.below(1000)),
    };
    format!("{}{placement}", nodes.join(",")).parse().expect("a topology")
}

/// Generates a number of ranks and a factorization: at most one group with reduce_scatter steps only, at most two groups that end with
/// allgather steps, and then the allgather steps of the first group.
fn factors(random: &mut Random) -> (u32, Vec<Factor>) {
    let gathers = |f: u32, random: &mut Random| {
        let (mut ports, mut covered) = (Vec::new(), 1);
        while covered < f {
            let q = 1 + random.below(3) as u32;
            ports.push(q as i32);
            covered *= q + 1;
        }
        ports
    };
    let scatters = |f: u32, random: &mut Random, whole: bool| {
        let (mut ports, mut window) = (Vec::new(), f);
        while window > 1 && (whole || random.below(2) == 0) {
            let q = 1 + random.below(3) as u32;
            ports.push(-(q as i32));
            window = window.div_ceil(q + 1);
        }
        ports
    };
    let (mut p, mut form, mut mirror) = (1, Vec::new(), Vec::new());
    if random.below(2) == 0 {
        let f = 2 + random.below(4) as u32;
        form.push(Factor { factor: f, ports: scatters(f, random, true) });
        mirror.push(Factor { factor: f, ports: gathers(f, random) });
        p *= f;
    }
    for _ in 0..random.below(3) {
        let f = 2 + random.below(if p == 1 { 11 } else { 4 }) as u32;
        if p * f > 24 {
            break;
        }
        let mut ports = scatters(f, random, false);
        ports.extend(gathers(f, random));
        form.push(Factor { factor: f, ports });
        p *= f;
    }
    form.extend(mirror);
    if form.is_empty() {
        form.push(Factor { factor: 2, ports: vec![1] });
        p = 2;
    }
    (p, form)
}

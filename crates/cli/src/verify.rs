//! `bruckner verify`: proofs, and the tests of the proof.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use bruckner_algorithms::lower::{OnNode, lower};
use bruckner_algorithms::probes::{Probe, neighbour, probes};
use bruckner_algorithms::selftest::Tally;
use bruckner_algorithms::{Task, selftest};
use bruckner_schedule::verify::{Report, verify, verify_sequence};
use bruckner_schedule::{Claims, Level, Program, Topology, read};
use clap::Args;

use crate::ask::{COLLECTIVES, Sizes, collective, default_algorithm, did_you_mean};
use crate::bar::bar;
use crate::{Answer, catalogue, compiled, print};

/// Prove algorithms and programs right, or test the proof itself.
#[derive(Args)]
pub(crate) struct Verify {
    /// A collective; `all`, every algorithm in the catalogue; `probes`, the examples of docs/language.md; a file in
    /// the schedule language, or `-` for standard input
    #[arg(value_name = "COLLECTIVE|all|probes|FILE", required_unless_present_any = ["self_test", "random", "catalogue"])]
    what: Option<String>,
    /// With `all`: up to so many ranks
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=4096))]
    max_ranks: u32,
    /// With `all` and --catalogue: above 24 ranks, too, every entry for every number of ranks, not some of them in turn
    #[arg(long)]
    whole: bool,
    /// With `all`: prove the compiled steps that really run, read back from their addresses, for several sizes each; with
    /// --self-test: break those
    #[arg(long)]
    compiled: bool,
    /// Print the catalogue for up to --max-ranks ranks: one task and algorithm a line
    #[arg(long, conflicts_with = "what")]
    catalogue: bool,
    /// Nodes and ranks; may be given several times
    #[arg(long, value_name = "T")]
    topology: Vec<Topology>,
    #[command(flatten)]
    sizes: Sizes,
    /// The algorithm [default: bruck(2) for alltoall, sparbit for bcast and barrier, otherwise locality(node)]
    #[arg(long, value_name = "EXPR")]
    algorithm: Option<String>,
    /// Test the verifier: make N small errors in programs that are right, and see that each is found [default N: 20000]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "20000", conflicts_with = "what")]
    self_test: Option<u64>,
    /// Test the verifier: make N programs at random, and see that the interpreter agrees on each [default N: 20000]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "20000", conflicts_with_all = ["what", "self_test"])]
    random: Option<u64>,
    /// The seed of both tests
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
}

impl Verify {
    pub(crate) fn run(self) -> Result<Answer> {
        ensure!(
            self.self_test != Some(0) && self.random != Some(0),
            "--self-test and --random take a number of programs, at least 1"
        );
        if let Some(wanted) = self.self_test {
            return self_test(wanted, self.seed, self.compiled);
        }
        if let Some(wanted) = self.random {
            return random(wanted, self.seed);
        }
        if self.catalogue {
            return catalogue::print_all(self.max_ranks, self.whole);
        }
        let what =
            self.what.as_deref().context("say what to verify: a collective, `all`, `probes` or a file")?;
        if what == "all" {
            ensure!(
                self.topology.is_empty() && self.algorithm.is_none(),
                "`verify all` goes through the whole catalogue: it takes neither --topology nor --algorithm"
            );
            return catalogue::verify(self.max_ranks, self.whole, self.compiled);
        }
        if what == "probes" {
            return verify_all(probes());
        }
        if let Ok(what) = collective(what).as_deref() {
            ensure!(
                !self.topology.is_empty(),
                "say on which nodes and ranks: add --topology T, such as --topology 4x2"
            );
            let algorithm = self.algorithm.as_deref().unwrap_or(default_algorithm(what));
            let probe = |topology| -> Result<Probe> {
                let task = self.sizes.task(what, topology)?;
                let expression = crate::ask::expression(algorithm)?;
                Ok(Probe { name: "", task, expression, claims: Claims::default() })
            };
            return verify_all(self.topology.iter().map(probe).collect::<Result<Vec<_>>>()?);
        }
        if what == "-" || Path::new(what).exists() {
            return verify_file(what);
        }
        let near = did_you_mean(what, COLLECTIVES);
        let all = COLLECTIVES.join(", ");
        bail!(
            "{near}`{what}` is neither `all` nor `probes`, nor one of {all}, nor a file; `-` is standard input"
        )
    }
}

/// Proofs look at all ranks together; above this they take long.
const MOST_RANKS: u32 = 1024;

/// Schedules and what lowering makes of them.
fn verify_all(probes: Vec<Probe>) -> Result<Answer> {
    let (mut verified, mut refused) = (0, 0);
    let mut text = String::new();
    for probe in probes {
        let Probe { task, expression, .. } = &probe;
        ensure!(
            task.topology.ranks() <= MOST_RANKS,
            "a proof looks at every rank, and takes at most {MOST_RANKS} of them"
        );
        let schedule = probe.schedule()?;
        let programs = [
            ("schedule", schedule.flatten()),
            ("program on segments", lower(&schedule, OnNode::Segment)),
            ("program on messages", lower(&schedule, OnNode::Messages)),
        ];
        for (name, program) in programs {
            let report = judged(task, &program)?;
            let head = format!(
                "{}, counts {}, on {}, by {expression}: {name}",
                task.collective, schedule.problem.counts, task.topology
            );
            if report.holds() {
                verified += 1;
                let _ = writeln!(text, "{head} holds, {}", found(&program, &report));
            } else {
                refused += 1;
                let _ = writeln!(text, "{head} is refused");
                for violation in &report.violations {
                    let _ = writeln!(text, "  {violation}");
                }
            }
        }
    }
    let _ = writeln!(text, "verified {verified} schedules, {refused} refused");
    print(&text)?;
    Ok(if refused == 0 { Answer::Holds } else { Answer::DoesNotHold })
}

/// Verifies a program; on a single node also three times with another one behind it on the same segment.
fn judged(task: &Task, program: &Program) -> Result<Report> {
    let report = verify(program);
    if !report.holds() || task.topology.regions(Level::NODE) > 1 || task.topology.ranks() < 2 {
        return Ok(report);
    }
    let other = neighbour(program, 1)?;
    Ok(verify_sequence(&[program, program, program, &other, program]))
}

/// What the verifier found out about a program that holds.
fn found(program: &Program, report: &Report) -> String {
    let mut words = Vec::new();
    if program.problem.collective.reduces() {
        words.push(if report.consistent { "consistent" } else { "not consistent" }.to_owned());
        words.push(if report.ordered { "ordered" } else { "not ordered" }.to_owned());
    }
    let most =
        |of: fn(&bruckner_schedule::verify::Traffic) -> u64| report.traffic.iter().map(of).max().unwrap_or(0);
    let (all, far) = (most(|t| t.messages.iter().sum()), most(bruckner_schedule::verify::Traffic::nonlocal));
    words.push(format!("at most {all} messages a rank, {far} between nodes"));
    words.push(format!("{} elements of memory", report.memory));
    words.join(", ")
}

fn verify_file(file: &str) -> Result<Answer> {
    let text = match file {
        "-" => std::io::read_to_string(std::io::stdin()).context("standard input")?,
        file => std::fs::read_to_string(file).with_context(|| file.to_owned())?,
    };
    let read = read(&text).with_context(|| file.to_owned())?;
    let program = read.document.to_program();
    let report = verify(&program);
    let mut out = String::new();
    for violation in &report.violations {
        let line = violation.site.and_then(|site| {
            read.lines.get(&site.rank)?.get(site.instr? as usize).map(|line| format!(":{line}"))
        });
        let _ = writeln!(out, "{file}{}: {violation}", line.unwrap_or_default());
    }
    if report.holds() {
        let _ = writeln!(out, "{file}: holds, {}", found(&program, &report));
    }
    print(&out)?;
    Ok(if report.holds() { Answer::Holds } else { Answer::DoesNotHold })
}

fn self_test(wanted: u64, seed: u64, compiled: bool) -> Result<Answer> {
    let bar = bar(wanted);
    let on = |done| bar.set_position(done);
    if compiled {
        let tallies = compiled::mutants(wanted, seed, on)?;
        bar.finish_and_clear();
        // Much of what runs may be done in another order, or once more than is needed.
        let answer = tell(&tallies, wanted, seed, 25.0)?;
        // Steps on sizes known only locally are instructions one by one, so they are broken as such.
        let wanted = wanted.div_ceil(10);
        let tallies = selftest::mutants_of(&compiled::sized_probes()?, wanted, seed, |_| ());
        print("\nsizes known only locally, ")?;
        let sized = tell(&tallies, wanted, seed, 5.0)?;
        return Ok(match sized {
            Answer::Holds => answer,
            other => other,
        });
    }
    let tallies = selftest::mutants(wanted, seed, on);
    bar.finish_and_clear();
    tell(&tallies, wanted, seed, 5.0)
}

/// Tells what became of mutants. A kind of which more than some percents make no difference says little.
fn tell<K: Ord + std::fmt::Display>(
    tallies: &BTreeMap<K, Tally>,
    wanted: u64,
    seed: u64,
    percents: f64,
) -> Result<Answer> {
    let mut text = format!("seed {seed}\n");
    let _ = writeln!(
        text,
        "{:<26} {:>8} {:>8} {:>10} {:>11} {:>7}",
        "mutation", "mutants", "refused", "run wrong", "equivalent", "missed"
    );
    let (mut total, mut refused, mut equivalent, mut missed) = (0, 0, 0, 0);
    let mut too_many = Vec::new();
    for (kind, tally) in tallies {
        let share = 100.0 * tally.equivalent as f64 / tally.total() as f64;
        let _ = writeln!(
            text,
            "{kind:<26} {:>8} {:>8} {:>10} {:>5} {share:>4.1}% {:>7}",
            tally.total(),
            tally.refused,
            tally.shown,
            tally.equivalent,
            tally.missed.len()
        );
        total += tally.total();
        refused += tally.refused;
        equivalent += tally.equivalent;
        missed += tally.missed.len();
        if share >= percents {
            too_many.push(kind);
        }
        for text in tally.missed.iter().take(2) {
            eprintln!("missed: {text}");
        }
    }
    let _ = writeln!(
        text,
        "run wrong: also seen to fail on data; equivalent: accepted, and right on data; missed: accepted and wrong"
    );
    for kind in &too_many {
        eprintln!("{kind}: {percents} % or more are equivalent, so the kind says little");
    }
    let _ = writeln!(text, "{total} mutants: {refused} refused, {equivalent} equivalent, {missed} missed");
    print(&text)?;
    let enough = total >= wanted;
    if !enough {
        eprintln!("only {total} different mutants were found, not {wanted}");
    }
    Ok(if missed == 0 && too_many.is_empty() && enough { Answer::Holds } else { Answer::DoesNotHold })
}

fn random(wanted: u64, seed: u64) -> Result<Answer> {
    let bar = bar(wanted);
    let grown = selftest::random_programs(wanted, seed, |done| bar.set_position(done));
    bar.finish_and_clear();
    for text in grown.refused.iter().chain(&grown.wrong).take(10) {
        eprintln!("{text}");
    }
    print(&format!(
        "seed {seed}\n{wanted} programs: {} accepted and right, {} refused, {} accepted and wrong\n",
        grown.right,
        grown.refused.len(),
        grown.wrong.len()
    ))?;
    Ok(if grown.right == wanted { Answer::Holds } else { Answer::DoesNotHold })
}

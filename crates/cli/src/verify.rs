//! `bruckner verify`: verifies algorithms and programs, and tests the verifier.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use bruckner_algorithms::lower::{OnNode, lower};
use bruckner_algorithms::reference_cases::{ReferenceCase, neighbour, reference_cases};
use bruckner_algorithms::selftest::Tally;
use bruckner_algorithms::{Task, selftest};
use bruckner_schedule::verify::{Traffic, Verification, Violation, verify, verify_sequence};
use bruckner_schedule::{Claims, Level, Program, Topology, read};
use clap::Args;
use serde_json::{Value, json};

use crate::ask::{COLLECTIVES, Sizes, collective, default_algorithm, did_you_mean};
use crate::bar::bar;
use crate::columns::{self, folded, numbers, words};
use crate::found::VerifyResult;
use crate::{Answer, catalogue, compiled, print};

/// Prove that algorithms, or texts in the schedule language, are correct; or test the verifier itself
#[derive(Args)]
pub(crate) struct Verify {
    /// A collective; `all`, for every algorithm in the catalogue; `probes`, for the examples of docs/theory/language.md; a file in the
    /// schedule language; or `-`, for standard input
    #[arg(value_name = "COLLECTIVE|all|probes|FILE", required_unless_present_any = ["self_test", "random", "catalogue"])]
    what: Option<String>,
    /// With `all`: maximum number of ranks
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=4096))]
    max_ranks: u32,
    /// With `all` and --catalogue: take all entries of the catalogue, instead of only a sample of those above 24 ranks
    #[arg(long)]
    whole: bool,
    /// With `all`: verify the compiled programs, which the library executes, for several sizes each; with --self-test: make the errors in
    /// compiled programs
    #[arg(long)]
    compiled: bool,
    /// Print the catalogue for up to --max-ranks ranks: one task and algorithm per line
    #[arg(long, conflicts_with = "what")]
    catalogue: bool,
    /// Topology, such as 16x4 (16 nodes of 4 ranks), written as for `bruckner explain`; may be given several times
    #[arg(long, value_name = "T")]
    topology: Vec<Topology>,
    #[command(flatten)]
    sizes: Sizes,
    /// Algorithm [default: bruck(2) for alltoall, sparbit for bcast and barrier, otherwise locality(node)]
    #[arg(long, value_name = "EXPR")]
    algorithm: Option<String>,
    /// Test the verifier: make N small errors in correct programs and check that each is found [default N: 20000]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "20000", conflicts_with = "what")]
    self_test: Option<u64>,
    /// Test the verifier: make N random programs that are correct, and check that it accepts each and that the interpreter, too, gets
    /// correct results [default N: 20000]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "20000", conflicts_with_all = ["what", "self_test"])]
    random: Option<u64>,
    /// Random seed of --self-test and --random
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(crate) fn run(self) -> Result<Answer> {
        let found = self.find()?;
        print(&if self.json { format!("{:#}\n", found.json) } else { folded(&found.text) })?;
        Ok(if found.holds { Answer::Success } else { Answer::Failure })
    }

    fn find(&self) -> Result<VerifyResult> {
        ensure!(
            self.self_test != Some(0) && self.random != Some(0),
            "--self-test and --random need at least 1 program"
        );
        if let Some(wanted) = self.self_test {
            return self_test(wanted, self.seed, self.compiled);
        }
        if let Some(wanted) = self.random {
            return Ok(random(wanted, self.seed));
        }
        if self.catalogue {
            return Ok(catalogue::listing(self.max_ranks, self.whole));
        }
        let what = self.what.as_deref().context("name what to verify: a collective, `all`, `probes` or a file")?;
        if what == "all" {
            ensure!(
                self.topology.is_empty() && self.algorithm.is_none(),
                "`verify all` covers the whole catalogue: remove --topology and --algorithm"
            );
            return Ok(catalogue::verify(self.max_ranks, self.whole, self.compiled));
        }
        if what == "probes" {
            return verify_all(reference_cases());
        }
        if let Ok(what) = collective(what).as_deref() {
            ensure!(!self.topology.is_empty(), "the topology is missing: add --topology T, such as --topology 4x2");
            let algorithm = self.algorithm.as_deref().unwrap_or(default_algorithm(what));
            let probe = |topology| -> Result<ReferenceCase> {
                let task = self.sizes.task(what, topology)?;
                let expression = crate::ask::expression(algorithm)?;
                Ok(ReferenceCase { name: "", task, expression, claims: Claims::default() })
            };
            return verify_all(self.topology.iter().map(probe).collect::<Result<Vec<_>>>()?);
        }
        if what == "-" || Path::new(what).exists() {
            return verify_file(what);
        }
        let near = did_you_mean(what, COLLECTIVES);
        let all = COLLECTIVES.join(", ");
        bail!("{near}cannot verify `{what}`: expected `all`, `probes`, one of {all}, a file, or `-` for standard input")
    }
}

/// Maximum number of ranks for one proof: a proof runs all ranks together, and takes long above this number.
const MOST_RANKS: u32 = 1024;

/// Verifies the schedule of each task and the programs lowered from it, for segments and for messages.
fn verify_all(probes: Vec<ReferenceCase>) -> Result<VerifyResult> {
    let (mut verified, mut refused) = (0, 0);
    let (mut text, mut all) = (String::new(), Vec::new());
    for probe in probes {
        let ReferenceCase { task, expression, .. } = &probe;
        ensure!(
            task.topology.ranks() <= MOST_RANKS,
            "{} ranks are too many: a proof covers all ranks together, and is limited to {MOST_RANKS} ranks",
            task.topology.ranks()
        );
        let schedule = probe.schedule()?;
        let programs = [
            ("schedule", schedule.flatten()),
            ("program on segments", lower(&schedule, OnNode::Segment)),
            ("program on messages", lower(&schedule, OnNode::Messages)),
        ];
        for (name, program) in programs {
            let report = verify_repeated(task, &program)?;
            let head = format!(
                "{}, counts {}, on {}, by {expression}: {name}",
                task.collective, schedule.problem.counts, task.topology
            );
            let mut of = in_json(&program, &report, &[]);
            of["collective"] = task.collective.to_string().into();
            of["counts"] = schedule.problem.counts.to_string().into();
            of["topology"] = task.topology.to_string().into();
            of["algorithm"] = expression.to_string().into();
            of["form"] = name.into();
            all.push(of);
            if report.is_correct() {
                verified += 1;
                let _ = writeln!(text, "{head} is correct: {}", properties_text(&program, &report));
            } else {
                refused += 1;
                let _ = writeln!(text, "{head} is refused");
                for violation in &report.violations {
                    let _ = writeln!(text, "  {violation}");
                }
            }
        }
    }
    let _ = writeln!(text, "verified {verified} programs, {refused} refused");
    let json = json!({ "verified": verified, "refused": refused, "programs": all });
    Ok(VerifyResult { text, json, holds: refused == 0 })
}

/// Returns the verifier's report on a program as JSON. `lines` holds the line of each violation in the program's file.
fn in_json(program: &Program, report: &Verification, lines: &[Option<u32>]) -> Value {
    let mut violations = Vec::new();
    for (at, violation) in report.violations.iter().enumerate() {
        violations.push(json!({ "what": violation.to_string(), "line": lines.get(at).copied().flatten() }));
    }
    let [messages, between_nodes] = busiest(report);
    let reduces = program.problem.collective.reduces();
    json!({
        "holds": report.is_correct(),
        "violations": violations,
        "consistent": reduces.then_some(report.consistent),
        "ordered": reduces.then_some(report.ordered),
        "most_messages_of_a_rank": messages,
        "most_between_nodes": between_nodes,
        "elements_of_memory": report.memory,
    })
}

/// Returns the maximum over ranks of the number of messages sent, and of the number of messages sent to other nodes.
fn busiest(report: &Verification) -> [u64; 2] {
    let most = |of: fn(&Traffic) -> u64| report.traffic.iter().map(of).max().unwrap_or(0);
    [most(|traffic| traffic.messages.iter().sum()), most(Traffic::internode_messages)]
}

/// Verifies a program. A program on a single node is also verified in a sequence of executions on one segment: three of this program, one
/// of another program, and one more of this program.
fn verify_repeated(task: &Task, program: &Program) -> Result<Verification> {
    let report = verify(program);
    if !report.is_correct() || task.topology.regions(Level::NODE) > 1 || task.topology.ranks() < 2 {
        return Ok(report);
    }
    let other = neighbour(program, 1)?;
    Ok(verify_sequence(&[program, program, program, &other, program]))
}

/// Describes the properties of a program that the verifier has accepted.
fn properties_text(program: &Program, report: &Verification) -> String {
    let mut words = Vec::new();
    if program.problem.collective.reduces() {
        words.push(if report.consistent { "consistent" } else { "not consistent" }.to_owned());
        words.push(if report.ordered { "ordered" } else { "not ordered" }.to_owned());
    }
    let [all, far] = busiest(report);
    words.push(format!("at most {all} messages a rank, {far} between nodes"));
    words.push(format!("{} elements of memory", report.memory));
    words.join(", ")
}

fn verify_file(file: &str) -> Result<VerifyResult> {
    let text = match file {
        "-" => std::io::read_to_string(std::io::stdin()).context("standard input")?,
        file => std::fs::read_to_string(file).with_context(|| file.to_owned())?,
    };
    let read = read(&text).with_context(|| file.to_owned())?;
    let program = read.document.to_program();
    let report = verify(&program);
    let line = |violation: &Violation| {
        let site = violation.site?;
        read.lines.get(&site.rank)?.get(site.instr? as usize).copied()
    };
    let lines: Vec<Option<u32>> = report.violations.iter().map(line).collect();
    let mut text = String::new();
    for (violation, line) in report.violations.iter().zip(&lines) {
        let line = line.map_or(String::new(), |line| format!(":{line}"));
        let _ = writeln!(text, "{file}{line}: {violation}");
    }
    if report.is_correct() {
        let _ = writeln!(text, "{file} is correct: {}", properties_text(&program, &report));
    }
    let mut json = in_json(&program, &report, &lines);
    json["file"] = file.into();
    Ok(VerifyResult { text, json, holds: report.is_correct() })
}

fn self_test(wanted: u64, seed: u64, compiled: bool) -> Result<VerifyResult> {
    let bar = bar(wanted);
    let on = |done| bar.set_position(done);
    if compiled {
        let tallies = compiled::mutants(wanted, seed, on)?;
        bar.finish_and_clear();
        // Many changes of compiled steps change no result, because steps may run in another order or be repeated; hence the limit of 25 %.
        let whole = summarise(&tallies, wanted, seed, 25.0);
        // Programs in which each rank knows only its own sizes (alltoallv) are executed instruction by instruction, so the errors are made
        // in instructions.
        let wanted = wanted.div_ceil(10);
        let tallies = selftest::mutants_of(&compiled::sized_probes()?, wanted, seed, |_| ());
        let sized = summarise(&tallies, wanted, seed, 5.0);
        return Ok(VerifyResult {
            text: whole.text + "\nsizes known only locally, " + &sized.text,
            json: json!({ "sizes_known_to_all": whole.json, "sizes_known_locally": sized.json }),
            holds: whole.holds && sized.holds,
        });
    }
    let tallies = selftest::mutants(wanted, seed, on);
    bar.finish_and_clear();
    Ok(summarise(&tallies, wanted, seed, 5.0))
}

/// Summarises the outcomes of mutants by kind of error. The self-test fails if `percents` % or more of the mutants of a kind are
/// equivalent to the correct program, because such a kind tests little.
fn summarise<K: Ord + std::fmt::Display>(
    tallies: &BTreeMap<K, Tally>,
    wanted: u64,
    seed: u64,
    percents: f64,
) -> VerifyResult {
    let head = [
        words("mutation"),
        numbers("mutants"),
        numbers("refused"),
        numbers("shown wrong"),
        numbers("equivalent"),
        numbers("missed"),
    ];
    let (mut rows, mut kinds) = (Vec::new(), Vec::new());
    let (mut total, mut refused, mut equivalent, mut missed) = (0, 0, 0, 0);
    let mut too_many = Vec::new();
    for (kind, tally) in tallies {
        let share = 100.0 * tally.equivalent as f64 / tally.total() as f64;
        let counts = [tally.total(), tally.refused, tally.shown];
        let mut row = vec![kind.to_string()];
        row.extend(counts.map(|count| count.to_string()));
        row.extend([format!("{} {share:>4.1}%", tally.equivalent), tally.missed.len().to_string()]);
        rows.push(row);
        kinds.push(json!({
            "mutation": kind.to_string(),
            "mutants": tally.total(),
            "refused": tally.refused,
            "run_wrong": tally.shown,
            "equivalent": tally.equivalent,
            "missed": tally.missed.len(),
        }));
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
    let mut text = format!("seed {seed}\n") + &columns::table(&head, &rows);
    let _ = writeln!(
        text,
        "refused: found by the verifier; shown wrong: the interpreter also got a wrong result; equivalent: accepted, and correct in the interpreter; missed: accepted but wrong"
    );
    for kind in &too_many {
        eprintln!("{kind}: {percents} % or more of the mutants are equivalent, so this kind of error tests little");
    }
    let _ = writeln!(text, "{total} mutants: {refused} refused, {equivalent} equivalent, {missed} missed");
    let enough = total >= wanted;
    if !enough {
        eprintln!("only {total} different mutants were found, not {wanted}");
    }
    let json = json!({
        "seed": seed,
        "mutants": total,
        "refused": refused,
        "equivalent": equivalent,
        "missed": missed,
        "mutations": kinds,
    });
    VerifyResult { text, json, holds: missed == 0 && too_many.is_empty() && enough }
}

fn random(wanted: u64, seed: u64) -> VerifyResult {
    let bar = bar(wanted);
    let grown = selftest::random_programs(wanted, seed, |done| bar.set_position(done));
    bar.finish_and_clear();
    for text in grown.refused.iter().chain(&grown.wrong).take(10) {
        eprintln!("{text}");
    }
    let (right, refused, wrong) = (grown.right, grown.refused.len(), grown.wrong.len());
    let text = format!(
        "seed {seed}\n{wanted} programs: {right} accepted and correct, {refused} refused, {wrong} accepted but wrong\n"
    );
    let json = json!({ "seed": seed, "programs": wanted, "right": right, "refused": refused, "wrong": wrong });
    VerifyResult { text, json, holds: right == wanted }
}

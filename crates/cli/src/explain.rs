//! `bruckner explain`: shows the algorithm that would be chosen, or any other, as text, stages, table, JSON or SimGrid trace.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bruckner_algorithms::factors::Factored;
use bruckner_algorithms::lower::{OnNode, empty, lower};
use bruckner_algorithms::{Expression, Task, TaskPlan, plan};
use bruckner_choose::{
    Ability, DecisionTables, Knowledge, Name, NativeAlgorithm, Profile, Question, Ranked, Reason, Vendor, choose,
    native_algorithm,
};
use bruckner_config::LocalConfig;
use bruckner_measure::time_text;
use bruckner_model::{Shape, program_steps, steps_of};
use bruckner_render::ti;
use bruckner_schedule::{Problem, Rank, Schedule, Topology};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::ask::{Sizes, collective, find_plan};
use crate::overview::Overview;
use crate::{Answer, json, print, table};

/// Show which algorithm the library would choose for a call and why, or the steps of any algorithm
#[derive(Args)]
pub(crate) struct Explain {
    /// allgather, allreduce, reduce_scatter, alltoall, bcast, reduce or barrier; MPI names such as MPI_Allreduce also work
    #[arg(value_parser = collective)]
    collective: String,
    /// Topology: 16x4 (16 nodes of 4 ranks), 16x2x8 (16 nodes of 2 sockets of 8 ranks), 4,4,3,1 (the ranks of each node) or 2+2,2+1 (the
    /// ranks of each socket of each node); append :cyclic or :permuted=SEED for another order of ranks
    #[arg(long, value_name = "T")]
    topology: Topology,
    #[command(flatten)]
    sizes: Sizes,
    /// Algorithm, such as sparbit, bruck(3), locality(node) or '8(-1 1 1 1)'; `all` compares all algorithms, with --format table or json.
    /// Default: the algorithm that the library would choose, with the reason
    #[arg(long, value_name = "EXPR")]
    algorithm: Option<String>,
    /// Show what the library would choose with this MPI and its default machine model. Without --mpi and --profile, this machine's
    /// profile is used or, if there is none, the default machine model of `other`
    #[arg(long, value_enum, value_name = "MPI", conflicts_with = "algorithm")]
    mpi: Option<MpiVendor>,
    /// Show what the library would choose with this profile, written by `bruckner tune`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["algorithm", "mpi"])]
    profile: Option<PathBuf>,
    /// Show only this rank; required with --format table or stages, and above 4096 ranks; not allowed with --algorithm all
    #[arg(long, value_name = "R")]
    rank: Option<u32>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Show each rank's lowered program (the instructions on buffers) instead of its schedule; only with --format text
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "segment")]
    lowered: Option<Lowered>,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text in the schedule language
    Text,
    /// STAGE, FRAC, TO, FROM listing as in the paper by Jocksch et al.; only for factorizations such as '8(-1 1 1 1)'
    Stages,
    /// One line for each operation, then the totals with the lower bounds
    Table,
    /// JSON
    Json,
    /// SimGrid trace of one rank (--rank R), or of each rank in a file of its own (-o DIRECTORY); ranks of a node exchange messages instead
    /// of sharing memory
    Ti,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MpiVendor {
    /// Open MPI up to version 4
    Openmpi4,
    /// Open MPI from version 5 on
    Openmpi,
    /// MPICH
    Mpich,
    /// Intel MPI, and every other MPI
    Other,
}

impl MpiVendor {
    fn vendor(self) -> Vendor {
        match self {
            MpiVendor::Openmpi4 => Vendor::OpenMpi4,
            MpiVendor::Openmpi => Vendor::OpenMpi,
            MpiVendor::Mpich => Vendor::Mpich,
            MpiVendor::Other => Vendor::Other,
        }
    }
}

/// Reads a profile, and prints a warning for each line that is not used.
pub(crate) fn read_profile(path: &Path) -> Result<Profile> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let (profile, dropped) = Profile::read(&text).map_err(|why| anyhow!("{}, {why}", path.display()))?;
    dropped.iter().for_each(|line| eprintln!("bruckner: {}, {line}; this entry is ignored", path.display()));
    Ok(profile)
}

/// Returns what the selection of algorithms knows from a profile, assuming that the library runs on the MPI for which the profile was
/// made.
fn knowledge_of(profile: Profile) -> Knowledge {
    let mpi = profile.provenance.mpi.clone();
    profile.knowledge(&mpi).0
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Lowered {
    /// Ranks of a node exchange data through a shared-memory segment
    Segment,
    /// Ranks of a node exchange messages
    Messages,
}

/// Maximum number of ranks that are shown together; for more, the user must pick one rank.
const MOST_RANKS: u32 = 4096;

impl Explain {
    pub(crate) fn run(self) -> Result<Answer> {
        let task = self.sizes.task(&self.collective, &self.topology)?;
        let ranks = self.topology.ranks();
        if let Some(rank) = self.rank {
            ensure!(rank < ranks, "rank {rank} does not exist: there are {ranks} ranks, numbered from 0");
        }
        let Some(algorithm) = self.algorithm.as_deref() else { return self.chosen(&task) };
        if algorithm == "all" {
            let as_table = matches!(self.format, Format::Table | Format::Json);
            ensure!(
                as_table && self.rank.is_none(),
                "--algorithm all needs --format table or --format json, and does not allow --rank"
            );
            let all = Overview::of(&task)?;
            return self.show(&if self.format == Format::Json { all.json() } else { all.table() });
        }
        let (expression, plan) = find_plan(&task, algorithm)?;
        self.show(&self.text(&expression, &plan)?)
    }

    /// Shows the choices of the library with the reason for each, in order of preference, and the plan of the first one that can be
    /// planned. Reductions count as order-sensitive (as in floating point).
    fn chosen(&self, task: &Task) -> Result<Answer> {
        let name = Name::read(&self.collective).context("a collective")?;
        let (ranks, counts) = (self.topology.ranks(), task.counts.clone());
        let problem = Problem::new(task.collective, ranks, counts, task.element).map_err(|why| anyhow!(why))?;
        let problem = Problem { order: task.order, ..problem };
        let question = Question { name, problem: &problem, is_order_sensitive: task.collective.reduces() };
        let here = LocalConfig::read(self.topology.ranks());
        let known = match (&self.profile, self.mpi) {
            (Some(path), _) => knowledge_of(read_profile(path)?),
            (None, Some(mpi)) => Knowledge::defaults(mpi.vendor()),
            (None, None) => {
                let (profile, complaints) = here.profile();
                complaints.iter().for_each(|why| eprintln!("bruckner: {why}"));
                profile.map_or_else(|| Knowledge::defaults(Vendor::Other), knowledge_of)
            }
        };
        let vendor = known.vendor;
        let tables =
            DecisionTables::new(Arc::new(self.topology.clone()), Arc::new(known), here.policy, Ability::default());
        let choices = choose(&tables.kind(&question), &tables, &here.rules);
        let ranking = Ranking::of(&tables, &question);
        let native = native_algorithm(vendor, task.collective, Shape::of(&self.topology), question.bytes());
        let mut text = ranking.as_ref().map_or(String::new(), |ranking| ranking.comments(native.as_ref()));
        let (mut tried, mut handled) = (Vec::new(), None);
        for choice in &choices {
            let left = choice.expression.runs_in_mpi();
            let planned = if left { None } else { Some(plan(task, &choice.expression)) };
            let why = match &planned {
                Some(Err(refusal)) => format!("cannot be used here: {refusal}"),
                _ => match tables.result(&question).filter(|tuned| tuned.expression == choice.expression) {
                    // A choice states one reason for its whole size range; here the measurement at this size replaces it.
                    Some(tuned) if matches!(choice.reason, Reason::Measured { .. }) => Reason::of(tuned).to_string(),
                    _ => choice.reason.to_string(),
                },
            };
            writeln!(text, "; {}: {why}", choice.expression)?;
            tried.push(json!({ "algorithm": choice.expression.to_string(), "why": why }));
            match planned {
                Some(Ok(plan)) => {
                    handled = Some((choice.expression.clone(), plan));
                    break;
                }
                None => break,
                Some(Err(_)) => {}
            }
        }
        match (self.format, handled) {
            (Format::Json, handled) => {
                let shown = |(expression, plan): (Expression, TaskPlan)| {
                    Ok::<_, anyhow::Error>(json::json(&expression, &plan, &self.shown(&plan)?))
                };
                let native = native.map(|native| {
                    let like = native.like.map(|like| like.to_string());
                    json!({ "name": native.name, "source": native.place.to_string(), "like": like })
                });
                let document = json!({
                    "native": native,
                    "candidates": ranking.as_ref().map(Ranking::json),
                    "choices": tried,
                    "plan": handled.map(shown).transpose()?,
                });
                self.show(&format!("{document:#}\n"))
            }
            (Format::Text, Some((expression, plan))) => self.show(&(text + &self.text(&expression, &plan)?)),
            (_, Some((expression, plan))) => {
                // The other formats cannot hold comments, so the reasons go to standard error.
                eprint!("{text}");
                self.show(&self.text(&expression, &plan)?)
            }
            (_, None) => self.show(&text),
        }
    }

    fn show(&self, text: &str) -> Result<Answer> {
        match &self.output {
            Some(directory) if self.format == Format::Ti && self.rank.is_none() => {
                let file = directory.join("traces.txt");
                std::fs::write(&file, text).with_context(|| file.display().to_string())?;
            }
            Some(file) => std::fs::write(file, text).with_context(|| file.display().to_string())?,
            None => print(text)?,
        }
        Ok(Answer::Success)
    }

    fn one_rank(&self, format: &str) -> Result<Rank> {
        self.rank.map(Rank).with_context(|| format!("--format {format} shows a single rank: add --rank R"))
    }

    fn ranks(&self) -> Result<Vec<Rank>> {
        let ranks = self.topology.ranks();
        match self.rank {
            Some(rank) => Ok(vec![Rank(rank)]),
            None if ranks > MOST_RANKS => bail!("{ranks} ranks are too many to show: add --rank R"),
            None => Ok((0..ranks).map(Rank).collect()),
        }
    }

    /// Returns the schedule of the selected ranks, without operations that are known to move no data.
    fn shown(&self, plan: &TaskPlan) -> Result<Schedule> {
        Ok(empty::run(plan.schedule_of(self.ranks()?), plan.purpose))
    }

    fn text(&self, expression: &Expression, plan: &TaskPlan) -> Result<String> {
        ensure!(self.lowered.is_none() || self.format == Format::Text, "--lowered prints text only: remove --format");
        match (self.format, self.lowered) {
            (Format::Text, None) => Ok(self.shown(plan)?.to_string()),
            (Format::Text, Some(how)) => {
                let ranks = self.ranks()?;
                ensure!(self.topology.ranks() <= MOST_RANKS, "--lowered takes at most {MOST_RANKS} ranks");
                let on_node = match how {
                    Lowered::Segment => OnNode::Segment,
                    Lowered::Messages => OnNode::Messages,
                };
                let mut program = lower(&plan.schedule(), on_node);
                program.ranks.retain(|rank, _| ranks.contains(rank));
                Ok(program.to_string())
            }
            (Format::Table, _) => {
                let rank = self.one_rank("table")?;
                Ok(table::table(expression, plan, rank, &self.shown(plan)?.ranks[&rank]))
            }
            (Format::Json, _) => Ok(format!("{:#}\n", json::json(expression, plan, &self.shown(plan)?))),
            (Format::Stages, _) => self.stages(expression, plan),
            (Format::Ti, _) => self.traces(expression, plan),
        }
    }

    /// Returns the SimGrid trace of one rank; or writes the traces of all ranks into a directory and returns a list of these files.
    fn traces(&self, expression: &Expression, plan: &TaskPlan) -> Result<String> {
        let ranks = self.ranks()?;
        let program = expression.groups_regions().then(|| lower(&plan.schedule(), OnNode::Messages));
        let trace = |rank: Rank| match &program {
            Some(program) => ti(rank, &program_steps(program, rank)),
            None => ti(rank, &steps_of(plan, rank)),
        };
        match (&self.output, self.rank) {
            (_, Some(rank)) => Ok(trace(Rank(rank))),
            (None, None) => {
                bail!("--format ti writes one trace for each rank: add -o DIRECTORY for all ranks, or --rank R for one")
            }
            (Some(directory), None) => {
                std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
                let mut list = String::new();
                for rank in ranks {
                    let file = directory.join(format!("{rank}.txt"));
                    std::fs::write(&file, trace(rank)).with_context(|| file.display().to_string())?;
                    writeln!(list, "{}", file.display())?;
                }
                Ok(list)
            }
        }
    }

    /// Returns the listing of the Jocksch paper, preceded by its parameters.
    fn stages(&self, expression: &Expression, plan: &TaskPlan) -> Result<String> {
        let rank = self.one_rank("stages")?;
        let Expression::Factors(factors) = expression else {
            bail!("--format stages is only for factorizations such as '8(-1 1 1 1)', not for `{expression}`");
        };
        let problem = &plan.problem;
        let factored = Factored::new(factors, problem.ranks)?;
        let bytes = |piece| problem.elements(piece).unwrap_or(0) * u64::from(problem.element);
        let sizes: Vec<String> = (0..problem.chunks()).map(|piece| bytes(piece).to_string()).collect();
        let group = if factors.len() > 1 { "_GROUP" } else { "" };
        let mut text = String::new();
        writeln!(text, "PARAMETER COLLECTIVE_TYPE ALLREDUCE{group}")?;
        writeln!(text, "PARAMETER NODE {rank}")?;
        writeln!(text, "PARAMETER NUM_NODES {}", problem.ranks)?;
        writeln!(text, "PARAMETER NUM_PORTS {expression}")?;
        writeln!(text, "PARAMETER MESSAGE_SIZES {}", sizes.join(" "))?;
        text.push_str(&factored.stages(rank));
        Ok(text)
    }
}

/// Predicted times of all correct algorithms and of the MPI's own function, fastest first, with measured times where a tuning run has
/// them.
struct Ranking {
    rows: Vec<(String, f64, Option<f64>)>,
    is_measured: bool,
}

impl Ranking {
    fn of(tables: &DecisionTables, question: &Question<'_>) -> Option<Ranking> {
        let (ranked, native) = tables.ranking(question);
        let native = native.filter(|_| !ranked.is_empty())?;
        let result = tables.result(question);
        let measured = |name: &str| {
            let result = result.filter(|result| result.expression.to_string() == name)?;
            Some(result.native_seconds * result.ratio)
        };
        let row = |of: Ranked| {
            let name = of.expression.to_string();
            let measured = measured(&name);
            (name, of.predicted, measured)
        };
        let mut rows: Vec<(String, f64, Option<f64>)> = ranked.into_iter().map(row).collect();
        let at = rows.partition_point(|(_, predicted, _)| *predicted <= native);
        let name = "native (or the best algorithm that is not node-aware)".to_owned();
        rows.insert(at, (name, native, result.map(|result| result.native_seconds)));
        Some(Ranking { rows, is_measured: result.is_some() })
    }

    fn comments(&self, native: Option<&NativeAlgorithm>) -> String {
        let width = self.rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
        let line = |name: &str, predicted: &str, measured: &str| {
            let line = format!("; {name:<width$} {predicted:>12} {measured:>12}");
            line.trim_end().to_owned() + "\n"
        };
        let mut text = line("algorithm", "predicted", if self.is_measured { "measured" } else { "" });
        for (name, predicted, measured) in &self.rows {
            text += &line(name, &time_text(*predicted), &measured.map(time_text).unwrap_or_default());
        }
        if let Some(NativeAlgorithm { name, place, like }) = native {
            let like = like.as_ref().map(|like| format!(", like {like}")).unwrap_or_default();
            text += &format!("; the MPI's own function: {name}{like} ({place})\n");
        }
        text + ";\n"
    }

    fn json(&self) -> Value {
        let row = |(name, predicted, measured): &(String, f64, Option<f64>)| json!({ "algorithm": name, "predicted_seconds": predicted, "measured_seconds": measured });
        self.rows.iter().map(row).collect()
    }
}

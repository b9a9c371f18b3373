//! `bruckner simulate`: predicts how long algorithms take on the model of a machine.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bruckner_algorithms::catalogue::kinds;
use bruckner_algorithms::{Expression, Task, plan};
use bruckner_measure::{bytes_text, time_text};
use bruckner_model::{Machine, Model, Simulation, steps_of};
use bruckner_schedule::{Level, Rank, Topology};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::ask::{Sizes, collective_or_all, parse_bytes};
use crate::columns::{numbers, table, words};
use crate::machines::machine;
use crate::{Answer, print, ratios};

/// Predict how long algorithms take on a machine, by simulating them on a model of it
#[derive(Args)]
pub(crate) struct Simulate {
    /// Name of the collective; with --ratios also `all`
    #[arg(value_parser = collective_or_all)]
    collective: String,
    /// Machine: a name listed by `bruckner machines`, or a machine file (.toml) written by `bruckner probe`
    #[arg(long, value_name = "M")]
    machine: String,
    /// Topology: 16x4 (16 nodes of 4 ranks), 16x2x8 (16 nodes of 2 sockets of 8 ranks), 4,4,3,1 (the ranks of each node) or 2+2,2+1 (the
    /// ranks of each socket of each node); append :cyclic or :permuted=SEED for another order of ranks
    #[arg(long, value_name = "T")]
    topology: Topology,
    /// Message sizes, counted as in `bruckner explain`, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "8", value_parser = parse_bytes)]
    bytes: Vec<u64>,
    /// Algorithm, such as sparbit, bruck(3) or locality(node); may be given several times. Default: all algorithms that can handle the
    /// collective on this topology
    #[arg(long, value_name = "EXPR", value_parser = crate::ask::expression)]
    algorithm: Vec<Expression>,
    /// Root of a bcast or reduce
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    root: u32,
    /// Instead of simulating, compute the cost of rank 0 by this formula
    #[arg(long, value_enum, value_name = "MODEL")]
    model: Option<Formula>,
    /// Show the speedup of the best node-aware algorithm over the best other algorithm instead of times, with the inter-node latency set to
    /// these multiples of the intra-node latency, separated by commas
    #[arg(long, value_name = "R", value_delimiter = ',', conflicts_with_all = ["model", "algorithm"])]
    ratios: Vec<f64>,
    /// Print JSON; times are in seconds
    #[arg(long)]
    json: bool,
    /// Write a picture of the --ratios result to FILE.svg
    #[arg(short, long, value_name = "FILE", requires = "ratios")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Formula {
    /// Hockney: the network's latency and rate for all messages
    Postal,
    /// Latency and rate by distance: network, node or socket
    Locality,
    /// As `locality`, but the injection rate of a node limits what its ranks send together
    MaxRate,
    /// LogGP: overheads of starting and finishing a message, and the gap between two messages
    Loggp,
}

impl Simulate {
    pub(crate) fn run(self) -> Result<Answer> {
        let machine = machine(&self.machine)?;
        if !self.ratios.is_empty() {
            return self.map(&machine);
        }
        ensure!(self.collective != "all", "`all` is allowed only with --ratios");
        let started = Instant::now();
        let mut classes = 0;
        let mut rows: Vec<(String, Vec<f64>)> = Vec::new();
        let first = self.task(self.bytes[0])?;
        let all = || {
            kinds(first.collective, &self.topology)
                .into_iter()
                .filter(|expression| plan(&first, expression).is_ok())
                .collect()
        };
        let algorithms: Vec<Expression> = if self.algorithm.is_empty() { all() } else { self.algorithm.clone() };
        if let (true, Some(any)) = (algorithms.is_empty(), kinds(first.collective, &self.topology).first()) {
            plan(&first, any)?;
        }
        for expression in &algorithms {
            let mut row = Vec::new();
            for &bytes in &self.bytes {
                let plan = plan(&self.task(bytes)?, expression)?;
                let seconds = match self.model {
                    Some(model) => {
                        let on_node = self.topology.largest(Level::NODE);
                        model.model().cost(&machine, &steps_of(&plan, Rank(0)).steps, on_node)
                    }
                    None => {
                        let played = Simulation::of(&plan)?;
                        classes = classes.max(played.classes());
                        played.run(&machine).with_context(|| expression.to_string())?.last()
                    }
                };
                row.push(seconds);
            }
            rows.push((expression.to_string(), row));
        }
        let what = match self.model {
            Some(_) => "cost of rank 0 by the formula",
            None => "time until the last rank is done",
        };
        let text = match self.json {
            true => self.in_json(&machine, what, &rows),
            false => {
                let head = [words("algorithm")].into_iter();
                let head = head.chain(self.bytes.iter().map(|bytes| numbers(bytes_text(*bytes))));
                let row = |(name, times): &(String, Vec<f64>)| {
                    [name.clone()].into_iter().chain(times.iter().map(|time| time_text(*time))).collect()
                };
                let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
                let title = format!("{} on {}, {}: {what}\n", self.collective, self.topology, machine.name);
                let error = machine.predictions.as_ref().filter(|_| self.model.is_none());
                let error = error.map(|error| format!("By cost formulas, {error}.\n")).unwrap_or_default();
                title + &table(&head.collect::<Vec<_>>(), &rows) + &error
            }
        };
        print(&text)?;
        if self.model.is_none() && started.elapsed().as_secs() > 0 {
            let (ranks, took) = (self.topology.ranks(), time_text(started.elapsed().as_secs_f64()));
            eprintln!("simulated {ranks} ranks in {took}, as at most {classes} classes of ranks that behave alike");
        }
        Ok(Answer::Success)
    }

    fn in_json(&self, machine: &Machine, what: &str, rows: &[(String, Vec<f64>)]) -> String {
        let times = |seconds: &[f64]| -> Vec<Value> {
            let pairs = self.bytes.iter().zip(seconds);
            pairs.map(|(bytes, seconds)| json!({ "bytes": bytes, "seconds": seconds })).collect()
        };
        let rows: Vec<Value> = rows
            .iter()
            .map(|(algorithm, seconds)| json!({ "algorithm": algorithm, "times": times(seconds) }))
            .collect();
        let document = json!({
            "collective": self.collective,
            "topology": self.topology.to_string(),
            "machine": machine.name,
            "predictions": machine.predictions.as_ref().filter(|_| self.model.is_none()).map(|error| json!({
                "number": error.number,
                "within_1_3": error.within_1_3,
                "within_2": error.within_2,
                "source": error.source,
            })),
            "what": what,
            "algorithms": rows,
        });
        format!("{document:#}\n")
    }

    /// Carries out `--ratios`: prints the speedups of node-aware algorithms, and draws them if `--output` is given.
    fn map(&self, machine: &Machine) -> Result<Answer> {
        let ordered = self.ratios.windows(2).all(|pair| pair[0] < pair[1]);
        let numbers = self.ratios.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0);
        ensure!(ordered && numbers, "--ratios takes positive numbers in ascending order");
        let nodes = self.topology.regions(Level::NODE);
        ensure!(
            nodes > 1 && self.topology.largest(Level::NODE) > 1,
            "--ratios needs several nodes of several ranks, such as 16x16"
        );
        if let Some(file) = &self.output {
            let is_svg = file.extension().is_some_and(|extension| extension == "svg");
            ensure!(is_svg, "the picture is an SVG: -o FILE.svg");
        }
        let names = match self.collective.as_str() {
            "all" => &ratios::COLLECTIVES[..],
            one => &[one],
        };
        let mut gains = Vec::new();
        for name in names {
            for &bytes in &self.bytes {
                gains.push(ratios::Gain::of(name, &self.task_of(name, bytes)?, bytes, machine, &self.ratios)?);
            }
        }
        print(&if self.json { ratios::json(&self.ratios, &gains) } else { ratios::table(&self.ratios, &gains) })?;
        if let Some(file) = &self.output {
            let figure = ratios::figure(ratios::title(machine, &self.topology), &self.ratios, &gains);
            std::fs::write(file, figure.svg()?).with_context(|| file.display().to_string())?;
        }
        Ok(Answer::Success)
    }

    fn task(&self, bytes: u64) -> Result<Task> {
        self.task_of(&self.collective, bytes)
    }

    fn task_of(&self, collective: &str, bytes: u64) -> Result<Task> {
        let sizes = Sizes { bytes, counts: None, root: self.root, ordered: false };
        sizes.task(collective, &self.topology)
    }
}

impl Formula {
    fn model(self) -> Model {
        match self {
            Formula::Postal => Model::Postal,
            Formula::Locality => Model::Locality,
            Formula::MaxRate => Model::MaxRate,
            Formula::Loggp => Model::LogGp,
        }
    }
}

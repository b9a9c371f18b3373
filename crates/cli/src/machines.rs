//! `bruckner machines`: lists the machine models that come with the library.

use anyhow::{Context, Result};
use bruckner_measure::time_text;
use bruckner_model::{LinkClass, Machine};
use clap::Args;
use serde_json::{Value, json};

use crate::columns::{self, numbers, words};
use crate::{Answer, print};

/// List the built-in machine models of `bruckner simulate`, or show one with the source of every number
#[derive(Args)]
pub(crate) struct Machines {
    /// Show all parameters of this machine, or of a machine file (.toml); edit the output to describe a machine of your own
    name: Option<String>,
    /// Print JSON; times are in seconds
    #[arg(long)]
    json: bool,
}

/// Returns a built-in machine by name, or reads a profile from a `.toml` file.
pub(crate) fn machine(name: &str) -> Result<Machine> {
    if let Some(machine) = Machine::builtin(name) {
        return Ok(machine);
    }
    if !name.ends_with(".toml") {
        let names: Vec<String> = Machine::all().map(|machine| machine.name).collect();
        anyhow::bail!(
            "unknown machine `{name}`; expected one of {}, or a machine file that ends in .toml",
            names.join(", ")
        );
    }
    let text = std::fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
    Machine::read(&text).with_context(|| format!("{name} is not a valid machine file (`bruckner probe` writes one)"))
}

impl Machines {
    pub(crate) fn run(self) -> Result<Answer> {
        if let Some(name) = &self.name {
            let shown = machine(name)?;
            let text = Machine::text(name).map_or_else(|| shown.write(), str::to_owned);
            print(&if self.json { in_json(&text)? } else { text })?;
            return Ok(Answer::Success);
        }
        let all: Vec<MachineRow> = Machine::all().map(MachineRow::of).collect();
        print(&if self.json { listed(&all) } else { table(&all) })?;
        Ok(Answer::Success)
    }
}

/// Row of the list of machines.
struct MachineRow {
    machine: Machine,
    /// Time of an 8-byte message in seconds: `far` between nodes, `near` within a node.
    far: f64,
    near: Option<f64>,
    /// Bytes per second that all ranks of a node together can send to other nodes in long messages, if limited.
    rate: Option<f64>,
}

impl MachineRow {
    fn of(machine: Machine) -> MachineRow {
        let latency = |reach| {
            let protocol = machine.link(reach).protocol(8);
            protocol.latency + 8.0 * protocol.per_byte
        };
        let has_node = machine.node.is_some() || machine.socket.is_some();
        let (far, near) = (latency(LinkClass::Network), has_node.then(|| latency(LinkClass::Socket)));
        MachineRow { far, near, rate: machine.injection_rate(u64::MAX), machine }
    }
}

fn table(all: &[MachineRow]) -> String {
    let head = [
        words("machine"),
        numbers("8 B inter-node"),
        numbers("8 B intra-node"),
        numbers("ratio"),
        numbers("injection rate"),
        words("description"),
    ];
    let row = |MachineRow { machine, far, near, rate }: &MachineRow| {
        let said = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
        vec![
            machine.name.clone(),
            time_text(*far),
            said(near.map(time_text)),
            said(near.map(|near| format!("{:.1}", far / near))),
            said(rate.map(|rate| format!("{:.1} GB/s", rate / 1e9))),
            machine.about.clone(),
        ]
    };
    columns::table(&head, &all.iter().map(row).collect::<Vec<_>>())
}

fn listed(all: &[MachineRow]) -> String {
    let row = |MachineRow { machine, far, near, rate }: &MachineRow| {
        json!({
            "name": machine.name,
            "about": machine.about,
            "network_seconds": far,
            "node_seconds": near,
            "node_bytes_a_second": rate,
        })
    };
    format!("{:#}\n", all.iter().map(row).collect::<Value>())
}

/// Converts a TOML profile to JSON.
pub(crate) fn in_json(profile: &str) -> Result<String> {
    let profile: toml::Table = toml::from_str(profile)?;
    Ok(serde_json::to_string_pretty(&profile)? + "\n")
}

//! `bruckner machines`: the profiles that come with the library.

use std::fmt::Write;

use anyhow::{Context, Result};
use bruckner_measure::time_text;
use bruckner_model::{Machine, Reach};
use clap::Args;

use crate::{Answer, print};

/// List the machines that `bruckner simulate` knows, or show one with the source of every number.
#[derive(Args)]
pub(crate) struct Machines {
    /// Show this one, or a profile in TOML, with all its numbers: a beginning for a profile of your own
    name: Option<String>,
}

/// A machine by its name, or from a file.
pub(crate) fn machine(name: &str) -> Result<Machine> {
    if let Some(machine) = Machine::known(name) {
        return Ok(machine);
    }
    if !name.ends_with(".toml") {
        let names: Vec<String> = Machine::all().map(|machine| machine.name).collect();
        anyhow::bail!(
            "there is no machine `{name}`; there are {}, and files that end in .toml",
            names.join(", ")
        );
    }
    let text = std::fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
    Machine::read(&text).with_context(|| name.to_owned())
}

impl Machines {
    pub(crate) fn run(self) -> Result<Answer> {
        if let Some(name) = &self.name {
            let shown = machine(name)?;
            print(&Machine::text(name).map_or_else(|| shown.write(), str::to_owned))?;
            return Ok(Answer::Holds);
        }
        let mut text = String::new();
        writeln!(
            text,
            "{:<18} {:>9} {:>9} {:>6} {:>10}  what it is",
            "8 bytes on", "network", "node", "ratio", "node sends"
        )?;
        for machine in Machine::all() {
            let latency = |reach| {
                let protocol = machine.wire(reach).protocol(8);
                protocol.latency + 8.0 * protocol.per_byte
            };
            let (far, near) = (latency(Reach::Network), latency(Reach::Socket));
            let has_node = machine.node.is_some() || machine.socket.is_some();
            let (node, ratio) = match has_node {
                true => (time_text(near), format!("{:.1}", far / near)),
                false => ("-".to_owned(), "-".to_owned()),
            };
            let rate =
                machine.limit(u64::MAX).map_or("-".to_owned(), |rate| format!("{:.1} GB/s", rate / 1e9));
            writeln!(
                text,
                "{:<18} {:>9} {node:>9} {ratio:>6} {rate:>10}  {}",
                machine.name,
                time_text(far),
                machine.about
            )?;
        }
        print(&text)?;
        Ok(Answer::Holds)
    }
}

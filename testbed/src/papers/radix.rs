//! Fan, Kumar: Bruck's alltoall with any radix.

use anyhow::Result;
use bruckner_measure::bytes_text;
use bruckner_model::machine::Injection;
use bruckner_model::steps::CostStep;
use bruckner_model::{Machine, Model, steps_of};
use bruckner_schedule::{Collective, Rank};

use super::{BY, Spread, known, on_all_cores, planned, table};

const RANKS: [u32; 4] = [512, 1024, 2048, 4096];
const BYTES: [u64; 4] = [16, 64, 256, 1024];

/// Number of ranks on a node of Theta.
const PER_NODE: u32 = 64;

/// Returns the radices to compare: all up to 128, which is 2·√P for the largest number of ranks P; larger powers of two; and P − 1.
fn radices(ranks: u32) -> impl Iterator<Item = u32> {
    let more = (8..).map(|power| 1 << power).take_while(move |radix| *radix < ranks);
    (2..=128).chain(more).chain([ranks - 1])
}

/// Returns, for each machine, the best radix, and the time with radix ⌈√P⌉ divided by the time with the best one, where P is the number of
/// ranks.
fn best(ranks: u32, per_node: u32, bytes: u64, machines: &[Machine]) -> Result<Vec<(u32, f64)>> {
    let topology = format!("{}x{per_node}", ranks / per_node);
    let radices: Vec<u32> = radices(ranks).collect();
    let steps: Vec<Vec<CostStep>> = on_all_cores(&radices, |radix| {
        let plan = planned(Collective::Alltoall, &topology, &format!("bruck({radix})"), bytes)?;
        Ok(steps_of(&plan, Rank(0)).steps)
    })?;
    let root = f64::from(ranks).sqrt().ceil() as u32;
    let of = |machine: &Machine| {
        let costs = radices.iter().zip(&steps);
        let costs: Vec<(u32, f64)> =
            costs.map(|(radix, steps)| (*radix, Model::MaxRate.cost(machine, steps, per_node))).collect();
        let least = costs.iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("there are radices");
        let at_root = costs.iter().find(|(radix, _)| *radix == root).expect("the root is one of them");
        (least.0, at_root.1 / least.1)
    };
    Ok(machines.iter().map(of).collect())
}

fn rows(per_node: u32, machines: &[Machine]) -> Result<Vec<Vec<String>>> {
    let mut rows = Vec::new();
    for ranks in RANKS {
        let mut row = vec![ranks.to_string(), (f64::from(ranks).sqrt().ceil() as u32).to_string()];
        for bytes in BYTES {
            let found = best(ranks, per_node, bytes, machines)?;
            let radix = Spread::of(&found.iter().map(|(radix, _)| f64::from(*radix)).collect::<Vec<_>>());
            let loss = Spread::of(&found.iter().map(|(_, loss)| *loss).collect::<Vec<_>>());
            row.push(format!("{radix:.0}; {loss}"));
        }
        rows.push(row);
    }
    Ok(rows)
}

pub(super) fn section() -> Result<String> {
    let alone = known("trinity")?;
    let mut crowded = alone.clone();
    // A node sends at most at the rate of one rank with long messages.
    let rate = 1.0 / alone.network.protocol(1 << 20).per_byte;
    crowded.injection = Some(Injection { rate, source: "as one rank".to_owned() });
    let of = BYTES.map(|bytes| format!("{} a block", bytes_text(bytes)));
    let head: Vec<&str> = ["ranks", "⌈√P⌉"].into_iter().chain(of.iter().map(String::as_str)).collect();
    let mut text = "## The radix of Bruck's alltoall (Fan, Kumar)

The paper: on Theta (Aries, 64 ranks a node), with P = 512 to 4,096 ranks and blocks of 16 to 1,024 bytes, ⌈√P⌉ is the best radix in most
cases. We know no latencies of Theta and use those of Trinity, which has the same network. Each cell has the best radix in the max-rate
model, and the time with radix ⌈√P⌉ divided by the time with the best radix. With one rank on each node:
"
    .to_owned();
    text.push_str(&table(&head, &rows(1, &alone.variations(BY))?));
    text.push_str("\nWith 64 ranks on each node, which together send at most at the rate of one rank:\n");
    text.push_str(&table(&head, &rows(PER_NODE, &crowded.variations(BY))?));
    text.push_str(NOTE);
    Ok(text)
}

const NOTE: &str = "
With 64 ranks on each node, model and paper agree for blocks of up to 64 bytes: radix ⌈√P⌉ takes at most 5 % longer than the best radix, in
all combinations of parameters. Since 64 ranks share a link, each byte takes 64 times as long. With one rank on each node the best radix is
far smaller, 2 to 16, and radix ⌈√P⌉ takes up to three times as long as the best. With 64 ranks on each node, model and paper differ at 1
KiB, and perhaps at 256 bytes. There, radix P − 1 is the best in the model (every block is a message of its own), because the model includes
neither the cost of a message for its sender nor the congestion of thousands of messages at a receiver.
";

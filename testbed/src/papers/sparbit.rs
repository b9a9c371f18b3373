//! Loch, Koslovski 2021: the Sparbit allgather.

use anyhow::Result;
use bruckner_measure::median;
use bruckner_model::machine::Injection;
use bruckner_model::{Machine, Simulation};
use bruckner_schedule::Collective;

use super::{BY, Spread, known, on_all_cores, planned, table};

/// Number of nodes of the paper's first cluster; `PER_NODE` is the number of ranks on each, two on a core.
const NODES: u32 = 16;
const PER_NODE: u32 = 16;

const OTHERS: [&str; 4] = ["bruck(2)", "recursive-doubling", "ring", "neighbor-exchange"];

/// Returns the numbers of ranks that the paper measured.
fn ranks() -> Vec<u32> {
    (8..=256).step_by(8).chain((5..=253).step_by(8)).collect()
}

/// Returns the block sizes that the paper measured, in bytes.
fn sizes() -> Vec<u64> {
    (0..=20).map(|power| 1 << power).collect()
}

/// Placement of ranks: nodes filled one by one, or ranks dealt out to all nodes.
#[derive(Clone, Copy)]
enum Mapping {
    Sequential,
    Cyclic,
}

impl Mapping {
    fn topology(self, ranks: u32) -> String {
        let list = |counts: Vec<u32>| counts.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        match self {
            Mapping::Sequential => {
                let full = (0..ranks).step_by(PER_NODE as usize);
                list(full.map(|first| (ranks - first).min(PER_NODE)).collect())
            }
            Mapping::Cyclic => {
                let counts = (0..NODES).map(|node| (ranks + NODES - 1 - node) / NODES);
                format!("{}:cyclic", list(counts.filter(|count| *count > 0).collect()))
            }
        }
    }
}

/// Returns, for each machine, the time of the fastest algorithm of `OTHERS` divided by the time of Sparbit, and the name of that
/// algorithm.
fn gains(mapping: Mapping, ranks: u32, bytes: u64, machines: &[Machine]) -> Result<Vec<(f64, &'static str)>> {
    let topology = mapping.topology(ranks);
    let time = |algorithm: &str| -> Result<Vec<f64>> {
        let played = Simulation::of(&planned(Collective::Allgather, &topology, algorithm, bytes)?)?;
        machines.iter().map(|machine| Ok(played.run(machine)?.last())).collect()
    };
    let fits = |algorithm: &&str| match *algorithm {
        "recursive-doubling" => ranks.is_power_of_two(),
        "neighbor-exchange" => ranks.is_multiple_of(2),
        _ => true,
    };
    let ours = time("sparbit")?;
    let mut best = vec![(f64::INFINITY, ""); machines.len()];
    for other in OTHERS.into_iter().filter(fits) {
        for (best, time) in best.iter_mut().zip(time(other)?) {
            if time < best.0 {
                *best = (time, other);
            }
        }
    }
    Ok(best.iter().zip(&ours).map(|(best, ours)| (best.0 / ours, best.1)).collect())
}

/// Smallest ratio that counts as a win of Sparbit, so that rounding errors do not count.
const WIN: f64 = 1.000_001;

/// Returns, for each machine, the share of cases that Sparbit wins, and the mean, median and maximum time saved in the cases won, all in
/// percent; and, as text, the share of cases that each other algorithm wins on the first machine.
fn shares(mapping: Mapping, machines: &[Machine], each: usize) -> Result<([Vec<f64>; 4], String)> {
    let cases: Vec<(u32, u64)> = ranks()
        .into_iter()
        .step_by(each)
        .flat_map(|ranks| sizes().into_iter().map(move |bytes| (ranks, bytes)))
        .collect();
    let gains = on_all_cores(&cases, |(ranks, bytes)| gains(mapping, *ranks, *bytes, machines))?;
    let mut found: [Vec<f64>; 4] = Default::default();
    for machine in 0..machines.len() {
        let won: Vec<f64> = gains.iter().map(|gains| gains[machine].0).filter(|gain| *gain > WIN).collect();
        let less: Vec<f64> = won.iter().map(|gain| 100.0 * (1.0 - 1.0 / gain)).collect();
        found[0].push(100.0 * won.len() as f64 / cases.len() as f64);
        found[1].push(less.iter().sum::<f64>() / less.len().max(1) as f64);
        found[2].push(if less.is_empty() { 0.0 } else { median(&less) });
        found[3].push(less.iter().copied().fold(0.0, f64::max));
    }
    let share = |other: &str| {
        let theirs = gains.iter().filter(|gains| gains[0].0 <= WIN && gains[0].1 == other).count();
        format!("{other} {:.1}", 100.0 * theirs as f64 / cases.len() as f64)
    };
    Ok((found, OTHERS.map(share).join(", ")))
}

/// Returns a model of the paper's cluster: Gigabit Ethernet shared by all ranks of a node, and on-node costs of a machine of that time.
fn yahoo() -> Result<Machine> {
    let mut machine = known("gigabit-ethernet")?;
    let rate = 1.0 / machine.network.protocol(1 << 20).per_byte;
    machine.injection = Some(Injection { rate, source: "as one rank".to_owned() });
    machine.socket = known("blue-waters")?.node;
    Ok(machine)
}

/// Where parameters vary, only every `EACH`-th number of ranks is simulated.
const EACH: usize = 4;

pub(super) fn section() -> Result<String> {
    let machine = yahoo()?;
    let around = machine.variations(BY);
    let mut rows = Vec::new();
    let claims = [
        ("sequential", Mapping::Sequential, ["46.43", "34.7", "26.16", "84.16"]),
        ("cyclic", Mapping::Cyclic, ["19.12", "about 15", "", "31 to 52"]),
    ];
    for (name, mapping, claims) in claims {
        let (all, others) = shares(mapping, std::slice::from_ref(&machine), 1)?;
        let (varied, _) = shares(mapping, &around, EACH)?;
        for (at, what) in
            ["cases won, %", "mean time saved if won, %", "median time saved if won, %", "maximum time saved if won, %"]
                .iter()
                .enumerate()
        {
            let spread = Spread::of(&[&all[at][..], &varied[at]].concat());
            rows.push(vec![name.to_owned(), (*what).to_owned(), claims[at].to_owned(), format!("{spread:.1}")]);
        }
        rows.push(vec![name.to_owned(), "cases won by others, %".to_owned(), String::new(), others]);
    }
    let mut text = format!(
        "## Sparbit (Loch, Koslovski 2021)

The paper compares allgathers in {cases} cases, on 16 nodes with Gigabit Ethernet: 5 to 256 ranks, blocks of 1 byte to 1 MiB. Sparbit is
faster than Bruck's, recursive doubling, ring and neighbour exchange in 46.43 % of cases if nodes are filled one by one, and in 19.12 % with
cyclic placement. In our model the ranks of a node share 116 MB/s, and messages within a node cost as much as between sockets of Blue
Waters. Ranges in parentheses were computed for every {EACH}th number of ranks.
",
        cases = ranks().len() * sizes().len()
    );
    text.push_str(&table(&["mapping", "", "the paper", "the model"], &rows));
    text.push_str(NOTE);
    Ok(text)
}

const NOTE: &str = "
Paper and model agree that Sparbit is the fastest more than twice as often with sequential as with cyclic placement. They differ in the
percentages. In most cases that Sparbit wins in the paper, ring wins in the model. With nodes filled one by one, ring lets only one rank of
each node send to another node, at the full rate, and in the model a step of ring costs no more than its message. In the paper's runs two
ranks shared a core, and each of up to 255 steps could wait for a rank that was not running; the model does not include such waits. Our
`bruck(2)` is faster than the paper's Bruck, since it receives blocks where they belong and copies nothing at its end. It sends as many
bytes as Sparbit, in as many steps. With cyclic placement, more of its messages than of Sparbit's stay within nodes.
";

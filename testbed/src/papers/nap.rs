//! Bienz, Olson, Gropp 2019: node-aware allreduces.

use anyhow::Result;
use bruckner_measure::bytes_text;
use bruckner_model::{LinkClass, Machine};
use bruckner_schedule::Collective;

use super::{BY, Spread, known, planned, table, times};

const NODES: u32 = 2048;
const PER_NODE: u32 = 16;

/// Names in the paper, and our algorithms of the same idea: recursive doubling of all ranks, of one rank of each node, and node-aware.
const ALGORITHMS: [(&str, &str); 3] = [
    ("RD", "recursive-doubling"),
    ("SMP", "leader(node, between=recursive-doubling)"),
    ("NAP", "locality(node, lanes=paper)"),
];

/// Returns the times of RD, SMP and NAP by equations 4, 5 and 6 of the paper, in seconds.
fn equations(machine: &Machine, bytes: u64) -> [f64; 3] {
    let (n, ppn, s) = (f64::from(NODES), f64::from(PER_NODE), bytes as f64);
    let near = machine.link(LinkClass::Socket).protocol(bytes);
    let far = machine.network.protocol(bytes);
    let gamma = machine.rank.reduce;
    let local = near.latency + near.per_byte * s;
    let alone = far.latency + far.per_byte * s;
    let all_send = far.latency + s * far.per_byte.max(ppn / machine.node_rate(bytes));
    let (ranks, log_nodes) = (n * ppn, n.ln() / ppn.ln());
    [
        local * ppn.log2() + all_send * n.log2() + gamma * s * ranks.log2(),
        local * ppn.log2() + alone * n.log2() + gamma * s * ranks.log2(),
        local * ranks.log2() + all_send * log_nodes + gamma * s * (ranks.log2() + log_nodes),
    ]
}

/// Returns the largest size at which NAP is the fastest on a machine; 0 if there is none. `by_size` has the times of RD, SMP and NAP, by
/// size and machine.
fn up_to(sizes: &[u64], by_size: &[Vec<[f64; 3]>], machine: usize) -> f64 {
    let wins = |times: &[f64; 3]| times[2] < times[0] && times[2] < times[1];
    let mut won = sizes.iter().zip(by_size).rev().filter(|(_, machines)| wins(&machines[machine]));
    won.next().map_or(0.0, |(bytes, _)| *bytes as f64)
}

pub(super) fn section() -> Result<String> {
    let machines = known("blue-waters")?.variations(BY);
    let topology = format!("{NODES}x{PER_NODE}");
    let sizes: Vec<u64> = (3..=14).map(|power| 1 << power).collect();
    let (mut by_equations, mut simulated) = (Vec::new(), Vec::new());
    for &bytes in &sizes {
        by_equations.push(machines.iter().map(|machine| equations(machine, bytes)).collect::<Vec<_>>());
        let mut of_size = vec![[0.0; 3]; machines.len()];
        for (at, (_, algorithm)) in ALGORITHMS.iter().enumerate() {
            let plan = planned(Collective::Allreduce, &topology, algorithm, bytes)?;
            for (times, time) in of_size.iter_mut().zip(times(&plan, &machines)?) {
                times[at] = time;
            }
        }
        simulated.push(of_size);
    }
    let row =
        |bytes: &u64, of: &[[f64; 3]]| {
            let mut row = vec![bytes_text(*bytes)];
            row.extend((0..2).map(|other| {
                Spread::of(&of.iter().map(|times| times[other] / times[2]).collect::<Vec<_>>()).to_string()
            }));
            row
        };
    let rows: Vec<Vec<String>> = sizes
        .iter()
        .zip(by_equations.iter().zip(&simulated))
        .map(|(bytes, (equations, simulated))| {
            let mut all = row(bytes, equations);
            all.extend_from_slice(&row(bytes, simulated)[1..]);
            all
        })
        .collect();
    let crossing = |by_size: &[Vec<[f64; 3]>]| {
        let each: Vec<f64> = (0..machines.len()).map(|machine| up_to(&sizes, by_size, machine)).collect();
        let Spread { value, least, most } = Spread::of(&each);
        let [value, least, most] = [value, least, most].map(|bytes| bytes_text(bytes as u64));
        format!("{value} ({least} to {most})")
    };
    let mut text = format!(
        "## Node-aware allreduce (Bienz, Olson, Gropp 2019)

On Blue Waters, with {ranks} ranks, 16 on a node, the paper measured that its node-aware algorithm (NAP) is the fastest up to 2,048 bytes.
Above this size the fastest is SMP, in which one rank of each node communicates. By the paper's equations 4 to 6, with our profile's
parameters, NAP is the fastest up to {equations}; by simulations of our schedules, up to {simulated}. Times of
recursive doubling (RD) and SMP, divided by NAP's:
",
        ranks = NODES * PER_NODE,
        equations = crossing(&by_equations),
        simulated = crossing(&simulated),
    );
    let head = ["bytes", "RD, equations", "SMP, equations", "RD, simulated", "SMP, simulated"];
    text.push_str(&table(&head, &rows));
    text.push_str(NOTE);
    Ok(text)
}

const NOTE: &str = "
The equations nearly agree with the measurement: 4 KiB instead of 2 KiB. Our schedule differs from the paper's within a node: each rank
reduces all 16 contributions in rank order, through shared memory, so that all ranks have the same bits. That is 15 reductions a step
instead of 4. A reduction on Blue Waters takes 1.44 ns a byte, so our NAP is the fastest only up to 1 KiB. At 256 bytes, recursive doubling
takes nearly as long as NAP. At 512 bytes recursive doubling takes longer: the inter-node latency is three times that at 256 bytes, and NAP
sends a third as many messages.
";

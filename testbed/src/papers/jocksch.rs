//! Jocksch, Ohana, Lanti, Karakasis, Villard 2021: allreduces given by factors and ports.

use anyhow::Result;
use bruckner_measure::{bytes_text, time_text};
use bruckner_model::machine::{Injection, Machine};
use bruckner_model::steps::CostStep;
use bruckner_model::{Simulation, steps_of};
use bruckner_schedule::{Collective, Rank};

use super::{BY, known, on_all_cores, planned, table};

/// Table 1 of the paper: factorization ("form"), steps, and data that a node sends, in units of 1/39 of the message.
const TABLE_1: [(&str, u32, u64); 4] = [
    ("39(1 1 1 1 1 1)", 6, 8 * 39),
    ("3(1 1) 13(1 1 1 1)", 6, 7 * 39),
    ("13(-1 -1 -1 -1) 3(-1 -1) 3(1 1) 13(1 1 1 1)", 12, 76),
    ("39(-1 -1 -1 -1 -1 -1) 39(1 1 1 1 1 1)", 12, 76),
];

/// Table 2 of the paper: bytes, the factorization that was found to be the best, and its time in microseconds.
const TABLE_2: [(u64, &str, f64); 12] = [
    (8, "160(12 12)", 82.11),
    (8192, "160(12 12)", 272.8),
    (16384, "160(-12 -12) 160(12 12)", 299.7),
    (131_072, "160(-12 -12) 160(12 12)", 631.4),
    (262_144, "16(-3 -3) 10(9) 16(3 3)", 862.7),
    (524_288, "160(-2 -4 -10) 160(10 4 2)", 1217.0),
    (1_048_576, "160(-2 -5 -8) 160(8 5 2)", 1857.0),
    (2_097_152, "160(-1 -2 -2 -8) 160(8 2 2 1)", 3149.0),
    (4_194_304, "160(-1 -1 -1 -2 -6) 160(6 2 1 1 1)", 5677.0),
    (8_388_608, "160(-1 -1 -1 -1 -1 -4) 160(4 1 1 1 1 1)", 11660.0),
    (16_777_216, "160(-1 -1 -1 -1 -1 -5) 160(5 1 1 1 1 1)", 19970.0),
    (33_554_432, "160(-1 -1 -1 -1 -1 -1 -2) 160(2 1 1 1 1 1 1)", 41850.0),
];

const NODES: u32 = 160;

/// Returns the number of messages that a rank sends, and the data in them in units of 1/39 of the message; the maximum over ranks.
fn counted(form: &str) -> Result<(u32, u64)> {
    let parts = 39;
    let plan = planned(Collective::Allreduce, "39x1", form, 8 * parts)?;
    let sent = |rank| {
        let steps = steps_of(&plan, Rank(rank)).steps;
        let sends = steps.iter().filter_map(|step| match step {
            CostStep::Send { bytes, .. } => Some(*bytes),
            _ => None,
        });
        sends.fold((0, 0), |(messages, all), bytes| (messages + 1, all + bytes / 8))
    };
    Ok((0..parts as u32).map(sent).max().expect("there are ranks"))
}

/// Returns a model of Piz Daint in which the ports of a node share its injection rate.
fn daint() -> Result<Machine> {
    let mut machine = known("piz-daint")?;
    let rate = 1.0 / machine.network.protocol(8).per_byte;
    machine.injection = Some(Injection { rate, source: "as one message".to_owned() });
    Ok(machine)
}

/// Simulation of one size. For each machine, `fastest` is the fastest form, and `theirs` is the time of the paper's form divided by the
/// time of the fastest; `time` is the time of the paper's form on the first machine, in seconds.
struct Found {
    fastest: Vec<&'static str>,
    theirs: Vec<f64>,
    time: f64,
}

fn find(forms: &[&'static str], bytes: u64, theirs: &str, machines: &[Machine]) -> Result<Found> {
    let times = on_all_cores(forms, |form| {
        let played = Simulation::of(&planned(Collective::Allreduce, &format!("{NODES}x1"), form, bytes)?)?;
        machines.iter().map(|machine| Ok(played.run(machine)?.last())).collect::<Result<Vec<f64>>>()
    })?;
    let mut found = Found { fastest: Vec::new(), theirs: Vec::new(), time: 0.0 };
    let at = forms.iter().position(|form| *form == theirs).expect("theirs is one of them");
    for machine in 0..machines.len() {
        let all = forms.iter().zip(&times).map(|(form, times)| (*form, times[machine]));
        let best = all.min_by(|a, b| a.1.total_cmp(&b.1)).expect("there are forms");
        found.fastest.push(best.0);
        found.theirs.push(times[at][machine] / best.1);
    }
    found.time = times[at][0];
    Ok(found)
}

fn table_2(forms: &[&'static str], machine: &Machine) -> Result<String> {
    let machines = machine.variations(BY);
    let mut rows = Vec::new();
    for (bytes, theirs, took) in TABLE_2 {
        let found = find(forms, bytes, theirs, &machines)?;
        let stays = found.fastest.iter().filter(|form| **form == found.fastest[0]).count();
        rows.push(vec![
            bytes_text(bytes),
            theirs.to_owned(),
            time_text(took * 1e-6),
            time_text(found.time),
            format!("{} ({stays} of {})", found.fastest[0], machines.len()),
            super::Spread::of(&found.theirs).to_string(),
        ]);
    }
    let head = [
        "bytes",
        "paper's choice",
        "measured time",
        "simulated",
        "fastest in the model (on how many of the varied machines)",
        "time of the paper's choice relative to the fastest",
    ];
    Ok(table(&head, &rows))
}

pub(super) fn section() -> Result<String> {
    let mut rows = Vec::new();
    for (form, steps, size) in TABLE_1 {
        let (counted_steps, counted_size) = counted(form)?;
        rows.push(vec![form.to_owned(), format!("{steps}, {size}/39"), format!("{counted_steps}, {counted_size}/39")]);
    }
    let mut text = "## Factors and ports (Jocksch, Ohana, Lanti, Karakasis, Villard)

Table 1 of the paper is for an allreduce on 39 nodes. It has the number of steps, and the data that a node sends in units of the message
size; *counted* is from our schedules.
"
    .to_owned();
    text.push_str(&table(&["factorization", "the paper", "counted"], &rows));
    let mut forms: Vec<&str> = TABLE_2.iter().map(|(_, form, _)| *form).collect();
    forms.dedup();
    let machine = daint()?;
    text.push_str(
        "
Table 2 of the paper has the factorization measured to be fastest for each size, in an allreduce on 160 Aries nodes of 12 ranks. We compare
these factorizations in the model, with Piz Daint's latency of 1.30 µs and 9.6 GB/s, which all ports of a node share; ports and reductions
cost nothing:
",
    );
    text.push_str(&table_2(&forms, &machine)?);
    // In the paper, two steps of 8 bytes took 82 µs.
    let mut slow = machine.clone();
    slow.network.protocols.iter_mut().for_each(|protocol| protocol.latency = TABLE_2[0].2 * 1e-6 / 2.0);
    text.push_str("\nThe same with a latency of 41 µs, half of the 82.1 µs measured for two steps of 8 bytes:\n");
    text.push_str(&table_2(&forms, &slow)?);
    text.push_str(NOTE);
    Ok(text)
}

const NOTE: &str = "
The paper and the model agree on how the best algorithm changes with size: one allgather of whole vectors for the shortest messages, a
reduce_scatter and an allgather for the others. In the paper, the change comes between 8 and 16 KiB. In the model, it comes below 8 KiB with
a latency of 1.30 µs, and between 16 and 128 KiB with 41 µs. For long messages, paper and model differ in the number of ports. Since ports
cost nothing in the model, 12 ports remain the fastest, but by little: with a latency of 1.30 µs, the paper's choice takes at most 4 %
longer from 512 KiB on. The paper measured that fewer ports are better for longer messages, so several long messages at once have a cost on
that machine that no published number gives. The paper's allreduce of 32 MiB took 6 times as long as the link needs; the model does not
include that 12 ranks reduce and copy in a node's memory.
";

//! `bruckner probe`: measures the costs of messages and shared memory, and writes a machine file.

mod messages;
mod on_node;

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use bruckner_engine::mpi::AgreeOp;
use bruckner_engine::{Engine, Mpi};
use bruckner_measure::{median, time_text};
use bruckner_model::fit::{Sample, protocols};
use bruckner_model::machine::{Costs, Link, Machine};
use clap::Args;

use crate::machines::in_json;
use crate::{Answer, print};
use messages::LONGEST;
pub(crate) use messages::Ranks;

/// Measure the costs of messages and shared memory on this machine, and write a machine file for `bruckner simulate`
///
/// `mpirun -n 16 bruckner probe -o here.toml` takes a few seconds. `bruckner simulate --machine here.toml` then predicts how long any
/// algorithm takes on this machine. The library does not read machine files: it needs a profile, which `bruckner tune` writes.
///
/// Latencies and rates come from messages between pairs of ranks: one pair alone, then all pairs at once. The other costs come from
/// collectives among the ranks of a node; no collective between nodes is measured. If all ranks are on one node, the file says that
/// messages between nodes were not measured.
#[derive(Args)]
pub(crate) struct Probe {
    /// Name of the machine, to be written in the file
    #[arg(long, default_value = "here")]
    name: String,
    /// Write the machine file to FILE, and print a table of the measured times; without FILE, print the machine file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the machine file as JSON
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// Smallest plausible ratio of a message's time to the time of a message half as long; a smaller one shows that the measurement was
/// disturbed.
const MIN_TIME_RATIO: f64 = 0.7;

/// Number of messages that a rank sends at once to measure the gap between messages.
const BURST: usize = 8;

/// Maximum bytes of messages whose time is taken to be independent of their size.
const SHORT: u64 = 512;

/// If several messages at once have less than this fraction of the sum of their single rates, the node or the rank limits the rate.
const LIMITED_BELOW: f64 = 0.9;

impl Probe {
    pub(crate) fn run(self) -> Result<Answer> {
        let mpi = Mpi::find_or_load()?;
        mpi.start()?;
        Engine::get()?.init()?;
        let mut ranks = Ranks::new(mpi)?;
        let nodes = ranks.nodes();
        if ranks.places.len() < 2 {
            mpi.stop()?;
            bail!("probe needs at least two ranks, such as `mpirun -n 2 bruckner probe`");
        }
        // The file is opened before the measurement, and all ranks learn if that failed.
        let first = ranks.me == 0;
        let mut file = match &self.output {
            Some(path) if first => Some(File::create(path).with_context(|| path.display().to_string())),
            _ => None,
        };
        let mut failed = [u64::from(matches!(file, Some(Err(_))))];
        mpi.agree(mpi.comm_world(), AgreeOp::Max, &mut failed)?;
        let outcome = match failed[0] {
            0 => Some(measure(mpi, &mut ranks, &nodes, &self.name).unwrap_or_else(|error| {
                eprintln!("bruckner: {error:#}");
                mpi.abort(2)
            })),
            _ => None,
        };
        // All ranks finalise MPI together, even if the output fails afterwards.
        mpi.stop()?;
        let (true, Some((machine, samples))) = (first, outcome) else {
            return match file {
                Some(Err(error)) => Err(error),
                // Only the first rank reports the error: a launcher kills all ranks when one fails.
                _ => Ok(Answer::Success),
            };
        };
        match &mut file {
            Some(Ok(file)) => {
                file.write_all(machine.write().as_bytes())?;
                print(&samples)?;
            }
            _ if self.json => print(&in_json(&machine.write())?)?,
            _ => print(&machine.write())?,
        }
        Ok(Answer::Success)
    }
}

/// Function from a rank to the ranks that it exchanges messages with.
type Partners = Box<dyn Fn(u32) -> Vec<u32>>;

/// Returns the function that gives each rank its partners in `pairs`.
fn pairs(pairs: Vec<(u32, u32)>) -> Partners {
    Box::new(move |rank| {
        let of = |&(a, b): &(u32, u32)| match rank {
            _ if rank == a => Some(b),
            _ if rank == b => Some(a),
            _ => None,
        };
        pairs.iter().filter_map(of).collect()
    })
}

/// Pairs up consecutive ranks of a list.
fn neighbours(ranks: &[u32]) -> Vec<(u32, u32)> {
    ranks.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

/// Measures messages of all sizes. The longest are sent first: a TCP connection must have carried some data before it is fast.
fn samples(ranks: &mut Ranks, with: &Partners) -> Result<Vec<Sample>> {
    let sizes = (3..=LONGEST.ilog2()).rev().map(|power| 1 << power);
    let mut samples: Vec<Sample> =
        sizes.map(|bytes| Ok((bytes, ranks.exchange(with, bytes)?))).collect::<Result<_>>()?;
    samples.reverse();
    Ok(samples)
}

/// Returns the smallest message size at which a send waits for its receiver (rendezvous), if there is one.
fn waits_from(ranks: &mut Ranks, (a, b): (u32, u32)) -> Result<Option<u64>> {
    for power in 6..=LONGEST.ilog2() {
        if ranks.waits(a, b, 1 << power)? {
            return Ok(Some(1 << power));
        }
    }
    Ok(None)
}

fn is_short((bytes, _): &&Sample) -> bool {
    *bytes <= SHORT
}

/// Measures the gap, the time between two messages that a rank sends at once. `alone` holds the times of single messages.
fn gap_of(ranks: &mut Ranks, with: Partners, alone: &[Sample]) -> Result<Option<f64>> {
    let one = median(&alone.iter().filter(is_short).map(|(_, took)| *took).collect::<Vec<_>>());
    let several: Partners = Box::new(move |rank| with(rank).repeat(BURST));
    Ok(Some((ranks.exchange(&several, 8)? - one).max(0.0) / (BURST - 1) as f64))
}

/// Measurements of messages between nodes; `alone` are times of one pair of ranks, `together` times of all pairs at once.
struct InterNode {
    wire: Link,
    /// Bytes per second that a rank can send to several nodes at once, if less than the sum of the rates to each of them alone.
    rate: Option<f64>,
    alone: Vec<Sample>,
    together: Vec<Sample>,
}

/// Measures messages between nodes: by one pair of ranks, then by all ranks of pairs of nodes at once. Collective.
fn between(ranks: &mut Ranks, flat: &[Vec<u32>], source: &str) -> Result<InterNode> {
    let one = (flat[0][0], flat[1][0]);
    let alone = samples(ranks, &pairs(vec![one]))?;
    let all: Vec<(u32, u32)> =
        flat.chunks_exact(2).flat_map(|nodes| nodes[0].iter().copied().zip(nodes[1].iter().copied())).collect();
    let with_all = pairs(all.clone());
    let together = samples(ranks, &with_all)?;
    let waits = waits_from(ranks, one)?;
    let gap = gap_of(ranks, with_all, &together)?;
    let mut wire = Link { source: source.to_owned(), gap, protocols: protocols(&alone, waits) };
    // In a collective all ranks are active, so latencies include the delay measured with all pairs.
    let later = together.iter().filter(is_short).zip(&alone).map(|(together, alone)| together.1 - alone.1);
    let crowd = median(&later.collect::<Vec<_>>()).max(0.0);
    wire.protocols.iter_mut().for_each(|protocol| protocol.latency += crowd);

    // Injection rate of a node for each protocol, from the time difference between its longest and its shortest messages.
    let senders = flat.chunks_exact(2).map(|nodes| nodes[0].len().min(nodes[1].len())).max().unwrap_or(1) as f64;
    let mut from = 0;
    for protocol in &mut wire.protocols {
        let below = protocol.below.unwrap_or(u64::MAX);
        let mut of_it = together.iter().filter(|(bytes, _)| (from..below).contains(bytes));
        if let (Some(shortest), Some(longest)) = (of_it.next(), of_it.next_back()) {
            let sent = senders * (longest.0 - shortest.0) as f64 / (longest.1 - shortest.1);
            protocol.injection = (sent > 0.0 && sent < LIMITED_BELOW * senders / protocol.per_byte).then_some(sent);
        }
        from = below;
    }
    let spokes: Vec<(u32, u32)> = flat[1..].iter().map(|node| (one.0, node[0])).collect();
    let messages = spokes.len() as f64;
    let with_spokes = pairs(spokes);
    let (mut rank_rate, mut is_limited): (f64, bool) = (0.0, messages > 1.0);
    for bytes in [waits.map_or(LONGEST as u64, |from| from / 2), LONGEST as u64] {
        let protocol = wire.protocol(bytes);
        let sent = messages * bytes as f64 / (ranks.exchange(&with_spokes, bytes)? - protocol.latency);
        is_limited &= sent > 0.0 && sent < LIMITED_BELOW * messages / protocol.per_byte;
        rank_rate = rank_rate.max(sent);
    }
    Ok(InterNode { wire, rate: is_limited.then_some(rank_rate), alone, together })
}

/// Measures all costs. Returns the machine and a table of the measured times. Collective.
pub(crate) fn measure(
    mpi: &'static Mpi,
    ranks: &mut Ranks,
    nodes: &[Vec<Vec<u32>>],
    name: &str,
) -> Result<(Machine, String)> {
    let flat: Vec<Vec<u32>> = nodes.iter().map(|sockets| sockets.concat()).collect();
    let shape = Engine::get()?.findings()?.topology;
    let mpi_name = crate::bench::mpi_name(mpi);
    let source = format!("measured by bruckner probe on {shape}, {mpi_name}");
    let mut text = String::new();
    let far = if flat.len() > 1 { Some(between(ranks, &flat, &source)?) } else { None };

    // Messages on nodes: inside sockets, and between the sockets of a node.
    let inside: Vec<(u32, u32)> = nodes.iter().flatten().flat_map(|socket| neighbours(socket)).collect();
    let between: Vec<(u32, u32)> = nodes
        .iter()
        .filter(|sockets| sockets.len() > 1)
        .flat_map(|sockets| sockets[0].iter().copied().zip(sockets[1].iter().copied()))
        .collect();
    let mut near = |pairs_of: Vec<(u32, u32)>| -> Result<Option<(Link, Vec<Sample>)>> {
        let Some(&first) = pairs_of.first() else { return Ok(None) };
        let with_near = pairs(pairs_of);
        let found = samples(ranks, &with_near)?;
        let waits = waits_from(ranks, first)?;
        let gap = gap_of(ranks, with_near, &found)?;
        let wire = Link { source: source.clone(), gap, protocols: protocols(&found, waits) };
        Ok(Some((wire, found)))
    };
    let (socket, node) = (near(inside)?, near(between)?);

    let between = far.iter().flat_map(|far| [("one pair", &far.alone[..]), ("all pairs", &far.together[..])]);
    let columns: Vec<(&str, &[Sample])> = between
        .chain(socket.as_ref().map(|(_, found)| ("on a socket", &found[..])))
        .chain(node.as_ref().map(|(_, found)| ("on a node", &found[..])))
        .collect();
    write!(text, "{:>10}", "bytes")?;
    columns.iter().try_for_each(|(name, _)| write!(text, " {name:>12}"))?;
    for (at, (bytes, _)) in columns.first().map_or(&[][..], |(_, found)| found).iter().enumerate() {
        write!(text, "\n{:>10}", bruckner_measure::bytes_text(*bytes))?;
        columns.iter().try_for_each(|(_, found)| write!(text, " {:>12}", time_text(found[at].1)))?;
    }
    text.push('\n');
    for (name, found) in &columns {
        if let Some(pair) = found.windows(2).find(|pair| pair[1].1 < MIN_TIME_RATIO * pair[0].1) {
            writeln!(
                text,
                "{name}: {} took {}, but {} only {}: other load disturbed the measurement; run probe again when the machine is idle",
                bruckner_measure::bytes_text(pair[0].0),
                time_text(pair[0].1),
                bruckner_measure::bytes_text(pair[1].0),
                time_text(pair[1].1),
            )?;
        }
    }

    let (node, socket) = (node.map(|(wire, _)| wire), socket.map(|(wire, _)| wire));
    let (network, rate) = match (far, node.as_ref().or(socket.as_ref())) {
        (Some(far), _) => (far.wire, far.rate),
        (None, Some(near)) => {
            let source = format!(
                "not measured, because all ranks were on one node: values are those within the node ({source})"
            );
            (Link { source, ..near.clone() }, None)
        }
        (None, None) => bail!("no pair of ranks could be measured"),
    };
    let rank = Costs { rate, source, ..Costs::default() };
    let (name, about) = (name.to_owned(), format!("{shape}, {mpi_name}"));
    let mut machine = Machine { name, about, network, node, socket, injection: None, rank, predictions: None };
    on_node::find(mpi, ranks, &mut machine)?;
    Ok((machine.rounded(3), text))
}

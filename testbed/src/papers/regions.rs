//! Bienz, Gautam, Kharel 2022: a locality-aware Bruck allgather.

use anyhow::Result;
use bruckner_schedule::Collective;

use super::{BY, Spread, known, planned, table, times};

/// Bytes of a block: two integers, as in the paper.
const BYTES: u64 = 8;

const PER_NODE: [u32; 4] = [4, 8, 16, 32];
const NODES: [u32; 4] = [16, 64, 256, 1024];

pub(super) fn section() -> Result<String> {
    let machines = known("lassen")?.variations(BY);
    let mut rows = Vec::new();
    for nodes in NODES {
        let mut row = vec![nodes.to_string()];
        for per_node in PER_NODE {
            let time = |algorithm: &str| {
                times(&planned(Collective::Allgather, &format!("{nodes}x{per_node}"), algorithm, BYTES)?, &machines)
            };
            let (flat, aware) = (time("bruck(2)")?, time("locality(node, lanes=paper)")?);
            let gains: Vec<f64> = flat.iter().zip(&aware).map(|(flat, aware)| flat / aware).collect();
            row.push(Spread::of(&gains).to_string());
        }
        rows.push(row);
    }
    let mut text = "## Locality-aware Bruck (Bienz, Gautam, Kharel 2022)

The paper: on Lassen, a locality-aware allgather of two integers a rank is faster than Bruck's, and the speedup grows with the number of
ranks in a region. The paper's plots have no numbers. Speedup over Bruck's algorithm in our model, for regions of 4 to 32 ranks, each on a
socket:
"
    .to_owned();
    let of = PER_NODE.map(|ranks| format!("{ranks} in a region"));
    let head: Vec<&str> = std::iter::once("regions").chain(of.iter().map(String::as_str)).collect();
    text.push_str(&table(&head, &rows));
    text.push_str(NOTE);
    Ok(text)
}

const NOTE: &str = "
Paper and model agree: with 4 ranks in a region the speedup is 1.4 to 1.6, with 32 it is 1.9 to 11. The speedup does not grow steadily,
because it also depends on whether the number of regions is at or just below a power of the number of ranks in a region. With 16 regions of
4 or 8 ranks, either algorithm could be faster if parameters differ by 30 %.
";

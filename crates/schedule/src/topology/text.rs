//! Text form of topologies: parser and printer.

use std::fmt;
use std::str::FromStr;

use super::{Placement, Shape, Topology, TopologyError};

impl FromStr for Topology {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Topology, TopologyError> {
        let error = |at: usize, reason| TopologyError { text: text.to_owned(), column: at + 1, reason };
        let (shape, placement) = text.split_once(':').map_or((text, None), |(s, p)| (s, Some(p)));
        let canonical = |text: &str| text.parse::<u64>().ok().filter(|n| n.to_string() == text);
        // Parses a number that starts at column `at`. Signs and leading zeros are errors, so that each topology has one text.
        let number = |part: &str, at: usize| -> Result<u32, TopologyError> {
            if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) || part.starts_with('0') {
                return Err(error(at, "expected a number of at least 1"));
            }
            part.parse().ok().filter(|&n| n <= Topology::MAX_RANKS).ok_or_else(|| error(at, "number too large"))
        };
        let numbers = |part: &str, at: usize, separator: char| -> Result<Vec<u32>, TopologyError> {
            let mut at = at;
            let mut list = Vec::new();
            for piece in part.split(separator) {
                list.push(number(piece, at)?);
                at += piece.len() + 1;
            }
            Ok(list)
        };
        let fits = |sizes: &[u32]| sizes.iter().try_fold(0u32, |a, &n| a.checked_add(n));
        let shape = if shape.contains('x') {
            let dims = numbers(shape, 0, 'x')?;
            let ranks = dims.iter().try_fold(1u32, |a, &d| a.checked_mul(d));
            if ranks.is_none_or(|n| n > Topology::MAX_RANKS) || dims.len() > 9 {
                return Err(error(0, "too many ranks or levels"));
            }
            Shape::Regular(dims)
        } else {
            let (mut nodes, mut at) = (Vec::new(), 0);
            for node in shape.split(',') {
                nodes.push(numbers(node, at, '+')?);
                at += node.len() + 1;
            }
            let flat: Vec<u32> = nodes.iter().flatten().copied().collect();
            if fits(&flat).is_none_or(|n| n > Topology::MAX_RANKS) {
                return Err(error(0, "too many ranks or levels"));
            }
            Shape::listed(nodes)
        };
        let placement = match placement {
            None => Placement::Block,
            Some("cyclic") => Placement::Cyclic,
            Some(other) => {
                let at = text.len() - other.len();
                if let Some(list) = other.strip_prefix("ranks=") {
                    let start = text.len() - list.len();
                    let ranks = list.split(',').map(|rank| canonical(rank).and_then(|r| u32::try_from(r).ok()));
                    let ranks: Option<Vec<u32>> = ranks.collect();
                    let ranks = ranks.ok_or_else(|| error(start, "expected rank numbers separated by commas"))?;
                    let shaped = Topology::build(shape, Placement::Block);
                    let mut sorted = ranks.clone();
                    sorted.sort_unstable();
                    if !sorted.into_iter().eq(0..shaped.ranks()) {
                        return Err(error(start, "expected every rank once"));
                    }
                    return Ok(Topology::build(shaped.shape, Placement::Listed(ranks)));
                }
                let seed = other
                    .strip_prefix("permuted=")
                    .ok_or_else(|| error(at, "expected `cyclic`, `permuted=SEED` or `ranks=RANK,…`"))?;
                Placement::Permuted(
                    canonical(seed).ok_or_else(|| error(text.len() - seed.len(), "expected a number as seed"))?,
                )
            }
        };
        Ok(Topology::build(shape, placement))
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |sizes: &[u32], separator| sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(separator);
        match &self.shape {
            Shape::Regular(dims) => f.write_str(&join(dims, "x"))?,
            Shape::Listed { nodes, .. } => {
                f.write_str(&nodes.iter().map(|n| join(n, "+")).collect::<Vec<_>>().join(","))?;
            }
        }
        match &self.placement {
            Placement::Block => Ok(()),
            Placement::Cyclic => f.write_str(":cyclic"),
            Placement::Permuted(seed) => write!(f, ":permuted={seed}"),
            Placement::Listed(ranks) => write!(f, ":ranks={}", join(ranks, ",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_place() {
        let text = |t: &str| {
            let said = t.parse::<Topology>().unwrap_err().to_string();
            said.strip_suffix("; 16x4, for example, is 16 nodes with 4 ranks each").map(str::to_owned).unwrap()
        };
        assert_eq!(text("4,,3"), "expected a number of at least 1 at column 3 of `4,,3`");
        assert_eq!(text("4x0"), "expected a number of at least 1 at column 3 of `4x0`");
        assert_eq!(
            text("4x4:scatter"),
            "expected `cyclic`, `permuted=SEED` or `ranks=RANK,…` at column 5 of `4x4:scatter`"
        );
        assert_eq!(text("99999x99999"), "too many ranks or levels at column 1 of `99999x99999`");
    }
}

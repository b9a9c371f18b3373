//! The network between emulated nodes: delays, rates and losses.

use std::time::Duration;

use clap::Args;

/// Options of the network between emulated nodes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Wire {
    /// Delay of a frame from node to node, such as 500us
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = time)]
    pub(crate) delay: Duration,
    /// Bits per second into a node, and out of it, such as 1gbit
    #[arg(long, value_name = "RATE", default_value = "10gbit", value_parser = rate)]
    pub(crate) rate: u64,
    /// Number of nodes in a rack
    #[arg(long, value_name = "N", requires = "rack_delay", value_parser = rack)]
    pub(crate) rack: Option<usize>,
    /// Additional delay between racks
    #[arg(long, value_name = "TIME", value_parser = time, requires = "rack")]
    pub(crate) rack_delay: Option<Duration>,
    /// Loses the link between two nodes from some time on, such as 0-2@3s; may be given several times
    #[arg(long = "lose-link", value_name = "A-B@TIME", value_parser = link)]
    pub(crate) lost_links: Vec<Lost>,
    /// Loses a node with all its processes from some time on, such as 3@2s; may be given several times
    #[arg(long = "lose-node", value_name = "A@TIME", value_parser = node)]
    pub(crate) lost_nodes: Vec<Lost>,
}

/// A link between two nodes, or a node with all its links, and the time of its loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lost {
    pub(crate) node: usize,
    pub(crate) other: Option<usize>,
    pub(crate) after: Duration,
}

impl Wire {
    /// Returns the time for which a frame of `bytes` bytes occupies a port.
    pub(crate) fn takes(&self, bytes: usize) -> Duration {
        Duration::from_nanos((bytes as u64 * 8).saturating_mul(1_000_000_000) / self.rate.max(1))
    }

    /// Returns the delay between two nodes.
    pub(crate) fn delay(&self, from: usize, to: usize) -> Duration {
        match (self.rack, self.rack_delay) {
            (Some(rack), Some(more)) if from / rack.max(1) != to / rack.max(1) => self.delay + more,
            _ => self.delay,
        }
    }

    /// Whether frames from one node to another are lost at time `since` after the start.
    pub(crate) fn is_lost(&self, from: usize, to: usize, since: Duration) -> bool {
        self.lost_links.iter().chain(&self.lost_nodes).any(|lost| {
            let hits = match lost.other {
                Some(other) => (lost.node, other) == (from, to) || (other, lost.node) == (from, to),
                None => lost.node == from || lost.node == to,
            };
            hits && since >= lost.after
        })
    }

    /// Returns the network as command-line options.
    pub(crate) fn options(&self) -> Vec<String> {
        let mut options = vec![format!("--delay={}ns", self.delay.as_nanos()), format!("--rate={}bit", self.rate)];
        if let (Some(rack), Some(delay)) = (self.rack, self.rack_delay) {
            options.extend([format!("--rack={rack}"), format!("--rack-delay={}ns", delay.as_nanos())]);
        }
        for lost in self.lost_links.iter().chain(&self.lost_nodes) {
            let after = lost.after.as_nanos();
            options.push(match lost.other {
                Some(other) => format!("--lose-link={}-{other}@{after}ns", lost.node),
                None => format!("--lose-node={}@{after}ns", lost.node),
            });
        }
        options
    }
}

/// Parses a number with a unit, and multiplies it by the factor of the unit.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Result<f64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = units.iter().find(|(unit, _)| *unit == &text[end..]);
    let number = text[..end].parse::<f64>().ok().filter(|n| n.is_finite());
    match (number, unit) {
        (Some(number), Some((_, times))) => Ok(number * times),
        _ => {
            let units: Vec<&str> = units.iter().map(|(unit, _)| *unit).collect();
            Err(format!("a number and one of {}", units.join(", ")))
        }
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let nanos = with_unit(text, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])?;
    Ok(Duration::from_nanos(nanos as u64))
}

fn rate(text: &str) -> Result<u64, String> {
    let rate = with_unit(text, &[("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)])?;
    if rate < 1.0 { Err("at least 1bit".to_owned()) } else { Ok(rate as u64) }
}

fn rack(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|nodes| *nodes > 0).ok_or_else(|| "a number of nodes, at least 1".to_owned())
}

fn link(text: &str) -> Result<Lost, String> {
    let read = || {
        let (ends, after) = text.split_once('@')?;
        let (a, b) = ends.split_once('-')?;
        Some(Lost { node: a.parse().ok()?, other: Some(b.parse().ok()?), after: time(after).ok()? })
    };
    read().ok_or_else(|| "two nodes and a time, such as 0-2@3s".to_owned())
}

fn node(text: &str) -> Result<Lost, String> {
    let read = || {
        let (node, after) = text.split_once('@')?;
        Some(Lost { node: node.parse().ok()?, other: None, after: time(after).ok()? })
    };
    read().ok_or_else(|| "a node and a time, such as 3@2s".to_owned())
}

/// Formats a time in microseconds or milliseconds.
pub(crate) fn time_text(time: Duration) -> String {
    match time.as_nanos() {
        nanos if nanos < 10_000_000 => format!("{:.0} us", nanos as f64 / 1e3),
        nanos => format!("{:.1} ms", nanos as f64 / 1e6),
    }
}

/// Formats a rate in Gbit/s or Mbit/s.
pub(crate) fn rate_text(rate: u64) -> String {
    match rate {
        rate if rate >= 1_000_000_000 => format!("{} Gbit/s", rate as f64 / 1e9),
        rate => format!("{} Mbit/s", rate as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_rates_have_units() {
        assert_eq!(time("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(time("1.5ms"), Ok(Duration::from_micros(1500)));
        assert!(time("500").is_err() && time("us").is_err() && time("1h").is_err());
        assert_eq!(rate("1gbit"), Ok(1_000_000_000));
        assert!(rate("0gbit").is_err());
    }

    #[test]
    fn what_is_lost_is_lost_both_ways_from_then_on() {
        let wire = Wire {
            delay: Duration::ZERO,
            rate: 8,
            rack: Some(2),
            rack_delay: Some(Duration::from_secs(1)),
            lost_links: vec![link("0-2@1s").unwrap()],
            lost_nodes: vec![node("3@2s").unwrap()],
        };
        let lost = |from, to, seconds| wire.is_lost(from, to, Duration::from_secs(seconds));
        assert!(lost(0, 2, 1) && lost(2, 0, 1) && !lost(0, 2, 0) && !lost(0, 1, 9));
        assert!(lost(3, 1, 2) && lost(0, 3, 2) && !lost(3, 1, 1));
        assert_eq!((wire.delay(0, 1), wire.delay(1, 2)), (Duration::ZERO, Duration::from_secs(1)));
        assert_eq!(wire.takes(3), Duration::from_secs(3));
    }
}

//! Calibration: machine parameters from a few messages, measured at first use of a communicator that spans nodes.

use std::fmt;

use bruckner_model::Machine;
use bruckner_model::machine::Protocol;

/// Factor by which the measured intra-node latency must exceed that of the default machine for cores to count as oversubscribed. Latencies
/// are that long only if ranks wait for a core.
const OVERSUBSCRIBED: f64 = 20.0;

/// Message times measured by calibration. Equal on all ranks. Each time, in seconds, is that of two messages in opposite directions at
/// once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Calibration {
    /// Time of exchanging 8 bytes between two ranks of a node; `None` if no node has two ranks.
    pub intra_node: Option<f64>,
    /// Time of exchanging 8 bytes between two nodes.
    pub inter_node: f64,
    /// Size and time of a long message between two nodes.
    pub long_message: LongMessage,
    /// Duration of the whole calibration in seconds.
    pub duration: f64,
}

/// Size and time of a long message between two nodes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LongMessage {
    /// Size of the message in bytes.
    pub bytes: u64,
    /// Time in seconds of exchanging one such message in each direction.
    pub took: f64,
}

impl Calibration {
    /// Returns the measured times as integers, which ranks compare to check that all have the same calibration.
    pub fn words(&self) -> [u64; Calibration::WORDS] {
        let near = self.intra_node.unwrap_or(0.0);
        [near.to_bits(), self.inter_node.to_bits(), self.long_message.bytes, self.long_message.took.to_bits()]
    }

    /// Number of integers that [`Calibration::words`] returns.
    pub const WORDS: usize = 4;

    /// Returns the default machine `default` with measured parameters: the latency and rate of messages between nodes, and latencies
    /// within a node and gaps between messages scaled by the measured factor.
    pub fn machine(&self, default: &Machine) -> Machine {
        let slower = self.slower(default);
        let mut machine = default.scale_latencies(1.0, slower);
        "this-run".clone_into(&mut machine.name);
        machine.about = format!("calibration at first use {self}");
        let wires = [Some(&mut machine.network), machine.node.as_mut(), machine.socket.as_mut()];
        wires.into_iter().flatten().for_each(|wire| wire.gap = wire.gap.map(|gap| gap * slower));
        // The measured rate of one rank serves as the injection limit of its node.
        let (per_byte, injection) = (1.0 / self.rate(), Some(self.rate()));
        machine.network.protocols =
            vec![Protocol { below: None, latency: self.inter_node, per_byte, rendezvous: false, injection }];
        machine.network.source.clone_from(&machine.about);
        machine.injection = None;
        machine
    }

    /// Returns the factor by which latencies within a node and gaps between messages are scaled: the measured intra-node latency divided
    /// by that of the default machine `default`, at least 0.25 and at most 1000.
    fn slower(&self, default: &Machine) -> f64 {
        match (self.intra_node, intra_node_latency(default)) {
            (Some(near), Some(default)) if default > 0.0 => (near / default).clamp(0.25, 1000.0),
            _ => 1.0,
        }
    }

    /// Whether intra-node messages are so slow that cores must be oversubscribed.
    pub(crate) fn is_oversubscribed(&self, default: &Machine) -> bool {
        self.slower(default) > OVERSUBSCRIBED
    }

    /// Returns the rate of long messages between nodes, in bytes per second. The transfer time is taken as at least 5 % of the measured
    /// time, because noise may hide it.
    fn rate(&self) -> f64 {
        self.long_message.bytes as f64 / (self.long_message.took - self.inter_node).max(0.05 * self.long_message.took)
    }
}

/// Returns the intra-node latency of 8 bytes on a machine, in seconds.
fn intra_node_latency(default: &Machine) -> Option<f64> {
    default.socket.as_ref().or(default.node.as_ref()).map(|wire| wire.protocol(8).latency)
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micro = |seconds: f64| seconds * 1e6;
        write!(f, "in {:.1} ms: inter-node latency {:.1} µs", self.duration * 1e3, micro(self.inter_node))?;
        if let Some(near) = self.intra_node {
            write!(f, ", intra-node latency {:.1} µs", micro(near))?;
        }
        write!(f, ", rate of one rank {:.0} MB/s", self.rate() / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Knowledge, Vendor};

    #[test]
    fn a_machine_has_what_was_measured() {
        let default = Knowledge::defaults(Vendor::OpenMpi).reproducible.machine;
        let long = LongMessage { bytes: 16384, took: 631e-6 };
        let calibration =
            Calibration { intra_node: Some(5.8e-6), inter_node: 500e-6, long_message: long, duration: 0.012 };
        assert!(
            !calibration.is_oversubscribed(&default)
                && Calibration { intra_node: Some(4e-5), ..calibration }.is_oversubscribed(&default)
        );
        let machine = calibration.machine(&default);
        let far = &machine.network.protocols[0];
        assert_eq!((far.latency, far.rendezvous), (500e-6, false));
        let rate = far.injection.unwrap();
        assert!((rate - 1.25e8).abs() < 1e6 && (far.per_byte - 8e-9).abs() < 1e-10, "{far:?}");
        let flag = |machine: &Machine| machine.rank.flag.unwrap();
        assert!((flag(&machine) / flag(&default) - 10.0).abs() < 0.01);
        let quick = Calibration { intra_node: Some(5.8e-8), ..calibration }.machine(&default);
        assert!((flag(&quick) / flag(&default) - 0.25).abs() < 0.01);
        assert_eq!(
            calibration.to_string(),
            "in 12.0 ms: inter-node latency 500.0 µs, intra-node latency 5.8 µs, rate of one rank 125 MB/s"
        );
        // The machine can be written as TOML and read back.
        assert_eq!(Machine::read(&machine.write()).unwrap(), machine);
        assert_ne!(Calibration { intra_node: None, ..calibration }.words(), calibration.words());
    }
}

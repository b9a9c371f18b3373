//! Calibration: machine parameters from a few messages, measured at first use of a communicator that spans nodes.

use std::fmt;

use bruckner_model::Machine;
use bruckner_model::machine::Protocol;

/// Ratio of intra-node latency to that of the default machine above which cores are taken to be oversubscribed: no machine is that slow
/// unless its ranks wait for each other's cores.
const CROWDED: f64 = 20.0;

/// Message times measured by calibration. Equal on all ranks. Each is the time, in seconds, of an exchange in both directions at once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gauged {
    /// Time of exchanging 8 bytes between two ranks of a node; `None` if no node has two ranks.
    pub near: Option<f64>,
    /// Time of exchanging 8 bytes between two nodes.
    pub far: f64,
    /// Size and time of a long message between two nodes.
    pub long: Long,
    /// Duration of the whole calibration in seconds.
    pub took: f64,
}

/// Size and time of a long message between two nodes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Long {
    /// Size of the message in bytes.
    pub bytes: u64,
    /// Time in seconds of exchanging one such message in each direction.
    pub took: f64,
}

impl Gauged {
    /// Returns the measured times as integers, which ranks compare to check that all have the same calibration.
    pub fn words(&self) -> [u64; Gauged::WORDS] {
        let near = self.near.unwrap_or(0.0);
        [near.to_bits(), self.far.to_bits(), self.long.bytes, self.long.took.to_bits()]
    }

    /// Number of integers that [`Gauged::words`] returns.
    pub const WORDS: usize = 4;

    /// Returns the default machine `usual` with the measured latencies and rates in place of its own.
    pub fn machine(&self, usual: &Machine) -> Machine {
        let slower = self.slower(usual);
        let mut machine = usual.with_latencies(1.0, slower);
        "this-run".clone_into(&mut machine.name);
        machine.about = format!("measured at first use: {self}");
        let wires = [Some(&mut machine.network), machine.node.as_mut(), machine.socket.as_mut()];
        wires.into_iter().flatten().for_each(|wire| wire.gap = wire.gap.map(|gap| gap * slower));
        // The measured rate of one rank serves as the injection limit of its node.
        let (per_byte, injection) = (1.0 / self.rate(), Some(self.rate()));
        machine.network.protocols =
            vec![Protocol { below: None, latency: self.far, per_byte, rendezvous: false, injection }];
        machine.network.source.clone_from(&machine.about);
        machine.injection = None;
        machine
    }

    /// Returns the ratio of the measured intra-node latency to that of the default machine `usual`, within limits. Latencies on the node
    /// and the gaps between messages are scaled by it.
    fn slower(&self, usual: &Machine) -> f64 {
        match (self.near, usual_near(usual)) {
            (Some(near), Some(usual)) if usual > 0.0 => (near / usual).clamp(0.25, 1000.0),
            _ => 1.0,
        }
    }

    /// Whether intra-node messages are so slow that cores must be oversubscribed.
    pub(crate) fn is_crowded(&self, usual: &Machine) -> bool {
        self.slower(usual) > CROWDED
    }

    /// Returns the rate of long messages between nodes, in bytes per second. Transfer time counts as at least 5 % of the measured time, in
    /// case noise hides it.
    fn rate(&self) -> f64 {
        self.long.bytes as f64 / (self.long.took - self.far).max(0.05 * self.long.took)
    }
}

/// Returns the intra-node latency of 8 bytes on a machine, in seconds.
fn usual_near(usual: &Machine) -> Option<f64> {
    usual.socket.as_ref().or(usual.node.as_ref()).map(|wire| wire.protocol(8).latency)
}

impl fmt::Display for Gauged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micro = |seconds: f64| seconds * 1e6;
        write!(f, "in {:.1} ms, messages take {:.1} us between nodes", self.took * 1e3, micro(self.far))?;
        if let Some(near) = self.near {
            write!(f, " and {:.1} us on one", micro(near))?;
        }
        write!(f, "; a rank sends {:.0} MB/s", self.rate() / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Knowledge, Vendor};

    #[test]
    fn a_machine_has_what_was_measured() {
        let usual = Knowledge::nominal(Vendor::OpenMpi).steady.machine;
        let long = Long { bytes: 16384, took: 631e-6 };
        let gauged = Gauged { near: Some(5.8e-6), far: 500e-6, long, took: 0.012 };
        assert!(!gauged.is_crowded(&usual) && Gauged { near: Some(4e-5), ..gauged }.is_crowded(&usual));
        let machine = gauged.machine(&usual);
        let far = &machine.network.protocols[0];
        assert_eq!((far.latency, far.rendezvous), (500e-6, false));
        let rate = far.injection.unwrap();
        assert!((rate - 1.25e8).abs() < 1e6 && (far.per_byte - 8e-9).abs() < 1e-10, "{far:?}");
        let flag = |machine: &Machine| machine.rank.flag.unwrap();
        assert!((flag(&machine) / flag(&usual) - 10.0).abs() < 0.01);
        let quick = Gauged { near: Some(5.8e-8), ..gauged }.machine(&usual);
        assert!((flag(&quick) / flag(&usual) - 0.25).abs() < 0.01);
        assert_eq!(
            gauged.to_string(),
            "in 12.0 ms, messages take 500.0 us between nodes and 5.8 us on one; a rank sends 125 MB/s"
        );
        // The machine can be written as TOML and read back.
        assert_eq!(Machine::read(&machine.write()).unwrap(), machine);
        assert_ne!(Gauged { near: None, ..gauged }.words(), gauged.words());
    }
}

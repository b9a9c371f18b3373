//! A machine from a handful of messages, measured when a communicator that spans nodes is first used.

use std::fmt;

use bruckner_model::Machine;
use bruckner_model::machine::Protocol;

/// No machine is so many times as slow as a usual one: ranks of a node wait for each other's cores.
const CROWDED: f64 = 20.0;

/// What messages took; the same on all ranks. Times are in seconds, each of an exchange in both directions at once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gauged {
    /// Eight bytes between ranks of a node, if any two are on one.
    pub near: Option<f64>,
    /// Eight bytes between nodes.
    pub far: f64,
    /// Many bytes between nodes.
    pub long: Long,
    /// How long the measuring took.
    pub took: f64,
}

/// What a long message between nodes took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Long {
    /// So many bytes.
    pub bytes: u64,
    /// They took this.
    pub took: f64,
}

impl Gauged {
    /// Numbers by which ranks find out whether they know the same.
    pub fn words(&self) -> [u64; Gauged::WORDS] {
        let near = self.near.unwrap_or(0.0);
        [near.to_bits(), self.far.to_bits(), self.long.bytes, self.long.took.to_bits()]
    }

    /// How many they are.
    pub const WORDS: usize = 4;

    /// A machine like another, with what was measured.
    pub fn machine(&self, usual: &Machine) -> Machine {
        let slower = self.slower(usual);
        let mut machine = usual.with_latencies(1.0, slower);
        "this-run".clone_into(&mut machine.name);
        machine.about = format!("measured at first use: {self}");
        let wires = [Some(&mut machine.network), machine.node.as_mut(), machine.socket.as_mut()];
        wires.into_iter().flatten().for_each(|wire| wire.gap = wire.gap.map(|gap| gap * slower));
        // One rank alone is taken to send as much as all of a node together.
        let (per_byte, injection) = (1.0 / self.rate(), Some(self.rate()));
        machine.network.protocols =
            vec![Protocol { below: None, latency: self.far, per_byte, rendezvous: false, injection }];
        machine.network.source.clone_from(&machine.about);
        machine.injection = None;
        machine
    }

    /// On a node everything is as much slower, or faster, as messages are.
    fn slower(&self, usual: &Machine) -> f64 {
        match (self.near, usual_near(usual)) {
            (Some(near), Some(usual)) if usual > 0.0 => (near / usual).clamp(0.25, 1000.0),
            _ => 1.0,
        }
    }

    /// Whether ranks of a node wait for more than messages.
    pub(crate) fn is_crowded(&self, usual: &Machine) -> bool {
        self.slower(usual) > CROWDED
    }

    /// What a node sends, in bytes per second; what is lost in noise is at least something.
    fn rate(&self) -> f64 {
        self.long.bytes as f64 / (self.long.took - self.far).max(0.05 * self.long.took)
    }
}

/// What eight bytes take on a node of a machine.
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
        // It can be written and read, as any machine.
        assert_eq!(Machine::read(&machine.write()).unwrap(), machine);
        assert_ne!(Gauged { near: None, ..gauged }.words(), gauged.words());
    }
}

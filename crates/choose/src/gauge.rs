//! A machine from a handful of messages, measured when a communicator that spans nodes is first used.

use std::fmt;

use bruckner_model::Machine;
use bruckner_model::machine::{Protocol, Wire};

/// What messages took; the same on all ranks. Times are in seconds, each of an exchange in both directions at once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gauged {
    /// Eight bytes between ranks of a node, if any two are on one.
    pub near: Option<f64>,
    /// Eight bytes between nodes, all ranks at once.
    pub far: f64,
    /// The same of many bytes, if there was time for it.
    pub long: Option<Long>,
    /// How long the measuring took.
    pub took: f64,
}

/// What long messages between nodes took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Long {
    /// So many bytes.
    pub bytes: u64,
    /// By one rank of each node.
    pub alone: f64,
    /// By so many ranks of a node at once.
    pub senders: u32,
    /// They took this.
    pub together: f64,
}

impl Gauged {
    /// Numbers by which ranks find out whether they know the same.
    pub fn words(&self) -> [u64; 6] {
        let Long { bytes, alone, senders, together } =
            self.long.unwrap_or(Long { bytes: 0, alone: 0.0, senders: 0, together: 0.0 });
        let near = self.near.unwrap_or(0.0);
        [near.to_bits(), self.far.to_bits(), bytes, alone.to_bits(), u64::from(senders), together.to_bits()]
    }

    /// A machine like another, with what was measured.
    pub fn machine(&self, usual: &Machine) -> Machine {
        let mut machine = usual.clone();
        "this-run".clone_into(&mut machine.name);
        self.about().clone_into(&mut machine.about);
        let mut per_byte = usual.network.protocols.last().map_or(0.0, |protocol| protocol.per_byte);
        let mut injection = usual.injection.as_ref().map(|injection| injection.rate);
        if let Some(Long { bytes, alone, senders, together }) = self.long {
            // Beyond the latency; what is lost in noise is at least something.
            let beyond = |took: f64| (took - self.far).max(0.05 * took) / bytes as f64;
            per_byte = beyond(alone);
            let rate = f64::from(senders) / beyond(together);
            injection = (rate < 0.9 * f64::from(senders) / per_byte).then_some(rate);
        }
        let protocol = Protocol { below: None, latency: self.far, per_byte, rendezvous: false, injection };
        machine.injection = None;
        // On a node everything is as much slower, or faster, as messages are.
        let usual_near = usual.socket.as_ref().or(usual.node.as_ref()).map(|wire| wire.protocol(8).latency);
        let slower = match (self.near, usual_near) {
            (Some(near), Some(usual)) if usual > 0.0 => (near / usual).clamp(0.25, 1000.0),
            _ => 1.0,
        };
        let gap = usual.network.gap.map(|gap| gap * slower);
        machine.network = Wire { source: machine.about.clone(), gap, protocols: vec![protocol] };
        for wire in [&mut machine.node, &mut machine.socket].into_iter().flatten() {
            wire.gap = wire.gap.map(|gap| gap * slower);
            wire.protocols.iter_mut().for_each(|protocol| protocol.latency *= slower);
        }
        machine.rank.flag = machine.rank.flag.map(|flag| flag * slower);
        machine.rank.ask *= slower;
        machine
    }

    fn about(&self) -> String {
        format!("measured at first use: {self}")
    }
}

impl fmt::Display for Gauged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micro = |seconds: f64| seconds * 1e6;
        write!(f, "in {:.1} ms, messages take {:.1} us between nodes", self.took * 1e3, micro(self.far))?;
        if let Some(near) = self.near {
            write!(f, " and {:.1} us on one", micro(near))?;
        }
        if let Some(Long { bytes, together, senders, .. }) = self.long {
            let rate = f64::from(senders) * bytes as f64 / (together - self.far).max(0.05 * together);
            write!(f, "; a node sends {:.0} MB/s", rate / 1e6)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Knowledge, Vendor};

    #[test]
    fn a_machine_has_what_was_measured() {
        let usual = Knowledge::nominal(Vendor::OpenMpi).steady.machine;
        let long = Long { bytes: 16384, alone: 632e-6, senders: 4, together: 1024e-6 };
        let gauged = Gauged { near: Some(5.8e-6), far: 500e-6, long: Some(long), took: 0.012 };
        let machine = gauged.machine(&usual);
        let far = &machine.network.protocols[0];
        assert_eq!((far.latency, far.rendezvous), (500e-6, false));
        let rate = far.injection.unwrap();
        assert!((rate - 1.25e8).abs() < 1e6 && (far.per_byte - 8e-9).abs() < 1e-10, "{far:?}");
        let flag = |machine: &Machine| machine.rank.flag.unwrap();
        assert!((flag(&machine) / flag(&usual) - 10.0).abs() < 0.01);
        assert_eq!(
            gauged.to_string(),
            "in 12.0 ms, messages take 500.0 us between nodes and 5.8 us on one; a node sends 125 MB/s"
        );
        // It can be written and read, as any machine.
        assert_eq!(Machine::read(&machine.write()).unwrap(), machine);
        let short = Gauged { near: None, long: None, ..gauged };
        assert!(short.machine(&usual).network.protocols[0].injection.is_some());
        assert_ne!(short.words(), gauged.words());
    }
}

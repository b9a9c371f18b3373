//! What a machine's messages, memory and arithmetic cost: profiles in TOML, each number with its source.
//!
//! ```
//! use bruckner_model::Machine;
//! let lassen = Machine::known("lassen").unwrap();
//! assert_eq!(lassen.network.protocol(8).latency, 1.27e-6);
//! ```

use serde::Deserialize;

use crate::steps::{Reach, Work};

/// A machine. Times are seconds, rates bytes a second.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its name, as the command takes it.
    pub name: String,
    /// What it is.
    pub about: String,
    /// Messages between nodes.
    pub network: Wire,
    /// Messages between sockets of a node; where there is none, as inside a socket.
    pub node: Option<Wire>,
    /// Messages inside a socket; where there is none, as between nodes.
    pub socket: Option<Wire>,
    /// What a node can send, all its ranks together.
    pub injection: Option<Injection>,
    /// What a rank does by itself.
    #[serde(default)]
    pub rank: Costs,
}

/// Messages of one reach.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    /// Where the numbers come from.
    pub source: String,
    /// By size, the shortest messages first.
    pub protocols: Vec<Protocol>,
}

/// Messages up to some size.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// For messages of fewer bytes than this; the last one is for all others.
    pub below: Option<u64>,
    /// From the start to the first byte.
    pub latency: f64,
    /// For each byte.
    pub per_byte: f64,
    /// Whether a message starts only when the receiver is ready.
    #[serde(default)]
    pub rendezvous: bool,
}

/// The limit of a node.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    /// Bytes a second.
    pub rate: f64,
    /// Where the number comes from.
    pub source: String,
}

/// What a rank's own work costs.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Costs {
    /// To start or to finish a message.
    pub overhead: f64,
    /// From one message to the next.
    pub gap: f64,
    /// What it can send to other nodes, all its messages together, in bytes a second.
    pub rate: Option<f64>,
    /// To combine a byte with another.
    pub reduce: f64,
    /// To copy a byte within a rank's memory.
    pub copy: f64,
    /// To copy a byte to a segment or from it; where that is not known, as for a message on the node.
    pub share: Option<f64>,
    /// To read a byte of another rank's memory.
    pub read: f64,
    /// To ask the kernel for that.
    pub ask: f64,
    /// From raising a flag until another rank sees it; where that is not known, as for a message on the node.
    pub flag: Option<f64>,
    /// Where the numbers come from.
    pub source: String,
}

/// Why a text is no machine.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum MachineError {
    /// Not the TOML that is expected.
    #[error("{0}")]
    Text(#[from] toml::de::Error),
    /// A number that makes no sense, or protocols out of order.
    #[error("{machine}: {what}")]
    Value {
        /// The machine's name.
        machine: String,
        /// What is wrong.
        what: String,
    },
}

impl Wire {
    /// What carries so many bytes.
    pub fn protocol(&self, bytes: u64) -> &Protocol {
        let fits = |protocol: &&Protocol| protocol.below.is_none_or(|below| bytes < below);
        self.protocols.iter().find(fits).unwrap_or(&self.protocols[self.protocols.len() - 1])
    }

    fn fault(&self) -> Option<String> {
        let Some((last, others)) = self.protocols.split_last() else {
            return Some("a wire has at least one protocol".to_owned());
        };
        if last.below.is_some() || others.iter().any(|protocol| protocol.below.is_none()) {
            return Some("all protocols but the last have `below`".to_owned());
        }
        if others.windows(2).any(|pair| pair[0].below >= pair[1].below) {
            return Some("protocols come in order of size".to_owned());
        }
        let numbers = self.protocols.iter().flat_map(|protocol| [protocol.latency, protocol.per_byte]);
        numbers.into_iter().find(|number| !is_time(*number)).map(|number| format!("{number} is no time"))
    }
}

fn is_time(number: f64) -> bool {
    number.is_finite() && number >= 0.0
}

/// The profiles that come with the library.
const KNOWN: &[&str] = &[
    include_str!("../machines/blue-waters.toml"),
    include_str!("../machines/lassen.toml"),
    include_str!("../machines/summit.toml"),
    include_str!("../machines/trinity.toml"),
    include_str!("../machines/piz-daint.toml"),
    include_str!("../machines/eiger.toml"),
    include_str!("../machines/gigabit-ethernet.toml"),
];

impl Machine {
    /// Reads a profile.
    pub fn read(text: &str) -> Result<Machine, MachineError> {
        let machine: Machine = toml::from_str(text)?;
        let wires = [Some(&machine.network), machine.node.as_ref(), machine.socket.as_ref()];
        let mut fault = wires.into_iter().flatten().find_map(Wire::fault);
        let work = &machine.rank;
        let times = [work.overhead, work.gap, work.reduce, work.copy, work.read, work.ask];
        let others = [work.share, work.flag].into_iter().flatten();
        if let Some(wrong) = times.into_iter().chain(others).find(|time| !is_time(*time)) {
            fault = Some(format!("{wrong} is no time"));
        }
        if machine.injection.as_ref().is_some_and(|limit| !(limit.rate.is_finite() && limit.rate > 0.0)) {
            fault = Some("the injection rate must be above 0".to_owned());
        }
        match fault {
            Some(what) => Err(MachineError::Value { machine: machine.name, what }),
            None => Ok(machine),
        }
    }

    /// All that come with the library.
    pub fn all() -> impl Iterator<Item = Machine> {
        KNOWN.iter().map(|text| Machine::read(text).expect("a test reads all profiles"))
    }

    /// The one of a name.
    pub fn known(name: &str) -> Option<Machine> {
        Machine::all().find(|machine| machine.name == name)
    }

    /// The same as the TOML that it was read from.
    pub fn text(name: &str) -> Option<&'static str> {
        KNOWN.iter().copied().find(|text| Machine::read(text).is_ok_and(|machine| machine.name == name))
    }

    /// A network of one latency and rate, everywhere the same, and nothing else.
    pub fn plain(latency: f64, per_byte: f64) -> Machine {
        let protocol = Protocol { below: None, latency, per_byte, rendezvous: false };
        Machine {
            name: "plain".to_owned(),
            about: "one latency and one rate".to_owned(),
            network: Wire { source: "given".to_owned(), protocols: vec![protocol] },
            node: None,
            socket: None,
            injection: None,
            rank: Costs::default(),
        }
    }

    /// How long a rank works.
    pub fn work(&self, work: &Work) -> f64 {
        let costs = &self.rank;
        let share = |bytes: u64| match (bytes, costs.share) {
            (0, _) => 0.0,
            (bytes, Some(each)) => bytes as f64 * each,
            (bytes, None) => bytes as f64 * self.wire(Reach::Socket).protocol(bytes).per_byte,
        };
        let each = [
            (work.copied, costs.copy),
            (work.read, costs.read),
            (u64::from(work.asked), costs.ask),
            (work.reduced, costs.reduce),
        ];
        each.into_iter().map(|(times, cost)| times as f64 * cost).sum::<f64>() + share(work.shared)
    }

    /// From raising a flag until another rank of the node sees it.
    pub fn flag(&self) -> f64 {
        self.rank.flag.unwrap_or_else(|| self.wire(Reach::Socket).protocol(0).latency)
    }

    /// Until so many ranks of a node have met: once for each doubling of their number.
    pub fn meeting(&self, ranks: u32) -> f64 {
        self.flag() * f64::from(ranks).log2().ceil()
    }

    /// What carries messages so far.
    pub fn wire(&self, reach: Reach) -> &Wire {
        let on_node = || self.socket.as_ref().or(self.node.as_ref()).unwrap_or(&self.network);
        match reach {
            Reach::Network => &self.network,
            Reach::Node => self.node.as_ref().unwrap_or_else(on_node),
            Reach::Socket => on_node(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_whole() {
        let names: Vec<String> = Machine::all().map(|machine| machine.name).collect();
        assert_eq!(names.len(), KNOWN.len());
        for name in &names {
            let machine = Machine::known(name).unwrap();
            assert!(!machine.network.source.is_empty());
            assert!(machine.wire(Reach::Socket).protocol(8).latency <= machine.network.protocol(8).latency);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |text: &str| Machine::read(text).unwrap_err().to_string();
        let head = "name = 'm'\nabout = ''\n[network]\nsource = ''\n";
        assert!(wrong("name = 3").contains("invalid type"));
        assert_eq!(wrong(&format!("{head}protocols = []")), "m: a wire has at least one protocol");
        let two = "protocols = [{ latency = 1e-6, per_byte = 1e-9 }, { latency = 1e-6, per_byte = 1e-9 }]";
        assert_eq!(wrong(&format!("{head}{two}")), "m: all protocols but the last have `below`");
        let negative = "protocols = [{ latency = -1.0, per_byte = 1e-9 }]";
        assert_eq!(wrong(&format!("{head}{negative}")), "m: -1 is no time");
    }
}

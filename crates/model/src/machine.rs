//! Machine files in TOML: costs of messages, memory and arithmetic, each number with its source.
//!
//! ```
//! use bruckner_model::Machine;
//! let lassen = Machine::builtin("lassen").unwrap();
//! assert_eq!(lassen.network.protocol(8).latency, 1.27e-6);
//! ```

use serde::Deserialize;

use crate::steps::{LinkClass, LocalWork};

/// Cost parameters of a machine. Times are in seconds, rates in bytes per second.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name of the machine on the command line.
    pub name: String,
    /// Description of the machine.
    pub about: String,
    /// Parameters of messages between nodes.
    pub network: Link,
    /// Parameters of messages between sockets of a node. If missing, `socket` applies, or else `network`.
    pub node: Option<Link>,
    /// Parameters of messages within a socket. If missing, `node` applies, or else `network`.
    pub socket: Option<Link>,
    /// Limit of the rate at which all ranks of a node together send to other nodes, and receive from them. If missing, the limits of
    /// protocols apply, or else the rate of one message.
    pub injection: Option<Injection>,
    /// Costs of a rank's own work.
    #[serde(default)]
    pub rank: Costs,
    /// How near predictions with these parameters are to measured times, if they were compared.
    pub predictions: Option<Predictions>,
}

/// How near predictions of a machine by cost formulas are to measured times of flat algorithms with one rank on each node.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Predictions {
    /// Number of measured times that were predicted.
    pub number: u32,
    /// Part of them that differ from the prediction by at most a factor of 1.3.
    pub within_1_3: f64,
    /// Likewise, of 2.
    pub within_2: f64,
    /// Origin of the measured times.
    pub source: String,
}

impl std::fmt::Display for Predictions {
    /// Writes, for example, `50 % of 81 predictions for flat algorithms are within a factor of 1.3 of measured times, 80 % within 2`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.0} % of {} predictions for flat algorithms are within a factor of 1.3 of measured times, {:.0} % within 2",
            100.0 * self.within_1_3,
            self.number,
            100.0 * self.within_2
        )
    }
}

/// Parameters of the messages of one link class: within a socket, within a node, or between nodes.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Publication or measurement from which the parameters are taken.
    pub source: String,
    /// Time between the starts of two consecutive messages of a rank, in seconds. If missing, [`Costs::gap`] applies.
    pub gap: Option<f64>,
    /// Protocols in ascending order of message size.
    pub protocols: Vec<Protocol>,
}

/// Parameters of messages within a range of sizes.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// Messages of fewer bytes than this use the protocol; `None` for the last protocol, which has no upper limit.
    pub below: Option<u64>,
    /// Time from the start of a message until its first byte arrives, in seconds.
    pub latency: f64,
    /// Transfer time of one byte, in seconds.
    pub per_byte: f64,
    /// Whether a message starts only when the receiver is ready.
    #[serde(default)]
    pub rendezvous: bool,
    /// Bytes per second that all ranks of a node together can send in messages of this protocol, and receive. If missing,
    /// [`Machine::injection`] applies.
    pub injection: Option<f64>,
}

/// Limit of the rate at which a node sends to other nodes, and receives from them.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    /// Bytes per second that all ranks of a node together can send to other nodes.
    pub rate: f64,
    /// Publication or measurement from which the rate is taken.
    pub source: String,
}

/// Costs of a rank's own work. Times are in seconds.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Costs {
    /// Time that a rank spends on starting a message, and again on finishing it.
    pub overhead: f64,
    /// Time between the starts of two consecutive messages of a rank, for link classes whose [`Link::gap`] is missing.
    pub gap: f64,
    /// Bytes per second that a rank can send to other nodes, in all its messages together, and receive from them. If missing, the rate of
    /// one message.
    pub rate: Option<f64>,
    /// Time to reduce one byte.
    pub reduce: f64,
    /// Time to copy one byte within a rank's own memory.
    pub copy: f64,
    /// Time to copy one byte to or from a shared-memory segment. If missing, the transfer time of intra-node messages applies.
    pub share: Option<f64>,
    /// Time to read one byte of another rank's memory.
    pub read: f64,
    /// Time of the system call that reads another rank's memory.
    pub ask: f64,
    /// Time from raising a flag until another rank sees it. If missing, the latency of intra-node messages applies.
    pub flag: Option<f64>,
    /// Publication or measurement from which the costs are taken.
    pub source: String,
}

/// Error for a text that is not a valid machine file.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum MachineError {
    /// The text is not valid TOML, or a field is missing, unknown or of the wrong type.
    #[error(transparent)]
    Text(#[from] toml::de::Error),
    /// A number is out of range, or the protocols are not in order of size.
    #[error("{machine}: {what}")]
    Value {
        /// Name of the machine.
        machine: String,
        /// Description of the error.
        what: String,
    },
}

impl Machine {
    /// Returns the machine with latencies between nodes multiplied by `far`, and latencies within a node, including the times of flags and
    /// system calls, multiplied by `near`.
    pub fn scale_latencies(&self, far: f64, near: f64) -> Machine {
        let mut machine = self.clone();
        let slow = |wire: &mut Link, by: f64| {
            wire.protocols.iter_mut().for_each(|protocol| protocol.latency *= by);
        };
        slow(&mut machine.network, far);
        [&mut machine.node, &mut machine.socket].into_iter().flatten().for_each(|wire| slow(wire, near));
        machine.rank.flag = machine.rank.flag.map(|flag| flag * near);
        machine.rank.ask *= near;
        machine
    }
}

impl Link {
    /// Returns the protocol that messages of `bytes` use.
    pub fn protocol(&self, bytes: u64) -> &Protocol {
        let fits = |protocol: &&Protocol| protocol.below.is_none_or(|below| bytes < below);
        self.protocols.iter().find(fits).unwrap_or(&self.protocols[self.protocols.len() - 1])
    }

    fn fault(&self) -> Option<String> {
        let Some((last, others)) = self.protocols.split_last() else {
            return Some("`protocols` must have at least one entry".to_owned());
        };
        if last.below.is_some() || others.iter().any(|protocol| protocol.below.is_none()) {
            return Some("every protocol but the last must have `below`, and the last must not".to_owned());
        }
        if others.windows(2).any(|pair| pair[0].below >= pair[1].below) {
            return Some("protocols must be in ascending order of `below`".to_owned());
        }
        let numbers = self.protocols.iter().flat_map(|protocol| [protocol.latency, protocol.per_byte]);
        let wrong = numbers
            .chain(self.gap)
            .find(|number| !is_time(*number))
            .map(|number| format!("{number} is not a valid time: expected 0 to 1e6 seconds"));
        let mut limits = self.protocols.iter().filter_map(|protocol| protocol.injection);
        wrong.or_else(|| {
            limits
                .find(|rate| !is_rate(*rate))
                .map(|rate| format!("{rate} is not a valid rate: expected at least 1 byte per second"))
        })
    }
}

/// Returns a text as a quoted TOML string. Control characters become spaces.
pub fn quoted(text: &str) -> String {
    let plain = text.replace(char::is_control, " ").replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{plain}\"")
}

/// Whether a number is a valid rate: finite, and at least one byte per second.
fn is_rate(number: f64) -> bool {
    number.is_finite() && number >= 1.0
}

/// Whether a number is a valid time: from 0 to 1,000,000 seconds, about eleven days.
fn is_time(number: f64) -> bool {
    (0.0..=1e6).contains(&number)
}

/// Texts of the profiles that come with the library.
const KNOWN: &[&str] = &[
    include_str!("../machines/blue-waters.toml"),
    include_str!("../machines/lassen.toml"),
    include_str!("../machines/summit.toml"),
    include_str!("../machines/trinity.toml"),
    include_str!("../machines/piz-daint.toml"),
    include_str!("../machines/eiger.toml"),
    include_str!("../machines/gigabit-ethernet.toml"),
    include_str!("../machines/emulated-cluster.toml"),
    include_str!("../machines/fugaku.toml"),
    include_str!("../machines/leonardo.toml"),
    include_str!("../machines/lumi.toml"),
    include_str!("../machines/mare-nostrum.toml"),
];

impl Machine {
    /// Parses a profile and checks its numbers.
    pub fn read(text: &str) -> Result<Machine, MachineError> {
        toml::from_str(text).map_err(MachineError::from).and_then(Machine::checked)
    }

    /// Makes a machine from a parsed TOML table and checks its numbers.
    pub fn of(table: toml::Table) -> Result<Machine, MachineError> {
        table.try_into().map_err(MachineError::from).and_then(Machine::checked)
    }

    /// Returns the machine if its numbers are valid.
    fn checked(machine: Machine) -> Result<Machine, MachineError> {
        let wires = [Some(&machine.network), machine.node.as_ref(), machine.socket.as_ref()];
        let mut fault = wires.into_iter().flatten().find_map(Link::fault);
        let work = &machine.rank;
        let times = [work.overhead, work.gap, work.reduce, work.copy, work.read, work.ask];
        let others = [work.share, work.flag].into_iter().flatten();
        if let Some(wrong) = times.into_iter().chain(others).find(|time| !is_time(*time)) {
            fault = Some(format!("{wrong} is not a valid time: expected 0 to 1e6 seconds"));
        }
        let limits = [machine.injection.as_ref().map(|limit| limit.rate), work.rate];
        if let Some(wrong) = limits.into_iter().flatten().find(|rate| !is_rate(*rate)) {
            fault = Some(format!("{wrong} is not a valid rate: expected at least 1 byte per second"));
        }
        if let Some(shares) = &machine.predictions
            && !(0.0 <= shares.within_1_3 && shares.within_1_3 <= shares.within_2 && shares.within_2 <= 1.0)
        {
            fault = Some("`within_1_3` and `within_2` must be in ascending order, and between 0 and 1".to_owned());
        }
        match fault {
            Some(what) => Err(MachineError::Value { machine: machine.name, what }),
            None => Ok(machine),
        }
    }

    /// Returns the machine as TOML, with one line for each protocol.
    pub fn write(&self) -> String {
        let mut lines = vec![format!("name = {}", quoted(&self.name)), format!("about = {}", quoted(&self.about))];
        let wires = [("network", Some(&self.network)), ("node", self.node.as_ref()), ("socket", self.socket.as_ref())];
        for (name, wire) in wires.into_iter().filter_map(|(name, wire)| Some((name, wire?))) {
            let gap = wire.gap.map(|gap| format!("gap = {gap:e}\n")).unwrap_or_default();
            lines.push(format!("\n[{name}]\nsource = {}\n{gap}protocols = [", quoted(&wire.source)));
            for protocol in &wire.protocols {
                let below = protocol.below.map(|below| format!("below = {below}, ")).unwrap_or_default();
                let rendezvous = if protocol.rendezvous { ", rendezvous = true" } else { "" };
                let limit = protocol.injection.map(|rate| format!(", injection = {rate:e}")).unwrap_or_default();
                let (latency, per_byte) = (protocol.latency, protocol.per_byte);
                lines
                    .push(format!("  {{ {below}latency = {latency:e}, per_byte = {per_byte:e}{rendezvous}{limit} }},"));
            }
            lines.push("]".to_owned());
        }
        if let Some(limit) = &self.injection {
            lines.push(format!("\n[injection]\nrate = {:e}\nsource = {}", limit.rate, quoted(&limit.source)));
        }
        lines.push("\n[rank]".to_owned());
        let Costs { overhead, gap, rate, reduce, copy, share, read, ask, flag, source } = &self.rank;
        let always =
            [("overhead", overhead), ("gap", gap), ("reduce", reduce), ("copy", copy), ("read", read), ("ask", ask)];
        let known = [("rate", rate), ("share", share), ("flag", flag)];
        let known = known.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        for (name, value) in always.into_iter().filter(|(_, value)| **value != 0.0).chain(known) {
            lines.push(format!("{name} = {value:e}"));
        }
        lines.push(format!("source = {}\n", quoted(source)));
        if let Some(Predictions { number, within_1_3, within_2, source }) = &self.predictions {
            lines.push(format!(
                "[predictions]\nnumber = {number}\nwithin_1_3 = {within_1_3}\nwithin_2 = {within_2}\nsource = {}\n",
                quoted(source)
            ));
        }
        lines.join("\n")
    }

    /// Rounds all numbers to `digits` significant digits, because measurements are not more accurate.
    #[must_use]
    pub fn rounded(mut self, digits: usize) -> Machine {
        let round = |value: &mut f64| *value = format!("{value:.*e}", digits - 1).parse().unwrap_or(*value);
        let wires = [Some(&mut self.network), self.node.as_mut(), self.socket.as_mut()];
        for protocol in wires.into_iter().flatten().flat_map(|wire| {
            wire.gap.iter_mut().for_each(round);
            &mut wire.protocols
        }) {
            round(&mut protocol.latency);
            round(&mut protocol.per_byte);
            protocol.injection.iter_mut().for_each(round);
        }
        self.injection.iter_mut().for_each(|limit| round(&mut limit.rate));
        let costs = &mut self.rank;
        let known = [&mut costs.rate, &mut costs.share, &mut costs.flag].into_iter().flatten();
        let always =
            [&mut costs.overhead, &mut costs.gap, &mut costs.reduce, &mut costs.copy, &mut costs.read, &mut costs.ask];
        always.into_iter().chain(known).for_each(round);
        self
    }

    /// Returns all machines that come with the library.
    pub fn all() -> impl Iterator<Item = Machine> {
        KNOWN.iter().map(|text| Machine::read(text).expect("a test reads all profiles"))
    }

    /// Returns the machine named `name`, if it comes with the library.
    pub fn builtin(name: &str) -> Option<Machine> {
        Machine::all().find(|machine| machine.name == name)
    }

    /// Returns the TOML text of the machine named `name`, if it comes with the library.
    pub fn text(name: &str) -> Option<&'static str> {
        KNOWN.iter().copied().find(|text| Machine::read(text).is_ok_and(|machine| machine.name == name))
    }

    /// Makes a machine with one latency and one transfer rate for all messages, on which all other work takes no time.
    pub fn postal(latency: f64, per_byte: f64) -> Machine {
        let protocol = Protocol { below: None, latency, per_byte, rendezvous: false, injection: None };
        Machine {
            name: "plain".to_owned(),
            about: "one latency and one rate".to_owned(),
            network: Link { source: "given".to_owned(), gap: None, protocols: vec![protocol] },
            node: None,
            socket: None,
            injection: None,
            rank: Costs::default(),
            predictions: None,
        }
    }

    /// Returns the ratio of inter-node to intra-node latency of 8-byte messages, if both are known.
    pub fn ratio(&self) -> Option<f64> {
        let near = self.socket.as_ref().or(self.node.as_ref())?;
        let ratio = self.network.protocol(8).latency / near.protocol(8).latency;
        (ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }

    /// Returns the machine with inter-node latencies scaled so that [`Machine::ratio`] is `ratio`; `None` if it has no such ratio.
    pub fn with_ratio(&self, ratio: f64) -> Option<Machine> {
        let factor = ratio / self.ratio()?;
        let mut machine = self.clone();
        machine.network.protocols.iter_mut().for_each(|protocol| protocol.latency *= factor);
        Some(machine)
    }

    /// Returns the machine and variations of it: latencies and rates, between nodes and within them, each multiplied by 1 - `by` or 1 +
    /// `by`. A result that holds on all of them does not depend on the accuracy of the parameters.
    pub fn variations(&self, by: f64) -> Vec<Machine> {
        let factor = |which: u32, corner: u32| if corner >> which & 1 == 0 { 1.0 - by } else { 1.0 + by };
        let corner = |corner: u32| {
            let mut machine = self.clone();
            let vary = |wire: &mut Link, latencies: f64, rates: f64| {
                for protocol in &mut wire.protocols {
                    protocol.latency *= latencies;
                    protocol.per_byte /= rates;
                    protocol.injection.iter_mut().for_each(|rate| *rate *= rates);
                }
            };
            vary(&mut machine.network, factor(0, corner), factor(1, corner));
            machine.injection.iter_mut().for_each(|limit| limit.rate *= factor(1, corner));
            let near = [machine.node.as_mut(), machine.socket.as_mut()];
            near.into_iter().flatten().for_each(|wire| vary(wire, factor(2, corner), factor(3, corner)));
            machine
        };
        let mut all = vec![self.clone()];
        for machine in (0..16).map(corner) {
            if !all.contains(&machine) {
                all.push(machine);
            }
        }
        all
    }

    /// Returns the limit of the rate at which a node sends messages of `bytes`, in bytes per second, if the machine file has one.
    pub fn injection_rate(&self, bytes: u64) -> Option<f64> {
        self.network.protocol(bytes).injection.or(self.injection.as_ref().map(|limit| limit.rate))
    }

    /// Returns the rate at which all ranks of a node together send messages of `bytes` to other nodes, in bytes per second; they receive at
    /// the same rate. Without a limit in the machine file, it is the rate of one message.
    pub fn node_rate(&self, bytes: u64) -> f64 {
        self.injection_rate(bytes).unwrap_or_else(|| 1.0 / self.network.protocol(bytes).per_byte)
    }

    /// Returns the rate at which one rank sends messages of `bytes` to other nodes, in bytes per second; it receives at the same rate.
    /// Without a limit in the machine file, it is the rate of one message.
    pub fn rank_rate(&self, bytes: u64) -> f64 {
        self.rank.rate.unwrap_or_else(|| 1.0 / self.network.protocol(bytes).per_byte)
    }

    /// Returns the time of a rank's local work in seconds.
    pub fn work(&self, work: &LocalWork) -> f64 {
        let costs = &self.rank;
        let share = |bytes: u64| match (bytes, costs.share) {
            (0, _) => 0.0,
            (bytes, Some(each)) => bytes as f64 * each,
            (bytes, None) => bytes as f64 * self.link(LinkClass::Socket).protocol(bytes).per_byte,
        };
        let each = [
            (work.copied_bytes, costs.copy),
            (work.read_bytes, costs.read),
            (u64::from(work.syscalls), costs.ask),
            (work.reduced_bytes, costs.reduce),
        ];
        each.into_iter().map(|(times, cost)| times as f64 * cost).sum::<f64>() + share(work.segment_bytes)
    }

    /// Returns the time from raising a flag until another rank of the node sees it, in seconds.
    pub fn flag(&self) -> f64 {
        self.rank.flag.unwrap_or_else(|| self.link(LinkClass::Socket).protocol(0).latency)
    }

    /// Returns the time of a barrier among `ranks` ranks of a node, in seconds: one flag time for each doubling of their number.
    pub fn barrier(&self, ranks: u32) -> f64 {
        // Integer arithmetic: all ranks must compute the same time, even if their mathematical libraries differ.
        self.flag() * f64::from(ranks.max(1).next_power_of_two().ilog2())
    }

    /// Returns the time between the starts of two consecutive messages of a rank over a link class, in seconds.
    pub fn gap(&self, reach: LinkClass) -> f64 {
        self.link(reach).gap.unwrap_or(self.rank.gap)
    }

    /// Returns the parameters of messages of a link class.
    pub fn link(&self, reach: LinkClass) -> &Link {
        let on_node = || self.socket.as_ref().or(self.node.as_ref()).unwrap_or(&self.network);
        match reach {
            LinkClass::Network => &self.network,
            LinkClass::Node => self.node.as_ref().unwrap_or_else(on_node),
            LinkClass::Socket => on_node(),
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
            let machine = Machine::builtin(name).unwrap();
            assert_eq!(Machine::read(&machine.write()).unwrap(), machine);
            assert!(!machine.network.source.is_empty());
            assert!(machine.link(LinkClass::Socket).protocol(8).latency <= machine.network.protocol(8).latency);
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let mut machine = Machine::builtin("lassen").unwrap();
        machine.about = "a \"name\" with \\ and Ω".to_owned();
        (machine.rank.flag, machine.rank.rate, machine.rank.read) = (Some(0.0), Some(1e4 / 3.0), 1e-12);
        let mut shares = Predictions { number: 3, within_1_3: 2.0 / 3.0, within_2: 1.0, source: "here".to_owned() };
        machine.predictions = Some(shares.clone());
        assert_eq!(Machine::read(&machine.write()).unwrap(), machine);
        assert_eq!(
            shares.to_string(),
            "67 % of 3 predictions for flat algorithms are within a factor of 1.3 of measured times, 100 % within 2"
        );
        shares.within_2 = 1.5;
        let wrong = Machine { predictions: Some(shares), ..machine.clone() };
        assert!(Machine::read(&wrong.write()).unwrap_err().to_string().ends_with("and between 0 and 1"));
        let rounded = machine.rounded(3);
        assert_eq!((rounded.rank.rate, rounded.rank.flag), (Some(3330.0), Some(0.0)));
    }

    #[test]
    fn a_machine_is_varied_in_all_directions() {
        let lassen = Machine::builtin("lassen").unwrap();
        let around = lassen.variations(0.3);
        assert_eq!((around.len(), &around[0]), (17, &lassen));
        let nears = |machine: &Machine| machine.socket.as_ref().unwrap().protocol(8).latency;
        for (far, near) in [(0.7, 0.7), (0.7, 1.3), (1.3, 0.7), (1.3, 1.3)] {
            let same = |machine: &&Machine| {
                let is = |value: f64, of: f64, times: f64| (value / of / times - 1.0).abs() < 1e-12;
                is(machine.network.protocol(8).latency, lassen.network.protocol(8).latency, far)
                    && is(nears(machine), nears(&lassen), near)
            };
            assert_eq!(around.iter().filter(same).count(), 4);
        }
        // Without intra-node parameters, only inter-node parameters vary.
        assert_eq!(Machine::builtin("trinity").unwrap().variations(0.3).len(), 5);
    }

    #[test]
    fn only_what_is_known_is_stretched() {
        let lassen = Machine::builtin("lassen").unwrap().with_ratio(100.0).unwrap();
        assert!((lassen.ratio().unwrap() - 100.0).abs() < 1e-9);
        // There is no ratio without intra-node parameters, or if intra-node latency is zero.
        assert_eq!(Machine::builtin("trinity").unwrap().with_ratio(2.0), None);
        let mut machine = Machine::postal(0.0, 1e-9);
        machine.socket = Some(machine.network.clone());
        assert_eq!(machine.with_ratio(2.0), None);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |text: &str| Machine::read(text).unwrap_err().to_string();
        let head = "name = 'm'\nabout = ''\n[network]\nsource = ''\n";
        assert!(wrong("name = 3").contains("invalid type"));
        assert_eq!(wrong(&format!("{head}protocols = []")), "m: `protocols` must have at least one entry");
        let two = "protocols = [{ latency = 1e-6, per_byte = 1e-9 }, { latency = 1e-6, per_byte = 1e-9 }]";
        assert_eq!(
            wrong(&format!("{head}{two}")),
            "m: every protocol but the last must have `below`, and the last must not"
        );
        let negative = "protocols = [{ latency = -1.0, per_byte = 1e-9 }]";
        assert_eq!(wrong(&format!("{head}{negative}")), "m: -1 is not a valid time: expected 0 to 1e6 seconds");
        let endless = "protocols = [{ latency = 1e308, per_byte = 1e-9, injection = 1e-300 }]";
        assert!(wrong(&format!("{head}{endless}")).ends_with("expected 0 to 1e6 seconds"));
        let still = "protocols = [{ latency = 1e-6, per_byte = 1e-9, injection = 1e-300 }]";
        assert!(wrong(&format!("{head}{still}")).ends_with("expected at least 1 byte per second"));
    }
}

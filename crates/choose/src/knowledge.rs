//! Machine parameters and tuning results for a machine and its MPI. Equal on all ranks.

use std::sync::Arc;

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_model::{Machine, Shape};

use crate::gauge::Gauged;
use crate::name::Name;

/// Vendor of the MPI whose own functions are the alternative to the library's algorithms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vendor {
    /// Open MPI.
    OpenMpi,
    /// MPICH.
    Mpich,
    /// Intel MPI, and every MPI that was not measured.
    Other,
}

impl Vendor {
    /// Returns the vendor of an MPI from its library version string.
    pub fn of(version: &str) -> Vendor {
        if version.starts_with("Open MPI") {
            Vendor::OpenMpi
        } else if version.starts_with("MPICH") {
            Vendor::Mpich
        } else {
            Vendor::Other
        }
    }

    /// Returns the name and version of an MPI from its library version string, without the build details that follow a comma or a tab.
    pub fn short(version: &str) -> &str {
        let line = version.lines().next().unwrap_or_default();
        line.split([',', '\t']).next().unwrap_or(line).trim()
    }

    /// Returns the default machine model for the vendor as TOML, used where nothing was measured.
    fn nominal(self) -> &'static str {
        match self {
            Vendor::OpenMpi => include_str!("../machines/open-mpi.toml"),
            Vendor::Mpich => include_str!("../machines/mpich.toml"),
            Vendor::Other => include_str!("../machines/other.toml"),
        }
    }
}

/// Origin of machine parameters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// Nothing was measured: the parameters are those of the default machine model.
    Nominal,
    /// Calibration at first use of the communicator, whose results differ slightly from run to run.
    ThisRun,
    /// Calibration at first use of the communicator on oversubscribed cores, where times vary strongly from call to call.
    Crowded,
    /// A profile file of the machine.
    Profile,
}

impl Origin {
    /// Error margin: the predicted speedup over the MPI's own function that an algorithm needs to be selected. Less reliable parameters
    /// need a larger one.
    pub fn margin(self) -> f64 {
        match self {
            Origin::Nominal => 1.4,
            Origin::ThisRun => 1.3,
            Origin::Crowded => 1.8,
            Origin::Profile => 1.2,
        }
    }
}

/// Machine parameters with their origin.
#[derive(Clone, PartialEq, Debug)]
pub struct Source {
    /// Parameters of the machine.
    pub machine: Machine,
    /// Origin of the parameters.
    pub origin: Origin,
}

/// Result of a tuning run for one collective and size: the fastest of the algorithms and the MPI's own function.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// Collective that was measured.
    pub name: Name,
    /// Message size in bytes.
    pub bytes: u64,
    /// The fastest algorithm; the MPI's own function if no difference was measured.
    pub expression: Expression,
    /// Time of the MPI's own function in seconds.
    pub native: f64,
    /// Time of the fastest algorithm divided by the time of the MPI's own function.
    pub ratio: f64,
    /// Confidence interval of `ratio`: its lower and upper end.
    pub interval: [f64; 2],
    /// Number of launches that had this result.
    pub launches: u32,
}

impl Verdict {
    /// Whether no algorithm was faster than the MPI's own function.
    pub fn is_native(&self) -> bool {
        self.expression == Expression::Plain(Plain::Native)
    }

    /// Combines this result with an earlier one, `before`. The same winner in both is confirmed. If `before` had a winner and this result
    /// has none, there is no difference.
    #[must_use]
    pub fn after(self, before: Option<&Verdict>) -> Verdict {
        match before {
            None => self,
            Some(before) if before.expression == self.expression => {
                let [low, high] = self.interval;
                let interval = [before.interval[0].min(low), before.interval[1].max(high)];
                let ratio = f64::midpoint(before.ratio, self.ratio);
                Verdict { ratio, interval, launches: before.launches + 1, ..self }
            }
            // A different algorithm has won: it must be confirmed by another launch.
            Some(_) if !self.is_native() => self,
            Some(before) => Verdict { launches: before.launches + 1, ..self },
        }
    }
}

/// Results of tuning runs on communicators of one shape.
#[derive(Clone, PartialEq, Debug)]
pub struct Raced {
    /// Shape of the communicators: nodes, and ranks on each.
    pub shape: Shape,
    /// Results, at most one for each collective and size.
    pub verdicts: Vec<Verdict>,
}

/// All machine parameters and tuning results by which algorithms are selected.
#[derive(Clone, PartialEq, Debug)]
pub struct Knowledge {
    /// Machine parameters that are the same in every run.
    pub steady: Source,
    /// Machine parameters measured in this run, if any. Not used for order-sensitive reductions, because their results must be
    /// reproducible from run to run.
    pub here: Option<Source>,
    /// Results of tuning runs, by communicator shape.
    pub raced: Vec<Raced>,
    /// Whether the machine parameters cover messages between nodes.
    pub between_nodes: bool,
    /// Vendor of the MPI.
    pub vendor: Vendor,
    /// Default machine model of the MPI's vendor, used to predict which algorithm the MPI itself selects.
    pub usual: Arc<Machine>,
}

impl Knowledge {
    /// Returns the knowledge that applies if only the MPI's vendor is known: its default machine model, and no tuning results.
    pub fn nominal(vendor: Vendor) -> Knowledge {
        let machine = Machine::read(vendor.nominal()).expect("a test reads all of them");
        let usual = Arc::new(machine.clone());
        let steady = Source { machine, origin: Origin::Nominal };
        Knowledge { steady, here: None, raced: Vec::new(), between_nodes: true, vendor, usual }
    }

    /// Returns the machine parameters to select by. Those measured in this run are not used for order-sensitive reductions (`rounds`),
    /// whose results must have the same bits in every run.
    pub fn source(&self, rounds: bool) -> &Source {
        self.here.as_ref().filter(|_| !rounds).unwrap_or(&self.steady)
    }

    /// Returns the knowledge that applies to communicators of a shape. Measurements on one node do not apply to several nodes.
    pub fn for_shape(self: Arc<Knowledge>, shape: Shape) -> Arc<Knowledge> {
        match shape.nodes == 1 || self.between_nodes {
            true => self,
            false => Arc::new(Knowledge::nominal(self.vendor)),
        }
    }

    /// Whether the communicator shape spans nodes and no measurement of messages between nodes is known.
    pub fn lacks_figures(&self, shape: Shape) -> bool {
        shape.nodes > 1 && (!self.between_nodes || self.steady.origin == Origin::Nominal)
    }

    /// Adds the calibration of this run, for communicators of a shape. It is not used for order-sensitive reductions.
    pub fn with(self: Arc<Knowledge>, gauged: &Gauged, shape: Shape) -> Arc<Knowledge> {
        let known = self.for_shape(shape);
        let usual = &known.steady.machine;
        let origin = if gauged.is_crowded(usual) { Origin::Crowded } else { Origin::ThisRun };
        let here = Some(Source { machine: gauged.machine(usual), origin });
        Arc::new(Knowledge { here, ..(*known).clone() })
    }

    /// Returns the tuning results for communicators of a shape.
    pub fn of_shape(&self, shape: Shape) -> &[Verdict] {
        self.raced
            .iter()
            .find(|raced| raced.shape == shape)
            .map(|raced| &raced.verdicts[..])
            .unwrap_or_default()
    }
}

/// Number of launches in which an algorithm must have won before its result is used.
const CONFIRMED: u32 = 2;

/// Returns the tuning result for `bytes`: that of the same size, or that of the next smaller measured size if the next larger one has the
/// same winner. A win of an algorithm counts only after two launches.
pub(crate) fn verdict(verdicts: &[Verdict], name: Name, bytes: u64) -> Option<&Verdict> {
    let (mut below, mut above): (Option<&Verdict>, Option<&Verdict>) = (None, None);
    let counts =
        |verdict: &&Verdict| verdict.name == name && (verdict.launches >= CONFIRMED || verdict.is_native());
    for verdict in verdicts.iter().filter(counts) {
        if verdict.bytes == bytes {
            return Some(verdict);
        }
        let place = if verdict.bytes < bytes { &mut below } else { &mut above };
        let nearer = |known: &Verdict| verdict.bytes.abs_diff(bytes) < known.bytes.abs_diff(bytes);
        if place.is_none_or(nearer) {
            *place = Some(verdict);
        }
    }
    below.filter(|below| above.is_some_and(|above| above.expression == below.expression))
}

#[cfg(test)]
impl Verdict {
    /// Makes a result, confirmed by two launches, in which `winner` takes half of the MPI's time.
    pub(crate) fn won(name: Name, bytes: u64, winner: &str) -> Verdict {
        let expression = winner.parse().expect("an algorithm");
        Verdict { name, bytes, expression, native: 1e-6, ratio: 0.5, interval: [0.4, 0.6], launches: 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nominal_machines_can_be_read() {
        for vendor in [Vendor::OpenMpi, Vendor::Mpich, Vendor::Other] {
            assert!(Knowledge::nominal(vendor).steady.machine.name.starts_with("nominal-"));
        }
    }

    #[test]
    fn a_win_reaches_from_one_size_to_the_next_where_it_won_too() {
        let of = |bytes, winner: &str| Verdict::won(Name::Allreduce, bytes, winner);
        let known = [of(4096, "ring"), of(8, "shm"), of(512, "shm")];
        let won = |bytes| verdict(&known, Name::Allreduce, bytes).map(|v| v.expression.to_string());
        assert_eq!(won(8).as_deref(), Some("shm"));
        assert_eq!(won(100).as_deref(), Some("shm"));
        assert_eq!((won(7), won(513), won(4097)), (None, None, None));
        assert_eq!(won(4096).as_deref(), Some("ring"));
        assert_eq!(verdict(&known, Name::Allgather, 8), None);
        let once = |winner| Verdict { launches: 1, ..of(8, winner) };
        assert_eq!(verdict(&[once("shm")], Name::Allreduce, 8), None);
        assert!(verdict(&[once("native")], Name::Allreduce, 8).is_some());
    }
}

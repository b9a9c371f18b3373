//! Machine parameters and tuning results for a machine and its MPI. Equal on all ranks.

use std::sync::Arc;

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_model::{Machine, Shape};

use crate::calibration::Calibration;
use crate::name::Name;

/// Vendor of the MPI whose own functions are the alternative to the library's algorithms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vendor {
    /// Open MPI up to version 4, whose collectives are not node-aware by default.
    OpenMpi4,
    /// Open MPI from version 5 on.
    OpenMpi,
    /// MPICH.
    Mpich,
    /// Intel MPI, and every MPI that was not measured.
    Other,
}

impl Vendor {
    /// Returns the vendor of an MPI from its library version string.
    pub fn of(version: &str) -> Vendor {
        if let Some(number) = version.strip_prefix("Open MPI") {
            let major = number.trim_start_matches([' ', 'v']).split('.').next().and_then(|major| major.parse().ok());
            if major.is_some_and(|major: u32| major < 5) { Vendor::OpenMpi4 } else { Vendor::OpenMpi }
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
    fn default_profile(self) -> &'static str {
        match self {
            Vendor::OpenMpi4 | Vendor::OpenMpi => include_str!("../machines/open-mpi.toml"),
            Vendor::Mpich => include_str!("../machines/mpich.toml"),
            Vendor::Other => include_str!("../machines/other.toml"),
        }
    }
}

/// Origin of machine parameters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// Nothing was measured: the parameters are those of the default machine model.
    Default,
    /// Calibration at first use of the communicator, whose results differ slightly from run to run.
    Calibrated,
    /// Calibration at first use of the communicator on oversubscribed cores, where times vary strongly from call to call.
    Oversubscribed,
    /// A profile file of the machine.
    Profile,
}

impl Origin {
    /// Returns the error margin: the predicted speedup over the MPI's own function that an algorithm needs to be selected. Less reliable
    /// parameters need a larger margin.
    pub fn margin(self) -> f64 {
        match self {
            Origin::Default => 1.4,
            Origin::Calibrated => 1.3,
            Origin::Oversubscribed => 1.8,
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
pub struct TuningResult {
    /// Collective that was measured.
    pub name: Name,
    /// Message size in bytes.
    pub bytes: u64,
    /// The fastest algorithm; `native` if no algorithm was significantly faster than the MPI's own function.
    pub expression: Expression,
    /// Time of the MPI's own function in seconds.
    pub native_seconds: f64,
    /// Time of the fastest algorithm divided by the time of the MPI's own function.
    pub ratio: f64,
    /// Lower and upper end of the confidence interval of `ratio`.
    pub interval: [f64; 2],
    /// Number of launches (starts of the tuning run) that had this result.
    pub launches: u32,
}

impl TuningResult {
    /// Whether no algorithm was faster than the MPI's own function.
    pub fn is_native(&self) -> bool {
        self.expression == Expression::Plain(Plain::Native)
    }

    /// Combines this result with an earlier result of the same case, `before`. If both have the same winner, the combination counts the
    /// launches of both. If the winners differ, this result replaces the earlier one; only if the new winner is `native` do earlier
    /// launches still count.
    #[must_use]
    pub fn after(self, before: Option<&TuningResult>) -> TuningResult {
        match before {
            None => self,
            Some(before) if before.expression == self.expression => {
                let [low, high] = self.interval;
                let interval = [before.interval[0].min(low), before.interval[1].max(high)];
                let ratio = f64::midpoint(before.ratio, self.ratio);
                TuningResult { ratio, interval, launches: before.launches + 1, ..self }
            }
            // A different algorithm has won: it must be confirmed by another launch.
            Some(_) if !self.is_native() => self,
            Some(before) => TuningResult { launches: before.launches + 1, ..self },
        }
    }
}

/// Results of tuning runs on communicators of one shape.
#[derive(Clone, PartialEq, Debug)]
pub struct ShapeResults {
    /// Shape of the communicators: nodes, and ranks on each.
    pub shape: Shape,
    /// Results, at most one for each collective and size.
    pub results: Vec<TuningResult>,
}

/// All machine parameters and tuning results by which algorithms are selected.
#[derive(Clone, PartialEq, Debug)]
pub struct Knowledge {
    /// Machine parameters that are the same in every run.
    pub reproducible: Source,
    /// Machine parameters measured in this run, if any. Not used for order-sensitive reductions, because their results must be
    /// reproducible from run to run.
    pub calibrated: Option<Source>,
    /// Results of tuning runs, by communicator shape.
    pub results: Vec<ShapeResults>,
    /// Whether the machine parameters cover messages between nodes.
    pub between_nodes: bool,
    /// Vendor of the MPI.
    pub vendor: Vendor,
    /// Default machine model of the MPI's vendor, used to predict which algorithm the MPI itself selects.
    pub default_machine: Arc<Machine>,
}

impl Knowledge {
    /// Returns the knowledge that applies if only the MPI's vendor is known: its default machine model, and no tuning results.
    pub fn defaults(vendor: Vendor) -> Knowledge {
        let machine = Machine::read(vendor.default_profile()).expect("a test reads all of them");
        let default = Arc::new(machine.clone());
        let steady = Source { machine, origin: Origin::Default };
        Knowledge {
            reproducible: steady,
            calibrated: None,
            results: Vec::new(),
            between_nodes: true,
            vendor,
            default_machine: default,
        }
    }

    /// Returns the machine parameters for selecting an algorithm. Parameters measured in this run are not used for order-sensitive
    /// reductions (`rounds`), whose results must have the same bits in every run.
    pub fn source(&self, rounds: bool) -> &Source {
        self.calibrated.as_ref().filter(|_| !rounds).unwrap_or(&self.reproducible)
    }

    /// Returns the knowledge that applies to communicators of a shape. Measurements on one node do not apply to several nodes.
    pub fn for_shape(self: Arc<Knowledge>, shape: Shape) -> Arc<Knowledge> {
        match shape.nodes == 1 || self.between_nodes {
            true => self,
            false => Arc::new(Knowledge::defaults(self.vendor)),
        }
    }

    /// Whether the communicator shape spans nodes and no measurement of messages between nodes is known.
    pub fn lacks_figures(&self, shape: Shape) -> bool {
        shape.nodes > 1 && (!self.between_nodes || self.reproducible.origin == Origin::Default)
    }

    /// Returns the knowledge with the calibration of this run added, for communicators of a shape. The calibration is not used for
    /// order-sensitive reductions.
    pub fn with(self: Arc<Knowledge>, calibration: &Calibration, shape: Shape) -> Arc<Knowledge> {
        let known = self.for_shape(shape);
        let default = &known.reproducible.machine;
        let origin = if calibration.is_oversubscribed(default) { Origin::Oversubscribed } else { Origin::Calibrated };
        let here = Some(Source { machine: calibration.machine(default), origin });
        Arc::new(Knowledge { calibrated: here, ..(*known).clone() })
    }

    /// Returns the tuning results for communicators of a shape.
    pub fn of_shape(&self, shape: Shape) -> &[TuningResult] {
        self.results.iter().find(|tuned| tuned.shape == shape).map(|tuned| &tuned.results[..]).unwrap_or_default()
    }
}

/// Number of launches in which an algorithm must have won before its result is used.
const CONFIRMED: u32 = 2;

/// Returns the tuning result for `bytes`: that of the same size or, between two measured sizes with the same winner, that of the smaller
/// one. A win of an algorithm counts only after two launches.
pub(crate) fn find_result(results: &[TuningResult], name: Name, bytes: u64) -> Option<&TuningResult> {
    let (mut below, mut above): (Option<&TuningResult>, Option<&TuningResult>) = (None, None);
    let counts = |result: &&TuningResult| result.name == name && (result.launches >= CONFIRMED || result.is_native());
    for result in results.iter().filter(counts) {
        if result.bytes == bytes {
            return Some(result);
        }
        let place = if result.bytes < bytes { &mut below } else { &mut above };
        let nearer = |known: &TuningResult| result.bytes.abs_diff(bytes) < known.bytes.abs_diff(bytes);
        if place.is_none_or(nearer) {
            *place = Some(result);
        }
    }
    below.filter(|below| above.is_some_and(|above| above.expression == below.expression))
}

#[cfg(test)]
impl TuningResult {
    /// Makes a result, confirmed by two launches, in which `winner` takes half of the MPI's time.
    pub(crate) fn won(name: Name, bytes: u64, winner: &str) -> TuningResult {
        let expression = winner.parse().expect("an algorithm");
        TuningResult { name, bytes, expression, native_seconds: 1e-6, ratio: 0.5, interval: [0.4, 0.6], launches: 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nominal_machines_can_be_read() {
        for (version, vendor) in [
            ("Open MPI v4.1.4, package: Debian", Vendor::OpenMpi4),
            ("Open MPI 4.1.4", Vendor::OpenMpi4),
            ("Open MPI v5.0.11", Vendor::OpenMpi),
            ("Open MPI 10.0", Vendor::OpenMpi),
            ("Open MPI", Vendor::OpenMpi),
            ("MPICH Version:\t5.0.2", Vendor::Mpich),
            ("Intel(R) MPI Library", Vendor::Other),
        ] {
            assert_eq!(Vendor::of(version), vendor, "{version}");
        }
        for vendor in [Vendor::OpenMpi4, Vendor::OpenMpi, Vendor::Mpich, Vendor::Other] {
            assert!(Knowledge::defaults(vendor).reproducible.machine.name.starts_with("nominal-"));
        }
    }

    #[test]
    fn a_win_reaches_from_one_size_to_the_next_where_it_won_too() {
        let of = |bytes, winner: &str| TuningResult::won(Name::Allreduce, bytes, winner);
        let known = [of(4096, "ring"), of(8, "shm"), of(512, "shm")];
        let won = |bytes| find_result(&known, Name::Allreduce, bytes).map(|v| v.expression.to_string());
        assert_eq!(won(8).as_deref(), Some("shm"));
        assert_eq!(won(100).as_deref(), Some("shm"));
        assert_eq!((won(7), won(513), won(4097)), (None, None, None));
        assert_eq!(won(4096).as_deref(), Some("ring"));
        assert_eq!(find_result(&known, Name::Allgather, 8), None);
        let once = |winner| TuningResult { launches: 1, ..of(8, winner) };
        assert_eq!(find_result(&[once("shm")], Name::Allreduce, 8), None);
        assert!(find_result(&[once("native")], Name::Allreduce, 8).is_some());
    }
}

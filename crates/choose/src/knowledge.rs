//! What is known of a machine and its MPI; the same on all ranks.

use std::sync::Arc;

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_model::{Machine, Shape};

use crate::gauge::Gauged;
use crate::name::Name;

/// The MPI whose own functions are the alternative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vendor {
    /// Open MPI.
    OpenMpi,
    /// MPICH.
    Mpich,
    /// Intel MPI, and those that were not measured.
    Other,
}

impl Vendor {
    /// By what the library says of itself.
    pub fn of(version: &str) -> Vendor {
        if version.starts_with("Open MPI") {
            Vendor::OpenMpi
        } else if version.starts_with("MPICH") {
            Vendor::Mpich
        } else {
            Vendor::Other
        }
    }

    /// The name and version of an MPI, from what it says of itself: what was built how follows after a comma or a tab.
    pub fn short(version: &str) -> &str {
        let line = version.lines().next().unwrap_or_default();
        line.split([',', '\t']).next().unwrap_or(line).trim()
    }

    /// A machine on which nothing was measured.
    fn nominal(self) -> &'static str {
        match self {
            Vendor::OpenMpi => include_str!("../machines/open-mpi.toml"),
            Vendor::Mpich => include_str!("../machines/mpich.toml"),
            Vendor::Other => include_str!("../machines/other.toml"),
        }
    }
}

/// Where figures of a machine come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// Nobody has measured: a machine like many.
    Nominal,
    /// Measured when the communicator was first used; a little different in each run.
    ThisRun,
    /// The same where ranks wait for cores that others have: no two calls take the same time there.
    Crowded,
    /// A profile.
    Profile,
}

impl Origin {
    /// How many times as fast as the MPI's own function an algorithm must be by the model to be chosen: the worse the figures, the more.
    pub fn margin(self) -> f64 {
        match self {
            Origin::Nominal => 1.4,
            Origin::ThisRun => 1.3,
            Origin::Crowded => 1.8,
            Origin::Profile => 1.2,
        }
    }
}

/// Figures of a machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Source {
    /// The figures.
    pub machine: Machine,
    /// Where they come from.
    pub origin: Origin,
}

/// What a race between algorithms and the MPI's own function came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// The collective.
    pub name: Name,
    /// How much data.
    pub bytes: u64,
    /// Who won; the MPI's own function where there was no difference.
    pub expression: Expression,
    /// What the MPI's own function took, in seconds.
    pub native: f64,
    /// The winner's time as a part of that.
    pub ratio: f64,
    /// The interval of the ratio.
    pub interval: [f64; 2],
    /// In how many launches.
    pub launches: u32,
}

impl Verdict {
    /// Whether nothing was better than the MPI's own function.
    pub fn is_native(&self) -> bool {
        self.expression == Expression::Plain(Plain::Native)
    }

    /// This one together with what was known before: a winner that wins again is confirmed; where one launch says one thing and the next
    /// another, there is no difference.
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
            // Another one has won: it is now its turn to be confirmed.
            Some(_) if !self.is_native() => self,
            Some(before) => Verdict { launches: before.launches + 1, ..self },
        }
    }
}

/// What was raced on communicators of one shape.
#[derive(Clone, PartialEq, Debug)]
pub struct Raced {
    /// The shape.
    pub shape: Shape,
    /// Of each collective and size one.
    pub verdicts: Vec<Verdict>,
}

/// What is known.
#[derive(Clone, PartialEq, Debug)]
pub struct Knowledge {
    /// Figures that are the same in every run.
    pub steady: Source,
    /// Figures of this run, if there are any: not for results that would round otherwise with another algorithm.
    pub here: Option<Source>,
    /// What was raced.
    pub raced: Vec<Raced>,
    /// Whether the figures say anything of messages between nodes.
    pub between_nodes: bool,
    /// The MPI.
    pub vendor: Vendor,
    /// The machine by which the MPI's own choices are guessed.
    pub usual: Arc<Machine>,
}

impl Knowledge {
    /// What is assumed of a machine where only the MPI is known.
    pub fn nominal(vendor: Vendor) -> Knowledge {
        let machine = Machine::read(vendor.nominal()).expect("a test reads all of them");
        let usual = Arc::new(machine.clone());
        let steady = Source { machine, origin: Origin::Nominal };
        Knowledge { steady, here: None, raced: Vec::new(), between_nodes: true, vendor, usual }
    }

    /// The figures to choose by: those of this run only where any right algorithm gives the same bits.
    pub fn source(&self, rounds: bool) -> &Source {
        self.here.as_ref().filter(|_| !rounds).unwrap_or(&self.steady)
    }

    /// What is known of communicators of a shape: whoever has measured on one node knows nothing of several.
    pub fn for_shape(self: Arc<Knowledge>, shape: Shape) -> Arc<Knowledge> {
        match shape.nodes == 1 || self.between_nodes {
            true => self,
            false => Arc::new(Knowledge::nominal(self.vendor)),
        }
    }

    /// Whether nothing was measured that says anything of communicators of a shape, though they span nodes.
    pub fn lacks_figures(&self, shape: Shape) -> bool {
        shape.nodes > 1 && (!self.between_nodes || self.steady.origin == Origin::Nominal)
    }

    /// The same with what was measured in this run, which is for results that do not round.
    pub fn with(self: Arc<Knowledge>, gauged: &Gauged, shape: Shape) -> Arc<Knowledge> {
        let known = self.for_shape(shape);
        let usual = &known.steady.machine;
        let origin = if gauged.is_crowded(usual) { Origin::Crowded } else { Origin::ThisRun };
        let here = Some(Source { machine: gauged.machine(usual), origin });
        Arc::new(Knowledge { here, ..(*known).clone() })
    }

    /// What was raced on communicators of a shape.
    pub fn of_shape(&self, shape: Shape) -> &[Verdict] {
        self.raced
            .iter()
            .find(|raced| raced.shape == shape)
            .map(|raced| &raced.verdicts[..])
            .unwrap_or_default()
    }
}

/// Launches in which an algorithm must have won.
const CONFIRMED: u32 = 2;

/// What is known from races about so many bytes: what won at that size, or both below and above. Wins count that two launches have seen.
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
    /// A win by half that two launches have seen.
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

//! The file of `bruckner bench`: JSON with every sample.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What a file says that it is.
const FORMAT: &str = "bruckner-bench 1";

/// Measurements of one or more launches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    format: String,
    /// Each start of all ranks by a launcher.
    pub launches: Vec<Launch>,
}

/// One start of all ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Launch {
    /// When it began: seconds since 1970.
    pub when: u64,
    /// The version of Bruckner.
    pub version: String,
    /// Whether it only found out which of the MPI's settings are worth measuring: it counts for nothing else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trial: bool,
    /// What whoever measured wants to be kept apart, such as `delay=500us`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The MPI.
    pub mpi: MpiInfo,
    /// Where it ran.
    pub machine: Machine,
    /// Nodes and ranks, as `bruckner explain --topology` takes them.
    pub topology: String,
    /// How many ranks.
    pub ranks: u32,
    /// Whether ranks outnumber cores on a node: then times tell of the scheduler, too.
    pub oversubscribed: bool,
    /// Where the random orders began.
    pub seed: u64,
    /// By which algorithm ranks were synchronised before each repetition.
    pub barrier: String,
    /// What was measured.
    pub cases: Vec<Case>,
}

/// The MPI and what it was told.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MpiInfo {
    /// Its own name and version.
    pub name: String,
    /// Its library.
    pub library: String,
    /// Variables of the environment that speak to it, to its transports or to Bruckner.
    pub settings: BTreeMap<String, String>,
}

/// The machine, as its ranks saw it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The host of each rank.
    pub hosts: Vec<String>,
    /// The cores on which each rank may run.
    pub pinning: Vec<String>,
    /// The processor, on rank 0.
    pub processor: String,
    /// Its cores.
    pub cores: u32,
    /// The kernel.
    pub kernel: String,
    /// How many processes were running or ready on rank 0's host, on average over a minute, before and after.
    pub load: [f64; 2],
}

/// One collective at one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Its name.
    pub collective: String,
    /// Bytes, as `bruckner explain --bytes` counts them; with counts, of all ranks together.
    pub bytes: u64,
    /// Bytes of each rank, where they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Vec<u64>>,
    /// What was compared.
    pub contenders: Vec<Contender>,
    /// In the order of measurement.
    pub blocks: Vec<Block>,
    /// How far apart ranks left the barrier, in each repetition: nanoseconds.
    pub skew: Vec<u64>,
    /// How long 8 bytes took from the first rank to the last, in each block: half a round trip, in nanoseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<u64>,
}

/// A way to do the collective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contender {
    /// Its name.
    pub name: String,
    /// Why it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// All contenders once, in random order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Block {
    /// One for each contender that was measured, in the order in which they ran.
    pub runs: Vec<Run>,
}

/// One contender in one block: nanoseconds, for each rank and repetition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Its number among the contenders of the case.
    pub contender: usize,
    /// From a barrier to the end of the call: for each rank, each repetition.
    pub from_barrier: Vec<Vec<u64>>,
    /// Calls one behind the other without a barrier: for each rank, all of them together.
    pub back_to_back: Vec<u64>,
    /// How many these were.
    pub calls: u32,
}

/// The two ways of looking at a collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Look {
    /// From a barrier to the end of the last rank.
    FromBarrier,
    /// One call behind the other: time for each.
    BackToBack,
}

impl Look {
    /// Both.
    pub const ALL: [Look; 2] = [Look::FromBarrier, Look::BackToBack];

    /// As people say it.
    pub fn text(self) -> &'static str {
        match self {
            Look::FromBarrier => "from a barrier to the last end",
            Look::BackToBack => "back to back",
        }
    }
}

impl Run {
    /// The time of each repetition, in seconds: that of the slowest rank. Back to back there is one, for each call.
    pub fn times(&self, look: Look) -> Vec<f64> {
        match look {
            Look::FromBarrier => {
                let count = self.from_barrier.iter().map(Vec::len).min().unwrap_or(0);
                let slowest = |at: usize| self.from_barrier.iter().map(|rank| rank[at]).max().unwrap_or(0);
                (0..count).map(|at| slowest(at) as f64 * 1e-9).collect()
            }
            Look::BackToBack => {
                let all = self.back_to_back.iter().max();
                all.map(|&all| all as f64 * 1e-9 / f64::from(self.calls.max(1))).into_iter().collect()
            }
        }
    }
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WrongFile {
    /// The operating system refuses.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Not JSON of this kind.
    #[error("these are no results of `bruckner bench`: {reason}")]
    Json {
        /// What the reader says.
        reason: String,
    },
    /// Of another version.
    #[error("its format is `{0}`, and this is for `{FORMAT}`")]
    Format(String),
}

impl From<serde_json::Error> for WrongFile {
    fn from(error: serde_json::Error) -> WrongFile {
        WrongFile::Json { reason: error.to_string() }
    }
}

impl Default for Results {
    fn default() -> Results {
        Results { format: FORMAT.to_owned(), launches: Vec::new() }
    }
}

impl Results {
    /// One case by itself.
    pub fn of_case(case: Case) -> Results {
        let launch = Launch { cases: vec![case], ..Launch::default() };
        Results { launches: vec![launch], ..Results::default() }
    }

    /// What a file holds.
    pub fn read(path: &Path) -> Result<Results, WrongFile> {
        let results: Results = serde_json::from_slice(&std::fs::read(path)?)?;
        match results.format == FORMAT {
            true => Ok(results),
            false => Err(WrongFile::Format(results.format)),
        }
    }

    /// Writes a file: all of it, or nothing.
    pub fn write(&self, path: &Path) -> Result<(), WrongFile> {
        // Where a link points to, if it is one.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
        let written = std::fs::write(&beside, serde_json::to_vec(self)?);
        if let Err(error) = written.and_then(|()| std::fs::rename(&beside, &path)) {
            let _ = std::fs::remove_file(&beside);
            return Err(error.into());
        }
        Ok(())
    }
}

//! Results file of `bruckner bench`: JSON with every sample.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Name and version of the file format.
const FORMAT: &str = "bruckner-bench 1";

/// Measurements of one or more launches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    format: String,
    /// All launches; each is one start of all ranks by a launcher.
    pub launches: Vec<Launch>,
}

/// Measurements of one launch: one start of all ranks by a launcher.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Launch {
    /// Start time in seconds since 1970.
    pub when: u64,
    /// Version of Bruckner with which the launch measured.
    pub version: String,
    /// Whether the launch only finds out which settings of the MPI are worth measuring. Its times are not used for anything else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trial: bool,
    /// Labels given by the user, such as `delay=500us`. Launches with different labels are not joined.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// MPI that the launch used.
    pub mpi: MpiInfo,
    /// Machine on which the launch ran.
    pub machine: Host,
    /// Topology of nodes and ranks, in the form of the option `bruckner explain --topology`.
    pub topology: String,
    /// Number of ranks.
    pub ranks: u32,
    /// Whether ranks outnumber cores on a node. If so, times include delays by the operating system's scheduler.
    pub oversubscribed: bool,
    /// Seed of the random orders in which contenders ran.
    pub seed: u64,
    /// Algorithm of the barrier that synchronised ranks before each repetition.
    pub barrier: String,
    /// Measured cases.
    pub cases: Vec<Case>,
}

/// An MPI and its settings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MpiInfo {
    /// Name and version of the MPI.
    pub name: String,
    /// Path of the MPI library.
    pub library: String,
    /// Environment variables that configure the MPI, its transports or Bruckner.
    pub settings: BTreeMap<String, String>,
}

/// Description of the machine by its ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    /// Host name of each rank.
    pub hosts: Vec<String>,
    /// For each rank, the list of cores on which it may run.
    pub pinning: Vec<String>,
    /// Model name of rank 0's processor.
    pub processor: String,
    /// Number of cores that rank 0 may use.
    pub cores: u32,
    /// Release of the operating system's kernel on rank 0.
    pub kernel: String,
    /// Load average of rank 0's host over one minute (running or ready processes), before and after the measurement.
    pub load: [f64; 2],
}

/// Measurements of one collective at one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Name of the collective.
    pub collective: String,
    /// Message size in bytes, as `bruckner explain --bytes` counts it; with `counts`, the total of all ranks.
    pub bytes: u64,
    /// Bytes of each rank, if ranks have different sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Vec<u64>>,
    /// All contenders of the case, including those that were not measured (see [`Contender::refused`]).
    pub contenders: Vec<Contender>,
    /// Blocks in the order of measurement.
    pub blocks: Vec<Block>,
    /// Barrier skew of each repetition in nanoseconds: the time between the first and the last rank leaving the barrier.
    pub skew: Vec<u64>,
    /// Time of an 8-byte message from the first rank to the last, in each block: half a round trip, in nanoseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<u64>,
}

/// A way to execute the collective: an algorithm of the library, or the MPI's own function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contender {
    /// Name of the contender.
    pub name: String,
    /// Reason why the contender was not measured; `None` if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A block of measurements: all contenders run once, in random order, each with all its repetitions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Block {
    /// Runs of the measured contenders, in the order of execution.
    pub runs: Vec<BlockTimes>,
}

/// Times of one contender in one block, in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlockTimes {
    /// Index of the contender in [`Case::contenders`].
    pub contender: usize,
    /// For each rank, the time of each repetition, from a barrier to the end of the call.
    pub from_barrier: Vec<Vec<u64>>,
    /// For each rank, the total time of consecutive calls without a barrier between them.
    pub back_to_back: Vec<u64>,
    /// Number of consecutive calls that each time in `back_to_back` covers.
    pub calls: u32,
}

/// Method of timing a collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TimingMethod {
    /// Time from a barrier to the end of the call on the slowest rank.
    FromBarrier,
    /// Time per call of consecutive calls without a barrier between them.
    BackToBack,
}

impl TimingMethod {
    /// Both methods of timing a collective.
    pub const ALL: [TimingMethod; 2] = [TimingMethod::FromBarrier, TimingMethod::BackToBack];

    /// Returns the name of the method in reports.
    pub fn text(self) -> &'static str {
        match self {
            TimingMethod::FromBarrier => "from a barrier, slowest rank",
            TimingMethod::BackToBack => "back to back",
        }
    }
}

impl BlockTimes {
    /// Returns the time of the slowest rank in each repetition, in seconds. For back-to-back calls there is one value, the time per call.
    pub fn times(&self, look: TimingMethod) -> Vec<f64> {
        match look {
            TimingMethod::FromBarrier => {
                let count = self.from_barrier.iter().map(Vec::len).min().unwrap_or(0);
                let slowest = |at: usize| self.from_barrier.iter().map(|rank| rank[at]).max().unwrap_or(0);
                (0..count).map(|at| slowest(at) as f64 * 1e-9).collect()
            }
            TimingMethod::BackToBack => {
                let all = self.back_to_back.iter().max();
                all.map(|&all| all as f64 * 1e-9 / f64::from(self.calls.max(1))).into_iter().collect()
            }
        }
    }
}

/// Error for a results file that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// An error of the operating system.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The file is not JSON with the expected fields.
    #[error("not a results file of `bruckner bench`: {reason}")]
    Json {
        /// Error message of the JSON parser.
        reason: String,
    },
    /// The file has another format, or another version of the format.
    #[error("the file has format `{0}`, but this version reads `{FORMAT}`")]
    Format(String),
}

impl From<serde_json::Error> for ResultsError {
    fn from(error: serde_json::Error) -> ResultsError {
        ResultsError::Json { reason: error.to_string() }
    }
}

impl Default for Results {
    fn default() -> Results {
        Results { format: FORMAT.to_owned(), launches: Vec::new() }
    }
}

impl Results {
    /// Makes results with a single case.
    pub fn of_case(case: Case) -> Results {
        let launch = Launch { cases: vec![case], ..Launch::default() };
        Results { launches: vec![launch], ..Results::default() }
    }

    /// Reads a results file.
    pub fn read(path: &Path) -> Result<Results, ResultsError> {
        let results: Results = serde_json::from_slice(&std::fs::read(path)?)?;
        match results.format == FORMAT {
            true => Ok(results),
            false => Err(ResultsError::Format(results.format)),
        }
    }

    /// Writes a results file, either completely or not at all.
    pub fn write(&self, path: &Path) -> Result<(), ResultsError> {
        // If the path is a symbolic link, its target is written.
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

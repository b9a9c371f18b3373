//! Names of contenders that are the MPI's own function, with its default algorithm or forced to another one.

use crate::join::JoinedCase;
use crate::results::TimingMethod;

/// Name of the contender that is the MPI's own function with its default algorithm.
pub const NATIVE: &str = "native";

/// Name of the contender that is the library with the algorithm it selects, which may be the MPI's own function.
pub const LIBRARY_SELECTION: &str = "chosen";

const PREFIX: &str = "native: ";

/// Returns the contender name of the MPI's own function under a setting.
pub fn forced(setting: &str) -> String {
    format!("{PREFIX}{setting}")
}

/// Returns the setting in a contender name, if the contender is the MPI's own function under a setting.
pub fn setting(contender: &str) -> Option<&str> {
    contender.strip_prefix(PREFIX)
}

/// Whether a contender is the MPI's own function under a setting.
pub fn is_forced(contender: &str) -> bool {
    setting(contender).is_some()
}

/// Whether a contender is the MPI's own function, by default or under a setting.
pub fn is_native(contender: &str) -> bool {
    contender == NATIVE || is_forced(contender)
}

/// Returns the contender that is the MPI's own function under its fastest setting. Usually a case has one such contender, because only the
/// winner of the trial launches is measured in full. If results of several runs are joined, there may be one from each run; they are
/// compared by their ratios to the first algorithm of the library in the case. `None` if no such algorithm or no such contender was
/// measured.
pub fn best<'a>(case: &JoinedCase<'a>) -> Option<&'a str> {
    let forced: Vec<&'a str> = case.contenders.iter().copied().filter(|name| is_forced(name)).collect();
    let ours = case.contenders.iter().find(|name| !is_native(name) && **name != LIBRARY_SELECTION)?;
    let ratio = |native: &str| case.ratio(native, ours, TimingMethod::FromBarrier).unwrap_or(f64::INFINITY);
    forced.into_iter().min_by(|a, b| ratio(a).total_cmp(&ratio(b)))
}

//! The MPI's own function among the contenders, by name: as it is, or forced to another algorithm.

use crate::join::Joined;
use crate::results::Look;

/// What the MPI does by itself.
pub const NATIVE: &str = "native";

/// What the library does by itself, which may be to leave a call to the MPI.
pub const CHOSEN: &str = "chosen";

const PREFIX: &str = "native: ";

/// The name of the MPI's own function under a setting.
pub fn forced(setting: &str) -> String {
    format!("{PREFIX}{setting}")
}

/// The setting under which a contender is the MPI's own function.
pub fn setting(contender: &str) -> Option<&str> {
    contender.strip_prefix(PREFIX)
}

/// Whether a contender is the MPI's own function under a setting.
pub fn is_forced(contender: &str) -> bool {
    setting(contender).is_some()
}

/// Whether a contender is the MPI's own function.
pub fn is_native(contender: &str) -> bool {
    contender == NATIVE || is_forced(contender)
}

/// The setting that was measured in full beside all others, because it was the best of all in a trial. Where files of several
/// runs are joined there may be several: then the fastest beside one of ours.
pub fn best<'a>(case: &Joined<'a>) -> Option<&'a str> {
    let forced: Vec<&'a str> = case.contenders.iter().copied().filter(|name| is_forced(name)).collect();
    let ours = case.contenders.iter().find(|name| !is_native(name) && **name != CHOSEN)?;
    let ratio = |native: &str| case.ratio(native, ours, Look::FromBarrier).unwrap_or(f64::INFINITY);
    forced.into_iter().min_by(|a, b| ratio(a).total_cmp(&ratio(b)))
}

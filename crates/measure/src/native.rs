//! The MPI's own function among the contenders, by name: as it is, or forced to another algorithm.

use crate::join::Joined;
use crate::results::Look;

/// What the MPI does by itself.
pub const NATIVE: &str = "native";

const PREFIX: &str = "native: ";

/// The name of the MPI's own function under a setting.
pub fn forced(setting: &str) -> String {
    format!("{PREFIX}{setting}")
}

/// Whether a contender is the MPI's own function under a setting.
pub fn is_forced(contender: &str) -> bool {
    contender.starts_with(PREFIX)
}

/// Whether a contender is the MPI's own function.
pub fn is_native(contender: &str) -> bool {
    contender == NATIVE || is_forced(contender)
}

/// The best of the MPI's own, if any was forced. They ran in launches of their own, but all beside one contender of ours,
/// by which they are compared.
pub fn best<'a>(case: &Joined<'a>) -> Option<&'a str> {
    let natives: Vec<&'a str> = case.contenders.iter().copied().filter(|name| is_native(name)).collect();
    if !natives.iter().any(|name| is_forced(name)) {
        return None;
    }
    let ratio =
        |native: &str, ours: &str| case.ratio(native, ours, Look::FromBarrier).unwrap_or(f64::INFINITY);
    let beside = |ours: &&&str| natives.iter().filter(|native| ratio(native, ours).is_finite()).count();
    let ours = case.contenders.iter().filter(|name| !is_native(name)).max_by_key(beside)?;
    natives.iter().copied().min_by(|a, b| ratio(a, ours).total_cmp(&ratio(b, ours)))
}

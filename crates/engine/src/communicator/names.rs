//! What the ranks of a communicator are called on the hidden one.

use bruckner_runtime::Names;
use bruckner_schedule::Rank;

/// The names of a communicator's ranks on the hidden one.
pub(crate) enum RankNames {
    /// At equal distances, as those of rows and columns are: no list is kept.
    Strided {
        first: u32,
        step: u32,
    },
    Listed(Vec<u32>),
}

impl RankNames {
    pub(crate) fn of(names: Vec<u32>) -> RankNames {
        let (first, second) = (names[0], names.get(1).copied().unwrap_or(names[0]));
        match second.checked_sub(first) {
            Some(step) if names.iter().enumerate().all(|(i, n)| *n == first + i as u32 * step) => {
                RankNames::Strided { first, step }
            }
            _ => RankNames::Listed(names),
        }
    }
}

impl Names for RankNames {
    fn peer(&self, rank: Rank) -> u32 {
        match self {
            RankNames::Strided { first, step } => first + rank.0 * step,
            RankNames::Listed(names) => names[rank.0 as usize],
        }
    }
}

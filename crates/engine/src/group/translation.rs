//! Rank translation: from ranks of a communicator to ranks of the internal communicator.

use bruckner_runtime::Names;
use bruckner_schedule::Rank;

/// The names of a communicator's ranks on the hidden one.
pub(crate) enum RankTranslation {
    /// At equal distances, as those of rows and columns are: no list is kept.
    Strided {
        first: u32,
        step: u32,
    },
    Listed(Vec<u32>),
}

impl RankTranslation {
    pub(crate) fn of(names: Vec<u32>) -> RankTranslation {
        let (first, second) = (names[0], names.get(1).copied().unwrap_or(names[0]));
        match second.checked_sub(first) {
            Some(step) if names.iter().enumerate().all(|(i, n)| *n == first + i as u32 * step) => {
                RankTranslation::Strided { first, step }
            }
            _ => RankTranslation::Listed(names),
        }
    }
}

impl Names for RankTranslation {
    fn peer(&self, rank: Rank) -> u32 {
        match self {
            RankTranslation::Strided { first, step } => first + rank.0 * step,
            RankTranslation::Listed(names) => names[rank.0 as usize],
        }
    }
}

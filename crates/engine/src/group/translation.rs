//! Rank translation: from ranks of a communicator to ranks of the internal communicator.

use bruckner_runtime::TranslateRanks;
use bruckner_schedule::Rank;

/// For each rank of a user's communicator, its rank in the internal communicator.
pub(crate) enum RankTranslation {
    /// Ranks at equal distances, as in the rows and columns of a process grid: no list is stored.
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

impl TranslateRanks for RankTranslation {
    fn translate(&self, rank: Rank) -> u32 {
        match self {
            RankTranslation::Strided { first, step } => first + rank.0 * step,
            RankTranslation::Listed(ranks) => ranks[rank.0 as usize],
        }
    }
}

//! What a user might do about what was seen.

use serde::{Deserialize, Serialize};

use bruckner_choose::Reason;

use super::report::Record;

/// A part of the run below which nothing is worth a word.
const WORTH: f64 = 0.05;

/// What a choice rests on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ground {
    /// A rule, a user's word, or that there is no other.
    #[default]
    Other,
    /// A race.
    Raced,
    /// The model.
    Predicted,
    /// What was seen in this run.
    Watched,
}

impl Ground {
    pub(crate) fn of(reason: &Reason) -> Ground {
        match reason {
            Reason::Raced { .. } => Ground::Raced,
            Reason::Predicted(_) | Reason::NotWorth { .. } => Ground::Predicted,
            Reason::Watched { .. } => Ground::Watched,
            _ => Ground::Other,
        }
    }
}

/// Sentences for a user whose program ran so long, in seconds.
pub(super) fn advice(records: &[Record], seconds: f64) -> Vec<String> {
    let mut advice = Vec::new();
    let rows = || records.iter().flat_map(|record| record.rows.iter().map(move |row| (record, row)));
    let mut left: Vec<&str> = rows()
        .filter(|(_, row)| row.ground == Ground::Watched)
        .map(|(_, row)| row.collective.as_str())
        .collect();
    left.sort_unstable();
    left.dedup();
    if !left.is_empty() {
        advice.push(format!(
            "what was chosen at first for {} was slower than something else: `bruckner tune --learn REPORT.json -o PROFILE` notes what was seen",
            left.join(", ")
        ));
    }
    for (record, row) in rows() {
        let compared = record.seen.iter().any(|seen| seen.collective == row.collective);
        // Communicators that are alike may be used at the same time, by different ranks.
        let part = row.seconds / record.communicators.max(1) as f64 / seconds.max(1e-9);
        if row.ground == Ground::Predicted && !compared && part >= WORTH {
            advice.push(format!(
                "{} on {} took {:.0} % of the run and was chosen by prediction alone: `bruckner tune` measures what is fastest",
                row.collective,
                record.topology,
                100.0 * part
            ));
        }
    }
    advice.dedup();
    advice
}

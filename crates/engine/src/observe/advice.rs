//! What a user might do about what was seen.

use super::report::{Ground, Record};

/// A part of the run below which nothing is worth a word.
const WORTH: f64 = 0.05;

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

#[cfg(test)]
mod tests {
    use super::super::report::{Books, Event, join};
    use super::*;
    use bruckner_choose::Name;
    use std::sync::Arc;

    fn event(ground: Ground) -> Event<'static> {
        let (name, algorithm) = (Name::Allreduce, "shm");
        let why = if ground == Ground::Watched { "it was faster" } else { "" };
        Event { name, persistent: false, algorithm, why, ground, bytes: 8, seconds: 0.5 }
    }

    #[test]
    fn what_is_long_and_only_predicted_is_worth_a_word() {
        let books = Arc::new(Books::default());
        let world = books.open("MPI_COMM_WORLD", 4);
        world.placed("2x2", "");
        world.add(&event(Ground::Predicted));
        let said = |seconds| {
            let whole = join(&[books.text()], "MPICH 5", "on", seconds, &[]);
            advice(&whole.communicators, whole.seconds)
        };
        assert_eq!(said(20.0), [] as [&str; 0]);
        assert_eq!(
            said(5.0),
            [
                "allreduce on 2x2 took 10 % of the run and was chosen by prediction alone: `bruckner tune` measures what is fastest"
            ]
        );
        // What was compared needs no more.
        world.seen(Name::Allreduce, 8, true, &[]);
        assert_eq!(said(5.0), [] as [&str; 0]);
        world.add(&event(Ground::Watched));
        assert!(said(5.0)[0].starts_with("what was chosen at first for allreduce was slower"));
    }
}

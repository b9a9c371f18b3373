//! Consistency check of tuning results against performance guidelines, as text.

use bruckner_choose::{Alternative, GuidelineViolation, Profile, violations};
use bruckner_measure::{bytes_text, time_text};

/// Lists the cases that are slower than an equivalent operation (a larger size, several pieces, or other collectives), after a line with
/// their number.
pub(super) fn self_check(profile: &Profile) -> String {
    let (mut lines, mut all) = (String::new(), 0);
    for tuned in &profile.results {
        all += tuned.results.len();
        for breach in violations(tuned) {
            lines.push_str(&format!("  {}: {}\n", tuned.shape, said(&breach)));
        }
    }
    match lines.lines().count() {
        0 => format!("self-check: none of {all} cases is slower than an equivalent operation\n"),
        broken => {
            format!("self-check: {broken} of {all} cases are slower than an equivalent operation\n{lines}")
        }
    }
}

fn said(breach: &GuidelineViolation) -> String {
    let GuidelineViolation { name, bytes, seconds, alternative, alternative_seconds } = breach;
    let (takes, would) = (time_text(*seconds), time_text(*alternative_seconds));
    let than = match alternative {
        Alternative::More(more) => format!("one of {} takes {would}", bytes_text(*more)),
        Alternative::Pieces(pieces, each) => format!("{pieces} of {} take {would}", bytes_text(*each)),
        Alternative::Others(others) => {
            let others: Vec<String> =
                others.iter().map(|(name, bytes)| format!("{name} of {}", bytes_text(*bytes))).collect();
            format!("{} would take {would}", others.join(" and "))
        }
    };
    format!("{name} of {} takes {takes}, but {than}", bytes_text(*bytes))
}

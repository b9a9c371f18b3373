//! What does not fit together of what was measured, in words.

use bruckner_choose::{Breach, Instead, Profile, breaches};
use bruckner_measure::{bytes_text, time_text};

/// A line for each case that takes longer than need be, and one that says how many were looked at.
pub(super) fn self_check(profile: &Profile) -> String {
    let (mut lines, mut all) = (String::new(), 0);
    for raced in &profile.raced {
        all += raced.verdicts.len();
        for breach in breaches(raced) {
            lines.push_str(&format!("  {}: {}\n", raced.shape, said(&breach)));
        }
    }
    match lines.lines().count() {
        0 => format!("self-check: none of {all} cases takes longer than what would do the same\n"),
        broken => {
            format!("self-check: {broken} of {all} cases take longer than what would do the same\n{lines}")
        }
    }
}

fn said(breach: &Breach) -> String {
    let Breach { name, bytes, takes, than, would } = breach;
    let (takes, would) = (time_text(*takes), time_text(*would));
    let than = match than {
        Instead::More(more) => format!("{} take {would}", bytes_text(*more)),
        Instead::Pieces(pieces, each) => format!("{pieces} times {} take {would}", bytes_text(*each)),
        Instead::Others(others) => {
            let others: Vec<String> =
                others.iter().map(|(name, bytes)| format!("{name} of {}", bytes_text(*bytes))).collect();
            format!("{} would take {would}", others.join(" and "))
        }
    };
    format!("{name} of {} takes {takes}, but {than}", bytes_text(*bytes))
}

//! Consistency check of tuning results against performance guidelines, as text.

use bruckner_choose::{Breach, Instead, Profile, breaches};
use bruckner_measure::{bytes_text, time_text};

/// Lists the cases that are slower than an equivalent operation (a larger size, several pieces, or other collectives), after a line with
/// their number.
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

//! What does not fit together of what was measured, in words.

use bruckner_choose::{Breach, Instead, Profile, breaches};
use bruckner_measure::{bytes_text, time_text};

/// One line for each guideline that is broken, and one that says how many were looked at.
pub(super) fn self_check(profile: &Profile) -> String {
    let (mut lines, mut all) = (String::new(), 0);
    for raced in &profile.raced {
        let (found, compared) = breaches(raced);
        all += compared;
        for breach in found {
            lines.push_str(&format!("  {}: {}\n", raced.shape, said(&breach)));
        }
    }
    match lines.lines().count() {
        _ if all == 0 => String::new(),
        0 => format!("self-check: none of {all} guidelines is broken\n"),
        broken => format!(
            "self-check: {broken} of {all} guidelines are broken; where something takes longer than what would do the same,\n\
             race it again with more time, or with more candidates\n{lines}"
        ),
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

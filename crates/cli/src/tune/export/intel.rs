//! Export to Intel MPI's environment variables. As tested with 2021.18, only the upper ends of the size ranges in a list count, the last
//! entry covers all longer messages, and no entry selects the MPI's own decision. So a collective is exported only if some algorithm beat
//! the default at every size.

use std::fmt::Write as _;

use bruckner_choose::NativeSettings;

use super::{Rules, Written};

/// Whether a setting consists of a variable name and an algorithm number only, which is safe to print for a shell.
pub(super) fn takes(setting: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let name = |text: &str| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    setting
        .strip_prefix("I_MPI_ADJUST_")
        .and_then(|rest| rest.split_once('='))
        .is_some_and(|(function, algorithm)| name(function) && number(algorithm))
}

pub(super) fn write(rules: &Rules, natives: &[NativeSettings]) -> Written {
    let mut written = Written::default();
    for (name, by_ranks) in rules {
        for (ranks, spans) in by_ranks {
            let measured = natives.iter().filter(|natives| natives.shape.ranks() == *ranks);
            let left = measured
                .flat_map(|natives| &natives.settings)
                .filter(|setting| setting.name == *name)
                .any(|setting| setting.setting.is_empty());
            if left || by_ranks.len() > 1 {
                let why = if left {
                    "the default is best for some sizes, and Intel MPI's variables cannot select the default for these alone"
                } else {
                    "there are results for several numbers of ranks, and Intel MPI's variables apply to all of them"
                };
                written.remarks.push(format!("{name} on {ranks} ranks is left out: {why}"));
                continue;
            }
            let mut value = String::new();
            let mut variable = None;
            for span in spans {
                let Some((which, number)) = span.setting.split_once('=') else { continue };
                variable = Some(which.to_owned());
                let _ = write!(value, "{}{number}:{}-{}", if value.is_empty() { "" } else { ";" }, span.from, span.to);
            }
            if let Some(variable) = variable {
                written.remarks.push(format!("use {variable} only in jobs of {ranks} ranks"));
                written.variables.push((variable, value));
            }
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::super::tests::{natives, rules_of};
    use super::*;
    use bruckner::Name;

    #[test]
    fn only_what_was_better_at_every_size_is_written() {
        let one = |size: u64, number: u32| (size, format!("I_MPI_ADJUST_ALLREDUCE={number}"));
        let found = [one(8, 5), one(64, 5), one(512, 3)];
        let found: Vec<(u64, &str)> = found.iter().map(|(size, text)| (*size, text.as_str())).collect();
        let all = vec![natives("1x4", Name::Allreduce, &found)];
        let written = write(&rules_of(&all, Format::Intel), &all);
        assert_eq!(written.variables, [("I_MPI_ADJUST_ALLREDUCE".to_owned(), "5:8-64;3:512-512".to_owned())]);
        let all = vec![natives("1x4", Name::Allreduce, &[found[0], (64, "")])];
        let written = write(&rules_of(&all, Format::Intel), &all);
        assert!(
            written.variables.is_empty()
                && written.remarks[0].contains(
                    "the default is best for some sizes, and Intel MPI's variables cannot select the default for these alone"
                )
        );
    }
}

//! Names of earlier versions.
//!
//! This is the one table of them. Expressions, settings, profiles and reports that use an old name are read as if they used the new one;
//! only new names are written.

/// Kind of text that a name occurs in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// An algorithm in an expression.
    Expression,
    /// A setting, in the environment or in a file.
    Setting,
    /// A key of a machine profile.
    Profile,
    /// A key of a report in JSON.
    Report,
    /// A value of the key `evidence` of a report.
    Evidence,
}

/// Old and new names.
pub const ALIASES: [(Context, &str, &str); 14] = [
    (Context::Expression, "halves", "rsag"),
    (Context::Expression, "native-halves", "native-rsag"),
    (Context::Setting, "BRUCKNER_LEAVE", "BRUCKNER_PASS_THROUGH"),
    (Context::Setting, "BRUCKNER_MEASURE", "BRUCKNER_CALIBRATE"),
    (Context::Setting, "BRUCKNER_WATCH", "BRUCKNER_ONLINE_TUNING"),
    (Context::Profile, "races", "results"),
    (Context::Report, "served", "handled"),
    (Context::Report, "shared_cores", "oversubscribed"),
    (Context::Report, "measured", "calibration"),
    (Context::Report, "ground", "evidence"),
    (Context::Report, "seen", "trials"),
    (Context::Report, "why", "reason"),
    (Context::Evidence, "raced", "measured"),
    (Context::Evidence, "watched", "tuned-online"),
];

/// Returns the new name for `name`, or `name` itself if it is no old name.
pub fn current(context: Context, name: &str) -> &str {
    let found = ALIASES.iter().find(|(of, old, _)| *of == context && *old == name);
    found.map_or(name, |(.., new)| new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Expression;

    #[test]
    fn a_name_is_either_old_or_new() {
        for (context, old, new) in ALIASES {
            assert_eq!(current(context, old), new);
            assert_eq!(current(context, new), new, "no chains");
        }
    }

    #[test]
    fn old_expressions_mean_the_same() {
        for (old, new) in [
            ("halves(bruck(2))", "rsag(bruck(2))"),
            ("lanes(node, between=halves(ring))", "lanes(node, between=rsag(ring))"),
            ("native-halves", "native-rsag"),
        ] {
            let read = |text: &str| text.parse::<Expression>().unwrap();
            assert_eq!(read(old), read(new));
            assert_eq!(read(old).to_string(), new);
        }
    }
}

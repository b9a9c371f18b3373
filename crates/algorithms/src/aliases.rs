//! Names that earlier versions used.
//!
//! All old names are in this one table. Expressions, settings, profiles and reports that use an old name are read as if they used the new
//! one; only new names are written.

/// Kind of a name, by where the name occurs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// Name of an algorithm in an expression.
    Expression,
    /// Name of a setting, in the environment or in a file.
    Setting,
    /// Key in a profile or a machine file.
    Profile,
    /// Key in a report in JSON.
    Report,
    /// Value of the key `evidence` in a report.
    Evidence,
}

/// Old names, each with its kind and with the new name that replaces it.
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

/// Returns the new name for `name`, or `name` itself if it is not an old name.
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

//! Export to Open MPI's rule files: for `tuned`, and on several nodes for HAN, which has priority over it. Tested with 5.0.11.
//!
//! `tuned` applies the last rule whose ranks and bytes do not exceed those of the call, or the first of all rules if there is none: so
//! each list begins with zero, and algorithm 0 is the decision of `tuned` itself. HAN passes the calls named in its file on to `tuned` and
//! handles all others itself.

use std::fmt::Write as _;

use bruckner::Name;
use bruckner_choose::NativeSettings;

use super::{Rules, Span, Written};

const WITHOUT_HAN: &str = "without HAN";
const TUNED: &str = "tuned ";

/// Names and algorithms of a collective in the rule files.
struct CollectiveRules {
    name: Name,
    id: u32,
    /// Name in HAN's rule file; `None` if HAN does not implement the collective.
    han: Option<&'static str>,
    /// Whether the message size in the rules of `tuned` is that of one block times the number of ranks; otherwise it is that of the message.
    all: bool,
    algorithms: &'static [(&'static str, u32)],
}

/// Collectives with the algorithms that are correct for every call. Missing are rings of reductions, which need commutative operations
/// (rules cannot test that), and algorithms for two ranks only.
const KNOWN: [CollectiveRules; 4] = [
    CollectiveRules {
        name: Name::Allgather,
        id: 0,
        han: Some("allgather"),
        all: true,
        algorithms: &[
            ("linear", 1),
            ("bruck", 2),
            ("recursive_doubling", 3),
            ("ring", 4),
            ("neighbor", 5),
            ("sparbit", 7),
        ],
    },
    CollectiveRules {
        name: Name::Allreduce,
        id: 2,
        han: Some("allreduce"),
        all: false,
        algorithms: &[("basic_linear", 1), ("nonoverlapping", 2), ("recursive_doubling", 3), ("rabenseifner", 6)],
    },
    CollectiveRules {
        name: Name::Alltoall,
        id: 3,
        han: None,
        all: true,
        algorithms: &[("linear", 1), ("pairwise", 2), ("modified_bruck", 3), ("linear_sync", 4)],
    },
    CollectiveRules {
        name: Name::ReduceScatter,
        id: 13,
        han: None,
        all: true,
        algorithms: &[("basic_linear", 1), ("recursive_doubling", 2), ("recursive_halving", 3), ("butterfly", 4)],
    },
];

fn known(name: Name) -> Option<&'static CollectiveRules> {
    KNOWN.iter().find(|known| known.name == name)
}

impl CollectiveRules {
    /// Returns the algorithm number of a setting; 0 means the decision of `tuned` itself.
    fn algorithm(&self, setting: &str) -> Option<u32> {
        match setting.strip_prefix(TUNED) {
            Some(algorithm) => self.algorithms.iter().find(|(name, _)| *name == algorithm).map(|(_, id)| *id),
            None => (setting == WITHOUT_HAN).then_some(0),
        }
    }
}

pub(super) fn takes(name: Name, setting: &str) -> bool {
    known(name).is_some_and(|known| known.algorithm(setting).is_some())
}

/// Returns the rules for one number of ranks, as pairs of minimum bytes and value; sizes outside the measured ranges get `default`.
fn list(spans: &[Span], each: u64, value: impl Fn(&str) -> String, default: &str) -> Vec<(u64, String)> {
    let mut rules = vec![(0, default.to_owned())];
    for span in spans {
        let (from, to) = (span.from.saturating_mul(each), span.to.saturating_mul(each).saturating_add(1));
        rules.retain(|(bytes, _)| *bytes != from);
        rules.push((from, value(&span.setting)));
        rules.push((to, default.to_owned()));
    }
    rules
}

/// Returns the rules of a collective by minimum number of ranks; numbers of ranks without rules get `default`.
fn by_ranks(
    known: &CollectiveRules,
    rules: &Rules,
    least: u32,
    default: &str,
    of: impl Fn(u32, &[Span]) -> Vec<(u64, String)>,
) -> Vec<(u32, Vec<(u64, String)>)> {
    let mut all = vec![(least, vec![(0, default.to_owned())])];
    for (ranks, spans) in rules.get(&known.name).into_iter().flatten() {
        all.retain(|(other, _)| other != ranks);
        all.push((*ranks, of(*ranks, spans)));
        all.push((ranks + 1, vec![(0, default.to_owned())]));
    }
    all
}

pub(super) fn write(rules: &Rules, natives: &[NativeSettings]) -> Written {
    let mut written = Written::default();
    if rules.is_empty() {
        return written;
    }
    let used: Vec<&CollectiveRules> = KNOWN.iter().filter(|known| rules.contains_key(&known.name)).collect();
    let mut text = format!("rule-file-version-2\n{} # collectives\n", used.len());
    for known in &used {
        let value = |setting: &str| format!("{} 0 0", known.algorithm(setting).unwrap_or(0));
        let of = |ranks: u32, spans: &[Span]| list(spans, if known.all { u64::from(ranks) } else { 1 }, value, "0 0 0");
        let all = by_ranks(known, rules, 0, "0 0 0", of);
        let _ = writeln!(text, "{} # {}\n{} # numbers of ranks", known.id, known.name, all.len());
        put(&mut text, &all);
    }
    written.files.push(("tuned.conf", text));
    let mut variable = |name: &str, value: &str| {
        written.variables.push((format!("OMPI_MCA_coll_{name}"), value.to_owned()));
    };
    variable("tuned_use_dynamic_rules", "1");
    variable("tuned_dynamic_rules_filename", "{}/tuned.conf");
    let behind: Vec<(&&CollectiveRules, &str)> = used.iter().filter_map(|known| Some((known, known.han?))).collect();
    if natives.iter().any(|natives| natives.shape.nodes > 1) && !behind.is_empty() {
        let mut text = format!("{}\n", behind.len());
        for (known, name) in behind {
            let of = |_, spans: &[Span]| list(spans, 1, |_| "tuned".to_owned(), "han");
            let all = by_ranks(known, rules, 1, "han", of);
            let _ = writeln!(text, "{name}\n1\nglobal_communicator\n{}", all.len());
            put(&mut text, &all);
        }
        written.files.push(("han.conf", text));
        variable("han_use_dynamic_file_rules", "1");
        variable("han_dynamic_rules_filename", "{}/han.conf");
    }
    written.remarks.push(
        "the rules apply to every communicator with a measured number of ranks, however placed, even to those that HAN uses internally"
            .to_owned(),
    );
    written
}

fn put(text: &mut String, all: &[(u32, Vec<(u64, String)>)]) {
    for (ranks, rules) in all {
        let _ = writeln!(text, "{ranks} {}", rules.len());
        rules.iter().for_each(|(bytes, what)| _ = writeln!(text, "{bytes} {what}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{natives, rules_of};
    use super::super::{Format, Rules};
    use super::*;

    #[test]
    fn rules_are_as_the_reader_wants_them() {
        let found = [(8, ""), (4096, "tuned recursive_doubling"), (32768, "tuned recursive_doubling")];
        let all = vec![
            natives("2x2", Name::Allreduce, &found),
            natives("4x2", Name::Allgather, &[(64, "without HAN"), (512, "tuned ring"), (4096, "")]),
        ];
        let written = write(&rules_of(&all, Format::OpenMpi), &all);
        let [(_, tuned), (_, han)] = &written.files[..] else { panic!("{written:?}") };
        assert_eq!(
            tuned,
            "rule-file-version-2\n2 # collectives\n\
             0 # allgather\n3 # numbers of ranks\n0 1\n0 0 0 0\n\
             8 5\n0 0 0 0\n512 0 0 0\n513 0 0 0\n4096 4 0 0\n4097 0 0 0\n9 1\n0 0 0 0\n\
             2 # allreduce\n3 # numbers of ranks\n0 1\n0 0 0 0\n\
             4 3\n0 0 0 0\n4096 3 0 0\n32769 0 0 0\n5 1\n0 0 0 0\n"
        );
        assert_eq!(
            han,
            "2\nallgather\n1\nglobal_communicator\n3\n1 1\n0 han\n\
             8 5\n0 han\n64 tuned\n65 han\n512 tuned\n513 han\n9 1\n0 han\n\
             allreduce\n1\nglobal_communicator\n3\n1 1\n0 han\n4 3\n0 han\n4096 tuned\n32769 han\n5 1\n0 han\n"
        );
        assert_eq!(written.variables.len(), 4);
    }

    #[test]
    fn on_one_node_there_is_no_han_and_wrong_results_are_not_written() {
        let all = vec![natives("1x2", Name::ReduceScatter, &[(8, "tuned butterfly")])];
        let written = write(&rules_of(&all, Format::OpenMpi), &all);
        assert_eq!((written.files.len(), written.variables.len()), (1, 2));
        let all = vec![natives("4x4", Name::Allreduce, &[(8, "tuned ring"), (64, "tuned segmented_ring")])];
        assert_eq!(rules_of(&all, Format::OpenMpi), Rules::new());
    }
}

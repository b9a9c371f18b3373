//! Export to MPICH's selection trees: one for the upper layer, and one for the device layer, which decides first. Tested with 5.0.2.
//!
//! A file replaces the whole built-in tree, and a tree with missing entries makes programs fail. So the built-in trees are read from the
//! library, and rules are inserted before the existing entries of a collective.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use bruckner::Name;

use super::{Rules, Span, Written};

/// Key in both trees under which all rules are inserted.
const INTRA: &str = "comm_type=intra";
const COMPOSITION: &str = "composition ";

/// Names and rules of a collective in the trees.
struct CollectiveRules {
    name: Name,
    /// Name of the collective in the trees; `title` is its name within the names of algorithms.
    tree: &'static str,
    title: &'static str,
    /// Keys below [`INTRA`] under which rules are inserted in the upper layer's tree.
    below: &'static [&'static str],
    /// Variable by which the rules test the size; `all` says whether it counts the bytes of all ranks together.
    size: &'static str,
    all: bool,
    /// Algorithms of the upper layer that are correct for every call; `true` marks those that need a commutative operation.
    algorithms: &'static [(&'static str, bool)],
    /// Number of the device layer's compositions that may be used; the others are correct for some datatypes only.
    compositions: u32,
    /// Composition that calls the upper layer, needed where the device layer does not call it by default.
    to_upper: Option<u32>,
}

const KNOWN: [CollectiveRules; 4] = [
    CollectiveRules {
        name: Name::Allgather,
        tree: "allgather",
        title: "Allgather",
        below: &[],
        size: "total_msg_size",
        all: true,
        algorithms: &[("brucks", false), ("ring", false)],
        compositions: 0,
        to_upper: None,
    },
    CollectiveRules {
        name: Name::Allreduce,
        tree: "allreduce",
        title: "Allreduce",
        below: &[],
        size: "avg_msg_size",
        all: false,
        algorithms: &[("recursive_doubling", false), ("ring", true)],
        compositions: 3,
        to_upper: Some(2),
    },
    CollectiveRules {
        name: Name::Alltoall,
        tree: "alltoall",
        title: "Alltoall",
        below: &["is_sendbuf_inplace=no"],
        size: "avg_msg_size",
        all: false,
        algorithms: &[("brucks", false), ("pairwise", false), ("scattered", false)],
        compositions: 0,
        to_upper: None,
    },
    CollectiveRules {
        name: Name::ReduceScatter,
        tree: "reduce_scatter_block",
        title: "Reduce_scatter_block",
        below: &[],
        size: "total_msg_size",
        all: true,
        algorithms: &[("recursive_doubling", false), ("pairwise", true), ("recursive_halving", true)],
        compositions: 0,
        to_upper: None,
    },
];

const GREEK: [&str; 3] = ["alpha", "beta", "gamma"];

/// A setting as an entry of a tree.
enum Leaf {
    /// Algorithm of the upper layer; `commutes` if it needs a commutative operation.
    Upper { name: String, commutes: bool },
    /// Composition of the device layer, numbered from 1.
    Device(u32),
}

impl CollectiveRules {
    fn leaf(&self, setting: &str) -> Option<Leaf> {
        if let Some(number) = setting.strip_prefix(COMPOSITION) {
            let number = number.parse().ok().filter(|number| (1..=self.compositions).contains(number))?;
            return Some(Leaf::Device(number));
        }
        let (algorithm, commutes) = self.algorithms.iter().find(|(name, _)| *name == setting)?;
        let name = format!("MPIR_{}_intra_{algorithm}", self.title);
        Some(Leaf::Upper { name, commutes: *commutes })
    }

    /// Returns the subtree that selects a composition of the device layer. Composition 1 needs several nodes and a commutative operation,
    /// composition 3 a single node: like the built-in tree, the subtree tests that, and otherwise uses `default`.
    fn composition(&self, number: u32, default: &str) -> String {
        let greek = GREEK[number as usize - 1];
        let leaf = format!("{{\"composition=MPIDI_{}_intra_composition_{greek}\":{{}}}}", self.title);
        match number {
            1 => format!(
                "{{\"comm_hierarchy=parent\":{{\"is_commutative=yes\":{leaf},\"is_commutative=no\":{default}}},\"comm_hierarchy=any\":{default}}}"
            ),
            3 => format!("{{\"comm_size=node_comm_size\":{leaf},\"comm_size=any\":{default}}}"),
            _ => leaf,
        }
    }

    /// Returns the subtree that selects a setting in the upper layer; `default` is the built-in subtree.
    fn upper(&self, setting: &str, default: &str) -> Option<String> {
        let Leaf::Upper { name, commutes } = self.leaf(setting)? else { return None };
        let leaf = format!("{{\"algorithm={name}\":{{}}}}");
        Some(match commutes {
            true => format!("{{\"is_commutative=yes\":{leaf},\"is_commutative=no\":{default}}}"),
            false => leaf,
        })
    }

    /// Returns the subtree that selects a setting in the device layer; an algorithm of the upper layer needs the composition `to_upper`.
    fn device(&self, setting: &str, default: &str) -> Option<String> {
        let number = match self.leaf(setting)? {
            Leaf::Device(number) => number,
            Leaf::Upper { .. } => self.to_upper?,
        };
        Some(self.composition(number, default))
    }

    /// Returns the tree with rules inserted for this collective, by number of ranks and size; other calls keep the built-in subtree.
    fn rules(
        &self,
        tree: &str,
        below: &[&str],
        by_ranks: &BTreeMap<u32, Vec<Span>>,
        leaf: impl Fn(&str, &str) -> Option<String>,
    ) -> Result<String> {
        let collective = format!("collective={}", self.tree);
        let path: Vec<&str> = [collective.as_str(), INTRA].into_iter().chain(below.iter().copied()).collect();
        let (from, to) = place(tree, &path)
            .with_context(|| format!("MPICH's built-in selection tree has no entry {}", path.join(", ")))?;
        let default = &tree[from..to];
        let (mut tests, mut known) = (Vec::new(), 0);
        for (ranks, spans) in by_ranks {
            // Sizes in the trees are C integers, so larger sizes are left out.
            let each = if self.all { u64::from(*ranks) } else { 1 };
            let most = i32::MAX as u64 / each;
            let of_size: Vec<(u64, u64, String)> = spans
                .iter()
                .filter(|span| span.to <= most)
                .filter_map(|span| Some((span.from * each, span.to * each, leaf(&span.setting, default)?)))
                .collect();
            if of_size.is_empty() {
                continue;
            }
            if *ranks > known + 1 {
                tests.push(format!("\"comm_size<={}\":{default}", ranks - 1));
            }
            tests.push(format!("\"comm_size<={ranks}\":{}", self.sizes(&of_size, default)));
            known = *ranks;
        }
        if tests.is_empty() {
            return Ok(tree.to_owned());
        }
        tests.push(format!("\"comm_size=any\":{default}"));
        Ok(format!("{}{{{}}}{}", &tree[..from], tests.join(","), &tree[to..]))
    }

    fn sizes(&self, spans: &[(u64, u64, String)], default: &str) -> String {
        let (mut tests, mut known): (Vec<String>, Option<u64>) = (Vec::new(), None);
        for (from, to, leaf) in spans {
            if *from > known.map_or(0, |known| known + 1) {
                tests.push(format!("\"{}<={}\":{default}", self.size, from - 1));
            }
            tests.push(format!("\"{}<={to}\":{leaf}", self.size));
            known = Some(*to);
        }
        tests.push(format!("\"{}=any\":{default}", self.size));
        format!("{{{}}}", tests.join(","))
    }
}

fn known(name: Name) -> Option<&'static CollectiveRules> {
    KNOWN.iter().find(|known| known.name == name)
}

pub(super) fn takes(name: Name, setting: &str) -> bool {
    known(name).is_some_and(|known| known.leaf(setting).is_some())
}

/// Returns the range of the JSON object under a path of keys.
fn place(tree: &str, path: &[&str]) -> Option<(usize, usize)> {
    let (mut from, mut to) = (0, tree.len());
    for key in path {
        let mut depth = 0;
        let quoted = format!("\"{key}\"");
        let mut found = None;
        for (at, byte) in tree.bytes().enumerate().take(to).skip(from) {
            match byte {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                b'"' if depth == 1 && tree[at..to].starts_with(&quoted) => {
                    found = Some(at + quoted.len());
                    break;
                }
                _ => {}
            }
        }
        from = found? + tree[found?..to].find('{')?;
        to = end(tree, from)?;
    }
    Some((from, to))
}

/// Returns the end of the JSON object that begins at `from`.
fn end(tree: &str, from: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in tree.bytes().enumerate().skip(from) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// Returns paths where MPICH's library may be: `BRUCKNER_MPI`, then `LD_LIBRARY_PATH` and the directories beside those of `PATH`.
fn libraries() -> Vec<PathBuf> {
    let split = |name: &str| std::env::var_os(name).map(|all| std::env::split_paths(&all).collect::<Vec<_>>());
    let beside = split("PATH").unwrap_or_default().into_iter().filter_map(|path| Some(path.parent()?.to_owned()));
    let places = split("LD_LIBRARY_PATH")
        .unwrap_or_default()
        .into_iter()
        .chain(beside.flat_map(|root| ["lib", "lib64", "lib/x86_64-linux-gnu"].map(|lib| root.join(lib))));
    let names = ["libmpi.so.12", "libmpi.so", "libmpich.so.12", "libmpich.so"];
    let found = places.flat_map(|place| names.map(|name| place.join(name)));
    std::env::var_os("BRUCKNER_MPI").map(PathBuf::from).into_iter().chain(found).collect()
}

/// Reads the built-in trees from the library of the MPI with this name and version: upper layer, device layer.
fn built_in(mpi: &str) -> Result<[String; 2]> {
    let version = mpi.rsplit(' ').next().unwrap_or_default().as_bytes();
    for bytes in libraries().into_iter().filter_map(|file| std::fs::read(file).ok()) {
        let texts = bytes.split(|byte| *byte == 0).filter(|text| text.starts_with(b"{\"collective="));
        let texts: Vec<&str> = texts.filter_map(|text| std::str::from_utf8(text).ok()).collect();
        let of = |what: &str| texts.iter().find(|text| text.contains(what)).map(|text| (*text).to_owned());
        let is_it = bytes.split(|byte| *byte == 0).any(|text| text == version);
        if let (true, Some(upper), Some(device)) = (is_it, of("\"algorithm=MPIR_"), of("\"composition=MPIDI_")) {
            return Ok([upper, device]);
        }
    }
    bail!(
        "the library of {mpi}, which holds the selection trees, was not found: set BRUCKNER_MPI to its path, such as /usr/lib/libmpi.so.12"
    )
}

pub(super) fn write(rules: &Rules, mpi: &str) -> Result<Written> {
    let mut written = Written::default();
    if rules.is_empty() {
        return Ok(written);
    }
    let before = built_in(mpi)?;
    let [upper, device] = trees(rules, &before)?;
    let files = [
        ("mpir.json", "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE", upper),
        ("ch4.json", "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE", device),
    ];
    for ((file, variable, tree), before) in files.into_iter().zip(before) {
        if tree != before {
            written.files.push((file, tree + "\n"));
            written.variables.push((variable.to_owned(), format!("{{}}/{file}")));
        }
    }
    written
        .remarks
        .push("use these files only with this version of MPICH: another version may fail in MPI_Init".to_owned());
    Ok(written)
}

/// Returns MPICH's selection trees for its upper layer and for its device layer: the built-in trees `before` with all rules inserted.
fn trees(rules: &Rules, before: &[String; 2]) -> Result<[String; 2]> {
    let [mut upper, mut device] = before.clone();
    for (name, by_ranks) in rules {
        let Some(known) = known(*name) else { continue };
        upper = known.rules(&upper, known.below, by_ranks, |setting, default| known.upper(setting, default))?;
        device = match by_ranks.values().flatten().any(|span| known.device(&span.setting, "").is_some()) {
            true => known.rules(&device, &[], by_ranks, |setting, default| known.device(setting, default))?,
            false => device,
        };
    }
    Ok([upper, device])
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::super::tests::{natives, rules_of};
    use super::*;

    const UPPER: &str = r#"{"collective=bcast":{"any":{"algorithm=MPIR_B":{}}},"collective=allreduce":{"comm_type=inter":{"a":{}},"comm_type=intra":{"algorithm=MPIR_D":{}}}}"#;
    const DEVICE: &str = r#"{"collective=allreduce":{"comm_type=intra":{"composition=MPIDI_D":{}}}}"#;

    #[test]
    fn rules_stand_before_what_a_tree_has() {
        let found = [(8, ""), (64, "recursive_doubling"), (512, "recursive_doubling"), (4096, "composition 1")];
        let all = [natives("1x4", Name::Allreduce, &found)];
        let rules = rules_of(&all, Format::Mpich);
        let [upper, device] = trees(&rules, &[UPPER.to_owned(), DEVICE.to_owned()]).unwrap();
        let d = r#"{"algorithm=MPIR_D":{}}"#;
        let mine = r#"{"algorithm=MPIR_Allreduce_intra_recursive_doubling":{}}"#;
        assert_eq!(
            upper,
            format!(
                r#"{{"collective=bcast":{{"any":{{"algorithm=MPIR_B":{{}}}}}},"collective=allreduce":{{"comm_type=inter":{{"a":{{}}}},"comm_type=intra":{{"comm_size<=3":{d},"comm_size<=4":{{"avg_msg_size<=63":{d},"avg_msg_size<=512":{mine},"avg_msg_size=any":{d}}},"comm_size=any":{d}}}}}}}"#
            )
        );
        // For these sizes the device layer either calls the upper layer or runs the selected composition.
        let beta = r#""avg_msg_size<=512":{"composition=MPIDI_Allreduce_intra_composition_beta":{}}"#;
        let alpha = r#""avg_msg_size<=4096":{"comm_hierarchy=parent":{"is_commutative=yes":{"composition=MPIDI_Allreduce_intra_composition_alpha":{}},"is_commutative=no":{"composition=MPIDI_D":{}}},"comm_hierarchy=any":{"composition=MPIDI_D":{}}}"#;
        let between = r#","avg_msg_size<=4095":{"composition=MPIDI_D":{}},"#;
        assert!(device.contains(&format!("{beta}{between}{alpha}")), "{device}");
    }

    #[test]
    fn sizes_that_are_no_c_integers_are_left_out() {
        let huge = [(8, "brucks"), (1 << 30, "ring")];
        let all = [natives("1024x4", Name::Allgather, &huge)];
        let tree = UPPER.replace("allreduce", "allgather");
        let [upper, _] = trees(&rules_of(&all, Format::Mpich), &[tree, DEVICE.to_owned()]).unwrap();
        assert!(upper.contains("total_msg_size<=32768") && !upper.contains("ring"), "{upper}");
    }

    #[test]
    fn what_only_commutes_is_told_apart() {
        let all = [natives("1x2", Name::Allreduce, &[(8, "ring"), (64, "tree")])];
        let [upper, _] = trees(&rules_of(&all, Format::Mpich), &[UPPER.to_owned(), DEVICE.to_owned()]).unwrap();
        let ring = r#"{"is_commutative=yes":{"algorithm=MPIR_Allreduce_intra_ring":{}},"is_commutative=no":{"algorithm=MPIR_D":{}}}"#;
        assert!(upper.contains(&format!(r#""avg_msg_size<=7":{{"algorithm=MPIR_D":{{}}}},"avg_msg_size<=8":{ring}"#)));
        assert!(!upper.contains("_tree") && upper.contains(r#""comm_size<=1":"#));
    }
}

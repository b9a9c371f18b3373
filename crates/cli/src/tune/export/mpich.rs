//! MPICH's files: a tree of tests for its upper layer, and one for its device, which decides first. Tried with 5.0.2.
//!
//! A file stands in the place of the whole tree that is built in, and a tree that lacks anything ends programs. So the trees are taken from
//! the library, and rules are put before what they have for a collective.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use bruckner::Name;

use super::{Rules, Span, Written};

/// What all rules are below, in both trees.
const INTRA: &str = "comm_type=intra";
const COMPOSITION: &str = "composition ";

/// A collective as the trees know it.
struct Known {
    name: Name,
    /// In trees, and in names of algorithms.
    tree: &'static str,
    title: &'static str,
    /// Where rules are put in the upper layer's tree, below [`INTRA`].
    below: &'static [&'static str],
    /// The test of its size, and whether that is of all ranks together.
    size: &'static str,
    all: bool,
    /// Algorithms that need nothing but, some of them, operations that commute.
    algorithms: &'static [(&'static str, bool)],
    /// How many of the device's ways may be named: its others are right for some types of data only.
    compositions: u32,
    /// The device's own way to the upper layer, where it would not go there by itself.
    to_upper: Option<u32>,
}

const KNOWN: [Known; 4] = [
    Known {
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
    Known {
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
    Known {
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
    Known {
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

/// What a setting is to a tree.
enum Leaf {
    /// An algorithm of the upper layer, perhaps only for operations that commute.
    Upper { name: String, commutes: bool },
    /// A composition of the device, by number from 1.
    Device(u32),
}

impl Known {
    fn leaf(&self, setting: &str) -> Option<Leaf> {
        if let Some(number) = setting.strip_prefix(COMPOSITION) {
            let number = number.parse().ok().filter(|number| (1..=self.compositions).contains(number))?;
            return Some(Leaf::Device(number));
        }
        let (algorithm, commutes) = self.algorithms.iter().find(|(name, _)| *name == setting)?;
        let name = format!("MPIR_{}_intra_{algorithm}", self.title);
        Some(Leaf::Upper { name, commutes: *commutes })
    }

    /// What the device does in so many ways, where the default is another. Some are only for operations that commute on ranks that are not
    /// all on one node, and some only for those that are: the tree itself tests that before it names them, and so must a rule.
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

    /// What a setting is in the upper layer's tree, where the default is another.
    fn upper(&self, setting: &str, default: &str) -> Option<String> {
        let Leaf::Upper { name, commutes } = self.leaf(setting)? else { return None };
        let leaf = format!("{{\"algorithm={name}\":{{}}}}");
        Some(match commutes {
            true => format!("{{\"is_commutative=yes\":{leaf},\"is_commutative=no\":{default}}}"),
            false => leaf,
        })
    }

    /// The same in the device's.
    fn device(&self, setting: &str, default: &str) -> Option<String> {
        let number = match self.leaf(setting)? {
            Leaf::Device(number) => number,
            Leaf::Upper { .. } => self.to_upper?,
        };
        Some(self.composition(number, default))
    }

    /// A tree's part for this collective, with rules before what it has.
    fn rules(
        &self,
        tree: &str,
        below: &[&str],
        by_ranks: &BTreeMap<u32, Vec<Span>>,
        leaf: impl Fn(&str, &str) -> Option<String>,
    ) -> Result<String> {
        let collective = format!("collective={}", self.tree);
        let path: Vec<&str> = [collective.as_str(), INTRA].into_iter().chain(below.iter().copied()).collect();
        let (from, to) =
            place(tree, &path).with_context(|| format!("MPICH's tree has no {}", path.join(", ")))?;
        let default = &tree[from..to];
        let (mut tests, mut known) = (Vec::new(), 0);
        for (ranks, spans) in by_ranks {
            // Sizes are C integers in there.
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

fn known(name: Name) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name)
}

pub(super) fn takes(name: Name, setting: &str) -> bool {
    known(name).is_some_and(|known| known.leaf(setting).is_some())
}

/// Where the object lies that is found below these keys.
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

/// Where an object ends that begins here.
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

/// Files that may be MPICH's library: the one that is named, and those beside launchers and on the path of libraries.
fn libraries() -> Vec<PathBuf> {
    let split =
        |name: &str| std::env::var_os(name).map(|all| std::env::split_paths(&all).collect::<Vec<_>>());
    let beside =
        split("PATH").unwrap_or_default().into_iter().filter_map(|path| Some(path.parent()?.to_owned()));
    let places = split("LD_LIBRARY_PATH")
        .unwrap_or_default()
        .into_iter()
        .chain(beside.flat_map(|root| ["lib", "lib64", "lib/x86_64-linux-gnu"].map(|lib| root.join(lib))));
    let names = ["libmpi.so.12", "libmpi.so", "libmpich.so.12", "libmpich.so"];
    let found = places.flat_map(|place| names.map(|name| place.join(name)));
    std::env::var_os("BRUCKNER_MPI").map(PathBuf::from).into_iter().chain(found).collect()
}

/// The trees that are built into the library of an MPI of this name: the upper layer's, and the device's.
fn built_in(mpi: &str) -> Result<[String; 2]> {
    let version = mpi.rsplit(' ').next().unwrap_or_default().as_bytes();
    for bytes in libraries().into_iter().filter_map(|file| std::fs::read(file).ok()) {
        let texts = bytes.split(|byte| *byte == 0).filter(|text| text.starts_with(b"{\"collective="));
        let texts: Vec<&str> = texts.filter_map(|text| std::str::from_utf8(text).ok()).collect();
        let of = |what: &str| texts.iter().find(|text| text.contains(what)).map(|text| (*text).to_owned());
        let is_it = bytes.split(|byte| *byte == 0).any(|text| text == version);
        if let (true, Some(upper), Some(device)) =
            (is_it, of("\"algorithm=MPIR_"), of("\"composition=MPIDI_"))
        {
            return Ok([upper, device]);
        }
    }
    bail!("no library of {mpi} was found, which has the trees: BRUCKNER_MPI=/usr/lib/libmpi.so.12 names one")
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
        .push("the trees are for this version of MPICH only: another may end at MPI_Init".to_owned());
    Ok(written)
}

/// Trees with rules before what they have.
fn trees(rules: &Rules, before: &[String; 2]) -> Result<[String; 2]> {
    let [mut upper, mut device] = before.clone();
    for (name, by_ranks) in rules {
        let Some(known) = known(*name) else { continue };
        upper =
            known.rules(&upper, known.below, by_ranks, |setting, default| known.upper(setting, default))?;
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
        let found =
            [(8, ""), (64, "recursive_doubling"), (512, "recursive_doubling"), (4096, "composition 1")];
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
        // For these sizes the device goes to the upper layer, or does what it is told itself.
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
        let [upper, _] =
            trees(&rules_of(&all, Format::Mpich), &[UPPER.to_owned(), DEVICE.to_owned()]).unwrap();
        let ring = r#"{"is_commutative=yes":{"algorithm=MPIR_Allreduce_intra_ring":{}},"is_commutative=no":{"algorithm=MPIR_D":{}}}"#;
        assert!(
            upper.contains(&format!(
                r#""avg_msg_size<=7":{{"algorithm=MPIR_D":{{}}}},"avg_msg_size<=8":{ring}"#
            ))
        );
        assert!(!upper.contains("_tree") && upper.contains(r#""comm_size<=1":"#));
    }
}

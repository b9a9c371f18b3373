//! User-supplied algorithms: a schedule as text, for one collective on one topology, verified when it is read.
//!
//! ```text
//! file(my.bruck)        as a user writes it
//! file(my.bruck:7363…)  with the text of the file in hexadecimal, as ranks send it to each other
//! ```
//!
//! A file name alone does not define an algorithm: the process that was given the name reads the file through [`embed_files`], and all
//! ranks then share the text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bruckner_schedule::verify::{verify, verify_sequence};
use bruckner_schedule::{Collective, Counts, Document, Problem, Rank, Round, Schedule, Topology, read};

use crate::Algorithm;

/// A schedule read from a file, and the properties that the verifier proved.
#[derive(Clone, Debug)]
pub struct UserSchedule(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    text: String,
    problem: Problem,
    topology: Topology,
    overlap: u32,
    ranks: BTreeMap<Rank, Vec<Round>>,
    proven: Proven,
    shares_memory: bool,
}

/// Properties of a schedule's reductions that the verifier proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proven {
    /// Whether all ranks combine operands in the same way, so that their results have the same bits.
    pub consistent: bool,
    /// Whether operands are combined in rank order.
    pub ordered: bool,
}

impl PartialEq for UserSchedule {
    fn eq(&self, other: &UserSchedule) -> bool {
        (&self.0.name, &self.0.text) == (&other.0.name, &other.0.text)
    }
}

impl Eq for UserSchedule {}

impl Hash for UserSchedule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.text.hash(state);
    }
}

impl UserSchedule {
    /// Reads and verifies a schedule: one execution, and three executions in sequence, each with the segments as the execution before left
    /// them. Returns the reason if the verifier refuses the schedule.
    pub fn new(name: &str, text: &str) -> Result<UserSchedule, String> {
        let document = read(text).map_err(|error| error.to_string())?.document;
        let Document::Schedule(schedule) = document else {
            return Err("the file contains a program; only a schedule (in rounds) can be used as an algorithm".into());
        };
        let (said, all) = (schedule.ranks.len(), schedule.problem.ranks);
        if said as u32 != all {
            return Err(format!("the schedule describes {said} of {all} ranks; it must describe all of them"));
        }
        // A proof for pieces without data would not cover pieces with data.
        if !matches!(schedule.problem.counts, Counts::Equal(count) if count >= schedule.problem.pieces.max(1)) {
            return Err("the schedule must have counts `equal N` with at least one element per piece, to be proven for all sizes".into());
        }
        let proven = prove(&schedule)?;
        let Schedule { problem, topology, overlap, ranks, .. } = schedule;
        let mut local = ranks.values().flatten().flat_map(|round| &round.local);
        let shares_memory = local.any(|local| local.shared().next().is_some());
        let (name, text) = (name.to_owned(), text.to_owned());
        let inner = Inner { name, text, problem, topology, overlap, ranks, proven, shares_memory };
        Ok(UserSchedule(Arc::new(inner)))
    }

    /// Returns the name of the file.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the properties of the reductions that the verifier proved.
    pub fn proven(&self) -> Proven {
        self.0.proven
    }

    /// Whether the schedule uses shared-memory segments.
    pub fn shares_memory(&self) -> bool {
        self.0.shares_memory
    }

    /// Whether the schedule is for this collective on this topology.
    pub fn is_for(&self, collective: Collective, topology: &Topology) -> bool {
        self.0.problem.collective == collective && self.0.topology == *topology
    }

    /// Returns the collective that the schedule implements.
    pub fn collective(&self) -> Collective {
        self.0.problem.collective
    }

    /// Returns the collective and the topology of the schedule as text for messages.
    pub fn purpose(&self) -> String {
        format!("{} on {}", self.0.problem.collective, self.0.topology)
    }
}

/// Verifies a schedule; returns its proven properties or the first violation.
fn prove(schedule: &Schedule) -> Result<Proven, String> {
    let program = schedule.flatten();
    let [once, again] = [verify(&program), verify_sequence(&[&program, &program, &program])];
    if let Some(violation) = once.violations.iter().chain(&again.violations).next() {
        return Err(format!("the verifier refused the schedule: {violation}"));
    }
    Ok(Proven { consistent: once.consistent && again.consistent, ordered: once.ordered && again.ordered })
}

impl Algorithm for UserSchedule {
    fn pieces(&self, _topology: &Topology) -> u64 {
        self.0.problem.pieces
    }

    fn overlap(&self) -> u32 {
        self.0.overlap
    }

    fn closes_segments(&self) -> bool {
        true
    }

    fn rounds(&self, _problem: &Problem, _topology: &Topology, rank: Rank) -> Vec<Round> {
        self.0.ranks.get(&rank).cloned().unwrap_or_default()
    }
}

/// Returns a text with expressions in which each `file(NAME)` is extended by the text of the file, in hexadecimal. `read` reads a file.
pub fn embed_files(text: &str, read: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut all = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let (before, behind) = rest.split_at(at + BEGIN.len());
        let end = behind.find(')').ok_or_else(|| format!("`{text}`: expected `)` after the file name"))?;
        let name = behind[..end].trim();
        let says = read(name).map_err(|why| format!("{name}: {why}"))?;
        let _ = write!(all, "{before}{name}:");
        says.bytes().for_each(|byte| _ = write!(all, "{byte:02x}"));
        rest = &behind[end..];
    }
    Ok(all + rest)
}

/// Returns a text with expressions, for display, in which each `file(…)` has only the name of the file.
pub fn strip_files(text: &str) -> String {
    let mut all = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let (before, behind) = rest.split_at(at + BEGIN.len());
        let end = behind.find(')').unwrap_or(behind.len());
        let (name, _) = behind[..end].rsplit_once(':').unwrap_or((&behind[..end], ""));
        all.push_str(before);
        all.push_str(name);
        rest = &behind[end..];
    }
    all + rest
}

const BEGIN: &str = "file(";

/// Parses the text between the parentheses: a file name, and the text of the file in hexadecimal.
pub(crate) fn parse(inside: &str) -> Result<UserSchedule, String> {
    let (name, hex) = inside
        .rsplit_once(':')
        .ok_or("`file(NAME)` is allowed only in BRUCKNER_ALGORITHM and --algorithm, where the file is read")?;
    let digits = hex.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> =
        digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
    let text = bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or("the file text is not valid (expected UTF-8 in hexadecimal)")?;
    UserSchedule::new(name, &text).map_err(|why| format!("{name}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Expression, Task, plan};

    fn named(text: &str) -> Result<Expression, String> {
        let whole = embed_files("file( my.bruck )", |name| {
            assert_eq!(name, "my.bruck");
            Ok(text.to_owned())
        })?;
        whole.parse().map_err(|error: crate::ExpressionError| error.message)
    }

    fn task(topology: &str) -> Task {
        Task::new(Collective::Allreduce, topology.parse().unwrap()).counts(Counts::Equal(6))
    }

    /// Checks that the schedule of any algorithm, printed and read back, is the same algorithm on that topology.
    #[test]
    fn what_is_written_down_is_the_same_algorithm() {
        for by in ["recursive-doubling", "locality(node)", "rabenseifner", "leader(node, between=ring)"] {
            let original = plan(&task("2x2"), &by.parse().unwrap()).unwrap().schedule();
            let written = named(&original.to_string()).unwrap();
            assert_eq!(written.to_string(), "file(my.bruck)");
            let again = plan(&task("2x2"), &written).unwrap().schedule();
            assert_eq!(again.ranks, original.ranks, "{by}");
            assert!(plan(&task("1x4"), &written).is_err(), "another topology");
            // Other sizes are handled as well.
            assert!(plan(&task("2x2").counts(Counts::Equal(1000)), &written).is_ok());
        }
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let right = plan(&task("2x1"), &"recursive-doubling".parse().unwrap()).unwrap().schedule().to_string();
        assert!(named(&right).is_ok());
        let wrong = right.replacen("    reduce ", "    copy ", 1);
        assert!(named(&wrong).unwrap_err().contains("the verifier refused the schedule"), "{wrong}");
        assert!(named("schedule\nnonsense").unwrap_err().contains("line 2"));
        assert_eq!(strip_files("a=file(b:00ff); c=file(d)"), "a=file(b); c=file(d)");
        let nothing = right.replacen("counts equal 6", "counts equal 0", 1);
        assert!(named(&nothing).unwrap_err().contains("at least one element per piece"));
        let alone = "file(my.bruck)".parse::<Expression>().unwrap_err();
        assert!(alone.message.contains("only in BRUCKNER_ALGORITHM"), "{alone}");
    }
}

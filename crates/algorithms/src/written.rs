//! An algorithm that somebody has written down: a schedule as text, for one collective on one topology, proven when it is read.
//!
//! ```text
//! file(my.bruck)        where a person names it
//! file(my.bruck:7363…)  the same with what the file says, as ranks tell each other
//! ```
//!
//! A name alone is no algorithm: files are read by whoever was given the name, through [`with_files`], and then everybody
//! has the same text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bruckner_schedule::verify::{verify, verify_sequence};
use bruckner_schedule::{
    Collective, Counts, Document, Problem, Program, Rank, Round, Schedule, Topology, read,
};

use crate::lower::{OnNode, lower};
use crate::properties::Properties;
use crate::{Algorithm, Plan, Refusal, Task};

/// A schedule that was read, and what was proven of it.
#[derive(Clone, Debug)]
pub struct Written(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    text: String,
    problem: Problem,
    topology: Topology,
    overlap: u32,
    ranks: BTreeMap<Rank, Vec<Round>>,
    properties: Properties,
    shares_memory: bool,
}

impl PartialEq for Written {
    fn eq(&self, other: &Written) -> bool {
        (&self.0.name, &self.0.text) == (&other.0.name, &other.0.text)
    }
}

impl Eq for Written {}

impl Hash for Written {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.text.hash(state);
    }
}

impl Written {
    /// Reads a schedule and proves it, as it stands and as it will run. Why not, if it is not right.
    pub fn new(name: &str, text: &str) -> Result<Written, String> {
        let document = read(text).map_err(|error| error.to_string())?.document;
        let Document::Schedule(schedule) = document else {
            return Err("it is a program; what can be run is a schedule, in rounds".into());
        };
        let Schedule { problem, topology, overlap, ranks, .. } = schedule;
        if ranks.len() as u32 != problem.ranks {
            return Err(format!("it says what {} of {} ranks do", ranks.len(), problem.ranks));
        }
        if !matches!(problem.counts, Counts::Equal(_)) {
            return Err("what can be run has equal counts; it then serves all others, too".into());
        }
        let mut local = ranks.values().flatten().flat_map(|round| &round.local);
        let shares_memory = local.any(|local| local.shared().next().is_some());
        let mut inner = Inner {
            name: name.to_owned(),
            text: text.to_owned(),
            problem,
            topology,
            overlap,
            ranks,
            properties: Properties { consistent: false, ordered: false },
            shares_memory,
        };
        inner.properties = inner.proven()?;
        Ok(Written(Arc::new(inner)))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What was proven of its reductions.
    pub fn properties(&self) -> Properties {
        self.0.properties
    }

    /// Whether it uses segments.
    pub fn shares_memory(&self) -> bool {
        self.0.shares_memory
    }

    /// The algorithm, if it is one for a task.
    pub(crate) fn for_task(&self, task: &Task) -> Result<Box<dyn Algorithm>, Refusal> {
        let Inner { name, problem, topology, .. } = &*self.0;
        let fits = |collective: Collective| collective == task.collective && task.topology == *topology;
        if !fits(problem.collective) || matches!(task.counts, Counts::Local | Counts::Root { .. }) {
            return Err(Refusal(format!("`file({name})` is for {} on {topology}", problem.collective)));
        }
        Ok(Box::new(self.clone()))
    }
}

impl Inner {
    /// What the verifier finds, of the schedule and of what lowering makes of it.
    fn proven(&self) -> Result<Properties, String> {
        let algorithm = Written(Arc::new(Inner {
            name: String::new(),
            text: String::new(),
            problem: self.problem.clone(),
            topology: self.topology.clone(),
            overlap: self.overlap,
            ranks: self.ranks.clone(),
            properties: self.properties,
            shares_memory: self.shares_memory,
        }));
        let plan = Plan::new(self.problem.clone(), self.topology.clone(), Box::new(algorithm));
        let schedule = plan.schedule();
        let mut found = Properties { consistent: true, ordered: true };
        let passes: [fn(&Schedule) -> Program; 3] = [
            Schedule::flatten,
            |schedule| lower(schedule, OnNode::Segment),
            |schedule| lower(schedule, OnNode::Messages),
        ];
        for pass in passes {
            let program = pass(&schedule);
            // Once, and again behind itself, when segments are as the last execution left them.
            for report in [verify(&program), verify_sequence(&[&program, &program, &program])] {
                if let Some(violation) = report.violations.first() {
                    return Err(format!("it is not right: {violation}"));
                }
                found.consistent &= report.consistent;
                found.ordered &= report.ordered;
            }
        }
        Ok(found)
    }
}

impl Algorithm for Written {
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

/// An expression, or several, in which each `file(NAME)` has what the file says. `read` reads one.
pub fn with_files(text: &str, read: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut all = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let (before, behind) = rest.split_at(at + BEGIN.len());
        let end =
            behind.find(')').ok_or_else(|| format!("`{text}`: expected `)` behind the name of a file"))?;
        let name = behind[..end].trim();
        let says = read(name).map_err(|why| format!("{name}: {why}"))?;
        let _ = write!(all, "{before}{name}:");
        says.bytes().for_each(|byte| _ = write!(all, "{byte:02x}"));
        rest = &behind[end..];
    }
    Ok(all + rest)
}

/// The same text with names alone, for people.
pub fn without_files(text: &str) -> String {
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

/// What stands between the brackets: a name and what the file says.
pub(crate) fn parse(inside: &str) -> Result<Written, String> {
    let (name, hex) = inside
        .rsplit_once(':')
        .ok_or("a file is named by BRUCKNER_ALGORITHM or --algorithm, and read there")?;
    let digits = hex.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> =
        digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or("that is no text of a file")?;
    Written::new(name, &text).map_err(|why| format!("{name}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Expression, plan};

    fn named(text: &str) -> Result<Expression, String> {
        let whole = with_files("file( my.bruck )", |name| {
            assert_eq!(name, "my.bruck");
            Ok(text.to_owned())
        })?;
        whole.parse().map_err(|error: crate::ExpressionError| error.message)
    }

    fn task(topology: &str) -> Task {
        Task::new(Collective::Allreduce, topology.parse().unwrap()).counts(Counts::Equal(6))
    }

    /// What any algorithm does on a topology, written down, is an algorithm there.
    #[test]
    fn what_is_written_down_is_the_same_algorithm() {
        for by in ["recursive-doubling", "locality(node)", "rabenseifner", "leader(node, between=ring)"] {
            let original = plan(&task("2x2"), &by.parse().unwrap()).unwrap().schedule();
            let written = named(&original.to_string()).unwrap();
            assert_eq!(written.to_string(), "file(my.bruck)");
            let again = plan(&task("2x2"), &written).unwrap().schedule();
            assert_eq!(again.ranks, original.ranks, "{by}");
            assert!(plan(&task("1x4"), &written).is_err(), "another topology");
            // Other sizes are served as well.
            assert!(plan(&task("2x2").counts(Counts::Equal(1000)), &written).is_ok());
        }
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let right =
            plan(&task("2x1"), &"recursive-doubling".parse().unwrap()).unwrap().schedule().to_string();
        assert!(named(&right).is_ok());
        let wrong = right.replacen("    reduce ", "    copy ", 1);
        assert!(named(&wrong).unwrap_err().contains("it is not right"), "{wrong}");
        assert!(named("schedule\nnonsense").unwrap_err().contains("line 2"));
        assert_eq!(without_files("a=file(b:00ff); c=file(d)"), "a=file(b); c=file(d)");
        let alone = "file(my.bruck)".parse::<Expression>().unwrap_err();
        assert!(alone.message.contains("named by BRUCKNER_ALGORITHM"), "{alone}");
    }
}

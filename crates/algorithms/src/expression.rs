//! Algorithm expressions: the grammar by which settings, commands and reports name an algorithm.
//!
//! ```text
//! expression = name [ "(" argument { "," argument } ")" ] | factor { factor }
//! argument   = number | level | key "=" value | expression
//! factor     = number "(" port { port } ")"          port = number | "-" number, not 0
//! ```
//!
//! Every expression prints as one canonical text, without parameters that have their default values and with single spaces.
//!
//! ```
//! use bruckner_algorithms::Expression;
//! let e: Expression = "locality( node,lanes=all, inside = locality(socket))".parse().unwrap();
//! assert_eq!(e.to_string(), "locality(node, inside=locality(socket))");
//! let e: Expression = "2(-1)  4(1 1) 2( 1 )".parse().unwrap();
//! assert_eq!(e.to_string(), "2(-1) 4(1 1) 2(1)");
//! ```

use std::fmt;
use std::str::FromStr;

use bruckner_schedule::Level;

use crate::aliases::{Context, current};
use crate::user_schedule::{self, UserSchedule};

/// The name of an algorithm, with its parameters.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expression {
    /// An algorithm without parameters.
    Plain(Plain),
    /// Bruck's algorithm, with this radix.
    Bruck(u32),
    /// Bruck's alltoall without the last rotation, with this radix (modified Bruck).
    ModifiedBruck(u32),
    /// Spread-out with at most this many messages of a rank under way: it exchanges with this many others at once, then with the next.
    SpreadOut {
        /// Number of messages that a rank sends at once; it receives as many.
        window: u32,
    },
    /// Allreduce through the node's shared memory, by a tree with groups of this many ranks.
    ShmTree(u32),
    /// Allreduce, allgather or reduce_scatter by a factorization of the number of ranks, with ports for each step (Jocksch et al.).
    Factors(Vec<Factor>),
    /// Locality-aware (Bienz et al.): every rank of a region exchanges with another region, then the region gathers.
    Locality {
        /// Level of the regions.
        level: Level,
        /// Algorithm inside a region.
        inside: Box<Expression>,
        /// Which lanes of a region are used.
        lanes: Lanes,
    },
    /// Hierarchical: leaders of each region exchange on behalf of the region.
    Leader {
        /// Level of the regions.
        level: Level,
        /// Algorithm between regions.
        between: Box<Expression>,
        /// Number of leaders per region.
        leaders: u32,
    },
    /// Multi-lane: every rank of a region exchanges one part of the region's data with other regions.
    MultiLane {
        /// Level of the regions.
        level: Level,
        /// Algorithm between regions.
        between: Box<Expression>,
    },
    /// An algorithm among members that are sorted to balance unequal blocks.
    Reorder(Box<Expression>),
    /// An allreduce as a reduce_scatter and an allgather, both by this gathering algorithm.
    ReduceScatterAllgather(Box<Expression>),
    /// Pipelining: an algorithm runs on parts of the data, each part one round behind the part before.
    Pipeline {
        /// Number of parts.
        parts: u32,
        /// Algorithm that each part runs.
        of: Box<Expression>,
    },
    /// A user-supplied schedule, read from a file.
    File(UserSchedule),
}

macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// Algorithms without parameters.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Plain {
            $($(#[$doc])* $name),*
        }

        impl Plain {
            /// All algorithms without parameters, with their names.
            pub const ALL: &[(Plain, &str)] = &[$((Plain::$name, $text)),*];
        }
    };
}

plain! {
    /// Ring: one block per step to the right neighbour.
    Ring = "ring",
    /// Neighbor exchange: pairs of neighbours, two blocks per step.
    NeighborExchange = "neighbor-exchange",
    /// Recursive doubling: partners at doubling distances.
    RecursiveDoubling = "recursive-doubling",
    /// Recursive halving: partners at halving distances.
    RecursiveHalving = "recursive-halving",
    /// Sparbit: as few steps as Bruck, but at halving distances.
    Sparbit = "sparbit",
    /// Spread-out: every rank exchanges with all others at once.
    SpreadOut = "spread-out",
    /// Pairwise: every rank exchanges with all others, one partner per step.
    Pairwise = "pairwise",
    /// Rabenseifner's allreduce as MPIs run it: `rsag(recursive-halving)`, with the nearest partners first.
    Rabenseifner = "rabenseifner",
    /// Allreduce, allgather or reduce_scatter through the node's shared memory.
    Shm = "shm",
    /// Allreduce through shared memory, with one piece of the vector reduced by each rank.
    ShmSplit = "shm-split",
    /// Allreduce through shared memory, with pieces in rotation.
    ShmRotate = "shm-rotate",
    /// A collective on one node by direct reads from the buffers of the other ranks.
    Direct = "direct",
    /// The MPI library's own implementation.
    Native = "native",
    /// The MPI library's own functions through one rank: a reduce or a gather, then a broadcast.
    NativeRooted = "native-rooted",
    /// The MPI library's own reduce_scatter, then its allgather.
    NativeRsag = "native-rsag",
}

/// Which lanes of a region, its concurrent connections to other regions, are used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lanes {
    /// Every rank acts as this number of lanes (its ports).
    PerRank(u32),
    /// Every rank is one lane, and one lane of each region stays idle, as in the papers of Bienz et al.: the first one, or in an allreduce
    /// the one with the number of the region.
    Paper,
}

impl Lanes {
    /// The default: every rank is one lane.
    pub const ALL: Lanes = Lanes::PerRank(1);

    /// Returns the number of lanes of each region, for `regions` regions with at most `ranks` ranks. More lanes than regions are of no
    /// use, so several lanes per rank do not raise the number of lanes above the number of regions.
    pub fn of(self, ranks: u32, regions: u32) -> u32 {
        match self {
            Lanes::PerRank(ports) => ranks.saturating_mul(ports).min(ranks.max(regions)),
            Lanes::Paper => ranks,
        }
    }
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes::ALL
    }
}

/// A factor of the number of members (ranks or regions), and the ports of its steps.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Factor {
    /// Number of members in each group of this factor.
    pub factor: u32,
    /// Number of ports of each step: negative for reduce_scatter steps, positive for allgather steps.
    pub ports: Vec<i32>,
}

impl Expression {
    /// Maximum nesting depth of expressions.
    pub const MOST_NESTED: u32 = 16;

    /// Whether the schedule depends on which blocks are large and which are small.
    pub fn reorders(&self) -> bool {
        match self {
            Expression::Reorder(_) => true,
            Expression::Pipeline { of, .. } | Expression::ReduceScatterAllgather(of) => of.reorders(),
            Expression::Leader { between, .. } | Expression::MultiLane { between, .. } => between.reorders(),
            _ => false,
        }
    }

    /// Whether the expression is, or contains, this algorithm.
    pub fn mentions(&self, plain: Plain) -> bool {
        match self {
            Expression::Plain(this) => *this == plain,
            Expression::Locality { inside: of, .. }
            | Expression::Leader { between: of, .. }
            | Expression::MultiLane { between: of, .. }
            | Expression::Pipeline { of, .. }
            | Expression::ReduceScatterAllgather(of)
            | Expression::Reorder(of) => of.mentions(plain),
            _ => false,
        }
    }

    /// Whether the MPI's own functions do the whole collective, so that there is nothing to plan.
    pub fn runs_in_mpi(&self) -> bool {
        *self == Expression::Plain(Plain::Native) || self.is_composition()
    }

    /// Whether the collective is composed of MPI functions other than the one that was called.
    pub fn is_composition(&self) -> bool {
        matches!(self, Expression::Plain(Plain::NativeRooted | Plain::NativeRsag))
    }

    /// Whether ranks of a node read each other's buffers directly.
    pub fn reads_buffers(&self) -> bool {
        *self == Expression::Plain(Plain::Direct)
    }

    /// Whether ranks of a region act as a unit, normally through shared memory.
    pub fn groups_regions(&self) -> bool {
        match self {
            Expression::Plain(plain) => {
                matches!(plain, Plain::Shm | Plain::ShmSplit | Plain::ShmRotate | Plain::Direct)
            }
            Expression::Locality { .. } | Expression::Leader { .. } | Expression::MultiLane { .. } => true,
            Expression::ShmTree(_) => true,
            Expression::File(written) => written.shares_memory(),
            Expression::Pipeline { of, .. } | Expression::ReduceScatterAllgather(of) => of.groups_regions(),
            _ => false,
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Plain(plain) => {
                let name = Plain::ALL.iter().find(|(p, _)| p == plain).map(|(_, name)| *name);
                f.write_str(name.expect("all are listed"))
            }
            Expression::Bruck(radix) => write!(f, "bruck({radix})"),
            Expression::ModifiedBruck(radix) => write!(f, "modified-bruck({radix})"),
            Expression::SpreadOut { window } => write!(f, "spread-out(window={window})"),
            Expression::ShmTree(group) => write!(f, "shm-tree({group})"),
            Expression::Factors(factors) => {
                let texts: Vec<String> = factors.iter().map(Factor::to_string).collect();
                f.write_str(&texts.join(" "))
            }
            Expression::Locality { level, inside, lanes } => {
                write!(f, "locality({level}")?;
                if **inside != Expression::Plain(Plain::Shm) {
                    write!(f, ", inside={inside}")?;
                }
                match *lanes {
                    Lanes::ALL => {}
                    Lanes::PerRank(ports) => write!(f, ", ports={ports}")?,
                    Lanes::Paper => f.write_str(", lanes=paper")?,
                }
                f.write_str(")")
            }
            Expression::Leader { level, between, leaders } => {
                write!(f, "leader({level}, between={between}")?;
                if *leaders != 1 {
                    write!(f, ", leaders={leaders}")?;
                }
                f.write_str(")")
            }
            Expression::MultiLane { level, between } => write!(f, "lanes({level}, between={between})"),
            Expression::Reorder(of) => write!(f, "reorder({of})"),
            Expression::ReduceScatterAllgather(of) => write!(f, "rsag({of})"),
            Expression::Pipeline { parts, of } => write!(f, "pipeline({parts}, {of})"),
            Expression::File(written) => write!(f, "file({})", written.name()),
        }
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports: Vec<String> = self.ports.iter().map(i32::to_string).collect();
        write!(f, "{}({})", self.factor, ports.join(" "))
    }
}

/// Error of a text that is not an algorithm expression, with position and reason.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message} at column {column} of `{text}`")]
pub struct ExpressionError {
    /// The whole text that was parsed.
    pub text: String,
    /// Column of the error: number of the character in the text, from 1.
    pub column: usize,
    /// Description of the error, and of what was expected.
    pub message: String,
}

impl FromStr for Expression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Expression, ExpressionError> {
        let mut parser = Parser { text, at: 0 };
        let expression = parser.expression(0)?;
        parser.skip();
        if parser.at < text.len() {
            return Err(parser.error("expected the end of the expression"));
        }
        Ok(expression)
    }
}

/// The names of algorithms with parameters.
const WITH_PARAMETERS: [&str; 10] =
    ["bruck", "modified-bruck", "shm-tree", "locality", "leader", "lanes", "reorder", "rsag", "pipeline", "file"];

/// Returns the name most similar to `text`, if it is similar enough to be suggested.
pub fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const NEAR: f64 = 0.8;
    let near = |name: &'a str| (strsim::jaro_winkler(text, name), name);
    let best = names.into_iter().map(near).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(near, _)| *near > NEAR).map(|(_, name)| name)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

type Result<T, E = ExpressionError> = std::result::Result<T, E>;

impl<'a> Parser<'a> {
    fn error_at(&self, at: usize, message: impl Into<String>) -> ExpressionError {
        let column = self.text[..at].chars().count() + 1;
        ExpressionError { text: self.text.to_owned(), column, message: message.into() }
    }

    fn error(&self, message: impl Into<String>) -> ExpressionError {
        self.error_at(self.at, message)
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn peek(&mut self) -> Option<char> {
        self.skip();
        self.rest().chars().next()
    }

    fn mark(&mut self, mark: char) -> bool {
        let found = self.peek() == Some(mark);
        if found {
            self.at += mark.len_utf8();
        }
        found
    }

    fn expect(&mut self, mark: char) -> Result<()> {
        if self.mark(mark) { Ok(()) } else { Err(self.error(format!("expected `{mark}`"))) }
    }

    fn name(&mut self) -> &'a str {
        self.skip();
        let rest = self.rest();
        let end =
            rest.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Parses a number from `least` to 2^20.
    fn number(&mut self, least: u32) -> Result<u32> {
        self.skip();
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let value = rest[..end].parse().ok().filter(|n| (least..=1 << 20).contains(n));
        let value = value.ok_or_else(|| self.error(format!("expected a number from {least} to 1048576")))?;
        self.at += end;
        Ok(value)
    }

    fn level(&mut self) -> Result<Level> {
        self.skip();
        let start = self.at;
        let name = self.name();
        Level::from_name(name)
            .ok_or_else(|| self.error_at(start, "expected a level: `node`, `socket`, `level2`, `level3`, …"))
    }

    fn expression(&mut self, depth: u32) -> Result<Expression> {
        if depth >= Expression::MOST_NESTED {
            return Err(self.error("expressions may be nested at most 16 levels deep"));
        }
        if self.peek().is_some_and(|c| c.is_ascii_digit()) {
            return self.factors();
        }
        let start = self.at;
        let name = current(Context::Expression, self.name());
        if let Some((plain, _)) = Plain::ALL.iter().find(|(_, n)| *n == name) {
            return match *plain {
                Plain::SpreadOut if self.mark('(') => self.window(),
                plain => Ok(Expression::Plain(plain)),
            };
        }
        match name {
            "bruck" | "modified-bruck" | "shm-tree" => {
                self.expect('(')?;
                let number = self.number(2)?;
                self.expect(')')?;
                Ok(match name {
                    "bruck" => Expression::Bruck(number),
                    "modified-bruck" => Expression::ModifiedBruck(number),
                    _ => Expression::ShmTree(number),
                })
            }
            "reorder" | "rsag" => {
                self.expect('(')?;
                let of = Box::new(self.expression(depth + 1)?);
                self.expect(')')?;
                Ok(if name == "reorder" { Expression::Reorder(of) } else { Expression::ReduceScatterAllgather(of) })
            }
            "pipeline" => {
                self.expect('(')?;
                let parts = self.number(1)?;
                self.expect(',')?;
                let of = Box::new(self.expression(depth + 1)?);
                self.expect(')')?;
                Ok(Expression::Pipeline { parts, of })
            }
            "locality" | "nap" | "leader" | "lanes" => self.regional(name, depth),
            "file" if depth == 0 => {
                self.expect('(')?;
                let end = self.rest().find(')').ok_or_else(|| self.error("expected `)`"))?;
                let inside = &self.rest()[..end];
                let written = user_schedule::parse(inside).map_err(|why| self.error_at(start, why))?;
                self.at += end + 1;
                Ok(Expression::File(written))
            }
            "" => Err(self.error_at(start, "expected an algorithm")),
            _ => {
                let known: Vec<&str> = Plain::ALL.iter().map(|(_, n)| *n).collect();
                if let Some(near) = nearest(name, known.iter().copied().chain(WITH_PARAMETERS)) {
                    return Err(self.error_at(start, format!("unknown algorithm `{name}` (did you mean `{near}`?)")));
                }
                let known = known.join(", ");
                Err(self.error_at(
                    start,
                    format!("unknown algorithm `{name}`; available: {known}, spread-out(window=N), bruck(R), modified-bruck(R), shm-tree(G), locality(LEVEL), leader(LEVEL, between=…), lanes(LEVEL, between=…), reorder(…), rsag(…), pipeline(N, …), file(NAME) and factors such as 8(-1 1 1 1)"),
                ))
            }
        }
    }

    /// Parses the argument of spread-out.
    fn window(&mut self) -> Result<Expression> {
        self.skip();
        let start = self.at;
        if self.name() != "window" {
            return Err(self.error_at(start, "expected `window=`"));
        }
        self.expect('=')?;
        let window = self.number(1)?;
        self.expect(')')?;
        Ok(Expression::SpreadOut { window })
    }

    /// Parses the arguments of an algorithm on regions: first a level, then `KEY=VALUE` pairs.
    fn regional(&mut self, name: &str, depth: u32) -> Result<Expression> {
        self.expect('(')?;
        let level = self.level()?;
        let (mut inside, mut between, mut lanes, mut leaders) = (None, None, None, None);
        while self.mark(',') {
            self.skip();
            let start = self.at;
            let key = self.name();
            let twice = match key {
                "inside" => inside.is_some(),
                "between" => between.is_some(),
                "lanes" | "ports" => lanes.is_some(),
                "leaders" => leaders.is_some(),
                _ => false,
            };
            if twice {
                return Err(self.error_at(start, format!("`{key}` is given twice")));
            }
            self.expect('=').map_err(|e| ExpressionError { message: "expected KEY=VALUE".into(), ..e })?;
            match (name, key) {
                ("locality" | "nap", "inside") => inside = Some(Box::new(self.expression(depth + 1)?)),
                ("locality" | "nap", "lanes") => {
                    self.skip();
                    let at = self.at;
                    lanes = Some(match self.name() {
                        "all" => Lanes::ALL,
                        "paper" => Lanes::Paper,
                        _ => return Err(self.error_at(at, "expected `all` or `paper`")),
                    });
                }
                ("locality" | "nap", "ports") => lanes = Some(Lanes::PerRank(self.number(1)?)),
                ("leader" | "lanes", "between") => between = Some(Box::new(self.expression(depth + 1)?)),
                ("leader", "leaders") => leaders = Some(self.number(1)?),
                _ => return Err(self.error_at(start, format!("`{name}` has no parameter `{key}`"))),
            }
        }
        self.expect(')')?;
        let shm = || Box::new(Expression::Plain(Plain::Shm));
        match (name, between) {
            ("locality" | "nap", _) => {
                Ok(Expression::Locality { level, inside: inside.unwrap_or_else(shm), lanes: lanes.unwrap_or_default() })
            }
            (_, None) => Err(self.error(format!("`{name}` needs `between=ALGORITHM`"))),
            ("leader", Some(between)) => Ok(Expression::Leader { level, between, leaders: leaders.unwrap_or(1) }),
            (_, Some(between)) => Ok(Expression::MultiLane { level, between }),
        }
    }

    fn factors(&mut self) -> Result<Expression> {
        let mut factors = Vec::new();
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            let factor = self.number(1)?;
            self.expect('(')?;
            let mut ports = Vec::new();
            while self.peek() != Some(')') {
                let sign = if self.mark('-') { -1 } else { 1 };
                ports.push(sign * self.number(1)? as i32);
            }
            if ports.is_empty() {
                return Err(self.error("expected the number of ports of each step"));
            }
            self.expect(')')?;
            factors.push(Factor { factor, ports });
        }
        Ok(Expression::Factors(factors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_the_design_reads_as_it_prints() {
        for text in [
            "ring",
            "neighbor-exchange",
            "spread-out(window=8)",
            "recursive-doubling",
            "recursive-halving",
            "bruck(2)",
            "modified-bruck(3)",
            "sparbit",
            "spread-out",
            "pairwise",
            "rabenseifner",
            "shm",
            "shm-tree(8)",
            "native",
            "native-rooted",
            "native-rsag",
            "160(-12 -12) 160(12 12)",
            "16(-3 -3) 10(9) 16(3 3)",
            "locality(node)",
            "locality(node, inside=bruck(2), lanes=paper)",
            "locality(node, inside=locality(socket))",
            "leader(node, between=bruck(2))",
            "leader(node, between=160(12 12), leaders=2)",
            "lanes(node, between=ring)",
            "pipeline(8, ring)",
            "reorder(bruck(2))",
            "leader(node, between=reorder(recursive-doubling))",
        ] {
            assert_eq!(text.parse::<Expression>().unwrap().to_string(), text);
        }
        assert_eq!("nap(node)".parse::<Expression>().unwrap().to_string(), "locality(node)");
    }

    #[test]
    fn errors_name_place_and_reason() {
        let error = |t: &str| t.parse::<Expression>().unwrap_err().to_string();
        assert_eq!(error("rign"), "unknown algorithm `rign` (did you mean `ring`?) at column 1 of `rign`");
        assert!(error("xyz").starts_with("unknown algorithm `xyz`; available: ring, "));
        assert_eq!(
            error("locality(nod)"),
            "expected a level: `node`, `socket`, `level2`, `level3`, … at column 10 of `locality(nod)`"
        );
        assert_eq!(error("locality(node, inside)"), "expected KEY=VALUE at column 22 of `locality(node, inside)`");
        assert_eq!(error("bruck(1)"), "expected a number from 2 to 1048576 at column 7 of `bruck(1)`");
        assert_eq!(error("leader(node)"), "`leader` needs `between=ALGORITHM` at column 13 of `leader(node)`");
        assert_eq!(error("8(-1 0)"), "expected a number from 1 to 1048576 at column 6 of `8(-1 0)`");
        assert_eq!(error("ring ring"), "expected the end of the expression at column 6 of `ring ring`");
        assert!(error("brick(2)").starts_with("unknown algorithm `brick` (did you mean `bruck`?)"));
    }

    #[test]
    fn nesting_has_an_end() {
        let deep = "locality(node, inside=".repeat(10_000);
        assert!(deep.parse::<Expression>().unwrap_err().message.contains("nested"));
    }
}

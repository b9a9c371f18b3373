//! Prints schedules and programs in the text form that the reader accepts.

use std::fmt;

use crate::program::{Code, Layout};
use crate::schedule::{RankCode, Round};
use crate::text::Document;

fn heading<B>(f: &mut fmt::Formatter<'_>, kind: &str, whole: &RankCode<B>) -> fmt::Result {
    writeln!(f, "{kind}\nproblem {}\ntopology {}", whole.problem, whole.topology)?;
    if whole.overlap > 0 {
        writeln!(f, "overlap {}", whole.overlap)?;
    }
    let claims = &whole.claims;
    for (name, claimed) in [("consistent", claims.consistent), ("ordered", claims.ordered)] {
        if claimed {
            writeln!(f, "claim {name}")?;
        }
    }
    for (name, bound) in [("messages", claims.messages), ("sent", claims.sent), ("memory", claims.memory)] {
        if let Some(bound) = bound {
            writeln!(f, "claim {name} {bound}")?;
        }
    }
    Ok(())
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  round")?;
        for message in &self.messages {
            writeln!(f, "    {message}")?;
        }
        for local in &self.local {
            writeln!(f, "    {local}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Layout::Buffers { placed, alternate } = &self.layout {
            for placed in placed {
                writeln!(f, "  {placed}")?;
            }
            for level in alternate {
                writeln!(f, "  alternate {level}")?;
            }
        }
        for instr in &self.instrs {
            writeln!(f, "  {instr}")?;
        }
        Ok(())
    }
}

impl fmt::Display for RankCode<Vec<Round>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        heading(f, "schedule", self)?;
        for (rank, rounds) in &self.ranks {
            writeln!(f, "\nrank {rank}")?;
            for round in rounds {
                round.fmt(f)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for RankCode<Code> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        heading(f, "program", self)?;
        for (rank, code) in &self.ranks {
            write!(f, "\nrank {rank}\n{code}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Document::Schedule(schedule) => schedule.fmt(f),
            Document::Program(program) => program.fmt(f),
        }
    }
}

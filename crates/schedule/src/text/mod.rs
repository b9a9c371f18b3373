//! The text of schedules and programs: one reader, one printer, and an exact round trip between them.
//!
//! docs/language.md is the reference. A text has a heading and then what each rank does, one operation a
//! line; `;` starts a comment.
//!
//! ```
//! let text = "\
//! schedule
//! problem allgather ranks 2 counts equal 1 element 8
//! topology 2x1
//!
//! rank 0
//!   round
//!     send in[0] to 1
//!     recv out[1] from 1
//!     copy out[0] <- in[0]
//!
//! rank 1
//!   round
//!     send in[1] to 0
//!     recv out[0] from 0
//!     copy out[1] <- in[1]
//! ";
//! let read = bruckner_schedule::read(text).unwrap();
//! assert_eq!(read.document.to_string(), text);
//! ```

mod cursor;
mod printer;
mod reader;

use std::collections::BTreeMap;

use crate::{Program, Rank, Schedule};

pub use reader::read;

/// A text's content: one language, before and after lowering.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Document {
    /// Rounds on slots.
    Schedule(Schedule),
    /// Instructions on buffers.
    Program(Program),
}

impl Document {
    /// What a machine would do: a program as it is, a schedule by its plain reading.
    pub fn to_program(&self) -> Program {
        match self {
            Document::Schedule(schedule) => schedule.flatten(),
            Document::Program(program) => program.clone(),
        }
    }
}

/// What a text holds, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// The content.
    pub document: Document,
    /// For each rank the line of the text on which each instruction of [`Document::to_program`] stands.
    pub lines: BTreeMap<Rank, Vec<u32>>,
}

/// Where and why a text cannot be read. Lines and columns count from 1.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct TextError {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
    /// What is wrong and what would be right.
    pub message: String,
}

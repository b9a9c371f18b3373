//! The text form of schedules and programs: a reader and a printer, with an exact round trip between them.
//!
//! docs/theory/language.md is the reference. A text has a heading and then the operations of each rank, one per line; `;` starts a comment.
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

/// Content of a text: a schedule, or the program that lowering makes of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Document {
    /// A schedule: rounds on slots.
    Schedule(Schedule),
    /// A program: instructions on buffers.
    Program(Program),
}

impl Document {
    /// Returns the program, or converts the schedule to one with [`Schedule::flatten`].
    pub fn to_program(&self) -> Program {
        match self {
            Document::Schedule(schedule) => schedule.flatten(),
            Document::Program(program) => program.clone(),
        }
    }
}

/// Content of a text, with the line number of each instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// The schedule or program.
    pub document: Document,
    /// For each rank, the line of the text that holds each instruction of [`Document::to_program`].
    pub lines: BTreeMap<Rank, Vec<u32>>,
}

/// Error in a text, with its location. Lines and columns count from 1.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct TextError {
    /// Line of the error.
    pub line: u32,
    /// Column of the error, in characters.
    pub column: u32,
    /// Description of the error and of the correct form.
    pub message: String,
}

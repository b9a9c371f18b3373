//! What passes ask of a program's lines.

use bruckner_schedule::{Area, Claims, Code, Instr, Program};

/// A pass that adds copies or messages cannot keep what was claimed of their number.
pub(super) fn without_costs(mut program: Program) -> Program {
    program.claims = Claims { messages: None, sent: None, memory: None, ..program.claims };
    program
}

/// The first number that no private line has.
pub(super) fn next_line(code: &Code) -> u32 {
    let lines = code.instrs.iter().flat_map(Instr::places).filter_map(|place| match place.area {
        Area::Line(n) => Some(n + 1),
        _ => None,
    });
    lines.max().unwrap_or(0)
}

//! Helpers of the passes for claims about costs and for line numbers.

use bruckner_schedule::{Area, Claims, Code, Instr, Program};

/// Removes the claims about messages, data sent and memory, which a pass that adds copies or messages cannot keep.
pub(super) fn drop_cost_claims(mut program: Program) -> Program {
    program.claims = Claims { messages: None, sent: None, memory: None, ..program.claims };
    program
}

/// Returns the number after the highest private line in use.
pub(super) fn next_line(code: &Code) -> u32 {
    let lines = code.instrs.iter().flat_map(Instr::places).filter_map(|place| match place.area {
        Area::Line(n) => Some(n + 1),
        _ => None,
    });
    lines.max().unwrap_or(0)
}

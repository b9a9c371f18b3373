//! The verifier returns a verdict for every text that parses, and every program that it accepts passes in the interpreter.
#![no_main]

use bruckner_schedule::{interpret, verify::verify};
use libfuzzer_sys::fuzz_target;

/// Maximum number of slots in a set and of elements in a chunk; larger inputs would only be slow.
const MOST: u64 = 2000;

fuzz_target!(|text: &str| {
    let Ok(read) = bruckner_schedule::read(text) else { return };
    let program = read.document.to_program();
    let small = |set: &bruckner_schedule::Set| set.len() <= MOST;
    let all_small = program.ranks.values().all(|code| {
        let placed = match &code.layout {
            bruckner_schedule::Layout::Unplaced => true,
            bruckner_schedule::Layout::Buffers { placed, .. } => placed.iter().all(|p| small(&p.place.set)),
        };
        placed
            && code.instrs.iter().all(|instr| match instr {
                bruckner_schedule::Instr::Post(_, message) => message.places.iter().all(|p| small(&p.set)),
                bruckner_schedule::Instr::Finish(requests) => small(requests),
                bruckner_schedule::Instr::Local(local) => match local {
                    bruckner_schedule::LocalOp::Copy { to: a, from: b }
                    | bruckner_schedule::LocalOp::Reduce { into: a, with: b } => small(&a.set) && small(&b.set),
                    _ => true,
                },
            })
    });
    let elements = (0..program.problem.chunks().min(64)).filter_map(|c| program.problem.elements(c)).max();
    if program.problem.ranks > 16 || program.problem.chunks() > 64 || elements > Some(MOST) || !all_small {
        return;
    }
    if verify(&program).is_correct() {
        for seed in 0..2 {
            assert_eq!(interpret::check(&[&program, &program, &program], seed), Ok(()), "{program}");
        }
    }
});

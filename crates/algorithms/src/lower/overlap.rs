//! Starts messages early if the rounds of a program may overlap.
//!
//! A message moves up past the instructions before it, but not past an instruction that writes its data, uses the memory it fills, or
//! starts a message with the same peer, direction and tag, nor past more rounds than allowed. The memory of all messages in flight is
//! compared, since a message that starts earlier may then be in flight together with messages that finish later. Barriers and flags order
//! accesses to shared memory, so only messages of private data may move past them.

use bruckner_schedule::addresses::{Addresses, Buffer};
use bruckner_schedule::{Area, Code, End, Instr, LocalOp, Message, Place, Problem, Program, Request, Run, Set};

/// Part of a buffer: the buffer, and a regular sequence (run) of elements.
type Stretch = (Buffer, Run);

/// Runs the pass.
pub fn run(program: Program) -> Program {
    if program.overlap == 0 {
        return program;
    }
    let mut early = program.map(|_, code| start_early(&program, code));
    early.overlap = 0;
    early
}

/// An instruction with renumbered requests, and the memory that it reads and writes.
struct Step {
    instr: Instr,
    reads: Vec<Stretch>,
    writes: Vec<Stretch>,
}

fn start_early(program: &Program, code: &Code) -> Code {
    let (problem, overlap) = (&program.problem, program.overlap);
    let mut steps: Vec<Step> = Vec::with_capacity(code.instrs.len());
    for step in number(problem, code) {
        let at = match &step.instr {
            Instr::Post(_, message) => {
                let is_private = |place: &Place| !matches!(place.area, Area::Shared(..));
                let passes = message.places.iter().all(is_private);
                earliest(&steps, &step, message, overlap, passes)
            }
            _ => steps.len(),
        };
        steps.insert(at, step);
    }
    Code { layout: code.layout.clone(), instrs: steps.into_iter().map(|step| step.instr).collect() }
}

/// Gives every message a unique request number, and determines the memory that each instruction accesses. The instruction that finishes a
/// message accesses the memory of that message.
fn number(problem: &Problem, code: &Code) -> Vec<Step> {
    let addresses = Addresses::new(problem, code);
    let in_chunks = problem.chunk_elements() == Some(1);
    let of = |place: &Place| match in_chunks {
        true => addresses.runs(place).unwrap_or_default(),
        false => {
            let stretches = addresses.ranges(place).unwrap_or_default().into_iter();
            let filled = stretches.filter(|(_, range)| !range.is_empty());
            filled.map(|(buffer, range)| (buffer, Run::new(range.start, range.end - range.start, 0, 1))).collect()
        }
    };
    let stretches = |places: &[&Place]| -> Vec<Stretch> { places.iter().flat_map(|place| of(place)).collect() };
    let mut open: Vec<(Request, Request, Vec<Stretch>, Vec<Stretch>)> = Vec::new();
    let mut next = 0;
    let step = |instr: &Instr| match instr {
        Instr::Post(request, message) => {
            let touched = stretches(&message.places.iter().collect::<Vec<_>>());
            let (reads, writes) = match message.end {
                End::Send => (touched, Vec::new()),
                End::Recv => (Vec::new(), touched),
            };
            let renamed = Request(next);
            next += 1;
            open.push((*request, renamed, reads.clone(), writes.clone()));
            Step { instr: Instr::Post(renamed, message.clone()), reads, writes }
        }
        Instr::Finish(requests) => {
            let (mut reads, mut writes, mut renamed) = (Vec::new(), Vec::new(), Vec::new());
            open.retain(|(old, new, read, written)| {
                let done = requests.position(old.0.into()).is_some();
                if done {
                    reads.extend_from_slice(read);
                    writes.extend_from_slice(written);
                    renamed.push(u64::from(new.0));
                }
                !done
            });
            Step { instr: Instr::Finish(renamed.into_iter().collect::<Set>()), reads, writes }
        }
        Instr::Local(local) => {
            let (reads, writes) = match local {
                LocalOp::Copy { to, from } => (stretches(&[from]), stretches(&[to])),
                LocalOp::Reduce { into, with } => (stretches(&[with, into]), stretches(&[into])),
                _ => (Vec::new(), Vec::new()),
            };
            Step { instr: instr.clone(), reads, writes }
        }
    };
    code.instrs.iter().map(step).collect()
}

/// Returns the earliest index in `steps` at which a message can start. With `passes_meetings` the message may move past barriers and
/// flags.
fn earliest(steps: &[Step], post: &Step, message: &Message, overlap: u32, passes_meetings: bool) -> usize {
    let (mut at, mut passed) = (steps.len(), 0);
    while at > 0 {
        let before = &steps[at - 1];
        let stays = match &before.instr {
            Instr::Post(_, other) => (other.end, other.peer, other.tag) == (message.end, message.peer, message.tag),
            Instr::Finish(_) => {
                passed += 1;
                passed > overlap
            }
            Instr::Local(LocalOp::Copy { .. } | LocalOp::Reduce { .. }) => false,
            Instr::Local(_) => !passes_meetings,
        };
        if stays || overlaps(&before.writes, &post.reads) || overlaps(&before.writes, &post.writes) {
            break;
        }
        if overlaps(&before.reads, &post.writes) {
            break;
        }
        at -= 1;
    }
    at
}

fn overlaps(a: &[Stretch], b: &[Stretch]) -> bool {
    a.iter().any(|x| b.iter().any(|y| x.0 == y.0 && x.1.intersects(&y.1)))
}

//! Makes each message contiguous in memory.
//!
//! Scattered slots of a send are first copied into contiguous memory; a receive into scattered slots goes to contiguous memory and is
//! copied out once the message is finished. Messages that are contiguous already stay as they are, and so do all messages if lengths are
//! known only locally, because slots then have no fixed addresses.

use std::cell::OnceCell;

use bruckner_schedule::addresses::Addresses;
use bruckner_schedule::program::size_in_units;
use bruckner_schedule::{
    Area, Code, Counts, End, Instr, Layout, LocalOp, Message, Payload, Place, Placement, Problem, Program, Request,
};
use rustc_hash::FxHashMap as HashMap;

use super::LineMemory;
use super::lines::{drop_cost_claims, next_line};

/// Runs the pass.
pub fn run(program: Program, line_memory: LineMemory) -> Program {
    if program.problem.counts == Counts::Local {
        return program;
    }
    let problem = program.problem.clone();
    drop_cost_claims(program.into(|_, code| {
        let scattered = {
            let addresses = OnceCell::new();
            let is_one = |message: &Message| is_one_stretch(&problem, &code, &addresses, &message.places);
            let is_scattered = |instr: &Instr| match instr {
                Instr::Post(_, message) => message.payload == Payload::Data && !is_one(message),
                _ => false,
            };
            code.instrs.iter().map(is_scattered).collect::<Vec<bool>>()
        };
        if scattered.contains(&true) { Packer::new(&problem, &code, line_memory).run(code, &scattered) } else { code }
    }))
}

/// Returns whether places are contiguous in one buffer. User buffers hold chunks in order, so places in them are checked without computing
/// addresses.
fn is_one_stretch<'a>(
    problem: &'a Problem,
    code: &'a Code,
    addresses: &OnceCell<Addresses<'a>>,
    places: &[Place],
) -> bool {
    match places {
        [] => true,
        [place, ..] if matches!(place.area, Area::In | Area::Out) => {
            places.len() == 1 && place.set.runs().len() == 1 && place.set.runs()[0].count() == 1
        }
        _ => addresses.get_or_init(|| Addresses::new(problem, code)).is_contiguous(places),
    }
}

struct Packer<'a> {
    problem: &'a Problem,
    line_memory: LineMemory,
    placed: Vec<Placement>,
    instrs: Vec<Instr>,
    /// Number of the next private line to add. `base` is the size of the temporary memory that was already in use; the added lines follow
    /// it, and `used` is the size of those that messages in flight need.
    line: u32,
    base: u64,
    used: u64,
    /// For each request in flight, the copies to run once it is finished.
    open: HashMap<Request, Vec<LocalOp>>,
}

impl<'a> Packer<'a> {
    fn new(problem: &'a Problem, code: &Code, line_memory: LineMemory) -> Packer<'a> {
        Packer {
            problem,
            line_memory,
            placed: Vec::new(),
            instrs: Vec::with_capacity(2 * code.instrs.len()),
            line: next_line(code),
            base: code.memory(problem),
            used: 0,
            open: HashMap::default(),
        }
    }

    fn run(mut self, code: Code, scattered: &[bool]) -> Code {
        for (instr, &scattered) in code.instrs.into_iter().zip(scattered) {
            match instr {
                Instr::Post(request, message) => {
                    let (message, after) = if scattered { self.pack(message) } else { (message, Vec::new()) };
                    self.open.insert(request, after);
                    self.instrs.push(Instr::Post(request, message));
                }
                Instr::Finish(requests) => {
                    self.instrs.push(Instr::Finish(requests.clone()));
                    for request in requests.iter().map(|r| Request(r as u32)) {
                        let after = self.open.remove(&request).unwrap_or_default();
                        self.instrs.extend(after.into_iter().map(Instr::Local));
                    }
                    if self.open.is_empty() && self.line_memory == LineMemory::Shared {
                        self.used = 0;
                    }
                }
                Instr::Local(_) => self.instrs.push(instr),
            }
        }
        let layout = match code.layout {
            Layout::Unplaced => Layout::Unplaced,
            Layout::Buffers { mut placed, alternate } => {
                placed.extend(self.placed);
                Layout::Buffers { placed, alternate }
            }
        };
        Code { layout, instrs: self.instrs }
    }

    /// Returns the message with its places in contiguous memory, and the copies to run once the message is finished.
    fn pack(&mut self, mut message: Message) -> (Message, Vec<LocalOp>) {
        let mut after = Vec::new();
        for place in &mut message.places {
            let stretch = Place::new(Area::Line(self.line), place.set.clone());
            self.line += 1;
            self.placed.push(Placement { place: stretch.clone(), at: self.base + self.used });
            self.used += size_in_units(self.problem, &place.set);
            let scattered = std::mem::replace(place, stretch.clone());
            match message.end {
                End::Send => self.instrs.push(Instr::Local(LocalOp::Copy { to: stretch, from: scattered })),
                End::Recv => after.push(LocalOp::Copy { to: scattered, from: stretch }),
            }
        }
        (message, after)
    }
}

//! Makes each message one stretch of memory.
//!
//! What a send takes from scattered slots is first copied into a stretch of its own; what a receive brings is
//! copied out of one once the message is finished. Messages that are one stretch already stay as they are, and
//! so do all where lengths are known only locally: there the cells have no fixed place.

use std::cell::OnceCell;

use bruckner_schedule::program::extent;
use bruckner_schedule::{
    Area, Code, Counts, End, Instr, Layout, Local, Message, Payload, Place, Placed, Problem, Program, Request,
};
use rustc_hash::FxHashMap as HashMap;

use super::memory::{Addresses, next_line, without_costs};

/// Runs the pass.
pub fn run(program: &Program) -> Program {
    if program.problem.counts == Counts::Local {
        return program.clone();
    }
    without_costs(program.map(|_, code| Packer::new(&program.problem, code).run(code)))
}

struct Packer<'a> {
    problem: &'a Problem,
    code: &'a Code,
    /// Made when it is first asked for: user buffers need none.
    addresses: OnceCell<Addresses<'a>>,
    placed: Vec<Placed>,
    instrs: Vec<Instr>,
    /// The next line, and the room that stretches in use take behind everything else.
    line: u32,
    base: u64,
    used: u64,
    /// Requests under way, with what is to be copied once they are finished.
    open: HashMap<Request, Vec<Local>>,
}

impl<'a> Packer<'a> {
    fn new(problem: &'a Problem, code: &'a Code) -> Packer<'a> {
        let placed = match &code.layout {
            Layout::Virtual => Vec::new(),
            Layout::Buffers { placed, .. } => placed.clone(),
        };
        Packer {
            problem,
            code,
            addresses: OnceCell::new(),
            placed,
            instrs: Vec::new(),
            line: next_line(code),
            base: code.memory(problem),
            used: 0,
            open: HashMap::default(),
        }
    }

    fn run(mut self, code: &Code) -> Code {
        for instr in &code.instrs {
            match instr {
                Instr::Post(request, message) => {
                    let (message, after) = self.pack(message);
                    self.open.insert(*request, after);
                    self.instrs.push(Instr::Post(*request, message));
                }
                Instr::Finish(requests) => {
                    self.instrs.push(instr.clone());
                    for request in requests.iter().map(|r| Request(r as u32)) {
                        let after = self.open.remove(&request).unwrap_or_default();
                        self.instrs.extend(after.into_iter().map(Instr::Local));
                    }
                    if self.open.is_empty() {
                        self.used = 0;
                    }
                }
                Instr::Local(_) => self.instrs.push(instr.clone()),
            }
        }
        let alternate = match &code.layout {
            Layout::Virtual => return code.clone(),
            Layout::Buffers { alternate, .. } => alternate.clone(),
        };
        Code { layout: Layout::Buffers { placed: self.placed, alternate }, instrs: self.instrs }
    }

    /// Whether slots follow each other without gaps in one buffer. User buffers are in the order of chunks.
    fn is_one_stretch(&self, places: &[Place]) -> bool {
        match places {
            [] => true,
            [place, ..] if matches!(place.area, Area::In | Area::Out) => {
                places.len() == 1 && place.set.runs().len() == 1 && place.set.runs()[0].count() == 1
            }
            _ => {
                self.addresses.get_or_init(|| Addresses::new(self.problem, self.code)).is_one_stretch(places)
            }
        }
    }

    /// The message on one stretch, and the copies that come after it.
    fn pack(&mut self, message: &Message) -> (Message, Vec<Local>) {
        if message.payload == Payload::Sizes || self.is_one_stretch(&message.places) {
            return (message.clone(), Vec::new());
        }
        let mut packed = Message { places: Vec::new(), ..message.clone() };
        let mut after = Vec::new();
        for place in &message.places {
            let stretch = Place::new(Area::Line(self.line), place.set.clone());
            self.line += 1;
            self.placed.push(Placed { place: stretch.clone(), at: self.base + self.used });
            self.used += extent(self.problem, &place.set);
            match message.end {
                End::Send => {
                    self.instrs.push(Instr::Local(Local::Copy { to: stretch.clone(), from: place.clone() }));
                }
                End::Recv => after.push(Local::Copy { to: place.clone(), from: stretch.clone() }),
            }
            packed.places.push(stretch);
        }
        (packed, after)
    }
}

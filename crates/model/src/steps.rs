//! What is left of a rank's program when only its cost matters: bytes instead of places, and partners apart.

use bruckner_schedule::{Area, End, Flag, Instr, Level, Local, Payload, Place, Problem, Rank, Tag, Topology};

/// One thing that takes time. Whom it is done with is listed apart, in the order of the steps that have a partner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Starts to send bytes, as the next request.
    Send {
        /// How much.
        bytes: u64,
        /// How far.
        reach: Reach,
    },
    /// Starts to receive bytes, as the next request.
    Recv {
        /// How much.
        bytes: u64,
        /// From how far.
        reach: Reach,
    },
    /// Until a request is done; they are counted from 0 in the order in which they were started.
    Finish {
        /// Which.
        request: u32,
    },
    /// Works by itself.
    Work(Work),
    /// Raises a flag.
    Signal(Flag),
    /// Until a partner has raised a flag so many times, and once more.
    Wait {
        /// Which flag.
        flag: Flag,
        /// How often it was awaited before.
        before: u32,
    },
    /// Until all ranks of the region are here.
    Barrier(Level),
}

impl Step {
    /// Whether it has a partner.
    pub fn has_partner(self) -> bool {
        matches!(self, Step::Send { .. } | Step::Recv { .. } | Step::Wait { .. })
    }
}

/// Copies and reductions between two other steps, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Work {
    /// Copied within the rank's memory.
    pub copied: u64,
    /// Copied to a segment or from it.
    pub shared: u64,
    /// Read from another rank's memory, by the kernel.
    pub read: u64,
    /// How often the kernel was asked for that.
    pub asked: u32,
    /// Combined with others.
    pub reduced: u64,
}

impl Work {
    fn copy(&mut self, places: [&Place; 2], bytes: u64) {
        match memory(places) {
            Memory::Own => self.copied += bytes,
            Memory::Segment => self.shared += bytes,
            Memory::Other => self.ask(bytes),
        }
    }

    fn reduce(&mut self, places: [&Place; 2], bytes: u64) {
        self.reduced += bytes;
        if memory(places) == Memory::Other {
            self.ask(bytes);
        }
    }

    fn ask(&mut self, bytes: u64) {
        self.read += bytes;
        self.asked += 1;
    }
}

/// Whose memory a copy or reduction touches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Memory {
    Own,
    Segment,
    /// Another rank's, which the kernel reads.
    Other,
}

/// How far a message goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reach {
    /// Within a socket.
    Socket,
    /// Within a node.
    Node,
    /// From node to node.
    Network,
}

impl Reach {
    /// How far it is from one rank to another.
    pub fn between(topology: &Topology, a: Rank, b: Rank) -> Reach {
        match topology.apart(a, b) {
            Some(Level::NODE) => Reach::Network,
            Some(_) => Reach::Node,
            None => Reach::Socket,
        }
    }
}

/// With whom a step is done, and what tells it apart from others between the two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Partner {
    /// The other rank.
    pub rank: Rank,
    /// A message's tag.
    pub tag: Tag,
}

/// What one rank does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Steps {
    /// In order.
    pub steps: Vec<Step>,
    /// Of those that have one.
    pub partners: Vec<Partner>,
}

fn memory(places: [&Place; 2]) -> Memory {
    let of = |place: &Place| match place.area {
        Area::In | Area::Out | Area::Line(_) => Memory::Own,
        Area::Shared(..) => Memory::Segment,
        Area::InOf(_) | Area::OutOf(_) => Memory::Other,
    };
    of(places[0]).max(of(places[1]))
}

/// The work that was begun, or else some that begins here.
fn work(steps: &mut Vec<Step>) -> &mut Work {
    if !matches!(steps.last(), Some(Step::Work(_))) {
        steps.push(Step::Work(Work::default()));
    }
    match steps.last_mut() {
        Some(Step::Work(work)) => work,
        _ => unreachable!("just pushed"),
    }
}

/// What one rank's instructions cost. Sizes must be known to all; a message of sizes carries 8 bytes for each.
pub fn steps(problem: &Problem, topology: &Topology, rank: Rank, instrs: &[Instr]) -> Steps {
    let element = u64::from(problem.element);
    let bytes_of = |place: &Place| problem.elements_of(&place.set).unwrap_or(0) * element;
    let mut steps = Vec::with_capacity(instrs.len());
    let mut partners = Vec::new();
    // Which request, counted from the first, a number stands for: numbers are used again.
    let mut open: Vec<(u32, u32)> = Vec::new();
    let mut awaited: Vec<(Rank, Flag)> = Vec::new();
    let mut started = 0;
    for instr in instrs {
        match instr {
            Instr::Post(request, message) => {
                let bytes = match message.payload {
                    Payload::Data => message.places.iter().map(bytes_of).sum(),
                    Payload::Sizes => 8 * message.len(),
                };
                let reach = Reach::between(topology, rank, message.peer);
                partners.push(Partner { rank: message.peer, tag: message.tag });
                steps.push(match message.end {
                    End::Send => Step::Send { bytes, reach },
                    End::Recv => Step::Recv { bytes, reach },
                });
                open.push((request.0, started));
                started += 1;
            }
            Instr::Finish(requests) => {
                for number in requests.iter() {
                    if let Some(at) = open.iter().position(|(open, _)| u64::from(*open) == number) {
                        steps.push(Step::Finish { request: open.swap_remove(at).1 });
                    }
                }
            }
            Instr::Local(local) if local.is_left_out(problem) => {}
            Instr::Local(Local::Copy { to, from }) => {
                work(&mut steps).copy([to, from], bytes_of(to));
            }
            Instr::Local(Local::Reduce { into, with }) => {
                work(&mut steps).reduce([into, with], bytes_of(into));
            }
            Instr::Local(Local::Signal { flag, .. }) => steps.push(Step::Signal(*flag)),
            Instr::Local(Local::Wait { flag, of, .. }) => {
                let before = awaited.iter().filter(|one| **one == (*of, *flag)).count() as u32;
                awaited.push((*of, *flag));
                partners.push(Partner { rank: *of, tag: Tag(0) });
                steps.push(Step::Wait { flag: *flag, before });
            }
            Instr::Local(Local::Barrier(level)) => steps.push(Step::Barrier(*level)),
            // Between one execution and the next.
            Instr::Local(Local::Open | Local::Enter { .. } | Local::Leave(_)) => {}
        }
    }
    Steps { steps, partners }
}

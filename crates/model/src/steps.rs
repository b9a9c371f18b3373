//! Steps of a rank's program that take time. They contain sizes in bytes instead of buffer addresses. The ranks with which they
//! communicate, their partners, are in a separate list.

use bruckner_schedule::{Area, End, Flag, Instr, Level, LocalOp, Payload, Place, Problem, Rank, Tag, Topology};

/// A step of a rank's program that takes time. The partners of sends, receives and waits are in [`Steps::partners`], in the order of these
/// steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CostStep {
    /// Starts sending a message, as the next request.
    Send {
        /// Size of the message in bytes.
        bytes: u64,
        /// Link class of the message.
        reach: LinkClass,
    },
    /// Starts receiving a message, as the next request.
    Recv {
        /// Size of the message in bytes.
        bytes: u64,
        /// Link class of the message.
        reach: LinkClass,
    },
    /// Waits until a request is complete. Requests are numbered from 0 in the order in which they start.
    Finish {
        /// Number of the request.
        request: u32,
    },
    /// Does local work: copies and reductions.
    Work(LocalWork),
    /// Raises a flag.
    Signal(Flag),
    /// Waits until a partner has raised a flag `before + 1` times.
    Wait {
        /// Awaited flag.
        flag: Flag,
        /// Number of earlier waits for the same flag of the same partner.
        before: u32,
    },
    /// Barrier among all ranks of the region at this level.
    Barrier(Level),
}

impl CostStep {
    /// Whether the step has a partner, a rank with which it communicates: a send, a receive or a wait.
    pub fn has_partner(self) -> bool {
        matches!(self, CostStep::Send { .. } | CostStep::Recv { .. } | CostStep::Wait { .. })
    }
}

/// Local copies and reductions between two other steps, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LocalWork {
    /// Bytes copied within the rank's own memory.
    pub copied_bytes: u64,
    /// Bytes copied to or from a shared-memory segment.
    pub segment_bytes: u64,
    /// Bytes read from another rank's memory by system calls.
    pub read_bytes: u64,
    /// Number of system calls that read another rank's memory.
    pub syscalls: u32,
    /// Bytes combined by reductions.
    pub reduced_bytes: u64,
}

impl LocalWork {
    fn copy(&mut self, places: [&Place; 2], bytes: u64) {
        match memory(places) {
            Memory::Own => self.copied_bytes += bytes,
            Memory::Segment => self.segment_bytes += bytes,
            Memory::Other => self.ask(bytes),
        }
    }

    fn reduce(&mut self, places: [&Place; 2], bytes: u64) {
        self.reduced_bytes += bytes;
        if memory(places) == Memory::Other {
            self.ask(bytes);
        }
    }

    fn ask(&mut self, bytes: u64) {
        self.read_bytes += bytes;
        self.syscalls += 1;
    }
}

/// Memory that a copy or reduction accesses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Memory {
    Own,
    Segment,
    /// Memory of another rank, read by a system call.
    Other,
}

/// Link class of a message: how far apart its sender and receiver are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkClass {
    /// Messages between ranks of the same socket.
    Socket,
    /// Messages between sockets of the same node.
    Node,
    /// Messages between nodes.
    Network,
}

impl LinkClass {
    /// Returns the link class of messages between two ranks.
    pub fn between(topology: &Topology, a: Rank, b: Rank) -> LinkClass {
        match topology.outermost_difference(a, b) {
            Some(Level::NODE) => LinkClass::Network,
            Some(_) => LinkClass::Node,
            None => LinkClass::Socket,
        }
    }
}

/// Partner of a step: the rank with which it communicates, and the tag that distinguishes messages between the same two ranks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Partner {
    /// Rank of the partner.
    pub rank: Rank,
    /// Tag of the message; 0 for a wait.
    pub tag: Tag,
}

/// All steps of one rank.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Steps {
    /// Steps in order of execution.
    pub steps: Vec<CostStep>,
    /// Partners of the sends, receives and waits, in the order of these steps.
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

/// Returns the local work at the end of `steps`. Appends an empty step of local work if the last step is of another type.
fn work(steps: &mut Vec<CostStep>) -> &mut LocalWork {
    if !matches!(steps.last(), Some(CostStep::Work(_))) {
        steps.push(CostStep::Work(LocalWork::default()));
    }
    match steps.last_mut() {
        Some(CostStep::Work(work)) => work,
        _ => unreachable!("just pushed"),
    }
}

/// Converts one rank's instructions to steps. Block sizes must be known on all ranks; a message that contains sizes has 8 bytes for each
/// size.
pub fn steps(problem: &Problem, topology: &Topology, rank: Rank, instrs: &[Instr]) -> Steps {
    let element = u64::from(problem.element);
    let bytes_of = |place: &Place| problem.elements_of(&place.set).unwrap_or(0) * element;
    let mut steps = Vec::with_capacity(instrs.len());
    let mut partners = Vec::new();
    // Request numbers of the program, each with the number in `steps` of the request that has it now, because programs reuse their
    // numbers.
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
                let reach = LinkClass::between(topology, rank, message.peer);
                partners.push(Partner { rank: message.peer, tag: message.tag });
                steps.push(match message.end {
                    End::Send => CostStep::Send { bytes, reach },
                    End::Recv => CostStep::Recv { bytes, reach },
                });
                open.push((request.0, started));
                started += 1;
            }
            Instr::Finish(requests) => {
                for number in requests.iter() {
                    if let Some(at) = open.iter().position(|(open, _)| u64::from(*open) == number) {
                        steps.push(CostStep::Finish { request: open.swap_remove(at).1 });
                    }
                }
            }
            Instr::Local(local) if local.is_skipped(problem) => {}
            Instr::Local(LocalOp::Copy { to, from }) => {
                work(&mut steps).copy([to, from], bytes_of(to));
            }
            Instr::Local(LocalOp::Reduce { into, with }) => {
                work(&mut steps).reduce([into, with], bytes_of(into));
            }
            Instr::Local(LocalOp::Signal { flag, .. }) => steps.push(CostStep::Signal(*flag)),
            Instr::Local(LocalOp::Wait { flag, of, .. }) => {
                let before = awaited.iter().filter(|one| **one == (*of, *flag)).count() as u32;
                awaited.push((*of, *flag));
                partners.push(Partner { rank: *of, tag: Tag(0) });
                steps.push(CostStep::Wait { flag: *flag, before });
            }
            Instr::Local(LocalOp::Barrier(level)) => steps.push(CostStep::Barrier(*level)),
            // These instructions only order one execution after another, so they take no time in a single execution.
            Instr::Local(LocalOp::Open | LocalOp::Enter { .. } | LocalOp::Leave(_)) => {}
        }
    }
    Steps { steps, partners }
}

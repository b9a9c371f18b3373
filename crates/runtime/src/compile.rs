//! From one rank's program to steps on addresses: what the executor runs.
//!
//! A place becomes a buffer and an offset in bytes, a barrier becomes raising and awaiting flags, and messages that are
//! posted together are posted in the order that serves them best. Nothing else changes: the steps are the instructions that were
//! proven.

use bruckner_schedule::addresses::{Addresses, Buffer, Stretch};
use bruckner_schedule::{
    Area, Code, Collective, Counts, End, Instr, Layout, Level, Local, Message, Place, Problem, Rank, Run,
    Topology,
};

use crate::memory::{At, Bases, Needs};
use crate::segment::{BESIDE, FLAGS, barrier_rounds, beside, flag_at, lines_at, round_at};
use crate::transport::Peer;

/// One step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Send {
        data: At,
        bytes: usize,
        to: Peer,
        request: u32,
    },
    Recv {
        data: At,
        bytes: usize,
        from: Peer,
        request: u32,
    },
    Finish {
        first: u32,
        end: u32,
    },
    Copy {
        to: At,
        from: At,
        bytes: usize,
    },
    Reduce {
        into: At,
        with: At,
        elements: usize,
    },
    /// Raises a flag of this rank's for the so-manieth time in this execution.
    Raise {
        flag: At,
        level: u8,
        times: u16,
    },
    /// Until a flag of another's is raised so often.
    Await {
        flag: At,
        level: u8,
        times: u16,
    },
}

/// Why a program cannot be run here.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unfit {
    /// A message would be more than one stretch of memory.
    #[error("`{0}` is not one stretch of memory")]
    Scattered(String),
    /// Lines have no places yet.
    #[error("the program is not lowered")]
    Virtual,
    /// There are not so many flags or tags or levels.
    #[error("`{0}` is beyond what a segment has")]
    Beyond(String),
    /// Sizes known only locally need another executor.
    #[error("sizes are known only locally")]
    Local,
}

/// What the other ranks are called outside.
pub trait Names {
    /// The rank that the transport knows this one by.
    fn peer(&self, rank: Rank) -> u32;
}

/// Ranks by the same numbers.
pub struct SameNames;

impl Names for SameNames {
    fn peer(&self, rank: Rank) -> u32 {
        rank.0
    }
}

/// A rank's program as steps, and what it needs.
pub struct Compiled {
    pub(crate) steps: Vec<Step>,
    pub(crate) requests: usize,
    /// How large the buffers must be.
    pub needs: Needs,
    /// Bytes of a part of each level's segment; `None` for levels that are not used.
    pub shared: Vec<Option<usize>>,
    /// Levels on whose segment the program alternates.
    pub(crate) alternates: [bool; Bases::LEVELS],
    /// The largest tag, the first being 0.
    pub tags: u32,
    /// Whether the input may be the output's own memory: all of it is read before any other of it is written.
    pub in_place: bool,
    /// Whether nothing is written to the output but copies of the input to the same place: if both are the same memory, it is
    /// only read.
    pub only_reads: bool,
    /// Whether every message has the same place in every execution on the same buffers: none lies in a part of a segment
    /// that alternates.
    pub fixed: bool,
    /// Messages of an execution.
    pub messages: usize,
    /// Whether all messages are posted before anything is awaited, and no memory is shared: once started, the transport
    /// alone brings it to where only local work is left.
    pub one_round: bool,
}

fn is_one_round(steps: &[Step]) -> bool {
    let awaits = |step: &Step| matches!(step, Step::Finish { .. });
    let posts = |step: &Step| matches!(step, Step::Send { .. } | Step::Recv { .. });
    let shares = |step: &Step| matches!(step, Step::Raise { .. } | Step::Await { .. });
    let first = steps.iter().position(awaits).unwrap_or(steps.len());
    !steps.iter().any(shares) && !steps[first..].iter().any(posts)
}

/// Compiles a rank's code. Tags start at `tag`.
pub fn compile(
    problem: &Problem,
    topology: &Topology,
    rank: Rank,
    code: &Code,
    names: &dyn Names,
    tag: u32,
) -> Result<Compiled, Unfit> {
    if problem.counts == Counts::Local {
        return Err(Unfit::Local);
    }
    let Layout::Buffers { placed, alternate } = &code.layout else { return Err(Unfit::Virtual) };
    let shared_lines = 1 + placed.iter().fold(0, |most, p| match p.place.area {
        Area::Shared(_, line) => most.max(line),
        _ => most,
    });
    let mut compiler = Compiler {
        problem,
        topology,
        rank,
        names,
        tag,
        element: problem.element as usize,
        addresses: Addresses::new(problem, code),
        cells: Cells::new(problem),
        first: block_start(problem, rank, &Addresses::new(problem, code)),
        flags: [0; FLAGS as usize],
        awaited: Vec::new(),
        barriers: [0; Bases::LEVELS],
        shared: vec![None; Bases::LEVELS],
        steps: Vec::new(),
        requests: 0,
        open: Vec::new(),
        tags: 0,
        lines: shared_lines,
    };
    for instr in &code.instrs {
        compiler.instr(instr)?;
    }
    let mut alternates = [false; Bases::LEVELS];
    for level in alternate {
        alternates[compiler.level(*level)?] = true;
    }
    order_posts(&mut compiler.steps);
    let total = |set| problem.elements_of(&set).unwrap_or(0) as usize * problem.element as usize;
    let needs = Needs {
        input: total(problem.input(rank)),
        output: total(problem.output(rank)),
        temporary: code.memory(problem) as usize * problem.element as usize,
    };
    Ok(Compiled {
        in_place: reads_before_it_writes(&compiler.steps),
        only_reads: only_reads(&compiler.steps),
        one_round: is_one_round(&compiler.steps),
        fixed: compiler.steps_are_fixed(&alternates),
        messages: compiler.requests,
        requests: compiler.requests,
        needs,
        shared: compiler.shared,
        alternates,
        tags: compiler.tags,
        steps: compiler.steps,
    })
}

/// The elements before this rank's own block.
fn block_start(problem: &Problem, rank: Rank, addresses: &Addresses<'_>) -> u64 {
    match problem.collective {
        Collective::Allgather | Collective::ReduceScatter => {
            addresses.user_start(u64::from(rank.0) * problem.pieces)
        }
        _ => 0,
    }
}

/// How cells lie in a line of a segment. Where chunks are small each has a cache line of its own, so that ranks do not
/// write into each other's; lines start on cache lines in any case. All ranks of a region lay them out alike, because this
/// depends on the problem only.
struct Cells {
    stride: Option<usize>,
    line: usize,
    /// Whether a whole line fits beside a flag.
    beside: bool,
}

/// A cell up to this size gets a cache line of its own.
pub const CELL: usize = 64;

impl Cells {
    /// More cells than these are not spread: reading them all would touch too many cache lines.
    const MOST: u64 = 16;

    fn new(problem: &Problem) -> Cells {
        let all = bruckner_schedule::Set::from(0..problem.chunks());
        let bytes = problem.elements_of(&all).unwrap_or(0) as usize * problem.element as usize;
        let small = problem.chunks() > 1
            && problem.chunks() <= Cells::MOST
            && (0..problem.chunks())
                .all(|c| problem.elements(c).is_some_and(|n| n as usize * problem.element as usize <= CELL));
        let stride = small.then_some(CELL);
        let bytes = stride.map_or(bytes, |stride| stride * problem.chunks() as usize);
        Cells { stride, line: bytes.next_multiple_of(CELL), beside: stride.is_none() && bytes <= BESIDE }
    }
}

struct Compiler<'a> {
    problem: &'a Problem,
    topology: &'a Topology,
    rank: Rank,
    names: &'a dyn Names,
    tag: u32,
    element: usize,
    addresses: Addresses<'a>,
    cells: Cells,
    first: u64,
    flags: [u16; FLAGS as usize],
    awaited: Vec<((Rank, u32), u16)>,
    barriers: [u16; Bases::LEVELS],
    shared: Vec<Option<usize>>,
    steps: Vec<Step>,
    requests: usize,
    /// Requests by their numbers in the program, and by numbers that no other has: so each can be kept for good.
    open: Vec<(u32, u32)>,
    tags: u32,
    lines: u32,
}

impl Compiler<'_> {
    fn instr(&mut self, instr: &Instr) -> Result<(), Unfit> {
        match instr {
            Instr::Post(request, message) => {
                let own = self.requests as u32;
                self.requests += 1;
                self.open.retain(|(old, _)| *old != request.0);
                self.open.push((request.0, own));
                let step = self.message(own, message)?;
                self.steps.push(step);
            }
            Instr::Finish(requests) => {
                let own = |number: u64| {
                    self.open.iter().find(|(old, _)| u64::from(*old) == number).map(|(_, own)| *own)
                };
                let mut own: Vec<u32> = requests.iter().filter_map(own).collect();
                own.sort_unstable();
                for block in own.chunk_by(|a, b| a + 1 == *b) {
                    self.steps.push(Step::Finish { first: block[0], end: block[block.len() - 1] + 1 });
                }
            }
            Instr::Local(Local::Copy { to, from }) => {
                self.pairs(to, from, |to, from, bytes, _| Step::Copy { to, from, bytes })?;
            }
            Instr::Local(Local::Reduce { into, with }) => {
                self.pairs(into, with, |into, with, _, elements| Step::Reduce { into, with, elements })?;
            }
            Instr::Local(Local::Signal(flag)) => {
                if flag.0 >= FLAGS {
                    return Err(Unfit::Beyond(format!("flag {flag}")));
                }
                self.use_segment(Level::NODE, 0);
                let me = self.member(Level::NODE, self.rank);
                let times = &mut self.flags[flag.0 as usize];
                *times += 1;
                let flag = At { base: Bases::SEGMENT, offset: flag_at(me, flag.0) };
                self.steps.push(Step::Raise { flag, level: 0, times: *times });
            }
            Instr::Local(Local::Wait { flag, of }) => {
                self.use_segment(Level::NODE, 0);
                let member = self.member(Level::NODE, *of);
                let key = (*of, flag.0);
                let times = match self.awaited.iter_mut().find(|(other, _)| *other == key) {
                    Some((_, times)) => {
                        *times += 1;
                        *times
                    }
                    None => {
                        self.awaited.push((key, 1));
                        1
                    }
                };
                let flag = At { base: Bases::SEGMENT, offset: flag_at(member, flag.0) };
                self.steps.push(Step::Await { flag, level: 0, times });
            }
            Instr::Local(Local::Barrier(level)) => {
                let index = self.level(*level)?;
                self.use_segment(*level, index);
                self.barriers[index] += 1;
                let times = self.barriers[index];
                let region = self.topology.span(*level, self.topology.region_of(*level, self.rank));
                let me = self.member(*level, self.rank);
                for (round, member) in barrier_rounds(region.len() as u32, me).enumerate() {
                    let base = Bases::HEADER + index as u8;
                    let flag = |member| At { base, offset: round_at(member, round as u32) };
                    self.steps.push(Step::Raise { flag: flag(me), level: index as u8, times });
                    self.steps.push(Step::Await { flag: flag(member), level: index as u8, times });
                }
            }
        }
        Ok(())
    }

    fn steps_are_fixed(&self, alternates: &[bool; Bases::LEVELS]) -> bool {
        let moves = |at: &At| at.base >= Bases::SEGMENT && alternates[usize::from(at.base - Bases::SEGMENT)];
        !self.steps.iter().any(|step| match step {
            Step::Send { data, .. } | Step::Recv { data, .. } => moves(data),
            _ => false,
        })
    }

    fn level(&self, level: Level) -> Result<usize, Unfit> {
        // A level that the topology lacks is the one around it; it still has a segment of its own.
        let index = usize::from(level.0);
        if index < Bases::LEVELS { Ok(index) } else { Err(Unfit::Beyond(format!("level {level}"))) }
    }

    fn use_segment(&mut self, level: Level, index: usize) {
        let members = self.members(level);
        self.shared[index].get_or_insert(lines_at(members));
    }

    /// How many ranks this rank's region of a level has.
    fn members(&self, level: Level) -> u32 {
        self.topology.span(level, self.topology.region_of(level, self.rank)).len() as u32
    }

    /// A rank's number within its region.
    fn member(&self, level: Level, rank: Rank) -> u32 {
        let region = self.topology.span(level, self.topology.region_of(level, rank));
        self.topology.position(rank) - region.start
    }

    fn message(&mut self, request: u32, message: &Message) -> Result<Step, Unfit> {
        self.tags = self.tags.max(message.tag.0);
        let peer = Peer { rank: self.names.peer(message.peer), tag: self.tag + message.tag.0 };
        let mut whole: Option<(At, usize)> = None;
        for place in &message.places {
            for (at, elements) in self.stretches(place)? {
                let bytes = elements as usize * self.element;
                match &mut whole {
                    None => whole = Some((at, bytes)),
                    Some((start, len)) if at.base == start.base && at.offset == start.offset + *len => {
                        *len += bytes;
                    }
                    Some(_) => return Err(Unfit::Scattered(message.to_string())),
                }
            }
        }
        let (data, bytes) = whole.unwrap_or((At { base: Bases::TEMPORARY, offset: 0 }, 0));
        Ok(match message.end {
            End::Send => Step::Send { data, bytes, to: peer, request },
            End::Recv => Step::Recv { data, bytes, from: peer, request },
        })
    }

    /// Steps for two places of equal size, stretch by stretch.
    fn pairs(
        &mut self,
        to: &Place,
        from: &Place,
        step: impl Fn(At, At, usize, usize) -> Step,
    ) -> Result<(), Unfit> {
        let (to, from) = (self.stretches(to)?, self.stretches(from)?);
        let (mut to, mut from) = (to.into_iter(), from.into_iter());
        let (mut a, mut b) = (to.next(), from.next());
        while let (Some((to_at, to_len)), Some((from_at, from_len))) = (&mut a, &mut b) {
            let elements = (*to_len).min(*from_len) as usize;
            if elements > 0 {
                self.steps.push(step(*to_at, *from_at, elements * self.element, elements));
            }
            for (at, len) in [(&mut *to_at, &mut *to_len), (&mut *from_at, &mut *from_len)] {
                at.offset += elements * self.element;
                *len -= elements as u64;
            }
            if *to_len == 0 {
                a = to.next();
            }
            // The borrow of `b` ends with `from_len`.
            if b.as_ref().is_some_and(|(_, len)| *len == 0) {
                b = from.next();
            }
        }
        Ok(())
    }

    /// Where a place lies, as addresses and elements.
    fn stretches(&mut self, place: &Place) -> Result<Vec<(At, u64)>, Unfit> {
        let element = self.element;
        if let Area::Shared(level, line) = place.area {
            let index = self.level(level)?;
            let members = self.members(level);
            let need = lines_at(members) + self.lines.max(line + 1) as usize * self.cells.line;
            let room = self.shared[index].get_or_insert(0);
            *room = (*room).max(need);
            let base = Bases::SEGMENT + index as u8;
            // A line of few bytes lies beside a flag of the member of its number, and travels with it.
            let start = match self.cells.beside && line < members {
                true => beside(line, 0),
                false => lines_at(members) + line as usize * self.cells.line,
            };
            let blocks = place.set.runs().iter().flat_map(Run::blocks);
            let stretch = |chunk: u64, end: u64| {
                let (first, last) = (self.addresses.user_start(chunk), self.addresses.user_start(end));
                let offset = match self.cells.stride {
                    Some(stride) => start + stride * chunk as usize,
                    None => start + first as usize * element,
                };
                (At { base, offset }, last - first)
            };
            return Ok(match self.cells.stride {
                Some(_) => place.set.iter().map(|chunk| stretch(chunk, chunk + 1)).collect(),
                None => blocks.map(|block| stretch(block.start, block.end)).collect(),
            });
        }
        let stretches: Vec<Stretch> = self.addresses.stretches(place).ok_or(Unfit::Virtual)?;
        let own_input = self.problem.collective == Collective::Allgather;
        let own_output = self.problem.collective == Collective::ReduceScatter;
        let at = |(buffer, range): Stretch| {
            let (base, skip) = match buffer {
                Buffer::In => (Bases::IN, if own_input { self.first } else { 0 }),
                Buffer::Out => (Bases::OUT, if own_output { self.first } else { 0 }),
                _ => (Bases::TEMPORARY, 0),
            };
            (At { base, offset: (range.start - skip) as usize * element }, range.end - range.start)
        };
        Ok(stretches.into_iter().map(at).collect())
    }
}

/// Messages up to this size are sent before receives are posted.
pub const SHORT: usize = 256;

/// Of messages that are posted one behind the other: short sends first, because others wait for them; then receives, so
/// that what arrives finds its place; then long sends, which wait for their receives anyway. Messages of one peer and tag
/// are matched in order, so they keep theirs: a short send behind a long one of the same peer and tag stays behind it.
fn order_posts(steps: &mut [Step]) {
    let is_post = |step: &Step| matches!(step, Step::Send { .. } | Step::Recv { .. });
    for posts in steps.chunk_by_mut(|a, b| is_post(a) && is_post(b)) {
        let mut long: Vec<Peer> = Vec::new();
        for step in posts.iter() {
            if let Step::Send { bytes, to, .. } = step
                && *bytes > SHORT
            {
                long.push(*to);
            }
        }
        posts.sort_by_key(|step| match step {
            Step::Send { bytes, to, .. } if *bytes <= SHORT && !long.contains(to) => 0,
            Step::Recv { .. } => 1,
            _ => 2,
        });
    }
}

/// Whether the output, where it is the input's own memory, is not written to.
fn only_reads(steps: &[Step]) -> bool {
    !steps.iter().any(|step| match step {
        Step::Recv { data, .. } => data.base == Bases::OUT,
        Step::Copy { to, from, .. } => {
            to.base == Bases::OUT && (from.base != Bases::IN || from.offset != to.offset)
        }
        Step::Reduce { into, .. } => into.base == Bases::OUT,
        _ => false,
    })
}

/// Whether all that is read of the input is read before anything of the output is written, apart from copies of the one
/// to the other: then they may be the same memory.
fn reads_before_it_writes(steps: &[Step]) -> bool {
    let mut sending: Vec<u32> = Vec::new();
    let mut written = false;
    for step in steps {
        let (reads, writes) = match step {
            Step::Send { data, request, .. } => {
                if data.base == Bases::IN {
                    sending.push(*request);
                }
                (data.base == Bases::IN, false)
            }
            Step::Recv { data, .. } => (false, data.base == Bases::OUT),
            Step::Copy { to, from, .. } => (from.base == Bases::IN, to.base == Bases::OUT),
            Step::Reduce { into, with, .. } => (with.base == Bases::IN, into.base == Bases::OUT),
            Step::Finish { first, end } => {
                sending.retain(|request| !(first..end).contains(&request));
                (false, false)
            }
            Step::Raise { .. } | Step::Await { .. } => (false, false),
        };
        written |= writes;
        if written && (reads || !sending.is_empty()) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Short sends come first, long ones last, but none overtakes another of the same peer and tag.
    #[test]
    fn posts_of_one_peer_and_tag_keep_their_order() {
        let data = At { base: Bases::IN, offset: 0 };
        let send = |rank, bytes, request| Step::Send { data, bytes, to: Peer { rank, tag: 0 }, request };
        let recv = Step::Recv { data, bytes: 8, from: Peer { rank: 1, tag: 0 }, request: 4 };
        let (long, short) = (SHORT + 1, SHORT);
        let mut steps =
            vec![send(1, long, 0), recv.clone(), send(1, short, 1), send(2, short, 2), send(3, long, 3)];
        order_posts(&mut steps);
        let expected = [send(2, short, 2), recv, send(1, long, 0), send(1, short, 1), send(3, long, 3)];
        assert_eq!(steps, expected);
    }
}

//! Buffers of the interpreter: the memory that a rank can access, as 64-bit words.

use std::collections::HashMap;

use super::{Data, Failure};
use crate::program::{Code, Instr, Layout, Program};
use crate::random::mix;
use crate::schedule::{Area, LocalOp, Place};
use crate::{Level, Rank};

/// Address of a word: a section of the buffer, and the offset in the section. The following have a section each: a chunk of a user's
/// buffer, a slot without an address, a slot whose size is known only locally. All other words are in section 0.
pub(super) type Handle = (u64, u64);

/// A buffer of 64-bit words. A word that was never written reads as pseudo-random junk.
#[derive(Clone, Default)]
pub(super) struct Words {
    words: HashMap<Handle, u64>,
    junk: u64,
}

impl Words {
    pub(super) fn new(junk: u64) -> Words {
        Words { words: HashMap::new(), junk }
    }

    fn get(&self, at: Handle) -> u64 {
        self.words.get(&at).copied().unwrap_or_else(|| mix(self.junk ^ mix(at.0) ^ at.1))
    }
}

/// Buffer that contains a slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Buffer {
    In,
    Out,
    Temporary,
    /// A part of a region's segment, as level, region and number: 0 is the part of ordinary programs, 1 and 2 are the halves for programs
    /// with `alternate`, and numbers from 3 on are the parts of the ring for programs with `enter` and `leave`.
    Segment(Level, u32, u32),
}

/// Location of a slot: its buffer, its first word, and its length in words (`None` if unknown).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Found {
    pub(super) buffer: Buffer,
    pub(super) word: Handle,
    pub(super) len: Option<u64>,
}

/// Memory of one rank in one execution: its own buffers, and the addresses of its slots in them and in the shared segments.
pub(super) struct View {
    pub(super) rank: Rank,
    offsets: Option<HashMap<(Area, u64), u64>>,
    /// Levels in whose segments the program uses the two halves in turn, each with the number of earlier executions that did so.
    alternate: Vec<(Level, u32)>,
    /// Levels whose segments the program uses as rings (with `enter` and `leave`), each with the number of earlier executions that did so.
    /// `slots` determines the number of parts of each ring (see [`slots_of`]).
    rings: Vec<(Level, u32)>,
    slots: u32,
    /// Lengths of slots whose size is known only locally, set by received messages and by copies.
    pub(super) lengths: HashMap<(Buffer, Handle), u64>,
    pub(super) own: HashMap<Buffer, Words>,
}

impl View {
    pub(super) fn new(
        program: &Program,
        code: &Code,
        rank: Rank,
        data: &Data,
        earlier: &[View],
        slots: u32,
    ) -> Result<View, Failure> {
        let fail = |message: String| Err(Failure { rank: Some(rank), message });
        let (mut offsets, mut levels) = (None, Vec::new());
        if let Layout::Buffers { placed, alternate } = &code.layout {
            for &level in alternate {
                levels.push((level, earlier.iter().filter(|view| view.alternates(level)).count() as u32));
            }
            let table: &mut HashMap<(Area, u64), u64> = offsets.insert(HashMap::new());
            for line in placed {
                let mut next = line.at;
                for chunk in line.place.set.iter() {
                    if chunk >= program.problem.chunks() {
                        return fail(format!("`{line}` names chunk {chunk}"));
                    }
                    table.insert((line.place.area, chunk), next);
                    next += program.problem.elements(chunk).unwrap_or(1);
                }
            }
        }
        let mut own = HashMap::new();
        for buffer in [Buffer::In, Buffer::Out, Buffer::Temporary] {
            own.insert(buffer, Words::new(mix(data.seed ^ u64::from(rank.0) << 8 ^ buffer_salt(buffer))));
        }
        let mut rings: Vec<(Level, u32)> = Vec::new();
        for instr in &code.instrs {
            if let Instr::Local(LocalOp::Leave(level)) = instr {
                rings.push((*level, earlier.iter().filter(|view| view.ring(*level).is_some()).count() as u32));
            }
        }
        let lengths = HashMap::new();
        let mut view = View { rank, offsets, alternate: levels, rings, slots, lengths, own };
        for chunk in program.problem.input(rank).iter() {
            let words = data.chunk(program, rank, chunk);
            let input = view.own.get_mut(&Buffer::In).expect("made above");
            input.words.extend(words.into_iter().enumerate().map(|(i, w)| ((chunk, i as u64), w)));
        }
        Ok(view)
    }

    fn alternates(&self, level: Level) -> bool {
        self.alternate.iter().any(|(l, _)| *l == level)
    }

    /// Returns the number of earlier executions that used the ring of a level, or `None` if this execution does not use it.
    pub(super) fn ring(&self, level: Level) -> Option<u32> {
        self.rings.iter().find(|(l, _)| *l == level).map(|(_, turn)| *turn)
    }

    /// Returns the locations of the slots of a place.
    pub(super) fn find(&self, program: &Program, place: &Place, data: &Data) -> Result<Vec<Found>, Failure> {
        place.set.iter().map(|chunk| self.slot(program, place.area, chunk, data)).collect()
    }

    fn slot(&self, program: &Program, area: Area, chunk: u64, data: &Data) -> Result<Found, Failure> {
        let problem = &program.problem;
        let fail = || Failure { rank: Some(self.rank), message: format!("there is no {area}[{chunk}]") };
        let mut len = problem.elements(chunk.min(problem.chunks() - 1));
        let mine = |set: crate::Set| set.iter().any(|c| c == chunk);
        let (buffer, word) = match (area, &self.offsets) {
            (Area::In, _) => {
                mine(problem.input(self.rank)).then_some(()).ok_or_else(fail)?;
                len = len.or_else(|| Some(data.pair_len(self.rank, Rank(chunk as u32))));
                (Buffer::In, (chunk, 0))
            }
            (Area::Out, _) => {
                mine(problem.output(self.rank)).then_some(()).ok_or_else(fail)?;
                len = len.or_else(|| Some(data.pair_len(Rank(chunk as u32), self.rank)));
                (Buffer::Out, (chunk, 0))
            }
            (Area::InOf(_) | Area::OutOf(_), _) => return Err(fail()),
            _ if chunk >= problem.chunks() => return Err(fail()),
            (_, None) => {
                let line = match area {
                    Area::Line(n) | Area::Shared(_, n) => u64::from(n),
                    _ => 0,
                };
                (self.buffer(program, area), (1 + (line << 40 | chunk), 0))
            }
            (_, Some(table)) => {
                let offset = *table.get(&(area, chunk)).ok_or_else(fail)?;
                let word = if len.is_none() { (1 + offset, 0) } else { (0, offset) };
                (self.buffer(program, area), word)
            }
        };
        let len = len.or_else(|| self.lengths.get(&(buffer, word)).copied());
        Ok(Found { buffer, word, len })
    }

    fn buffer(&self, program: &Program, area: Area) -> Buffer {
        match area {
            Area::Shared(level, _) => {
                let region = program.topology.region_of(level, self.rank);
                let half = self.alternate.iter().find(|(l, _)| *l == level).map(|(_, turn)| 1 + turn % 2);
                let slot = self.ring(level).map(|turn| 3 + turn % slots_of(self.slots, level));
                Buffer::Segment(level, region, slot.or(half).unwrap_or(0))
            }
            _ => Buffer::Temporary,
        }
    }
}

/// Returns the number of parts in the ring of a level: one to three, and different for neighbouring levels.
pub(super) fn slots_of(slots: u32, level: Level) -> u32 {
    1 + (slots + u32::from(level.0)) % 3
}

fn buffer_salt(buffer: Buffer) -> u64 {
    match buffer {
        Buffer::In => 1,
        Buffer::Out => 2,
        Buffer::Temporary => 3,
        Buffer::Segment(level, region, half) => {
            4 | u64::from(level.0) << 4 | u64::from(half) << 12 | u64::from(region) << 16
        }
    }
}

/// Shared segments of all regions. Their content persists from one execution to the next.
#[derive(Default)]
pub(super) struct Segments {
    words: HashMap<Buffer, Words>,
}

impl Segments {
    fn of<'a>(&'a mut self, view: &'a mut View, buffer: Buffer) -> &'a mut Words {
        match buffer {
            Buffer::Segment(..) => self.words.entry(buffer).or_insert_with(|| Words::new(mix(buffer_salt(buffer)))),
            _ => view.own.get_mut(&buffer).expect("every view has these"),
        }
    }

    pub(super) fn load(&mut self, view: &mut View, slot: Found) -> Result<Vec<u64>, Failure> {
        let rank = view.rank;
        let len = slot.len.ok_or(Failure { rank: Some(rank), message: "uses a slot of unknown length".to_owned() })?;
        let words = self.of(view, slot.buffer);
        Ok((0..len).map(|i| words.get((slot.word.0, slot.word.1 + i))).collect())
    }

    pub(super) fn store(&mut self, view: &mut View, slot: Found, data: &[u64]) {
        let words = self.of(view, slot.buffer);
        let at = |i: usize| (slot.word.0, slot.word.1 + i as u64);
        words.words.extend(data.iter().enumerate().map(|(i, &w)| (at(i), w)));
    }

    /// Overwrites a slot with junk, as a receive that is not finished may do.
    pub(super) fn overwrite_with_junk(&mut self, view: &mut View, slot: Found, junk: u64) {
        let data: Vec<u64> = (0..slot.len.unwrap_or(0)).map(|i| mix(junk ^ i)).collect();
        self.store(view, slot, &data);
    }
}

//! Addresses of slots: converts places to contiguous ranges of buffers. Ranges count elements, or if sizes are known only locally
//! ([`Counts::Local`]) cells, one for each slot.

use std::cell::OnceCell;
use std::ops::Range;

use rustc_hash::FxHashMap as HashMap;

use crate::{Area, Code, Counts, Layout, Level, Place, Problem, Rank, Run, Set};

/// Buffer that contains slots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Buffer {
    /// The user's input.
    In,
    /// The user's output.
    Out,
    /// The rank's own temporary memory, with all its private lines.
    Temporary,
    /// The shared segment of the rank's region of a level, with all lines that the region shares.
    Segment(Level),
    /// Another rank's input.
    InOf(Rank),
    /// Another rank's output.
    OutOf(Rank),
}

impl From<Area> for Buffer {
    fn from(area: Area) -> Buffer {
        match area {
            Area::In => Buffer::In,
            Area::Out => Buffer::Out,
            Area::Line(_) => Buffer::Temporary,
            Area::Shared(level, _) => Buffer::Segment(level),
            Area::InOf(rank) => Buffer::InOf(rank),
            Area::OutOf(rank) => Buffer::OutOf(rank),
        }
    }
}

/// Contiguous range of a buffer, in elements, or in cells (one for each slot) if sizes are known only locally ([`Counts::Local`]).
pub type Stretch = (Buffer, Range<u64>);

/// Addresses of the slots in one rank's program.
pub struct Addresses<'a> {
    problem: &'a Problem,
    lines: HashMap<Area, Line<'a>>,
    /// Offset of each block in the user's buffers, for listed counts; computed at first use.
    user: OnceCell<Vec<u64>>,
}

/// Addresses of a line of slots.
struct Line<'a> {
    at: u64,
    set: &'a Set,
    /// Offset of each slot, in the order of `set`; empty if all chunks have the same size.
    starts: Vec<u64>,
}

impl<'a> Addresses<'a> {
    /// Computes the addresses for one rank's program.
    pub fn new(problem: &'a Problem, code: &'a Code) -> Addresses<'a> {
        let equal = problem.chunk_elements();
        let mut lines = HashMap::default();
        if let Layout::Buffers { placed, .. } = &code.layout {
            for line in placed {
                let mut end = line.at;
                let mut start = |chunk| {
                    let start = end;
                    end += problem.elements(chunk).unwrap_or(1);
                    start
                };
                let set = &line.place.set;
                let starts = if equal.is_some() { Vec::new() } else { set.iter().map(&mut start).collect() };
                lines.insert(line.place.area, Line { at: line.at, set, starts });
            }
        }
        Addresses { problem, lines, user: OnceCell::new() }
    }

    /// Returns the contiguous ranges of a place, in order, or `None` if a slot has no address. User buffers hold their chunks in ascending
    /// order.
    pub fn ranges(&self, place: &Place) -> Option<Vec<Stretch>> {
        let mut stretches: Vec<Stretch> = Vec::new();
        let buffer = Buffer::from(place.area);
        let mut push = |range: Range<u64>| match stretches.last_mut() {
            Some((_, last)) if last.end == range.start => last.end = range.end,
            _ => stretches.push((buffer, range)),
        };
        let blocks = place.set.runs().iter().flat_map(Run::blocks);
        if matches!(place.area, Area::In | Area::Out) {
            blocks.for_each(|block| push(self.user_start(block.start)..self.user_start(block.end)));
            return Some(stretches);
        }
        let line = self.lines.get(&place.area)?;
        let equal = self.problem.chunk_elements();
        for block in blocks {
            let (first, last) = (line.set.position(block.start)?, line.set.position(block.end - 1)?);
            // Slots that are stored in the order of their numbers form one contiguous range.
            let together = first + (block.end - 1 - block.start) == last;
            let positions: Vec<(u64, u64)> = match together {
                true => vec![(first, last)],
                false => block.map(|c| line.set.position(c).map(|at| (at, at))).collect::<Option<_>>()?,
            };
            for (first, last) in positions {
                push(match equal {
                    Some(n) => line.at + first * n..line.at + (last + 1) * n,
                    None => {
                        let end = line.starts.get(last as usize + 1).copied();
                        line.starts[first as usize]..end.unwrap_or_else(|| line.end(self.problem))
                    }
                });
            }
        }
        Some(stretches)
    }

    /// Returns the addresses of a place as runs, each with its buffer, for a problem with one element per chunk ([`Problem::in_chunks`]).
    /// Blocks at equal distances form one run. Returns `None` if a slot has no address.
    pub fn runs(&self, place: &Place) -> Option<Vec<(Buffer, Run)>> {
        let buffer = Buffer::from(place.area);
        let mut runs: Vec<(Buffer, Run)> = Vec::new();
        let line = match place.area {
            Area::In | Area::Out => None,
            area => Some(self.lines.get(&area)?),
        };
        for run in place.set.runs() {
            let moved = |by: i64| Run::new((run.start() as i64 + by) as u64, run.block(), run.stride(), run.count());
            match line {
                None => runs.push((buffer, *run)),
                Some(Line { at, set, .. }) => match set.runs() {
                    // In a line of consecutive chunks, slots have the same distances as chunk numbers. A strided line that contains the
                    // run stores its chunks without gaps.
                    [all] if all.count() == 1 => {
                        set.position(run.start())?;
                        set.position(run.nth(run.len() - 1))?;
                        runs.push((buffer, moved(*at as i64 - all.start() as i64)));
                    }
                    all if all.iter().any(|other| other.has_part(run)) => {
                        let first = at + set.position(run.start())?;
                        runs.push((buffer, Run::new(first, run.len(), 0, 1)));
                    }
                    _ => {
                        let one = Place { area: place.area, set: Set::from(*run) };
                        for (buffer, range) in self.ranges(&one)? {
                            runs.push((buffer, Run::new(range.start, range.end - range.start, 0, 1)));
                        }
                    }
                },
            }
        }
        Some(runs)
    }

    /// Returns the offset of a chunk in a user's buffer that holds all chunks.
    pub fn user_start(&self, chunk: u64) -> u64 {
        if let Some(n) = self.problem.chunk_elements() {
            return chunk * n;
        }
        let (block, piece) = (chunk / self.problem.pieces, chunk % self.problem.pieces);
        let within = |elements| self.problem.piece_start(elements, piece);
        match &self.problem.counts {
            Counts::Equal(n) => block * n + within(*n),
            Counts::Root { root, count } => match block.cmp(&root.0.into()) {
                std::cmp::Ordering::Less => 0,
                std::cmp::Ordering::Equal => within(*count),
                std::cmp::Ordering::Greater => *count,
            },
            Counts::Listed(counts) => {
                let starts = self.user.get_or_init(|| {
                    let before = counts.iter().scan(0, |end, n| Some(std::mem::replace(end, *end + n)));
                    before.chain([counts.iter().sum()]).collect()
                });
                starts[block as usize] + counts.get(block as usize).map_or(0, |n| within(*n))
            }
            Counts::Local => chunk,
        }
    }

    /// Whether the slots of `places` are contiguous in one buffer, in this order.
    pub fn is_contiguous(&self, places: &[Place]) -> bool {
        if self.problem.chunk_elements() == Some(1) {
            let mut end: Option<(Buffer, u64)> = None;
            return places.iter().all(|place| {
                self.runs(place).is_some_and(|runs| {
                    runs.into_iter().all(|(buffer, run)| {
                        let follows = end.is_none_or(|end| end == (buffer, run.start()));
                        end = Some((buffer, run.start() + run.len()));
                        follows && run.count() == 1
                    })
                })
            });
        }
        let mut end: Option<Stretch> = None;
        places.iter().all(|place| {
            self.ranges(place).is_some_and(|stretches| {
                stretches.into_iter().all(|(buffer, range)| {
                    let follows = end.as_ref().is_none_or(|last| last.0 == buffer && last.1.end == range.start);
                    end = Some((buffer, range));
                    follows
                })
            })
        })
    }
}

impl Line<'_> {
    fn end(&self, problem: &Problem) -> u64 {
        let last = self.set.runs().last().and_then(|run| run.blocks().last()).map(|block| block.end - 1);
        match (self.starts.last(), last) {
            (Some(start), Some(chunk)) => start + problem.elements(chunk).unwrap_or(1),
            _ => self.at,
        }
    }
}

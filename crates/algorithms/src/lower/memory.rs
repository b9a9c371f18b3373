//! What passes ask of a program's memory.

use std::ops::Range;

use bruckner_schedule::{Area, Claims, Code, Instr, Layout, Place, Problem, Program, Run, Set};
use rustc_hash::FxHashMap as HashMap;

/// Where slots lie.
pub(super) struct Addresses<'a> {
    problem: &'a Problem,
    lines: HashMap<Area, Line<'a>>,
}

/// A line that has a place.
struct Line<'a> {
    at: u64,
    set: &'a Set,
    /// Where each of its slots starts, after the first; none where all chunks are equal.
    starts: Vec<u64>,
}

/// A stretch of a buffer.
pub(super) type Stretch = (Option<Area>, Range<u64>);

impl<'a> Addresses<'a> {
    pub(super) fn new(problem: &'a Problem, code: &'a Code) -> Addresses<'a> {
        let equal = problem.equal();
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
        Addresses { problem, lines }
    }

    /// The stretches of a place, in order; `None` for slots without place. User buffers are in the order of chunks.
    pub(super) fn stretches(&self, place: &Place) -> Option<Vec<Stretch>> {
        let mut stretches: Vec<Stretch> = Vec::new();
        let buffer = buffer(place.area);
        let mut push = |range: Range<u64>| match stretches.last_mut() {
            Some((_, last)) if last.end == range.start => last.end = range.end,
            _ => stretches.push((buffer, range)),
        };
        let blocks = place.set.runs().iter().flat_map(Run::blocks);
        if matches!(place.area, Area::In | Area::Out) {
            blocks.for_each(push);
            return Some(stretches);
        }
        let line = self.lines.get(&place.area)?;
        let equal = self.problem.equal();
        for block in blocks {
            let (first, last) = (line.set.position(block.start)?, line.set.position(block.end - 1)?);
            // Slots that lie in the order of their numbers are one stretch.
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

    /// Whether slots follow each other without gaps in one buffer.
    pub(super) fn is_one_stretch(&self, places: &[Place]) -> bool {
        let mut end: Option<Stretch> = None;
        places.iter().all(|place| {
            self.stretches(place).is_some_and(|stretches| {
                stretches.into_iter().all(|(buffer, range)| {
                    let follows =
                        end.as_ref().is_none_or(|last| last.0 == buffer && last.1.end == range.start);
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

/// A pass that adds copies or messages cannot keep what was claimed of their number.
pub(super) fn without_costs(mut program: Program) -> Program {
    program.claims = Claims { messages: None, sent: None, memory: None, ..program.claims };
    program
}

/// Private lines share one buffer; so do the lines of a level's segment.
fn buffer(area: Area) -> Option<Area> {
    match area {
        Area::Line(_) => None,
        Area::Shared(level, _) => Some(Area::Shared(level, 0)),
        user => Some(user),
    }
}

/// The first number that no private line has.
pub(super) fn next_line(code: &Code) -> u32 {
    let lines = code.instrs.iter().flat_map(Instr::places).filter_map(|place| match place.area {
        Area::Line(n) => Some(n + 1),
        _ => None,
    });
    lines.max().unwrap_or(0)
}

//! What passes ask of a program's memory.

use bruckner_schedule::{Area, Claims, Code, Instr, Layout, Place, Problem, Program};
use rustc_hash::FxHashMap as HashMap;

/// Where slots lie.
pub(super) struct Addresses {
    offsets: HashMap<(Area, u64), u64>,
    lens: HashMap<u64, u64>,
}

impl Addresses {
    pub(super) fn new(problem: &Problem, code: &Code) -> Addresses {
        let (mut offsets, mut lens) = (HashMap::default(), HashMap::default());
        if let Layout::Buffers { placed, .. } = &code.layout {
            for line in placed {
                let mut at = line.at;
                for chunk in line.place.set.iter() {
                    let len = problem.elements(chunk).unwrap_or(1);
                    lens.insert(chunk, len);
                    offsets.insert((line.place.area, chunk), at);
                    at += len;
                }
            }
        }
        Addresses { offsets, lens }
    }

    /// Whether placed slots follow each other without gaps in one buffer.
    pub(super) fn is_one_stretch(&self, places: &[Place]) -> bool {
        let [first, ..] = places else { return true };
        let mut end = None;
        places.iter().flat_map(|p| p.set.iter().map(move |c| (p.area, c))).all(|(area, chunk)| {
            let same = buffer(area) == buffer(first.area);
            let Some(&at) = self.offsets.get(&(area, chunk)) else { return false };
            let follows = end.is_none_or(|end| end == at);
            end = Some(at + self.lens[&chunk]);
            same && follows
        })
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

//! From steps on cells to actions on addresses, for the sizes of a call: what the executor runs.
//!
//! Where all chunks are equal, an address is a multiplication; otherwise it is looked up in sums of sizes. A copy or a
//! message of nothing is left out, the latter at both ends, because both know the sizes; unless messages also order what
//! ranks do to shared memory. Messages that are posted together are posted in the order that serves them best.

use std::sync::Arc;

use bruckner_schedule::{Counts, End, Problem};

use crate::class::{CELL, Limits, Lines};
use crate::compile::{Cells, Compiled, Mark, Names, Step, Strip};
use crate::memory::{At, Bases};
use crate::segment::{beside, lines_at};
use crate::transport::Peer;

/// One action.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Action {
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
    /// The same several times, at equal distances in bytes.
    Copies {
        to: At,
        from: At,
        bytes: usize,
        steps: [isize; 2],
        times: u32,
    },
    Reduces {
        into: At,
        with: At,
        elements: usize,
        steps: [isize; 2],
        times: u32,
    },
    /// Raises a flag of this rank's.
    Raise(Mark),
    /// Until a flag of another's is raised.
    Await(Mark),
}

/// A number for the sizes of a problem in bytes: that of ranks that are in the same call is the same.
pub(crate) fn number_of(problem: &Problem) -> u64 {
    let mix = |hash: u64, n: u64| (hash.rotate_left(5) ^ n).wrapping_mul(0x517c_c1b7_2722_0a95);
    let bytes = |n: u64| n * u64::from(problem.element);
    match &problem.counts {
        Counts::Equal(n) => mix(1, bytes(*n)),
        Counts::Root { root, count } => mix(mix(2, root.0.into()), bytes(*count)),
        Counts::Listed(counts) => counts.iter().fold(3, |hash, n| mix(hash, bytes(*n))),
        Counts::Local => 0,
    }
}

/// Whom messages go to outside.
#[derive(Clone)]
pub struct Address {
    /// What the other ranks are called there.
    pub names: Arc<dyn Names + Send + Sync>,
    /// The first tag.
    pub tag: u32,
}

/// Where cells start, in elements.
trait Starts {
    /// Whether all cells are as large.
    const EVEN: bool;

    /// A chunk in a buffer that has all of them.
    fn chunk(&self, chunk: u32) -> u64;
    /// A cell of temporary memory.
    fn cell(&self, cell: u32) -> u64;
}

/// All cells have as many elements.
struct Even(u64);

impl Starts for Even {
    const EVEN: bool = true;

    #[inline]
    fn chunk(&self, chunk: u32) -> u64 {
        u64::from(chunk) * self.0
    }

    #[inline]
    fn cell(&self, cell: u32) -> u64 {
        self.chunk(cell)
    }
}

/// Sums of the sizes of cells before each, and of all.
#[derive(Default)]
pub(crate) struct Sums {
    chunks: Vec<u64>,
    cells: Vec<u64>,
}

impl Sums {
    /// Those of a problem. Memory is used again.
    fn set(&mut self, compiled: &Compiled, problem: &Problem) {
        let elements = |chunk| problem.elements(chunk).unwrap_or(0);
        sum_up(&mut self.chunks, (0..problem.chunks()).map(elements));
        let chunks = &self.chunks;
        let elements = |chunk: &u32| chunks[*chunk as usize + 1] - chunks[*chunk as usize];
        sum_up(&mut self.cells, compiled.cells.iter().map(elements));
    }
}

/// The sum of all before each, and of all.
fn sum_up(sums: &mut Vec<u64>, elements: impl Iterator<Item = u64>) {
    sums.clear();
    sums.push(0);
    sums.extend(elements.scan(0, |end, n| {
        *end += n;
        Some(*end)
    }));
}

impl Starts for Sums {
    const EVEN: bool = false;

    fn chunk(&self, chunk: u32) -> u64 {
        self.chunks[chunk as usize]
    }

    fn cell(&self, cell: u32) -> u64 {
        self.cells[cell as usize]
    }
}

/// Binds steps to the sizes of a problem that is of their class.
pub(crate) fn bind(
    compiled: &Compiled,
    problem: &Problem,
    address: &Address,
    limits: &Limits,
    sums: &mut Sums,
    actions: &mut Vec<Action>,
) {
    actions.clear();
    match problem.equal().filter(|_| compiled.even) {
        Some(n) => Binder::new(compiled, problem, address, limits, &Even(n)).run(actions),
        None => {
            sums.set(compiled, problem);
            Binder::new(compiled, problem, address, limits, sums).run(actions);
        }
    }
}

struct Binder<'a, S> {
    compiled: &'a Compiled,
    address: &'a Address,
    starts: &'a S,
    element: usize,
    /// Elements before the first chunk of the input, and of the output.
    before: [u64; 2],
    lines: Lines,
    /// Bytes of a line of a segment, up to which line they lie beside flags, and where they start otherwise, by level.
    line: usize,
    beside: [u32; Bases::LEVELS],
    lines_at: [usize; Bases::LEVELS],
    short: usize,
}

impl<'a, S: Starts> Binder<'a, S> {
    fn new(
        compiled: &'a Compiled,
        problem: &Problem,
        address: &'a Address,
        limits: &Limits,
        starts: &'a S,
    ) -> Binder<'a, S> {
        let lines = Lines::of(problem, limits);
        let members = compiled.extent.shared.map(|shared| shared.map_or(0, |shared| shared.members));
        Binder {
            compiled,
            address,
            starts,
            element: problem.element as usize,
            before: compiled.first.map(|chunk| starts.chunk(chunk as u32)),
            lines,
            line: lines.bytes(problem),
            beside: members.map(|members| if lines == Lines::Beside { members } else { 0 }),
            lines_at: members.map(lines_at),
            short: limits.short,
        }
    }

    fn run(&self, actions: &mut Vec<Action>) {
        let mut steps = self.compiled.steps.as_slice();
        actions.reserve(steps.len());
        // Requests of messages that are left out are left out, too.
        let mut requests = Renumbered::default();
        while let Some((step, rest)) = steps.split_first() {
            steps = rest;
            match step {
                Step::Post { .. } => {
                    let more = rest.iter().take_while(|step| matches!(step, Step::Post { .. })).count();
                    let posts = std::iter::once(step).chain(&rest[..more]);
                    self.posts(posts, &mut requests, actions);
                    steps = &rest[more..];
                }
                Step::Finish { first, end } => {
                    let (first, end) = (requests.of(*first), requests.of(*end));
                    if first < end {
                        actions.push(Action::Finish { first, end });
                    }
                }
                Step::Copy { to, from } => self.pairs(to, from, |to, from, elements, steps, times| {
                    let bytes = elements * self.element;
                    actions.push(match times {
                        1 => Action::Copy { to, from, bytes },
                        _ => Action::Copies { to, from, bytes, steps, times },
                    });
                }),
                Step::Reduce { into, with } => {
                    self.pairs(into, with, |into, with, elements, steps, times| {
                        actions.push(match times {
                            1 => Action::Reduce { into, with, elements },
                            _ => Action::Reduces { into, with, elements, steps, times },
                        });
                    });
                }
                Step::Raise(mark) => actions.push(Action::Raise(*mark)),
                Step::Await(mark) => actions.push(Action::Await(*mark)),
            }
        }
    }

    /// Messages that are posted one behind the other. Short ones are sent first, because others wait for them; otherwise
    /// receives are posted first, so that what arrives finds its place. Sends keep their order, and so do receives: messages
    /// of one peer and tag are matched in order.
    fn posts<'s>(
        &self,
        posts: impl Iterator<Item = &'s Step> + Clone,
        requests: &mut Renumbered,
        actions: &mut Vec<Action>,
    ) {
        let first = actions.len();
        let mut sends_are_short = true;
        for step in posts {
            let Step::Post { end, data, peer, tag, request } = *step else { continue };
            let peer = Peer { rank: self.address.names.peer(peer), tag: self.address.tag + tag };
            let (data, elements) = self.place(&data);
            let is_sent = elements > 0 || self.compiled.sends_nothing;
            let request = requests.next(request, is_sent);
            if !is_sent {
                continue;
            }
            let bytes = elements as usize * self.element;
            actions.push(match end {
                End::Send => {
                    sends_are_short &= bytes <= self.short;
                    Action::Send { data, bytes, to: peer, request }
                }
                End::Recv => Action::Recv { data, bytes, from: peer, request },
            });
        }
        let is_send = |action: &Action| matches!(action, Action::Send { .. });
        actions[first..].sort_by_key(|action| is_send(action) != sends_are_short);
    }

    /// As many cells here as there, where they lie one behind the other, and as often at equal distances.
    #[inline]
    fn pairs(&self, to: &Strip, from: &Strip, mut act: impl FnMut(At, At, usize, [isize; 2], u32)) {
        let is_spread = |strip: &Strip| self.lines == Lines::Spread && strip.cells.base >= Bases::SEGMENT;
        let spread = is_spread(to) || is_spread(from);
        if S::EVEN && !spread {
            let ((here, elements), (there, _)) = (self.place(&to.cells), self.place(&from.cells));
            let each = self.starts.chunk(1) as isize * self.element as isize;
            if elements > 0 {
                act(
                    here,
                    there,
                    elements as usize,
                    [to.step, from.step].map(|step| step as isize * each),
                    to.times,
                );
            }
            return;
        }
        for at in 0..to.times {
            let (to, from) = (to.nth(at), from.nth(at));
            let each = if spread { 1 } else { to.count.max(1) };
            for at in (0..to.count).step_by(each as usize) {
                let part = |cells: Cells| Cells { first: cells.first + at, count: each, ..cells };
                let ((to, elements), (from, _)) = (self.place(&part(to)), self.place(&part(from)));
                if elements > 0 {
                    act(to, from, elements as usize, [0, 0], 1);
                }
            }
        }
    }

    /// Where cells lie, and how many elements they have.
    #[inline]
    fn place(&self, cells: &Cells) -> (At, u64) {
        let Cells { base, line, first, count } = *cells;
        let end = first + count;
        let chunks = || (self.starts.chunk(first), self.starts.chunk(end));
        let (offset, elements) = match base {
            Bases::IN | Bases::OUT => {
                let (start, end) = chunks();
                ((start - self.before[usize::from(base)]) as usize * self.element, end - start)
            }
            Bases::TEMPORARY => {
                let (start, end) = (self.starts.cell(first), self.starts.cell(end));
                (start as usize * self.element, end - start)
            }
            _ => {
                let (start, end) = chunks();
                let level = usize::from(base - Bases::SEGMENT) % Bases::LEVELS;
                let line = match line < self.beside[level] {
                    true => beside(line, 0),
                    false => self.lines_at[level] + line as usize * self.line,
                };
                let within = match self.lines {
                    Lines::Spread => CELL * first as usize,
                    _ => start as usize * self.element,
                };
                (line + within, end - start)
            }
        };
        (At { base, offset }, elements)
    }
}

/// Requests that are in use, numbered through.
#[derive(Default)]
struct Renumbered {
    /// The numbers of those that are left out, ascending.
    left_out: Vec<u32>,
}

impl Renumbered {
    /// The number of the next request, which comes after all before.
    fn next(&mut self, request: u32, is_used: bool) -> u32 {
        let number = request - self.left_out.len() as u32;
        if !is_used {
            self.left_out.push(request);
        }
        number
    }

    /// How many requests are in use before one.
    fn of(&self, request: u32) -> u32 {
        if self.left_out.is_empty() {
            return request;
        }
        request - self.left_out.partition_point(|other| *other < request) as u32
    }
}

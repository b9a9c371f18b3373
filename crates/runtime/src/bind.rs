//! From steps on cells to actions on addresses, for the sizes of a call: what the executor runs.
//!
//! Where all chunks are equal, an address is a multiplication; otherwise it is looked up in sums of sizes. A copy or a
//! message of nothing is left out, the latter at both ends, because both know the sizes; unless messages also order what
//! ranks do to shared memory. Messages that are posted together are posted in the order that serves them best.

use std::sync::Arc;

use bruckner_schedule::{Counts, End, Problem};

use crate::class::{CELL, Limits, Lines};
use crate::compile::{Cells, Compiled, Mark, Names, Side, Step, Strip};
use crate::memory::{At, Bases};
use crate::segment::{FLAGS, beside, lines_at};
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
    /// Opens this rank's buffers to its node.
    Open,
    /// From here on, the other buffer is this one of this member's.
    Look {
        member: u32,
        side: Side,
    },
    /// Copies from the other buffer.
    Fetch {
        to: At,
        from: At,
        bytes: usize,
    },
    /// Combines with what lies in the other buffer.
    FetchReduce {
        into: At,
        with: At,
        elements: usize,
    },
    /// Raises a flag of this rank's.
    Raise(Mark),
    /// Until a flag of another's is raised.
    Await(Mark),
    /// Until what this execution uses of a level's ring is free.
    Enter(u8),
    /// Uses it no more.
    Leave(u8),
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

    /// Where chunks start in a buffer that has all of them, and how many elements they have.
    fn chunks(&self, first: u32, count: u32) -> (u64, u64);
    /// The same of cells of temporary memory.
    fn cells(&self, first: u32, count: u32) -> (u64, u64);
}

/// All cells have as many elements.
struct Even(u64);

impl Starts for Even {
    const EVEN: bool = true;

    #[inline]
    fn chunks(&self, first: u32, count: u32) -> (u64, u64) {
        (u64::from(first) * self.0, u64::from(count) * self.0)
    }

    #[inline]
    fn cells(&self, first: u32, count: u32) -> (u64, u64) {
        self.chunks(first, count)
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

/// Where some start by the sums before each, and how much they are.
fn between(sums: &[u64], first: u32, count: u32) -> (u64, u64) {
    let start = sums[first as usize];
    (start, sums[(first + count) as usize] - start)
}

impl Starts for Sums {
    const EVEN: bool = false;

    fn chunks(&self, first: u32, count: u32) -> (u64, u64) {
        between(&self.chunks, first, count)
    }

    fn cells(&self, first: u32, count: u32) -> (u64, u64) {
        between(&self.cells, first, count)
    }
}

/// Binds steps to the sizes of a problem that is of their class. What was bound before was bound from the same steps, within
/// the same limits.
pub(crate) fn bind(
    compiled: &Compiled,
    problem: &Problem,
    address: &Address,
    limits: &Limits,
    sums: &mut Sums,
    bound: &mut Bound,
) {
    match problem.equal().filter(|_| compiled.even) {
        Some(n) => {
            let even = Even(n);
            let binder = Binder::new(compiled, problem, address, limits, &even);
            binder.run(&mut bound.write(Some((n > 0, binder.lines))));
        }
        None => {
            sums.set(compiled, problem);
            Binder::new(compiled, problem, address, limits, sums).run(&mut bound.write(None));
        }
    }
}

/// The actions of a plan for some sizes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Bound {
    pub(crate) actions: Vec<Action>,
    /// What decides which actions there are, where chunks are equal: whether there is any data, and how it lies.
    form: Option<(bool, Lines)>,
}

impl From<Vec<Action>> for Bound {
    fn from(actions: Vec<Action>) -> Bound {
        Bound { actions, form: None }
    }
}

impl Bound {
    /// Those of other sizes are written over those that are there, which for the same form differ in places and lengths only.
    fn write(&mut self, form: Option<(bool, Lines)>) -> Writer<'_> {
        let is_alike = form.is_some() && form == self.form;
        if !is_alike {
            self.actions.clear();
        }
        self.form = form;
        Writer { actions: &mut self.actions, next: 0, is_alike }
    }
}

/// Writes actions over others, or anew.
struct Writer<'a> {
    actions: &'a mut Vec<Action>,
    next: usize,
    is_alike: bool,
}

impl Writer<'_> {
    /// Always inline, so that an action is written where it belongs, not on the stack first.
    #[inline(always)]
    fn push(&mut self, action: Action) {
        match self.actions.get_mut(self.next) {
            Some(before) => *before = action,
            None => self.push_back(action),
        }
        self.next += 1;
    }

    #[cold]
    fn push_back(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// One that is the same for all sizes of a form.
    #[inline]
    fn push_fixed(&mut self, action: impl FnOnce() -> Action) {
        match self.is_alike {
            true => self.next += 1,
            false => self.push(action()),
        }
    }
}

struct Binder<'a, S> {
    compiled: &'a Compiled,
    problem: &'a Problem,
    address: &'a Address,
    starts: &'a S,
    element: usize,
    lines: Lines,
    /// Bytes of a line of a segment.
    line: usize,
    origins: [Origin; Origin::COUNT],
    short: usize,
}

/// Where data starts in a buffer.
#[derive(Clone, Copy, Default)]
struct Origin {
    at: isize,
    /// The members of a segment whose lines lie beside flags instead: those of a first flag, then those of the next.
    beside: u32,
}

impl Origin {
    /// A power of two, so that no index is out of bounds; at least as many as there are buffers with data.
    const COUNT: usize = (Bases::HEADER as usize).next_power_of_two();
}

impl<'a, S: Starts> Binder<'a, S> {
    fn new(
        compiled: &'a Compiled,
        problem: &'a Problem,
        address: &'a Address,
        limits: &Limits,
        starts: &'a S,
    ) -> Binder<'a, S> {
        let lines = Lines::of(problem, limits);
        let element = problem.element as usize;
        let mut origins = [Origin::default(); Origin::COUNT];
        let (users, segments) = origins.split_at_mut(usize::from(Bases::SEGMENT));
        for (origin, first) in users.iter_mut().zip(compiled.first) {
            origin.at = -((starts.chunks(first as u32, 0).0 as usize * element) as isize);
        }
        for (origin, shared) in segments.iter_mut().zip(compiled.extent.shared) {
            let members = shared.map_or(0, |shared| shared.members);
            origin.at = lines_at(members) as isize;
            origin.beside = if lines == Lines::Beside { members } else { 0 };
        }
        let line = lines.bytes(problem);
        Binder { compiled, problem, address, starts, element, lines, line, origins, short: limits.short }
    }

    fn run(&self, out: &mut Writer<'_>) {
        let mut steps = self.compiled.steps.as_slice();
        out.actions.reserve(steps.len());
        // Requests of messages that are left out are left out, too.
        let mut requests = Renumbered::default();
        while let Some((step, rest)) = steps.split_first() {
            steps = rest;
            match step {
                Step::Post { .. } => {
                    let more = rest.iter().take_while(|step| matches!(step, Step::Post { .. })).count();
                    let posts = std::iter::once(step).chain(&rest[..more]);
                    self.posts(posts, &mut requests, out);
                    steps = &rest[more..];
                }
                Step::Finish { first, end } => {
                    let (first, end) = (requests.of(*first), requests.of(*end));
                    if first < end {
                        out.push(Action::Finish { first, end });
                    }
                }
                Step::Open => out.push_fixed(|| Action::Open),
                Step::Look { member, side } => {
                    out.push_fixed(|| Action::Look { member: *member, side: *side });
                }
                Step::Copy { to, from } if from.cells.base == Bases::OTHER => {
                    self.pairs(to, from, |to, from, elements, steps, times| {
                        for at in 0..times as isize {
                            let (to, from) = (to.moved(at * steps[0]), from.moved(at * steps[1]));
                            out.push(Action::Fetch { to, from, bytes: elements * self.element });
                        }
                    });
                }
                Step::Reduce { into, with } if with.cells.base == Bases::OTHER => {
                    self.pairs(into, with, |into, with, elements, steps, times| {
                        for at in 0..times as isize {
                            let (into, with) = (into.moved(at * steps[0]), with.moved(at * steps[1]));
                            out.push(Action::FetchReduce { into, with, elements });
                        }
                    });
                }
                Step::Copy { to, from } => self.pairs(to, from, |to, from, elements, steps, times| {
                    let bytes = elements * self.element;
                    match times {
                        1 => out.push(Action::Copy { to, from, bytes }),
                        _ => out.push(Action::Copies { to, from, bytes, steps, times }),
                    }
                }),
                Step::Reduce { into, with } => {
                    self.pairs(into, with, |into, with, elements, steps, times| match times {
                        1 => out.push(Action::Reduce { into, with, elements }),
                        _ => out.push(Action::Reduces { into, with, elements, steps, times }),
                    });
                }
                // What is there for empty chunks is left out, at both ends; where chunks are equal, all are or none.
                Step::Raise { chunks: Some(chunks), .. }
                | Step::Await { chunks: Some(chunks), .. }
                | Step::Enter { chunks: Some(chunks), .. }
                    if !self.problem.any_filled(chunks) => {}
                Step::Raise { mark, .. } => out.push_fixed(|| Action::Raise(*mark)),
                Step::Await { mark, .. } => out.push_fixed(|| Action::Await(*mark)),
                Step::Enter { level, .. } => out.push_fixed(|| Action::Enter(*level)),
                Step::Leave { level } => out.push_fixed(|| Action::Leave(*level)),
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
        out: &mut Writer<'_>,
    ) {
        let first = out.next;
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
            match end {
                End::Send => {
                    sends_are_short &= bytes <= self.short;
                    out.push(Action::Send { data, bytes, to: peer, request });
                }
                End::Recv => out.push(Action::Recv { data, bytes, from: peer, request }),
            }
        }
        let is_send = |action: &Action| matches!(action, Action::Send { .. });
        out.actions[first..out.next].sort_by_key(|action| is_send(action) != sends_are_short);
    }

    /// As many cells here as there, where they lie one behind the other, and as often at equal distances.
    #[inline]
    fn pairs(&self, to: &Strip, from: &Strip, mut act: impl FnMut(At, At, usize, [isize; 2], u32)) {
        let is_spread = |strip: &Strip| (Bases::SEGMENT..Bases::HEADER).contains(&strip.cells.base);
        let spread = self.lines == Lines::Spread && (is_spread(to) || is_spread(from));
        if S::EVEN && !spread {
            let each = self.starts.chunks(0, 1).1 as usize;
            let bytes = each * self.element;
            let place = |cells: &Cells| self.at(cells, cells.first as usize * bytes);
            if each > 0 {
                act(
                    place(&to.cells),
                    place(&from.cells),
                    to.cells.count as usize * each,
                    [to.step, from.step].map(|step| step as isize * bytes as isize),
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
        let Cells { base, first, count, .. } = *cells;
        let (start, elements) = match base {
            Bases::TEMPORARY => self.starts.cells(first, count),
            _ => self.starts.chunks(first, count),
        };
        let is_shared = (Bases::SEGMENT..Bases::HEADER).contains(&base);
        let within = match is_shared && self.lines == Lines::Spread {
            true => CELL * first as usize,
            false => start as usize * self.element,
        };
        (self.at(cells, within), elements)
    }

    /// So many bytes within a buffer, or within a line of a segment.
    #[inline]
    fn at(&self, cells: &Cells, within: usize) -> At {
        let Cells { base, line, .. } = *cells;
        if base == Bases::OTHER {
            let begins = self.starts.chunks(line, 0).0 as usize * self.element;
            return At { base, offset: within - begins };
        }
        let origin = &self.origins[usize::from(base) % Origin::COUNT];
        let start = match line < FLAGS * origin.beside {
            true => beside(line % origin.beside, line / origin.beside),
            false => (line as usize * self.line).wrapping_add_signed(origin.at),
        };
        At { base, offset: start.wrapping_add(within) }
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

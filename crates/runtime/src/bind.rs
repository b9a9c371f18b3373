//! Binds a compiled program to the sizes of a call: translates its steps on cells (chunks, or units of temporary memory) into actions on
//! addresses, which the executor runs.
//!
//! If all chunks are equal, an address is computed by a multiplication, otherwise from prefix sums of sizes. Zero-byte copies are omitted.
//! Zero-byte messages are omitted by sender and receiver, since both know the sizes, unless messages also order accesses to shared memory.
//! Of messages that are posted together, sends come first if all sends are short, otherwise receives.

use std::sync::Arc;

use bruckner_schedule::{Counts, End, Problem};

use crate::class::{Limits, LineLayout, SPREAD_CHUNK_BYTES};
use crate::compile::{Cells, Compiled, FlagValue, PeerBuffer, Step, Strip, TranslateRanks};
use crate::memory::{Bases, BufferOffset};
use crate::segment::{FLAGS, flag_data_at, lines_at};
use crate::transport::Peer;

/// One action of the executor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Action {
    Send {
        data: BufferOffset,
        bytes: usize,
        to: Peer,
        request: u32,
    },
    Recv {
        data: BufferOffset,
        bytes: usize,
        from: Peer,
        request: u32,
    },
    Finish {
        first: u32,
        end: u32,
    },
    Copy {
        to: BufferOffset,
        from: BufferOffset,
        bytes: usize,
    },
    Reduce {
        into: BufferOffset,
        with: BufferOffset,
        elements: usize,
    },
    /// Repeats a copy `times` times; `steps` are the distances in bytes from one repetition to the next, of `to` and of `from`.
    Copies {
        to: BufferOffset,
        from: BufferOffset,
        bytes: usize,
        steps: [isize; 2],
        times: u32,
    },
    Reduces {
        into: BufferOffset,
        with: BufferOffset,
        elements: usize,
        steps: [isize; 2],
        times: u32,
    },
    /// Publishes the addresses of this rank's buffers to the other ranks of its node.
    Open,
    /// Selects the input or output buffer of a rank of the node (`member`), which later `Fetch` and `FetchReduce` actions read.
    Look {
        member: u32,
        side: PeerBuffer,
    },
    /// Copies data from the selected buffer of another rank.
    Fetch {
        to: BufferOffset,
        from: BufferOffset,
        bytes: usize,
    },
    /// Reduces data from the selected buffer of another rank into `into`.
    FetchReduce {
        into: BufferOffset,
        with: BufferOffset,
        elements: usize,
    },
    /// Raises a flag of this rank.
    Raise(FlagValue),
    /// Waits until a flag of another rank is raised.
    Await(FlagValue),
    /// Waits until the ring slot that this execution uses in the segment of the given level is free.
    Enter(u8),
    /// Records that this rank no longer uses its ring slot in the segment of the given level.
    Leave(u8),
}

/// Returns a hash of the problem's sizes in bytes. All ranks of a correct call compute the same hash.
pub(crate) fn sizes_hash(problem: &Problem) -> u64 {
    let mix = |hash: u64, n: u64| (hash.rotate_left(5) ^ n).wrapping_mul(0x517c_c1b7_2722_0a95);
    let bytes = |n: u64| n * u64::from(problem.element);
    match &problem.counts {
        Counts::Equal(n) => mix(1, bytes(*n)),
        Counts::Root { root, count } => mix(mix(2, root.0.into()), bytes(*count)),
        Counts::Listed(counts) => counts.iter().fold(3, |hash, n| mix(hash, bytes(*n))),
        Counts::Local => 0,
    }
}

/// Translation of a plan's ranks and tags to those of the transport.
#[derive(Clone)]
pub struct Address {
    /// Translation of the program's ranks to ranks of the transport.
    pub ranks: Arc<dyn TranslateRanks + Send + Sync>,
    /// First tag on the transport; added to each tag of the program.
    pub tag: u32,
}

/// Start and length of ranges of cells, in elements.
trait CellOffsets {
    /// Whether all cells have the same size.
    const EVEN: bool;

    /// Returns the start and the number of elements of `count` chunks from chunk `first` on, in a buffer that holds all chunks.
    fn chunks(&self, first: u32, count: u32) -> (u64, u64);
    /// Returns the start and the number of elements of `count` cells of temporary memory from cell `first` on.
    fn cells(&self, first: u32, count: u32) -> (u64, u64);
}

/// Cells that all have the given number of elements.
struct EqualCells(u64);

impl CellOffsets for EqualCells {
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

/// Prefix sums of the sizes of chunks, and of the sizes of cells of temporary memory, in elements. The last entry is the total.
#[derive(Default)]
pub(crate) struct PrefixSums {
    chunks: Vec<u64>,
    cells: Vec<u64>,
}

impl PrefixSums {
    /// Computes the sums for the sizes of `problem`, and reuses the allocated memory.
    fn set(&mut self, compiled: &Compiled, problem: &Problem) {
        let elements = |chunk| problem.elements(chunk).unwrap_or(0);
        prefix_sums(&mut self.chunks, (0..problem.chunks()).map(elements));
        let chunks = &self.chunks;
        let elements = |chunk: &u32| chunks[*chunk as usize + 1] - chunks[*chunk as usize];
        prefix_sums(&mut self.cells, compiled.cells.iter().map(elements));
    }
}

/// Replaces `sums` by the prefix sums of `elements`; the last entry is the total.
fn prefix_sums(sums: &mut Vec<u64>, elements: impl Iterator<Item = u64>) {
    sums.clear();
    sums.push(0);
    sums.extend(elements.scan(0, |end, n| {
        *end += n;
        Some(*end)
    }));
}

/// Returns the start and the total size of `count` items from item `first` on, given their prefix sums.
fn between(sums: &[u64], first: u32, count: u32) -> (u64, u64) {
    let start = sums[first as usize];
    (start, sums[(first + count) as usize] - start)
}

impl CellOffsets for PrefixSums {
    const EVEN: bool = false;

    fn chunks(&self, first: u32, count: u32) -> (u64, u64) {
        between(&self.chunks, first, count)
    }

    fn cells(&self, first: u32, count: u32) -> (u64, u64) {
        between(&self.cells, first, count)
    }
}

/// Binds steps to the sizes of `problem`. If the steps were compiled for chunks of equal size, the chunks of `problem` must have equal
/// size. Existing actions in `bound` must come from the same steps and limits, because they are overwritten in place.
pub(crate) fn bind(
    compiled: &Compiled,
    problem: &Problem,
    address: &Address,
    limits: &Limits,
    sums: &mut PrefixSums,
    bound: &mut Bound,
) {
    match problem.chunk_elements().filter(|_| compiled.even) {
        Some(n) => {
            let even = EqualCells(n);
            let binder = Binder::new(compiled, problem, address, limits, &even);
            binder.run(&mut bound.write(Some((n > 0, binder.lines))));
        }
        None => {
            sums.set(compiled, problem);
            Binder::new(compiled, problem, address, limits, sums).run(&mut bound.write(None));
        }
    }
}

/// Actions of a plan for the sizes of one problem.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Bound {
    pub(crate) actions: Vec<Action>,
    /// If chunks are equal: whether there is any data, and how it lies in segments. Both together determine which actions exist. `None` if
    /// chunks differ.
    form: Option<(bool, LineLayout)>,
}

impl From<Vec<Action>> for Bound {
    fn from(actions: Vec<Action>) -> Bound {
        Bound { actions, form: None }
    }
}

impl Bound {
    /// Starts to write the actions for other sizes. If `form` is the same as before, only addresses and lengths differ, and the existing
    /// actions are overwritten in place.
    fn write(&mut self, form: Option<(bool, LineLayout)>) -> Writer<'_> {
        let is_alike = form.is_some() && form == self.form;
        if !is_alike {
            self.actions.clear();
        }
        self.form = form;
        Writer { actions: &mut self.actions, next: 0, is_alike }
    }
}

/// Overwrites existing actions, or appends new ones.
struct Writer<'a> {
    actions: &'a mut Vec<Action>,
    next: usize,
    is_alike: bool,
}

impl Writer<'_> {
    /// Writes the next action. It is always inlined, so that the action is built in its final place and not on the stack first.
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

    /// Writes an action that does not depend on sizes. Skips it if the list already contains it.
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
    lines: LineLayout,
    /// Size of a line of a segment, in bytes.
    line: usize,
    origins: [Origin; Origin::COUNT],
    short: usize,
}

/// Where the data of a buffer starts: `at` is the offset of chunk 0, or of line 0 of a segment, in bytes; it is negative if the buffer
/// begins with a later chunk.
#[derive(Clone, Copy, Default)]
struct Origin {
    at: isize,
    /// If lines lie on the cache lines of flags, the number of members (ranks of the region); otherwise 0. The first lines lie beside flag
    /// 0 of each member, the next beside flag 1, and so on.
    beside: u32,
}

impl Origin {
    /// Number of buffers with data, rounded up to a power of two. An index modulo this number is never out of bounds.
    const COUNT: usize = (Bases::HEADER as usize).next_power_of_two();
}

impl<'a, S: CellOffsets> Binder<'a, S> {
    fn new(
        compiled: &'a Compiled,
        problem: &'a Problem,
        address: &'a Address,
        limits: &Limits,
        starts: &'a S,
    ) -> Binder<'a, S> {
        let lines = LineLayout::of(problem, limits);
        let element = problem.element as usize;
        let mut origins = [Origin::default(); Origin::COUNT];
        let (users, segments) = origins.split_at_mut(usize::from(Bases::SEGMENT));
        for (origin, first) in users.iter_mut().zip(compiled.first) {
            origin.at = -((starts.chunks(first as u32, 0).0 as usize * element) as isize);
        }
        for (origin, shared) in segments.iter_mut().zip(compiled.extent.shared) {
            let members = shared.map_or(0, |shared| shared.members);
            origin.at = lines_at(members) as isize;
            origin.beside = if lines == LineLayout::Beside { members } else { 0 };
        }
        let line = lines.bytes(problem);
        Binder { compiled, problem, address, starts, element, lines, line, origins, short: limits.short }
    }

    fn run(&self, out: &mut Writer<'_>) {
        let mut steps = self.compiled.steps.as_slice();
        out.actions.reserve(steps.len());
        // Omitted messages have no request, so the requests of the other messages are renumbered.
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
                Step::Copy { to, from } if from.cells.base == Bases::PEER => {
                    self.pairs(to, from, |to, from, elements, steps, times| {
                        for at in 0..times as isize {
                            let (to, from) = (to.moved(at * steps[0]), from.moved(at * steps[1]));
                            out.push(Action::Fetch { to, from, bytes: elements * self.element });
                        }
                    });
                }
                Step::Reduce { into, with } if with.cells.base == Bases::PEER => {
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
                // Flags are neither raised nor awaited, and ring slots not entered, for chunks that are all empty. If chunks are equal,
                // either all of them are empty or none.
                Step::Raise { chunks: Some(chunks), .. }
                | Step::Await { chunks: Some(chunks), .. }
                | Step::Enter { chunks: Some(chunks), .. }
                    if !self.problem.any_nonempty(chunks) => {}
                Step::Raise { mark, .. } => out.push_fixed(|| Action::Raise(*mark)),
                Step::Await { mark, .. } => out.push_fixed(|| Action::Await(*mark)),
                Step::Enter { level, .. } => out.push_fixed(|| Action::Enter(*level)),
                Step::Leave { level } => out.push_fixed(|| Action::Leave(*level)),
            }
        }
    }

    /// Writes the actions for messages that are posted together. If all sends are short, sends come first, because other ranks wait for
    /// them; otherwise receives come first, so that arriving messages find a posted receive. The order among sends and among receives is
    /// kept, because MPI matches messages with the same ranks and tag in order.
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
            let peer = Peer { rank: self.address.ranks.translate(peer), tag: self.address.tag + tag };
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

    /// Calls `act` for each pair of contiguous ranges of two strips (repeated ranges of cells). Its arguments are both addresses, the
    /// number of elements, both strides in bytes, and the number of repetitions.
    #[inline]
    fn pairs(&self, to: &Strip, from: &Strip, mut act: impl FnMut(BufferOffset, BufferOffset, usize, [isize; 2], u32)) {
        let is_spread = |strip: &Strip| (Bases::SEGMENT..Bases::HEADER).contains(&strip.cells.base);
        let spread = self.lines == LineLayout::Spread && (is_spread(to) || is_spread(from));
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

    /// Returns the address of `cells` and their number of elements.
    #[inline]
    fn place(&self, cells: &Cells) -> (BufferOffset, u64) {
        let Cells { base, first, count, .. } = *cells;
        let (start, elements) = match base {
            Bases::TEMPORARY => self.starts.cells(first, count),
            _ => self.starts.chunks(first, count),
        };
        let is_shared = (Bases::SEGMENT..Bases::HEADER).contains(&base);
        let within = match is_shared && self.lines == LineLayout::Spread {
            true => SPREAD_CHUNK_BYTES * first as usize,
            false => start as usize * self.element,
        };
        (self.at(cells, within), elements)
    }

    /// Returns the address `within` bytes from the start of a buffer, or of a line of a segment.
    #[inline]
    fn at(&self, cells: &Cells, within: usize) -> BufferOffset {
        let Cells { base, line, .. } = *cells;
        if base == Bases::PEER {
            let begins = self.starts.chunks(line, 0).0 as usize * self.element;
            return BufferOffset { base, offset: within - begins };
        }
        let origin = &self.origins[usize::from(base) % Origin::COUNT];
        let start = match line < FLAGS * origin.beside {
            true => flag_data_at(line % origin.beside, line / origin.beside),
            false => (line as usize * self.line).wrapping_add_signed(origin.at),
        };
        BufferOffset { base, offset: start.wrapping_add(within) }
    }
}

/// Renumbers the remaining requests consecutively after some were omitted.
#[derive(Default)]
struct Renumbered {
    /// Numbers of the omitted requests, in ascending order.
    left_out: Vec<u32>,
}

impl Renumbered {
    /// Returns the new number of `request`. Records the request as omitted unless `is_used`. Requests must come in ascending order.
    fn next(&mut self, request: u32, is_used: bool) -> u32 {
        let number = request - self.left_out.len() as u32;
        if !is_used {
            self.left_out.push(request);
        }
        number
    }

    /// Returns the number of requests before `request` that are not omitted.
    fn of(&self, request: u32) -> u32 {
        if self.left_out.is_empty() {
            return request;
        }
        request - self.left_out.partition_point(|other| *other < request) as u32
    }
}

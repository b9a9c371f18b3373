//! Runs plans: all at once, or bit by bit.

use std::sync::Arc;

use bruckner_schedule::Problem;

use crate::bind::{Action, Address, Bound, Sums, bind, number_of};
use crate::class::Limits;
use crate::compile::{Compiled, Mark};
use crate::memory::Bases;
use crate::reader::Reader;
use crate::reduce::Reduction;
use crate::segment::{Backoff, Flag, Other, Segment};
use crate::transport::{Failure, Transport};

/// The buffers of one execution. What is not needed may be null.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// The input; never written.
    pub input: *const u8,
    /// The output.
    pub output: *mut u8,
    /// Temporary memory.
    pub temporary: *mut u8,
}

/// The segments of the regions that a rank is in, by level.
pub type Segments = Vec<Option<Arc<Segment>>>;

fn present(segments: &Segments) -> Vec<(usize, Arc<Segment>)> {
    let levels = segments.iter().enumerate();
    levels.filter_map(|(level, segment)| Some((level, segment.clone()?))).collect()
}

/// The segment of a level that a bound plan uses: that it is there was seen to when it was bound.
fn segment_of(segments: &Segments, level: usize) -> &Segment {
    segments[level].as_deref().expect("a segment for every level in use")
}

/// A compiled program with its requests and segments, ready to run once it is bound to sizes.
pub struct Plan<T: Transport> {
    compiled: Arc<Compiled>,
    address: Address,
    /// What it does for the problem that it is bound to.
    bound: Bound,
    problem: Option<Problem>,
    /// A number for its sizes.
    sizes: u64,
    /// How often it was bound to others.
    bindings: u64,
    sums: Sums,
    limits: Limits,
    requests: T::Requests,
    segments: Segments,
    /// Those that there are, with their levels.
    in_use: Vec<(usize, Arc<Segment>)>,
    reduction: Reduction,
    backoff: Backoff,
    /// The execution under way: its buffers and its next step.
    bases: Bases,
    execution: [u64; Bases::LEVELS],
    /// Its number among those on a level's ring.
    rounds: [u64; Bases::LEVELS],
    next: usize,
    /// The buffer of another rank that is looked at.
    other: Other,
    reader: Reader,
    /// Bytes of an element.
    element: usize,
    /// What went wrong in the execution under way. It goes on nevertheless: others wait for what this rank does next.
    failed: Option<Failure>,
}

// SAFETY: addresses belong to BUFFERS, not to a thread.
#[allow(unsafe_code)]
unsafe impl<T: Transport> Send for Plan<T> where T::Requests: Send {}

impl<T: Transport> Plan<T> {
    /// A plan, not yet bound to sizes.
    pub fn new(
        compiled: Arc<Compiled>,
        address: Address,
        transport: &T,
        segments: Segments,
        reduction: Reduction,
        backoff: Backoff,
    ) -> Plan<T> {
        let requests = transport.requests(compiled.requests);
        let in_use = present(&segments);
        Plan {
            compiled,
            address,
            bound: Bound::default(),
            problem: None,
            sizes: 0,
            bindings: 0,
            sums: Sums::default(),
            limits: Limits::MEASURED,
            requests,
            segments,
            in_use,
            reduction,
            backoff,
            bases: Bases::new(),
            execution: [0; Bases::LEVELS],
            rounds: [0; Bases::LEVELS],
            next: 0,
            other: Other::NOBODY,
            reader: Reader::new(),
            element: 0,
            failed: None,
        }
    }

    /// Binds it to the sizes of a problem of its class, for the executions that follow.
    ///
    /// # Panics
    /// If an execution is under way, or if a segment is missing or too small.
    #[inline]
    pub fn bind(&mut self, problem: &Problem) {
        // Most that differ differ in their numbers.
        let number = number_of(problem);
        if number != self.sizes || self.problem.as_ref() != Some(problem) {
            self.sizes = number;
            self.bind_anew(problem);
        }
    }

    /// How often it was bound to other sizes: as long as this number stays, it is bound to the same.
    #[inline]
    pub fn bindings(&self) -> u64 {
        self.bindings
    }

    fn bind_anew(&mut self, problem: &Problem) {
        self.bindings += 1;
        assert!(!self.is_active(), "no sizes are changed under way");
        let needs = self.compiled.extent.needs(self.compiled.even, problem, &self.limits);
        for (level, need) in needs.parts.iter().enumerate() {
            if let Some(need) = need {
                let size = self.segments.get(level).and_then(Option::as_ref).map(|segment| segment.size());
                assert!(
                    size.is_some_and(|size| size.has(*need)),
                    "a segment with {need:?} bytes for level {level}"
                );
            }
        }
        bind(&self.compiled, problem, &self.address, &self.limits, &mut self.sums, &mut self.bound);
        self.next = self.bound.actions.len();
        self.element = problem.element as usize;
        match &mut self.problem {
            Some(bound) => bound.clone_from(problem),
            None => self.problem = Some(problem.clone()),
        }
    }

    /// What the plan needs.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// Other segments, for when they have grown.
    #[inline]
    pub fn set_segments(&mut self, segments: &Segments) {
        let same = |(a, b): (&Option<Arc<Segment>>, &Option<Arc<Segment>>)| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        if self.segments.len() != segments.len() || !self.segments.iter().zip(segments).all(same) {
            self.segments.clone_from(segments);
            self.in_use = present(segments);
        }
    }

    /// The requests, for a transport that has more than one way to post.
    pub fn requests_mut(&mut self) -> &mut T::Requests {
        &mut self.requests
    }

    /// Other handling of elements: the steps stay.
    pub fn set_reduction(&mut self, reduction: Reduction) {
        self.reduction = reduction;
    }

    /// Whether an execution is under way.
    pub fn is_active(&self) -> bool {
        self.next < self.bound.actions.len()
    }

    #[inline]
    fn begin(&mut self, buffers: Buffers) {
        self.bases.0[Bases::IN as usize] = buffers.input.cast_mut();
        self.bases.0[Bases::OUT as usize] = buffers.output;
        self.bases.0[Bases::TEMPORARY as usize] = buffers.temporary;
        if !self.in_use.is_empty() {
            self.begin_segments();
        }
        self.next = 0;
    }

    fn begin_segments(&mut self) {
        for (level, segment) in &self.in_use {
            let begun = segment.begin(self.compiled.turns[*level]);
            self.execution[*level] = begun.execution;
            self.rounds[*level] = begun.round;
            self.bases.0[Bases::SEGMENT as usize + level] = begun.part;
            self.bases.0[Bases::HEADER as usize + level] = begun.header;
        }
    }

    /// Runs it from beginning to end.
    ///
    /// # Safety
    /// The plan is bound to a problem; input and output have the sizes that it says, and temporary memory has what
    /// [`Extent::needs`](crate::Extent::needs) says; nobody else uses them meanwhile. Input and output are the same memory
    /// only where [`Compiled::in_place`] says so.
    #[allow(unsafe_code)]
    #[inline]
    pub unsafe fn run(&mut self, transport: &T, buffers: Buffers) -> Result<(), Failure> {
        self.begin(buffers);
        // SAFETY: BUFFERS.
        unsafe { self.advance::<true>(transport) }.map(|_| ())
    }

    /// Starts it, and does what can be done without waiting.
    ///
    /// # Safety
    /// As for [`Plan::run`], until the plan is no longer active.
    ///
    /// # Panics
    /// If it is active already.
    #[allow(unsafe_code)]
    pub unsafe fn start(&mut self, transport: &T, buffers: Buffers) -> Result<(), Failure> {
        assert!(!self.is_active(), "the plan is started already");
        self.begin(buffers);
        // SAFETY: BUFFERS.
        unsafe { self.advance::<false>(transport) }.map(|_| ())
    }

    /// Does what can be done without waiting; whether all is done.
    pub fn test(&mut self, transport: &T) -> Result<bool, Failure> {
        if self.is_active() {
            transport.progress();
        }
        // SAFETY: whoever started it promised it until now.
        #[allow(unsafe_code)]
        unsafe {
            self.advance::<false>(transport)
        }
    }

    /// From here on it reads buffers of others as if the kernel did not let it, for tests.
    pub fn refuse_reads(&mut self) {
        self.reader.refuse();
    }

    /// Waits until all is done.
    pub fn wait(&mut self, transport: &T) -> Result<(), Failure> {
        // SAFETY: whoever started it promised it until now.
        #[allow(unsafe_code)]
        unsafe { self.advance::<true>(transport) }.map(|_| ())
    }

    /// Acts until the end, or, unless waiting is allowed, until one would have to wait.
    #[allow(unsafe_code)]
    #[inline]
    unsafe fn advance<const WAIT: bool>(&mut self, transport: &T) -> Result<bool, Failure> {
        let (bases, requests) = (&self.bases, &mut self.requests);
        let actions = self.bound.actions.as_slice();
        let mut next = self.next;
        // Put back wherever the loop is left, so that an execution that failed stays where it is.
        let put_back = &mut self.next;
        while let Some(action) = actions.get(next) {
            *put_back = next;
            match action {
                Action::Send { data, bytes, to, request } => {
                    // SAFETY: the place lies in the buffers, and nothing that was proven touches it before its finish.
                    unsafe {
                        transport.send(requests, *request as usize, bases.address(*data), *bytes, *to)
                    }?;
                }
                Action::Recv { data, bytes, from, request } => {
                    // SAFETY: as above.
                    unsafe {
                        transport.recv(requests, *request as usize, bases.address(*data), *bytes, *from)
                    }?;
                }
                Action::Finish { first, end } => {
                    let which = *first as usize..*end as usize;
                    let done = match WAIT {
                        true => transport.finish(requests, which).map(|()| true),
                        false => transport.test(requests, which),
                    };
                    match done {
                        Ok(true) => {}
                        Ok(false) => return Ok(false),
                        Err(failure) => self.failed = self.failed.or(Some(failure)),
                    }
                }
                Action::Copy { to, from, bytes } => {
                    // SAFETY: the places lie in the buffers, and were proven free of races.
                    unsafe { bases.copy(*to, *from, *bytes) };
                }
                Action::Reduce { into, with, elements } => {
                    // SAFETY: as above.
                    unsafe { self.reduction.apply(bases.address(*with), bases.address(*into), *elements) };
                }
                Action::Copies { to, from, bytes, steps, times } => {
                    for at in 0..*times as isize {
                        // SAFETY: as above.
                        unsafe { bases.copy(to.moved(at * steps[0]), from.moved(at * steps[1]), *bytes) };
                    }
                }
                Action::Reduces { into, with, elements, steps, times } => {
                    for at in 0..*times as isize {
                        let (into, with) = (into.moved(at * steps[0]), with.moved(at * steps[1]));
                        // SAFETY: as above.
                        unsafe { self.reduction.apply(bases.address(with), bases.address(into), *elements) };
                    }
                }
                Action::Open => {
                    let buffers = [Bases::IN, Bases::OUT].map(|base| bases.0[base as usize].cast_const());
                    segment_of(&self.segments, 0).open(buffers, self.sizes);
                }
                Action::Look { member, side } => {
                    match segment_of(&self.segments, 0).other(*member, *side as usize, self.sizes) {
                        Some(other) => self.other = other,
                        None => self.failed = self.failed.or(Some(transport.truncated())),
                    }
                }
                // Where sizes differ, others have less than this rank would read.
                Action::Fetch { .. } | Action::FetchReduce { .. } if self.failed.is_some() => {}
                Action::Fetch { .. } | Action::FetchReduce { .. } => {
                    let segment = segment_of(&self.segments, 0);
                    let (other, element, reduction) = (self.other, self.element, &self.reduction);
                    let reader = &mut self.reader;
                    // SAFETY: places lie in the buffers, and all were proven free of races.
                    let mut read = || unsafe {
                        match *action {
                            Action::Fetch { to, from, bytes } => {
                                reader.copy(segment, other.moved(from.offset), bases.address(to), bytes)
                            }
                            Action::FetchReduce { into, with, elements } => {
                                let (with, into) = (other.moved(with.offset), bases.address(into));
                                reader.reduce(segment, with, into, (elements, element), reduction)
                            }
                            _ => true,
                        }
                    };
                    // Only where the kernel does not let it read is there anything to wait for; others may be in the same need.
                    if !read() {
                        segment.serve();
                        if !WAIT {
                            return Ok(false);
                        }
                        let all_read = || {
                            segment.serve();
                            read()
                        };
                        self.backoff.wait(all_read, || transport.progress());
                    }
                }
                Action::Raise(Mark { flag, level, times }) => {
                    let value = Flag::value(self.execution[usize::from(*level) % Bases::LEVELS], *times);
                    // SAFETY: a flag of a segment that is there: `new` has seen to that.
                    unsafe { bases.flag(*flag) }.raise_for(value, self.sizes);
                }
                Action::Await(Mark { flag, level, times }) => {
                    let value = Flag::value(self.execution[usize::from(*level) % Bases::LEVELS], *times);
                    // SAFETY: as above.
                    let (is_barriers, flag) = (flag.base >= Bases::HEADER, unsafe { bases.flag(*flag) });
                    if !flag.has_reached(value) {
                        let serve = || {
                            if self.compiled.opens {
                                segment_of(&self.segments, 0).serve();
                            }
                        };
                        if !WAIT {
                            serve();
                            return Ok(false);
                        }
                        let reached = || {
                            serve();
                            flag.has_reached(value)
                        };
                        self.backoff.wait(reached, || transport.progress());
                    }
                    // Whoever leaves a barrier may be in the next call already.
                    if !is_barriers && flag.sizes() != self.sizes {
                        self.failed = self.failed.or(Some(transport.truncated()));
                    }
                }
                Action::Enter(level) => {
                    let level = usize::from(*level) % Bases::LEVELS;
                    let (segment, round) = (segment_of(&self.segments, level), self.rounds[level]);
                    if !segment.is_free(round) {
                        if !WAIT {
                            return Ok(false);
                        }
                        self.backoff.wait(|| segment.is_free(round), || transport.progress());
                    }
                }
                Action::Leave(level) => {
                    let level = usize::from(*level) % Bases::LEVELS;
                    segment_of(&self.segments, level).leave(self.rounds[level]);
                }
            }
            next += 1;
        }
        *put_back = next;
        self.failed.take().map_or(Ok(true), Err)
    }
}

//! Runs plans, in one blocking call or by start, test and wait.

use std::sync::Arc;

use bruckner_schedule::Problem;

use crate::bind::{Action, Address, Bound, PrefixSums, bind, sizes_hash};
use crate::class::Limits;
use crate::compile::{Compiled, FlagValue};
use crate::memory::Bases;
use crate::reader::PeerReader;
use crate::reduce::Reduction;
use crate::segment::{Backoff, Flag, PeerAddress, Segment};
use crate::transport::{Transport, TransportError};

/// Buffers of one execution. A buffer that the plan does not need may be null.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Input buffer, which is never written.
    pub input: *const u8,
    /// Output buffer, which receives the result.
    pub output: *mut u8,
    /// Temporary memory of [`Needs::temporary`](crate::Needs::temporary) bytes.
    pub temporary: *mut u8,
}

/// Segments of the regions that contain a rank, indexed by level; `None` for a level without a segment.
pub type Segments = Vec<Option<Arc<Segment>>>;

fn present(segments: &Segments) -> Vec<(usize, Arc<Segment>)> {
    let levels = segments.iter().enumerate();
    levels.filter_map(|(level, segment)| Some((level, segment.clone()?))).collect()
}

/// Returns the segment of a level that a bound plan uses; binding has checked that it exists.
fn segment_of(segments: &Segments, level: usize) -> &Segment {
    segments[level].as_deref().expect("a segment for every level in use")
}

/// A compiled program with its requests and segments, ready to run once it is bound to sizes.
pub struct Executable<T: Transport> {
    compiled: Arc<Compiled>,
    address: Address,
    /// Actions for the sizes of the problem that the plan is bound to.
    bound: Bound,
    problem: Option<Problem>,
    /// Hash of the sizes of the bound problem.
    sizes: u64,
    /// Number of times the plan was bound to other sizes.
    bindings: u64,
    sums: PrefixSums,
    limits: Limits,
    requests: T::Requests,
    segments: Segments,
    /// Segments that exist, each with its level.
    in_use: Vec<(usize, Arc<Segment>)>,
    reduction: Reduction,
    backoff: Backoff,
    /// Base addresses of the buffers of the current execution.
    bases: Bases,
    execution: [u64; Bases::LEVELS],
    /// For each level, the number of the current execution, counted over the executions that use the ring of that level's segment.
    rounds: [u64; Bases::LEVELS],
    next: usize,
    /// Buffer of another rank that `Fetch` and `FetchReduce` read, as the last `Look` selected it.
    other: PeerAddress,
    reader: PeerReader,
    /// Size of an element in bytes.
    element: usize,
    /// First error of the current execution. The execution continues nevertheless, because other ranks wait for this rank.
    failed: Option<TransportError>,
}

// SAFETY: the addresses point to memory covered by BUFFERS (crate documentation), which is not bound to a thread.
#[allow(unsafe_code)]
unsafe impl<T: Transport> Send for Executable<T> where T::Requests: Send {}

impl<T: Transport> Executable<T> {
    /// Creates a plan that is not yet bound to sizes.
    pub fn new(
        compiled: Arc<Compiled>,
        address: Address,
        transport: &T,
        segments: Segments,
        reduction: Reduction,
        backoff: Backoff,
    ) -> Executable<T> {
        let requests = transport.requests(compiled.requests);
        let in_use = present(&segments);
        Executable {
            compiled,
            address,
            bound: Bound::default(),
            problem: None,
            sizes: 0,
            bindings: 0,
            sums: PrefixSums::default(),
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
            other: PeerAddress::NOBODY,
            reader: PeerReader::new(),
            element: 0,
            failed: None,
        }
    }

    /// Binds the plan to the sizes of a problem, for all later executions. If the plan was compiled for chunks of equal size, the problem
    /// must have such chunks.
    ///
    /// # Panics
    /// If an execution has started and is not yet complete, or if a segment is missing or too small.
    #[inline]
    pub fn bind(&mut self, problem: &Problem) {
        // Hashes are cheaper to compare than problems, and almost always differ if the problems do.
        let number = sizes_hash(problem);
        if number != self.sizes || self.problem.as_ref() != Some(problem) {
            self.sizes = number;
            self.bind_anew(problem);
        }
    }

    /// Returns the number of times the plan was bound to other sizes. The bound sizes do not change while this number stays the same.
    #[inline]
    pub fn bindings(&self) -> u64 {
        self.bindings
    }

    fn bind_anew(&mut self, problem: &Problem) {
        self.bindings += 1;
        assert!(!self.is_active(), "a plan cannot be bound to other sizes while it is active");
        let needs = self.compiled.extent.needs(self.compiled.even, problem, &self.limits);
        for (level, need) in needs.parts.iter().enumerate() {
            if let Some(need) = need {
                let size = self.segments.get(level).and_then(Option::as_ref).map(|segment| segment.size());
                assert!(
                    size.is_some_and(|size| size.has(*need)),
                    "the segment of level {level} is missing or smaller than {need:?}"
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

    /// Returns the compiled program of the plan.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// Replaces the segments, for example by larger ones.
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

    /// Returns the requests of the plan, so that the caller can change how they are posted.
    pub fn requests_mut(&mut self) -> &mut T::Requests {
        &mut self.requests
    }

    /// Replaces the reduction operation of the plan.
    pub fn set_reduction(&mut self, reduction: Reduction) {
        self.reduction = reduction;
    }

    /// Returns whether an execution has started and is not yet complete.
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

    /// Runs the plan to completion.
    ///
    /// # Safety
    /// The plan is bound to a problem. Input and output have the sizes of that problem, temporary memory has the size that
    /// [`Extent::needs`](crate::Extent::needs) returns, and nobody else uses these buffers during the execution. Input and output are the
    /// same memory only if [`Compiled::in_place`] is true.
    #[allow(unsafe_code)]
    #[inline]
    pub unsafe fn run(&mut self, transport: &T, buffers: Buffers) -> Result<(), TransportError> {
        self.begin(buffers);
        // SAFETY: BUFFERS (crate documentation), guaranteed by the caller.
        unsafe { self.advance::<true>(transport) }.map(|_| ())
    }

    /// Starts an execution, and advances it as far as possible without waiting.
    ///
    /// # Safety
    /// The requirements of [`Executable::run`] hold until the plan is no longer active.
    ///
    /// # Panics
    /// If an execution has started and is not yet complete.
    #[allow(unsafe_code)]
    pub unsafe fn start(&mut self, transport: &T, buffers: Buffers) -> Result<(), TransportError> {
        assert!(!self.is_active(), "the plan is already active");
        self.begin(buffers);
        // SAFETY: BUFFERS (crate documentation), guaranteed by the caller.
        unsafe { self.advance::<false>(transport) }.map(|_| ())
    }

    /// Advances the execution as far as possible without waiting. Returns whether it is complete.
    pub fn test(&mut self, transport: &T) -> Result<bool, TransportError> {
        if self.is_active() {
            transport.progress();
        }
        // SAFETY: the caller of `start` guaranteed BUFFERS (crate documentation) until the plan is no longer active.
        #[allow(unsafe_code)]
        unsafe {
            self.advance::<false>(transport)
        }
    }

    /// Makes the plan behave as if the kernel refused all further reads of other ranks' buffers, for tests.
    pub fn refuse_reads(&mut self) {
        self.reader.refuse();
    }

    /// Waits until the execution is complete.
    pub fn wait(&mut self, transport: &T) -> Result<(), TransportError> {
        // SAFETY: the caller of `start` guaranteed BUFFERS (crate documentation) until the plan is no longer active.
        #[allow(unsafe_code)]
        unsafe { self.advance::<true>(transport) }.map(|_| ())
    }

    /// Executes actions: with `WAIT` all of them, otherwise up to the first that would have to wait. Returns whether all actions are done.
    #[allow(unsafe_code)]
    #[inline]
    unsafe fn advance<const WAIT: bool>(&mut self, transport: &T) -> Result<bool, TransportError> {
        let (bases, requests) = (&self.bases, &mut self.requests);
        let actions = self.bound.actions.as_slice();
        let mut next = self.next;
        // Position at which the execution resumes. It is stored before each action, so that an execution that waits or fails resumes at
        // that action.
        let put_back = &mut self.next;
        while let Some(action) = actions.get(next) {
            *put_back = next;
            match action {
                Action::Send { data, bytes, to, request } => {
                    // SAFETY: the data lies in BUFFERS (crate documentation), and the verified program does not access it before the
                    // request is finished.
                    unsafe { transport.send(requests, *request as usize, bases.address(*data), *bytes, *to) }?;
                }
                Action::Recv { data, bytes, from, request } => {
                    // SAFETY: the data lies in BUFFERS (crate documentation), and the verified program does not access it before the
                    // request is finished.
                    unsafe { transport.recv(requests, *request as usize, bases.address(*data), *bytes, *from) }?;
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
                    // SAFETY: both ranges lie in BUFFERS (crate documentation), and the program was proven free of races.
                    unsafe { bases.copy(*to, *from, *bytes) };
                }
                Action::Reduce { into, with, elements } => {
                    // SAFETY: both operands lie in BUFFERS (crate documentation), and the program was proven free of races.
                    unsafe { self.reduction.apply(bases.address(*with), bases.address(*into), *elements) };
                }
                Action::Copies { to, from, bytes, steps, times } => {
                    for at in 0..*times as isize {
                        // SAFETY: both ranges lie in BUFFERS (crate documentation), and the program was proven free of races.
                        unsafe { bases.copy(to.moved(at * steps[0]), from.moved(at * steps[1]), *bytes) };
                    }
                }
                Action::Reduces { into, with, elements, steps, times } => {
                    for at in 0..*times as isize {
                        let (into, with) = (into.moved(at * steps[0]), with.moved(at * steps[1]));
                        // SAFETY: both operands lie in BUFFERS (crate documentation), and the program was proven free of races.
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
                // After sizes were found to differ nothing is read, because the other rank's buffer may be shorter than this rank expects.
                Action::Fetch { .. } | Action::FetchReduce { .. } if self.failed.is_some() => {}
                Action::Fetch { .. } | Action::FetchReduce { .. } => {
                    let segment = segment_of(&self.segments, 0);
                    let (other, element, reduction) = (self.other, self.element, &self.reduction);
                    let reader = &mut self.reader;
                    // SAFETY: the data lies in BUFFERS (crate documentation) of both ranks, and the program was proven free of races.
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
                    // A read has to wait only if the kernel refuses it. While this rank waits, it answers the read requests of other
                    // ranks, which the kernel may have refused, too.
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
                Action::Raise(FlagValue { flag, level, times }) => {
                    let value = Flag::value(self.execution[usize::from(*level) % Bases::LEVELS], *times);
                    // SAFETY: the flag lies in a segment that exists, as binding has checked.
                    unsafe { bases.flag(*flag) }.raise_for(value, self.sizes);
                }
                Action::Await(FlagValue { flag, level, times }) => {
                    let value = Flag::value(self.execution[usize::from(*level) % Bases::LEVELS], *times);
                    // SAFETY: the flag lies in a segment that exists, as binding has checked.
                    let (is_barriers, flag) = (flag.base >= Bases::HEADER, unsafe { bases.flag(*flag) });
                    if !flag.has_reached(value) {
                        let serve = || {
                            if self.compiled.opens_buffers {
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
                    // Sizes are not compared after a barrier, because a rank that has left the barrier may already be in the next call.
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

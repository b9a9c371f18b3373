//! The state of a plan while it runs.

use std::sync::Arc;
use std::time::Instant;

use bruckner_mpi::{Handle, MpiError, PostStyle};
use bruckner_runtime::{Buffers, Scratch};

use super::staging::{StagedBlocks, StagedOutput, Staging};
use crate::Error;
use crate::backend::{Backend, Wire};
use crate::call::Call;
use crate::communicator::Communicator;
use crate::normalize::NormalizedCall;
use crate::plan::{Prepared, Resources};

/// Number of executions that are timed for each way of posting messages.
const EXECUTIONS_PER_STYLE: u32 = 40;

/// Choice between immediate and persistent requests for a plan's messages, by measuring which of them are faster.
enum PostingChoice {
    /// Number of executions so far, start of the current execution, and times in nanoseconds with immediate and with persistent requests.
    Measuring {
        executions: u32,
        started: Instant,
        times: [Vec<u64>; 2],
    },
    Settled,
}

/// A call bound to its buffers: the part of an operation that is the same in all executions.
pub(super) struct BoundCall<B: Backend> {
    pub(super) backend: &'static B,
    /// The communicator's state, which exists even after the program has freed the communicator; `None` if the library does not handle the
    /// communicator's calls.
    pub(super) communicator: Option<Arc<Communicator<B>>>,
    pub(super) comm: Handle,
    pub(super) call: Call,
    pub(super) normalized: Option<NormalizedCall>,
}

/// A plan, and the state of its execution.
pub(crate) struct Execution<B: Backend> {
    pub(super) prepared: Prepared<B>,
    /// Tags and memory of the plan; `None` if it is the MPI's own collective.
    resources: Option<Resources<B>>,
    staged_input: Scratch,
    staged_output: Scratch,
    /// The MPI's request, if the plan is the MPI's own collective.
    request: u64,
    /// Whether an execution is under way.
    pub(super) is_running: bool,
    /// Whether the operation was started, and no wait or test has reported its end since.
    pub(super) is_active: bool,
    output: Option<StagedOutput>,
    received: Option<StagedBlocks>,
    learning: PostingChoice,
    /// Buffers that every further execution uses, because an earlier one has shown that none needs staging; `None` until then.
    settled: Option<Buffers>,
    pub(super) failed: Option<Error>,
}

impl<B: Backend> Execution<B> {
    /// Creates the state of a plan that was never started.
    pub(super) fn new(prepared: Prepared<B>, resources: Option<Resources<B>>) -> Execution<B> {
        let measures =
            matches!(&prepared, Prepared::Ready(plan) if plan.compiled().fixed && plan.compiled().messages > 0);
        let learning = match measures {
            true => {
                PostingChoice::Measuring { executions: 0, started: Instant::now(), times: [Vec::new(), Vec::new()] }
            }
            false => PostingChoice::Settled,
        };
        Execution {
            prepared,
            resources,
            staged_input: Scratch::new(0),
            staged_output: Scratch::new(0),
            request: 0,
            is_running: false,
            is_active: false,
            output: None,
            received: None,
            learning,
            settled: None,
            failed: None,
        }
    }

    /// Posts messages with immediate requests in each execution, and measures nothing.
    pub(super) fn post_anew(&mut self) {
        self.learning = PostingChoice::Settled;
    }

    /// Takes out the plan and its resources. The plan is `None` if its last execution has stopped midway or is not finished.
    pub(super) fn leave(&mut self) -> Option<(Option<Prepared<B>>, Resources<B>)> {
        let resources = self.resources.take()?;
        let mut plan = std::mem::replace(&mut self.prepared, Prepared::Native);
        let has_ended = match &mut plan {
            Prepared::Ready(plan) if !plan.is_active() => {
                // Persistent messages are bound to the buffers of this operation.
                B::Wire::set_style(plan.requests_mut(), PostStyle::Immediate);
                true
            }
            Prepared::Ready(_) => false,
            Prepared::Sized(plan) => !plan.is_active(),
            Prepared::Native | Prepared::Parts(_) => true,
        };
        Some((has_ended.then_some(plan), resources))
    }

    /// Returns an error if the operation is active, because it must not be started again before a wait or test has reported its end.
    pub(super) fn is_free(&self) -> Result<(), Error> {
        match self.is_active {
            true => Err(Error::Plan("the plan is already active: wait for it first")),
            false => Ok(()),
        }
    }

    /// Runs an execution from beginning to end, while no other operation is started.
    #[inline]
    pub(super) unsafe fn run(&mut self, bound: &BoundCall<B>, wire: &B::Wire) -> Result<(), Error> {
        let device = bound.backend.has_device();
        if let (Prepared::Ready(plan), Some(buffers), false) = (&mut self.prepared, self.settled, device) {
            // SAFETY: these are the buffers of an earlier execution, still valid by UNTIL DONE (see `lib.rs`).
            return unsafe { plan.run(wire, buffers) }.map_err(Error::from);
        }
        if let (Prepared::Ready(plan), Some(resources), PostingChoice::Settled, Some(normalized)) =
            (&mut self.prepared, &self.resources, &self.learning, &bound.normalized)
        {
            let backend = bound.backend;
            let mut stage = Staging { backend, input: &mut self.staged_input, output: &mut self.staged_output, device };
            stage.grow(normalized, plan);
            let (buffers, output) = stage.pack_input(normalized, plan, &resources.store.workspace.temporary)?;
            // SAFETY: the buffers have the sizes that the plan needs: the user's by ARGUMENTS (see `lib.rs`), the others because they are
            // staged.
            unsafe { plan.run(wire, buffers) }?;
            if normalized.is_direct(plan.compiled(), plan.compiled().in_place, device) {
                self.settled = Some(buffers);
            }
            return stage.take(normalized, output);
        }
        // SAFETY: ARGUMENTS and UNTIL DONE (see `lib.rs`), guaranteed by the caller.
        unsafe { self.start(bound) }?;
        if self.is_running {
            self.finish(bound, wire);
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    pub(super) unsafe fn start(&mut self, bound: &BoundCall<B>) -> Result<(), Error> {
        let backend = bound.backend;
        let Execution { prepared, resources, staged_input, staged_output, learning, .. } = self;
        let device = bound.backend.has_device();
        let mut stage = Staging { backend, input: staged_input, output: staged_output, device };
        match (prepared, bound.communicator.as_deref(), &bound.normalized) {
            (Prepared::Ready(plan), Some(communicator), Some(normalized)) => {
                let workspace = &resources.as_ref().expect("a plan has resources").store.workspace;
                stage.grow(normalized, plan);
                let (buffers, output) = stage.pack_input(normalized, plan, &workspace.temporary)?;
                if let PostingChoice::Measuring { executions, started, .. } = learning {
                    let style = if *executions % 2 == 0 { PostStyle::Immediate } else { PostStyle::Persistent };
                    B::Wire::set_style(plan.requests_mut(), style);
                    *started = Instant::now();
                }
                let wire = &communicator.group.internal.wire;
                // SAFETY: the buffers have the sizes that the plan needs: the user's by ARGUMENTS (see `lib.rs`), the others because they
                // are staged.
                unsafe { plan.start(wire, buffers) }?;
                self.output = Some(output);
                self.is_running = true;
                if matches!(&self.prepared, Prepared::Ready(plan) if !plan.is_active()) {
                    self.done(bound);
                }
            }
            (Prepared::Sized(plan), Some(communicator), _) => {
                let (buffers, received) = stage.pack_alltoallv_input(&bound.call, communicator.group.size, plan)?;
                // SAFETY: the buffers have the sizes that the plan needs: the user's by ARGUMENTS (see `lib.rs`), the others because they
                // are staged.
                unsafe { plan.start(&communicator.group.internal.wire, buffers) }?;
                self.received = Some(received);
                self.is_running = true;
            }
            // A composition is blocking, so it runs to its end here.
            (Prepared::Parts(parts), Some(_), Some(normalized)) => {
                // SAFETY: ARGUMENTS (see `lib.rs`): the arguments are valid for this MPI function.
                let code = unsafe { parts.run(backend, &bound.call, normalized, bound.comm) }?;
                if code != 0 {
                    return Err(MpiError { call: bound.call.function.name(), code }.into());
                }
            }
            _ => {
                // SAFETY: ARGUMENTS and UNTIL DONE (see `lib.rs`), guaranteed by the caller until the operation is done.
                self.request = unsafe { backend.native_start(&bound.call, bound.comm) }?;
                self.is_running = true;
            }
        }
        Ok(())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }

    /// Advances the execution without waiting. Inside MPI's own progress (`inside`) it requests no progress.
    pub(crate) fn advance(&mut self, bound: &BoundCall<B>, inside: bool) {
        if !self.is_running {
            return;
        }
        let wire = |communicator: &Communicator<B>| match inside {
            true => communicator.group.internal.wire.quiet(),
            false => communicator.group.internal.wire,
        };
        let result = match (&mut self.prepared, bound.communicator.as_deref()) {
            (Prepared::Ready(plan), Some(c)) => plan.test(&wire(c)).map_err(Error::from),
            (Prepared::Sized(plan), Some(c)) => plan.test(&wire(c)).map_err(Error::from),
            _ => bound.backend.native_test(&mut self.request).map_err(Error::from),
        };
        match result {
            Ok(false) => {}
            Ok(true) => self.done(bound),
            Err(error) => {
                self.failed = Some(error);
                self.is_running = false;
            }
        }
    }

    /// Waits until the execution is done, without advancing other operations.
    pub(super) fn finish(&mut self, bound: &BoundCall<B>, wire: &B::Wire) {
        let result = match &mut self.prepared {
            Prepared::Ready(plan) => plan.wait(wire).map_err(Error::from),
            Prepared::Sized(plan) => plan.wait(wire).map_err(Error::from),
            Prepared::Native | Prepared::Parts(_) => {
                while self.is_running {
                    self.advance(bound, false);
                }
                return;
            }
        };
        match result {
            Ok(()) => self.done(bound),
            Err(error) => {
                self.failed = Some(error);
                self.is_running = false;
            }
        }
    }

    /// Completes an execution after its last step: unpacks staged output, and records the time.
    fn done(&mut self, bound: &BoundCall<B>) {
        self.is_running = false;
        let backend = bound.backend;
        if let (Some(StagedOutput::Staged(from)), Some(normalized)) = (self.output.take(), &bound.normalized) {
            let bytes = normalized.bytes.1;
            self.failed = normalized.output.unpack(backend, from, bytes).err();
        }
        if let Some(Err(error)) = bound.normalized.as_ref().map(|normalized| normalized.truncation_error(backend)) {
            self.failed = Some(error);
        }
        if let Some(received) = self.received.take() {
            self.failed = received.take(backend).err();
        }
        if let PostingChoice::Measuring { executions, started, times } = &mut self.learning {
            times[*executions as usize % 2].push(started.elapsed().as_nanos() as u64);
            *executions += 1;
            if *executions == 2 * EXECUTIONS_PER_STYLE {
                times.iter_mut().for_each(|times| times.sort_unstable());
                let median = |times: &[u64]| times[times.len() / 2];
                let style =
                    if median(&times[1]) < median(&times[0]) { PostStyle::Persistent } else { PostStyle::Immediate };
                if let Prepared::Ready(plan) = &mut self.prepared {
                    B::Wire::set_style(plan.requests_mut(), style);
                }
                self.learning = PostingChoice::Settled;
            }
        }
    }
}

//! The state of a plan while it runs.

use std::sync::Arc;
use std::time::Instant;

use bruckner_mpi::{Handle, MpiError, Style};
use bruckner_runtime::{Buffers, Scratch};

use super::staging::{StagedBlocks, StagedOutput, Staging};
use crate::Error;
use crate::backend::{Backend, Wire};
use crate::call::Call;
use crate::communicator::Communicator;
use crate::normalize::NormalizedCall;
use crate::plan::{Prepared, Resources};

/// Executions of each way of posting messages after which it is settled.
const TRIALS: u32 = 40;

/// Whether posting messages anew or starting persistent ones is faster here: measured, not guessed.
enum Learning {
    /// Executions so far, when the one under way started, and the times of both ways.
    Measuring {
        executions: u32,
        started: Instant,
        times: [Vec<u64>; 2],
    },
    Settled,
}

/// A call bound to its buffers for good: what does not change from execution to execution.
pub(super) struct BoundCall<B: Backend> {
    pub(super) backend: &'static B,
    /// Stays even if the communicator's handle is freed; none where the communicator is not served.
    pub(super) communicator: Option<Arc<Communicator<B>>>,
    pub(super) comm: Handle,
    pub(super) call: Call,
    pub(super) normalized: Option<NormalizedCall>,
}

/// A plan's state.
pub(crate) struct Execution<B: Backend> {
    pub(super) prepared: Prepared<B>,
    /// Tags and memory of the plan; none where it is the MPI's own collective.
    resources: Option<Resources<B>>,
    staged_input: Scratch,
    staged_output: Scratch,
    /// The native request, where the plan is the MPI's own.
    request: u64,
    /// Whether something of an execution is still to be done.
    pub(super) is_running: bool,
    /// Whether it was started, and neither awaited nor tested as done since.
    pub(super) is_active: bool,
    output: Option<StagedOutput>,
    received: Option<StagedBlocks>,
    learning: Learning,
    /// The buffers, once it is settled that every execution has the same and nothing else is to be done.
    settled: Option<Buffers>,
    pub(super) failed: Option<Error>,
}

impl<B: Backend> Execution<B> {
    /// A plan that was never started.
    pub(super) fn new(prepared: Prepared<B>, resources: Option<Resources<B>>) -> Execution<B> {
        let measures = matches!(&prepared, Prepared::Ready(plan) if plan.compiled().fixed && plan.compiled().messages > 0);
        let learning = match measures {
            true => Learning::Measuring {
                executions: 0,
                started: Instant::now(),
                times: [Vec::new(), Vec::new()],
            },
            false => Learning::Settled,
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

    /// Messages are posted anew in each execution, and nothing is measured.
    pub(super) fn post_anew(&mut self) {
        self.learning = Learning::Settled;
    }

    /// Takes away what its plan uses, and the plan, unless an execution of it has stopped midway or was never awaited.
    pub(super) fn leave(&mut self) -> Option<(Option<Prepared<B>>, Resources<B>)> {
        let resources = self.resources.take()?;
        let mut plan = std::mem::replace(&mut self.prepared, Prepared::Native);
        let has_ended = match &mut plan {
            Prepared::Ready(plan) => {
                // Persistent messages are bound to the buffers of this operation.
                B::Wire::set_style(plan.requests_mut(), Style::Immediate);
                !plan.is_active()
            }
            Prepared::Sized(plan) => !plan.is_active(),
            Prepared::Native | Prepared::Parts(_) => true,
        };
        Some((has_ended.then_some(plan), resources))
    }

    /// An error if it is started and not awaited: then nobody may start it.
    pub(super) fn is_free(&self) -> Result<(), Error> {
        match self.is_active {
            true => Err(Error::Plan("the plan is started already: wait for it first")),
            false => Ok(()),
        }
    }

    /// From beginning to end, with nothing else going on.
    #[inline]
    pub(super) unsafe fn run(&mut self, bound: &BoundCall<B>, wire: &B::Wire) -> Result<(), Error> {
        let device = bound.backend.has_device();
        if let (Prepared::Ready(plan), Some(buffers), false) = (&mut self.prepared, self.settled, device) {
            // SAFETY: as in the execution before.
            return unsafe { plan.run(wire, buffers) }.map_err(Error::from);
        }
        if let (Prepared::Ready(plan), Some(resources), Learning::Settled, Some(normalized)) =
            (&mut self.prepared, &self.resources, &self.learning, &bound.normalized)
        {
            let backend = bound.backend;
            let mut stage =
                Staging { backend, input: &mut self.staged_input, output: &mut self.staged_output, device };
            stage.grow(normalized, plan);
            let (buffers, output) = stage.bring(normalized, plan, &resources.store.workspace.temporary)?;
            // SAFETY: buffers of the sizes that the plan needs, by the user's promise or staged.
            unsafe { plan.run(wire, buffers) }?;
            if normalized.is_direct(plan.compiled(), plan.compiled().in_place, device) {
                self.settled = Some(buffers);
            }
            return stage.take(normalized, output);
        }
        // SAFETY: ARGUMENTS, and UNTIL DONE.
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
                let (buffers, output) = stage.bring(normalized, plan, &workspace.temporary)?;
                if let Learning::Measuring { executions, started, .. } = learning {
                    let style = if *executions % 2 == 0 { Style::Immediate } else { Style::Persistent };
                    B::Wire::set_style(plan.requests_mut(), style);
                    *started = Instant::now();
                }
                let wire = &communicator.group.internal.wire;
                // SAFETY: buffers of the sizes that the plan needs, by the user's promise or staged.
                unsafe { plan.start(wire, buffers) }?;
                self.output = Some(output);
                self.is_running = true;
                if matches!(&self.prepared, Prepared::Ready(plan) if !plan.is_active()) {
                    self.done(bound);
                }
            }
            (Prepared::Sized(plan), Some(communicator), _) => {
                let (buffers, received) = stage.bring_sized(&bound.call, communicator.group.size, plan)?;
                // SAFETY: as above.
                unsafe { plan.start(&communicator.group.internal.wire, buffers) }?;
                self.received = Some(received);
                self.is_running = true;
            }
            // It is done where it is started: nothing of it can be left alone.
            (Prepared::Parts(parts), Some(_), Some(normalized)) => {
                // SAFETY: ARGUMENTS.
                let code = unsafe { parts.run(backend, &bound.call, normalized, bound.comm) }?;
                if code != 0 {
                    return Err(MpiError { call: bound.call.function.name(), code }.into());
                }
            }
            _ => {
                // SAFETY: the arguments are right as long as the operation is used, and it is under way until it is done.
                self.request = unsafe { backend.native_start(&bound.call, bound.comm) }?;
                self.is_running = true;
            }
        }
        Ok(())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }

    /// Does what can be done without waiting; inside MPI's own progress, without asking for any.
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

    /// Waits until it is done; nothing else goes on.
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

    /// Ends an execution after its last step.
    fn done(&mut self, bound: &BoundCall<B>) {
        self.is_running = false;
        let backend = bound.backend;
        if let (Some(StagedOutput::Staged(from)), Some(normalized)) = (self.output.take(), &bound.normalized)
        {
            let bytes = normalized.bytes.1;
            self.failed = normalized.output.unpack(backend, from, bytes).err();
        }
        if let Some(Err(error)) = bound.normalized.as_ref().map(|normalized| normalized.verdict(backend)) {
            self.failed = Some(error);
        }
        if let Some(received) = self.received.take() {
            self.failed = received.take(backend).err();
        }
        if let Learning::Measuring { executions, started, times } = &mut self.learning {
            times[*executions as usize % 2].push(started.elapsed().as_nanos() as u64);
            *executions += 1;
            if *executions == 2 * TRIALS {
                times.iter_mut().for_each(|times| times.sort_unstable());
                let median = |times: &[u64]| times[times.len() / 2];
                let style =
                    if median(&times[1]) < median(&times[0]) { Style::Persistent } else { Style::Immediate };
                if let Prepared::Ready(plan) = &mut self.prepared {
                    B::Wire::set_style(plan.requests_mut(), style);
                }
                self.learning = Learning::Settled;
            }
        }
    }
}

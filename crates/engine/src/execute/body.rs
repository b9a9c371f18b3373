//! What changes while a plan runs.

use std::sync::Arc;
use std::time::Instant;

use bruckner_mpi::{MpiError, Style, Word};
use bruckner_runtime::{Buffers, Scratch};

use crate::Error;
use crate::buffers::{Normal, Output, Received, Stage};
use crate::call::Call;
use crate::communicator::{Communicator, Prepared, Resources};
use crate::world::{Wire, World};

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
pub(super) struct Bound<W: World> {
    pub(super) world: &'static W,
    /// Stays even if the communicator's handle is freed; none where the communicator is not served.
    pub(super) communicator: Option<Arc<Communicator<W>>>,
    pub(super) comm: Word,
    pub(super) call: Call,
    pub(super) normal: Option<Normal>,
}

/// A plan's state.
pub(crate) struct Body<W: World> {
    pub(super) prepared: Prepared<W>,
    /// Tags and memory of the plan; none where it is the MPI's own collective.
    resources: Option<Resources<W>>,
    staged_input: Scratch,
    staged_output: Scratch,
    /// The native request, where the plan is the MPI's own.
    request: u64,
    /// Whether something of an execution is still to be done.
    pub(super) is_running: bool,
    /// Whether it was started, and neither awaited nor tested as done since.
    pub(super) is_active: bool,
    output: Option<Output>,
    received: Option<Received>,
    learning: Learning,
    /// The buffers, once it is settled that every execution has the same and nothing else is to be done.
    settled: Option<Buffers>,
    pub(super) failed: Option<Error>,
}

impl<W: World> Body<W> {
    /// A plan that was never started.
    pub(super) fn new(prepared: Prepared<W>, resources: Option<Resources<W>>) -> Body<W> {
        let measures = matches!(&prepared, Prepared::Ready(plan) if plan.compiled().fixed && plan.compiled().messages > 0);
        let learning = match measures {
            true => Learning::Measuring {
                executions: 0,
                started: Instant::now(),
                times: [Vec::new(), Vec::new()],
            },
            false => Learning::Settled,
        };
        Body {
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
    pub(super) fn leave(&mut self) -> Option<(Option<Prepared<W>>, Resources<W>)> {
        let resources = self.resources.take()?;
        let mut plan = std::mem::replace(&mut self.prepared, Prepared::Native);
        let has_ended = match &mut plan {
            Prepared::Ready(plan) => {
                // Persistent messages are bound to the buffers of this operation.
                W::Wire::set_style(plan.requests_mut(), Style::Immediate);
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
    pub(super) unsafe fn run(&mut self, bound: &Bound<W>, wire: &W::Wire) -> Result<(), Error> {
        let device = bound.world.has_device();
        if let (Prepared::Ready(plan), Some(buffers), false) = (&mut self.prepared, self.settled, device) {
            // SAFETY: as in the execution before.
            return unsafe { plan.run(wire, buffers) }.map_err(Error::from);
        }
        if let (Prepared::Ready(plan), Some(resources), Learning::Settled, Some(normal)) =
            (&mut self.prepared, &self.resources, &self.learning, &bound.normal)
        {
            let world = bound.world;
            let mut stage =
                Stage { world, input: &mut self.staged_input, output: &mut self.staged_output, device };
            stage.grow(normal, plan);
            let (buffers, output) = stage.bring(normal, plan, &resources.store.room.temporary)?;
            // SAFETY: buffers of the sizes that the plan needs, by the user's promise or staged.
            unsafe { plan.run(wire, buffers) }?;
            if normal.is_direct(plan.compiled(), plan.compiled().in_place, device) {
                self.settled = Some(buffers);
            }
            return stage.take(normal, output);
        }
        // SAFETY: ARGUMENTS, and UNTIL DONE.
        unsafe { self.start(bound) }?;
        if self.is_running {
            self.finish(bound, wire);
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    pub(super) unsafe fn start(&mut self, bound: &Bound<W>) -> Result<(), Error> {
        let world = bound.world;
        let Body { prepared, resources, staged_input, staged_output, learning, .. } = self;
        let device = bound.world.has_device();
        let mut stage = Stage { world, input: staged_input, output: staged_output, device };
        match (prepared, bound.communicator.as_deref(), &bound.normal) {
            (Prepared::Ready(plan), Some(communicator), Some(normal)) => {
                let room = &resources.as_ref().expect("a plan has resources").store.room;
                stage.grow(normal, plan);
                let (buffers, output) = stage.bring(normal, plan, &room.temporary)?;
                if let Learning::Measuring { executions, started, .. } = learning {
                    let style = if *executions % 2 == 0 { Style::Immediate } else { Style::Persistent };
                    W::Wire::set_style(plan.requests_mut(), style);
                    *started = Instant::now();
                }
                let wire = &communicator.hidden.wire;
                // SAFETY: buffers of the sizes that the plan needs, by the user's promise or staged.
                unsafe { plan.start(wire, buffers) }?;
                self.output = Some(output);
                self.is_running = true;
                if matches!(&self.prepared, Prepared::Ready(plan) if !plan.is_active()) {
                    self.done(bound);
                }
            }
            (Prepared::Sized(plan), Some(communicator), _) => {
                let (buffers, received) = stage.bring_sized(&bound.call, communicator.size, plan)?;
                // SAFETY: as above.
                unsafe { plan.start(&communicator.hidden.wire, buffers) }?;
                self.received = Some(received);
                self.is_running = true;
            }
            // It is done where it is started: nothing of it can be left alone.
            (Prepared::Parts(parts), Some(_), Some(normal)) => {
                // SAFETY: ARGUMENTS.
                let code = unsafe { parts.run(world, &bound.call, normal, bound.comm) }?;
                if code != 0 {
                    return Err(MpiError { call: bound.call.function.name(), code }.into());
                }
            }
            _ => {
                // SAFETY: the arguments are right as long as the operation is used, and it is under way until it is done.
                self.request = unsafe { world.native_start(&bound.call, bound.comm) }?;
                self.is_running = true;
            }
        }
        Ok(())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }

    /// Does what can be done without waiting; inside MPI's own progress, without asking for any.
    pub(crate) fn advance(&mut self, bound: &Bound<W>, inside: bool) {
        if !self.is_running {
            return;
        }
        let wire = |communicator: &Communicator<W>| match inside {
            true => communicator.hidden.wire.quiet(),
            false => communicator.hidden.wire,
        };
        let result = match (&mut self.prepared, bound.communicator.as_deref()) {
            (Prepared::Ready(plan), Some(c)) => plan.test(&wire(c)).map_err(Error::from),
            (Prepared::Sized(plan), Some(c)) => plan.test(&wire(c)).map_err(Error::from),
            _ => bound.world.native_test(&mut self.request).map_err(Error::from),
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
    pub(super) fn finish(&mut self, bound: &Bound<W>, wire: &W::Wire) {
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

    /// What is left when the last step is done.
    fn done(&mut self, bound: &Bound<W>) {
        self.is_running = false;
        let world = bound.world;
        if let (Some(Output::Staged(from)), Some(normal)) = (self.output.take(), &bound.normal) {
            let bytes = normal.bytes.1;
            self.failed = normal.output.unpack(world, from, bytes).err();
        }
        if let Some(Err(error)) = bound.normal.as_ref().map(|normal| normal.verdict(world)) {
            self.failed = Some(error);
        }
        if let Some(received) = self.received.take() {
            self.failed = received.take(world).err();
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
                    W::Wire::set_style(plan.requests_mut(), style);
                }
                self.learning = Learning::Settled;
            }
        }
    }
}

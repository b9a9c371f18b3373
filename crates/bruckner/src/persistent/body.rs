//! What changes while a plan runs.

use std::ffi::c_void;
use std::time::Instant;

use bruckner_mpi::{Messages, Style, has_device_runtime};
use bruckner_runtime::{Buffers, Scratch};

use crate::Error;
use crate::communicator::{Communicator, Room};
use crate::persistent::Inner;
use crate::plans::Prepared;
use crate::stage::{Output, Received, Stage};

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

/// A plan's state.
pub(crate) struct Body {
    pub(super) prepared: Prepared,
    room: Room,
    staged_input: Scratch,
    staged_output: Scratch,
    /// The native request, where the plan is the MPI's own.
    request: u64,
    pub(super) is_active: bool,
    output: Option<Output>,
    received: Option<Received>,
    learning: Learning,
    /// The buffers, once it is settled that every execution has the same and nothing else is to be done.
    settled: Option<Buffers>,
    pub(super) failed: Option<Error>,
}

impl Body {
    /// A plan that was never started.
    pub(super) fn new(prepared: Prepared, room: Room) -> Body {
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
            room,
            staged_input: Scratch::new(0),
            staged_output: Scratch::new(0),
            request: 0,
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

    /// From beginning to end, with nothing else going on.
    #[inline]
    pub(super) unsafe fn run(&mut self, inner: &Inner, messages: &Messages) -> Result<(), Error> {
        let device = has_device_runtime();
        if let (Prepared::Ready(plan), Some(buffers), false) = (&mut self.prepared, self.settled, device) {
            // SAFETY: as in the execution before.
            return unsafe { plan.run(messages, buffers) }.map_err(Error::from);
        }
        if let (Prepared::Ready(plan), Learning::Settled, Some(normal)) =
            (&mut self.prepared, &self.learning, &inner.normal)
        {
            let mpi = inner.engine.mpi;
            let mut stage =
                Stage { mpi, input: &mut self.staged_input, output: &mut self.staged_output, device };
            stage.grow(normal, plan);
            let (buffers, output) = stage.bring(normal, plan, &self.room.temporary)?;
            // SAFETY: buffers of the sizes that the plan needs, by the user's promise or staged.
            unsafe { plan.run(messages, buffers) }?;
            if normal.is_direct(plan.compiled(), plan.compiled().in_place) {
                self.settled = Some(buffers);
            }
            return stage.take(normal, output);
        }
        // SAFETY: the caller's promise.
        unsafe { self.start(inner) }?;
        if self.is_active {
            self.finish(inner, messages);
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    pub(super) unsafe fn start(&mut self, inner: &Inner) -> Result<(), Error> {
        let mpi = inner.engine.mpi;
        let Body { prepared, room, staged_input, staged_output, learning, .. } = self;
        let device = has_device_runtime();
        let mut stage = Stage { mpi, input: staged_input, output: staged_output, device };
        match (prepared, inner.communicator(), &inner.normal) {
            (Prepared::Ready(plan), Some(communicator), Some(normal)) => {
                stage.grow(normal, plan);
                let (buffers, output) = stage.bring(normal, plan, &room.temporary)?;
                if let Learning::Measuring { executions, started, .. } = learning {
                    let style = if *executions % 2 == 0 { Style::Immediate } else { Style::Persistent };
                    plan.requests_mut().set_style(style);
                    *started = Instant::now();
                }
                let messages = &communicator.hidden.messages;
                // SAFETY: buffers of the sizes that the plan needs, by the user's promise or staged.
                unsafe { plan.start(messages, buffers) }?;
                self.output = Some(output);
                self.is_active = true;
                if matches!(&self.prepared, Prepared::Ready(plan) if !plan.is_active()) {
                    self.done(inner);
                }
            }
            (Prepared::Sized(plan), Some(communicator), _) => {
                let (buffers, received) = stage.bring_sized(&inner.call, communicator.size, plan)?;
                // SAFETY: as above.
                unsafe { plan.start(&communicator.hidden.messages, buffers) }?;
                self.received = Some(received);
                self.is_active = true;
            }
            _ => {
                let cell: *mut c_void = (&raw mut self.request).cast();
                // SAFETY: the caller's promise; the cell has room for the widest request.
                unsafe { inner.call.native_start(mpi, inner.comm, cell) }?;
                self.is_active = true;
            }
        }
        Ok(())
    }

    pub(crate) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Does what can be done without waiting; inside MPI's own progress, without asking for any.
    pub(crate) fn advance(&mut self, inner: &Inner, inside: bool) {
        if !self.is_active {
            return;
        }
        let messages = |communicator: &Communicator| match inside {
            true => communicator.hidden.messages.quiet(),
            false => communicator.hidden.messages,
        };
        let result = match (&mut self.prepared, inner.communicator()) {
            (Prepared::Ready(plan), Some(c)) => plan.test(&messages(c)).map_err(Error::from),
            (Prepared::Sized(plan), Some(c)) => plan.test(&messages(c)).map_err(Error::from),
            _ => {
                let mut flag = 0;
                let mpi = inner.engine.mpi;
                let ignore = mpi.constants.get("MPI_STATUSES_IGNORE").unwrap_or_default() as *mut c_void;
                // SAFETY: the request that `start` made.
                let code = unsafe { (mpi.f.testall)(1, (&raw mut self.request).cast(), &mut flag, ignore) };
                match code {
                    0 => Ok(flag != 0),
                    code => Err(Error::Mpi(bruckner_mpi::MpiError { call: "MPI_Testall", code })),
                }
            }
        };
        match result {
            Ok(false) => {}
            Ok(true) => self.done(inner),
            Err(error) => {
                self.failed = Some(error);
                self.is_active = false;
            }
        }
    }

    /// Waits until it is done; nothing else goes on.
    pub(super) fn finish(&mut self, inner: &Inner, messages: &Messages) {
        let result = match &mut self.prepared {
            Prepared::Ready(plan) => plan.wait(messages).map_err(Error::from),
            Prepared::Sized(plan) => plan.wait(messages).map_err(Error::from),
            Prepared::Native => {
                while self.is_active {
                    self.advance(inner, false);
                }
                return;
            }
        };
        match result {
            Ok(()) => self.done(inner),
            Err(error) => {
                self.failed = Some(error);
                self.is_active = false;
            }
        }
    }

    /// What is left when the last step is done.
    fn done(&mut self, inner: &Inner) {
        self.is_active = false;
        let mpi = inner.engine.mpi;
        if let (Some(Output::Staged(from)), Some(normal)) = (self.output.take(), &inner.normal) {
            let bytes = normal.bytes.1;
            self.failed = normal.output.unpack(mpi, from, bytes).err();
        }
        if let Some(Err(error)) = inner.normal.as_ref().map(|normal| normal.verdict(mpi)) {
            self.failed = Some(error);
        }
        if let Some(received) = self.received.take() {
            self.failed = received.take(mpi).err();
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
                    plan.requests_mut().set_style(style);
                }
                self.learning = Learning::Settled;
            }
        }
    }
}

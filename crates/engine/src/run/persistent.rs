//! Persistent operations: plans bound to buffers, made once, then started and awaited many times.
//!
//! **What advances a started operation.** It advances whenever a thread is in [`Persistent::start`], [`Persistent::test`] or
//! [`Persistent::wait`] of this or any other operation, or in a blocking collective of this library: each of these, while it waits,
//! advances all operations of the process that were started before it began to wait. A program cannot rely on calls of MPI itself to
//! advance an operation, and no thread does so in the background. So a rank that has started an operation must not wait in MPI for a
//! message that another rank sends only after its own operation is done.

use std::sync::Arc;

use bruckner_choose::Choice;
use bruckner_mpi::Handle;
use bruckner_runtime::Transport;

use super::execution::{BoundCall, Execution};
use crate::Error;
use crate::account::OperationCounters;
use crate::backend::{Backend, Wire as _};
use crate::call::Call;
use crate::communicator::Communicator;
use crate::normalize::NormalizedCall;
use crate::plan::{Prepared, Resources};
use crate::progress::{Active, Started, Taken, Turn};
use crate::reason::Reason;

/// A persistent operation, shared by its owner and the list of started operations.
pub(crate) struct Operation<B: Backend> {
    bound: BoundCall<B>,
    active: Arc<Active>,
    body: Turn<Execution<B>>,
    /// The algorithm, as text.
    algorithm: String,
    reason: Reason,
    /// Counters of the operation's executions; `None` if there is to be no report.
    account: Option<OperationCounters>,
}

// SAFETY: the addresses are the user's buffers, which are valid by UNTIL DONE (see `lib.rs`) on any thread.
unsafe impl<B: Backend> Send for Operation<B> {}
// SAFETY: the addresses are valid by UNTIL DONE, and mutable state is locked by TURN (see `lib.rs`).
unsafe impl<B: Backend> Sync for Operation<B> {}

impl<B: Backend> Started for Operation<B> {
    fn advance(&self, inside: bool) -> bool {
        self.body.try_take().is_some_and(|mut body| {
            body.advance(&self.bound, inside);
            !body.is_running()
        })
    }
}

impl<B: Backend> Drop for Operation<B> {
    fn drop(&mut self) {
        let (Some(communicator), Some((plan, resources))) = (&self.bound.communicator, self.body.get_mut().leave())
        else {
            return;
        };
        match plan {
            Some(plan) => communicator.slots.put_back(&communicator.group, resources, plan),
            None => resources.free(&communicator.group),
        }
    }
}

/// The parts of which a persistent operation is made.
pub(crate) struct Made<B: Backend> {
    prepared: Prepared<B>,
    /// Tags and memory of the operation; `None` if the operation is the MPI's own collective.
    resources: Option<Resources<B>>,
    algorithm: String,
    reason: Reason,
    normalized: Option<NormalizedCall>,
}

impl<B: Backend> Made<B> {
    /// Returns the parts of an operation that is the MPI's own collective.
    pub(crate) fn native(reason: Reason) -> Made<B> {
        Made { prepared: Prepared::Native, resources: None, algorithm: "native".into(), reason, normalized: None }
    }

    /// Adds the normalised call to the parts.
    pub(crate) fn of(self, normalized: NormalizedCall) -> Made<B> {
        Made { normalized: Some(normalized), ..self }
    }

    /// Returns the parts of an operation that runs a plan, with tags and memory of its own.
    pub(crate) fn planned(
        prepared: Prepared<B>,
        resources: Resources<B>,
        choice: &Choice,
        normalized: NormalizedCall,
    ) -> Made<B> {
        Made {
            prepared,
            resources: Some(resources),
            algorithm: choice.expression.to_string(),
            reason: choice.reason.clone().into(),
            normalized: Some(normalized),
        }
    }
}

/// A persistent operation: a collective with its buffers and plan, which is started and awaited many times.
pub struct Persistent<B: Backend>(Arc<Operation<B>>);

impl<B: Backend> Persistent<B> {
    pub(crate) fn new(
        backend: &'static B,
        active: Arc<Active>,
        communicator: Option<Arc<Communicator<B>>>,
        comm: Handle,
        call: Call,
        made: Made<B>,
        account: Option<OperationCounters>,
    ) -> Persistent<B> {
        let Made { prepared, resources, algorithm, reason, normalized } = made;
        let body = Turn::new(Execution::new(prepared, resources));
        Persistent(Arc::new(Operation {
            bound: BoundCall { backend, communicator, comm, call, normalized },
            active,
            body,
            algorithm,
            reason,
            account,
        }))
    }

    /// Makes each execution post its messages with `MPI_Isend` and `MPI_Irecv`. Persistent requests would gain nothing: the test inside
    /// MPI's progress frees complete requests of either kind.
    pub(crate) fn post_anew(&mut self) {
        let operation = Arc::get_mut(&mut self.0).expect("nobody else has it yet");
        operation.body.get_mut().post_anew();
    }

    /// Whether MPI alone advances the operation once it is started, because it has one round.
    pub(crate) fn is_one_round(&self) -> bool {
        match &self.body().prepared {
            Prepared::Ready(plan) => plan.compiled().one_round,
            Prepared::Sized(plan) => plan.one_round,
            Prepared::Native | Prepared::Parts(_) => true,
        }
    }

    /// Returns the algorithm, as text.
    pub fn algorithm(&self) -> &str {
        &self.0.algorithm
    }

    /// Returns the reason for the algorithm.
    pub(crate) fn reason(&self) -> &Reason {
        &self.0.reason
    }

    fn body(&self) -> Taken<'_, Execution<B>> {
        self.0.body.take()
    }

    /// Removes the operation from the list of started operations.
    fn forget(&self) {
        self.0.active.remove(Arc::as_ptr(&self.0).cast());
    }

    /// Starts the operation. It is active until a wait or test reports its end, and must not be started again before, even if it is
    /// already done on this rank. Ranks may start their operations in any order, except for operations that are the MPI's own collectives
    /// ([`Persistent::is_native`]): MPI requires that all ranks start its collectives in the same order.
    ///
    /// # Safety
    /// Until the operation is done, no other code writes the buffers that it reads or accesses those that it writes.
    pub unsafe fn start(&self) -> Result<(), Error> {
        let mut body = self.body();
        body.is_free()?;
        self.begin();
        // SAFETY: ARGUMENTS and UNTIL DONE (see `lib.rs`), guaranteed by the caller.
        unsafe { body.start(&self.0.bound) }?;
        body.is_active = true;
        if body.is_running {
            drop(body);
            self.0.active.add(self.0.clone());
        }
        Ok(())
    }

    /// Advances the operation without waiting; returns whether it is done. An operation that is not started is done.
    pub fn test(&self) -> Result<bool, Error> {
        let mut body = self.body();
        // Another thread, or a call that waited, may have completed the operation.
        body.advance(&self.0.bound, false);
        let done = !body.is_running;
        let failed = body.failed.take();
        body.is_active &= !done;
        drop(body);
        if done {
            self.forget();
            self.end(false);
        } else {
            self.0.active.advance(false);
        }
        failed.map_or(Ok(done), Err)
    }

    /// Waits until the operation is done, and advances all other started operations meanwhile.
    pub fn wait(&self) -> Result<(), Error> {
        let Some(communicator) = self.0.bound.communicator.as_deref() else {
            while !self.test()? {
                std::hint::spin_loop();
            }
            return Ok(());
        };
        let active = &self.0.active;
        let wire = &communicator.group.internal.wire;
        let mut body = self.body();
        if active.count() <= 1 && body.is_running && !matches!(body.prepared, Prepared::Native) {
            body.finish(&self.0.bound, wire);
            let failed = body.failed.take();
            body.is_active = false;
            drop(body);
            self.forget();
            self.end(false);
            return failed.map_or(Ok(()), Err);
        }
        drop(body);
        let mut result = Ok(());
        wire.backoff().wait_for(|| match self.test() {
            Ok(false) => {
                wire.progress();
                false
            }
            Ok(true) => true,
            Err(error) => {
                result = Err(error);
                true
            }
        });
        result
    }

    /// Starts the operation and waits until it is done: the cheapest form of a blocking call.
    ///
    /// # Safety
    /// Until the operation is done, no other code writes the buffers that it reads or accesses those that it writes.
    pub unsafe fn run(&self) -> Result<(), Error> {
        let Some(communicator) = self.0.bound.communicator.as_deref() else {
            self.body().is_free()?;
            self.begin();
            // SAFETY: ARGUMENTS and UNTIL DONE (see `lib.rs`), guaranteed by the caller.
            let ran = unsafe { self.0.bound.backend.native(&self.0.bound.call, self.0.bound.comm) };
            self.end(true);
            return ran.map_err(Error::from);
        };
        let mut body = self.body();
        body.is_free()?;
        if self.0.active.is_empty() {
            self.begin();
            // SAFETY: ARGUMENTS and UNTIL DONE (see `lib.rs`), guaranteed by the caller.
            let ran = unsafe { body.run(&self.0.bound, &communicator.group.internal.wire) };
            self.end(true);
            return ran;
        }
        drop(body);
        // SAFETY: ARGUMENTS and UNTIL DONE (see `lib.rs`), guaranteed by the caller.
        unsafe { self.start() }?;
        self.wait()
    }

    /// Records the start of an execution for the report.
    #[inline]
    fn begin(&self) {
        if let Some(account) = &self.0.account {
            account.begin();
        }
    }

    /// Records the end of an execution for the report. If `inside`, the execution was started and awaited in one call.
    #[inline]
    fn end(&self, inside: bool) {
        if let Some(account) = &self.0.account {
            account.end(&self.0.algorithm, &self.0.reason, self.bytes(), inside);
        }
    }

    /// Returns the message size that reports show: the largest block, or the whole vector of a reduction. 0 if only each rank's own sizes
    /// are known, or if the call was passed through before its arguments were read.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bound.normalized.as_ref().map_or(0, |normalized| normalized.signature.bytes())
    }

    /// Whether the operation was started, and no wait or test has reported its end since.
    pub fn is_active(&self) -> bool {
        self.body().is_active
    }

    /// Whether the MPI's own collectives run the operation.
    pub fn is_native(&self) -> bool {
        matches!(self.body().prepared, Prepared::Native | Prepared::Parts(_))
    }

    /// Whether the operation is the MPI's own collective of the same name.
    pub(crate) fn is_the_call_itself(&self) -> bool {
        matches!(self.body().prepared, Prepared::Native)
    }
}

//! Persistent operations: plans bound to buffers, made once, then started and awaited again and again.
//!
//! **What advances a started operation.** It goes on whenever a thread is in [`Persistent::start`], [`Persistent::test`] or
//! [`Persistent::wait`] of this or any other operation, or in a blocking collective of this library: each of these, while it
//! waits, advances all operations of the process that were started before it began to wait. Calls of MPI itself do not
//! advance an operation, and neither does time. So a rank that has started one must not wait in MPI for something that
//! another rank sends only after its own is done.

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

/// An operation, shared by whoever holds it and by the list of those that are started.
pub(crate) struct Operation<B: Backend> {
    bound: BoundCall<B>,
    active: Arc<Active>,
    body: Turn<Execution<B>>,
    /// The algorithm, as text, and why it.
    algorithm: String,
    reason: Reason,
    /// Where it is counted, if there is to be a report.
    account: Option<OperationCounters>,
}

// SAFETY: the addresses in it are the user's, who vouches for them until the operation is done.
unsafe impl<B: Backend> Send for Operation<B> {}
// SAFETY: as above; what changes has its turn.
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
        let (Some(communicator), Some((plan, resources))) =
            (&self.bound.communicator, self.body.get_mut().leave())
        else {
            return;
        };
        match plan {
            Some(plan) => communicator.slots.put_back(&communicator.group, resources, plan),
            None => resources.free(&communicator.group),
        }
    }
}

/// The parts of an operation.
pub(crate) struct Made<B: Backend> {
    prepared: Prepared<B>,
    /// None where it is the MPI's own collective.
    resources: Option<Resources<B>>,
    algorithm: String,
    reason: Reason,
    normalized: Option<NormalizedCall>,
}

impl<B: Backend> Made<B> {
    /// The MPI's own collective.
    pub(crate) fn native(reason: Reason) -> Made<B> {
        Made {
            prepared: Prepared::Native,
            resources: None,
            algorithm: "native".into(),
            reason,
            normalized: None,
        }
    }

    /// The same of a call that is understood.
    pub(crate) fn of(self, normalized: NormalizedCall) -> Made<B> {
        Made { normalized: Some(normalized), ..self }
    }

    /// A plan for a call, with tags and memory of its own.
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

/// A persistent operation.
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

    /// Messages are posted anew in each execution: inside MPI's progress only such requests can be given back.
    pub(crate) fn post_anew(&mut self) {
        let operation = Arc::get_mut(&mut self.0).expect("nobody else has it yet");
        operation.body.get_mut().post_anew();
    }

    /// Whether MPI alone brings it on once it is started.
    pub(crate) fn is_one_round(&self) -> bool {
        match &self.body().prepared {
            Prepared::Ready(plan) => plan.compiled().one_round,
            Prepared::Sized(plan) => plan.one_round,
            Prepared::Native | Prepared::Parts(_) => true,
        }
    }

    /// The algorithm, as text.
    pub fn algorithm(&self) -> &str {
        &self.0.algorithm
    }

    /// Why it.
    pub(crate) fn reason(&self) -> &Reason {
        &self.0.reason
    }

    fn body(&self) -> Taken<'_, Execution<B>> {
        self.0.body.take()
    }

    /// Takes it off the list of those that are started.
    fn forget(&self) {
        self.0.active.remove(Arc::as_ptr(&self.0).cast());
    }

    /// Starts it. It is active until it is awaited or tested as done, and must not be started again before; whether it is done already on this
    /// rank makes no difference. Ranks may start their operations in any order, but for those that are the MPI's own
    /// ([`Persistent::is_native`]): MPI wants its collectives to be started in the same order by all ranks.
    ///
    /// # Safety
    /// The buffers are the plan's until it is done.
    pub unsafe fn start(&self) -> Result<(), Error> {
        let mut body = self.body();
        body.is_free()?;
        self.begin();
        // SAFETY: ARGUMENTS, and UNTIL DONE.
        unsafe { body.start(&self.0.bound) }?;
        body.is_active = true;
        if body.is_running {
            drop(body);
            self.0.active.add(self.0.clone());
        }
        Ok(())
    }

    /// Does what can be done without waiting; whether it is done. A plan that is not started is done.
    pub fn test(&self) -> Result<bool, Error> {
        let mut body = self.body();
        // Another thread, or a call that waited, may have brought it to its end.
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

    /// Waits until it is done; all other started plans go on meanwhile.
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

    /// Starts it and waits until it is done: the cheapest form of a blocking call.
    ///
    /// # Safety
    /// As for [`Persistent::start`].
    pub unsafe fn run(&self) -> Result<(), Error> {
        let Some(communicator) = self.0.bound.communicator.as_deref() else {
            self.body().is_free()?;
            self.begin();
            // SAFETY: ARGUMENTS, and UNTIL DONE.
            let ran = unsafe { self.0.bound.backend.native(&self.0.bound.call, self.0.bound.comm) };
            self.end(true);
            return ran.map_err(Error::from);
        };
        let mut body = self.body();
        body.is_free()?;
        if self.0.active.is_empty() {
            self.begin();
            // SAFETY: ARGUMENTS, and UNTIL DONE.
            let ran = unsafe { body.run(&self.0.bound, &communicator.group.internal.wire) };
            self.end(true);
            return ran;
        }
        drop(body);
        // SAFETY: ARGUMENTS, and UNTIL DONE.
        unsafe { self.start() }?;
        self.wait()
    }

    /// An execution begins, for the report.
    #[inline]
    fn begin(&self) {
        if let Some(account) = &self.0.account {
            account.begin();
        }
    }

    /// And ends; whether it was begun and awaited in one call.
    #[inline]
    fn end(&self, inside: bool) {
        if let Some(account) = &self.0.account {
            account.end(&self.0.algorithm, &self.0.reason, self.bytes(), inside);
        }
    }

    /// Of a block, as reports count them; of what is the MPI's own, none are known.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bound.normalized.as_ref().map_or(0, |normalized| normalized.signature.bytes())
    }

    /// Whether it is started, and neither awaited nor tested as done since.
    pub fn is_active(&self) -> bool {
        self.body().is_active
    }

    /// Whether the MPI's own collectives do it.
    pub fn is_native(&self) -> bool {
        matches!(self.body().prepared, Prepared::Native | Prepared::Parts(_))
    }

    /// Whether it is the MPI's own collective of the same name.
    pub(crate) fn is_the_call_itself(&self) -> bool {
        matches!(self.body().prepared, Prepared::Native)
    }
}

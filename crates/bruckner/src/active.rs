//! Plans that are started: whoever waits advances them all.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bruckner_mpi::Messages;
use bruckner_runtime::{Failure, Transport};

use crate::Error;
use crate::persistent::Inner;

/// Plans that are started and not yet done.
#[derive(Default)]
pub(crate) struct Active {
    count: AtomicUsize,
    plans: Mutex<Vec<Arc<Inner>>>,
}

impl Active {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// How many there are.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn plans(&self) -> MutexGuard<'_, Vec<Arc<Inner>>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, plan: Arc<Inner>) {
        let mut plans = self.plans();
        plans.push(plan);
        self.count.store(plans.len(), Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, plan: &Arc<Inner>) {
        let mut plans = self.plans();
        plans.retain(|other| !Arc::ptr_eq(other, plan));
        self.count.store(plans.len(), Ordering::Relaxed);
    }

    /// Advances every started plan that no other thread is advancing. What goes wrong with one is told to whoever waits
    /// for it. Inside MPI's own progress, only looks.
    pub(crate) fn advance(&self, inside: bool) {
        let plans = self.plans().clone();
        for plan in plans {
            let done = plan.body.try_take().is_some_and(|mut body| {
                body.advance(&plan, inside);
                !body.is_active()
            });
            if done {
                self.remove(&plan);
            }
        }
    }

    /// Waits for something and advances all started plans meanwhile.
    pub(crate) fn while_waiting(
        &self,
        messages: &Messages,
        mut done: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        messages.patience().wait(
            || match done() {
                Ok(done) => done,
                Err(failure) => {
                    result = Err(Error::from(failure));
                    true
                }
            },
            || {
                self.advance(false);
                messages.progress();
            },
        );
        result
    }
}

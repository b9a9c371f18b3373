//! Operations that are started: whoever waits advances them all.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bruckner_runtime::Failure;

use crate::Error;
use crate::backend::Wire;

/// An operation that is started and not yet done.
pub(crate) trait Started: Send + Sync {
    /// Does what can be done without waiting, unless another thread is at it; whether it is done. Inside MPI's own
    /// progress it only looks. What goes wrong is told to whoever waits for it.
    fn advance(&self, inside: bool) -> bool;
}

/// All of them in a process.
#[derive(Default)]
pub(crate) struct Active {
    count: AtomicUsize,
    operations: Mutex<Vec<Arc<dyn Started>>>,
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

    fn operations(&self) -> MutexGuard<'_, Vec<Arc<dyn Started>>> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, operation: Arc<dyn Started>) {
        let mut operations = self.operations();
        operations.push(operation);
        self.count.store(operations.len(), Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, operation: *const ()) {
        let mut operations = self.operations();
        operations.retain(|other| Arc::as_ptr(other).cast::<()>() != operation);
        self.count.store(operations.len(), Ordering::Relaxed);
    }

    /// Advances every operation that no other thread is advancing.
    pub(crate) fn advance(&self, inside: bool) {
        if self.is_empty() {
            return;
        }
        let operations = self.operations().clone();
        for operation in operations {
            if operation.advance(inside) {
                self.remove(Arc::as_ptr(&operation).cast());
            }
        }
    }

    /// Waits for something and advances all operations meanwhile.
    pub(crate) fn while_waiting(
        &self,
        wire: &impl Wire,
        mut done: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        wire.backoff().wait_for(|| match done() {
            Ok(false) => {
                self.advance(false);
                wire.progress();
                false
            }
            Ok(true) => true,
            Err(failure) => {
                result = Err(Error::from(failure));
                true
            }
        });
        result
    }
}

//! Started operations of a process: a thread that waits advances all of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bruckner_runtime::TransportError;

use crate::Error;
use crate::backend::Wire;

/// An operation that is started and not yet done.
pub(crate) trait Started: Send + Sync {
    /// Does all steps that need no waiting, unless another thread is advancing the operation; returns whether the operation is done.
    /// Inside the MPI's own progress (`inside`) it only tests requests. An error is returned to the caller that waits for the operation.
    fn advance(&self, inside: bool) -> bool;
}

/// All started operations of a process.
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

    /// Returns the number of started operations.
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

    /// Waits until `done` returns true, and advances all started operations meanwhile.
    pub(crate) fn while_waiting(
        &self,
        wire: &impl Wire,
        mut done: impl FnMut() -> Result<bool, TransportError>,
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

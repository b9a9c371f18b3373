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
    operations: Mutex<List>,
}

/// Started operations, each with the number of its start: an operation may be done, and started again, while another thread still
/// advances it.
#[derive(Default)]
struct List {
    starts: u64,
    operations: Vec<(u64, Arc<dyn Started>)>,
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

    fn operations(&self) -> MutexGuard<'_, List> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, operation: Arc<dyn Started>) {
        let mut list = self.operations();
        list.starts += 1;
        let start = list.starts;
        list.operations.push((start, operation));
        self.count.store(list.operations.len(), Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, operation: *const ()) {
        self.retain(|_, other| Arc::as_ptr(other).cast::<()>() != operation);
    }

    fn retain(&self, stays: impl Fn(u64, &Arc<dyn Started>) -> bool) {
        let mut list = self.operations();
        list.operations.retain(|(start, operation)| stays(*start, operation));
        self.count.store(list.operations.len(), Ordering::Relaxed);
    }

    /// Advances every operation that no other thread is advancing. `inside`: the MPI calls this in one of its waits.
    pub(crate) fn advance(&self, inside: bool) {
        if self.is_empty() {
            return;
        }
        let operations = self.operations().operations.clone();
        for (start, operation) in operations {
            if operation.advance(inside) {
                self.retain(|other, _| other != start);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// An operation that another thread finds done and starts again, just before `advance` returns.
    struct StartedAgain {
        active: Active,
        once: AtomicBool,
    }

    struct Operation(Arc<StartedAgain>);

    impl Started for Operation {
        fn advance(&self, _inside: bool) -> bool {
            let first = !self.0.once.swap(true, Ordering::Relaxed);
            if first {
                let list = self.0.active.operations().operations.clone();
                let (_, itself) = list.into_iter().next().expect("it is started");
                self.0.active.remove(Arc::as_ptr(&itself).cast());
                self.0.active.add(itself);
            }
            first
        }
    }

    #[test]
    fn an_operation_that_is_started_again_meanwhile_is_still_advanced() {
        let state = Arc::new(StartedAgain { active: Active::default(), once: AtomicBool::new(false) });
        state.active.add(Arc::new(Operation(state.clone())));
        state.active.advance(false);
        assert_eq!(state.active.count(), 1);
        // It is not done in the second start.
        state.active.advance(false);
        assert_eq!(state.active.count(), 1);
    }
}

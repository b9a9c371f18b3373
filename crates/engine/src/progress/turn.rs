//! The lock of a value that several threads may advance.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A lock that is held only briefly. A thread that finds it taken may wait, or skip the value.
pub(crate) struct Turn<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

/// Guard of a [`Turn`]: gives exclusive access to its value, and releases the lock when dropped.
pub(crate) struct Taken<'a, T>(&'a Turn<T>);

impl<T> Turn<T> {
    pub(crate) fn new(value: T) -> Turn<T> {
        Turn { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[inline]
    pub(crate) fn try_take(&self) -> Option<Taken<'_, T>> {
        (!self.taken.swap(true, Ordering::Acquire)).then(|| Taken(self))
    }

    #[inline]
    pub(crate) fn take(&self) -> Taken<'_, T> {
        loop {
            if let Some(taken) = self.try_take() {
                return taken;
            }
            std::thread::yield_now();
        }
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: TURN (see `lib.rs`): this guard has exclusive access to the value.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: TURN (see `lib.rs`): this guard has exclusive access to the value.
        unsafe { &mut *self.0.value.get() }
    }
}

// SAFETY: TURN (see `lib.rs`): one thread at a time has access to the value, which is passed on by acquire and release.
unsafe impl<T: Send> Sync for Turn<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_finds_it_taken_leaves_it_taken() {
        let turn = Turn::new(7);
        let taken = turn.try_take().unwrap();
        assert!(turn.try_take().is_none());
        assert!(turn.try_take().is_none(), "looking does not give it back");
        drop(taken);
        assert_eq!(*turn.try_take().unwrap(), 7);
    }
}

//! A part of the pool that is replaced by a larger one when the pool grows.

#![allow(unsafe_code)]

use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use parking_lot::Mutex;

/// The newest of several. Those before stay until the end, as somebody may be using them: each is at least
/// twice as large as the one before, so all of them together take less memory than the newest.
pub(super) struct Grown<T> {
    /// Release when it is replaced, Acquire when it is read: who sees it sees what is in it.
    now: AtomicPtr<T>,
    before: Mutex<Vec<Old<T>>>,
}

/// One that was replaced, or is about to be dropped.
struct Old<T>(*mut T);

impl<T> Drop for Old<T> {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and is dropped with the `Grown`, whose borrowers are gone.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl<T> Grown<T> {
    pub fn new(first: T) -> Grown<T> {
        Grown {
            now: AtomicPtr::new(Box::into_raw(Box::new(first))),
            before: Mutex::default(),
        }
    }

    /// From now on this one is found. By one thread at a time.
    pub fn replace(&self, next: T) {
        let old = self.now.swap(Box::into_raw(Box::new(next)), AcqRel);
        self.before.lock().push(Old(old));
    }
}

impl<T> Deref for Grown<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: it came from a box that lives as long as `self`.
        unsafe { &*self.now.load(Acquire) }
    }
}

impl<T> Drop for Grown<T> {
    fn drop(&mut self) {
        drop(Old(*self.now.get_mut()));
    }
}

// SAFETY: it owns its `T`s, which it hands out shared references to.
unsafe impl<T: Send> Send for Grown<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Grown<T> {}

//! Ending what a transaction waits for, or does for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::core::Core;

/// Ends another thread's wait for a lock or for its turn (KILL).
#[derive(Clone)]
pub struct Interrupt {
    pub(super) core: Arc<Core>,
    pub(super) flag: Arc<AtomicBool>,
}

impl Interrupt {
    /// Makes the transaction's current and later waits and searches fail with `Interrupted`, until `clear`.
    pub fn interrupt(&self) {
        // Release: pairs with the waiter's Acquire load after it was woken.
        self.flag.store(true, Ordering::Release);
        self.core.wake_interrupted();
    }

    /// Lets the transaction wait again.
    pub fn clear(&self) {
        self.flag.store(false, Ordering::Release);
    }

    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }
}

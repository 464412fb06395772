//! What a transaction needs and leaves behind: its place in the lock table, its interrupt flag and its buffers. A
//! transaction that ended gives them to the next one of about the same thread, so that beginning one allocates nothing.
//!
//! PARTS-1 What is taken is as new: no locks, no id, weight 0, a flag that is down and that nobody else has a handle on.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::base::{TableId, thread_spot};
use crate::lock::{LockManager, TableMode, TrxLocks};

use super::transaction::Scratch;

const STRIPES: usize = 16;
/// Parts kept in each stripe.
const KEPT: usize = 16;
/// A buffer that grew beyond this is not kept.
const KEPT_BUFFER_BYTES: usize = 64 << 10;

/// Table locks that a transaction holds, so that asking again costs a look.
pub(super) type TablesHeld = SmallVec<[(TableId, TableMode); 4]>;

pub(super) struct Parts {
    pub locks: TrxLocks,
    pub interrupt: Arc<AtomicBool>,
    pub scratch: Scratch,
}

impl Parts {
    fn new(locks: &LockManager) -> Parts {
        Parts {
            locks: locks.owner(),
            interrupt: Arc::new(AtomicBool::new(false)),
            scratch: Scratch::default(),
        }
    }
}

/// Parts that nobody uses. Each stripe's mutex is held for a push or pop.
#[derive(Default)]
pub(super) struct SpareParts {
    stripes: [CachePadded<Mutex<Vec<Parts>>>; STRIPES],
}

impl SpareParts {
    fn stripe(&self) -> &Mutex<Vec<Parts>> {
        &self.stripes[thread_spot() % STRIPES]
    }

    pub fn take(&self, locks: &LockManager) -> Parts {
        let spare = self.stripe().lock().pop();
        spare.unwrap_or_else(|| Parts::new(locks))
    }

    /// Takes back the parts of a transaction that has ended and released its locks.
    pub fn give(&self, mut parts: Parts) {
        // PARTS-1: a handle that somebody kept must not reach another transaction.
        let is_ours = Arc::get_mut(&mut parts.interrupt)
            .map(|flag| *flag.get_mut() = false)
            .is_some();
        if !is_ours || parts.scratch.largest() > KEPT_BUFFER_BYTES {
            return;
        }
        debug_assert_eq!(parts.locks.count(), 0, "PARTS-1");
        parts.locks.set_weight(0);
        let mut spare = self.stripe().lock();
        if spare.len() < KEPT {
            spare.push(parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_flag_with_another_handle_is_not_used_again() {
        let (spare, locks) = (SpareParts::default(), LockManager::new());
        let parts = spare.take(&locks);
        let handle = parts.interrupt.clone();
        spare.give(parts);
        handle.store(true, Ordering::Relaxed);
        assert!(
            !spare.take(&locks).interrupt.load(Ordering::Relaxed),
            "PARTS-1"
        );

        let parts = spare.take(&locks);
        parts.interrupt.store(true, Ordering::Relaxed);
        spare.give(parts);
        assert!(
            !spare.take(&locks).interrupt.load(Ordering::Relaxed),
            "PARTS-1"
        );
    }
}

//! What a transaction needs and leaves behind: its place in the lock table and among the views, its interrupt
//! flag and its buffers. A transaction that ended gives them to the next one of about the same thread, so
//! that beginning one allocates nothing.
//!
//! - **PARTS-1** What is taken is as new: no locks, no id, weight 0, a flag that is down and that nobody else
//!   has a handle on.
//! - **PARTS-2** Each transaction of the process has a number that no other has. (It is not its id, which
//!   only writers have.) A stripe numbers those that begin there, from a block that it took for itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::base::{TableId, thread_spot};
use crate::lock::{LockManager, TableMode, TrxLocks};

use super::transaction::Scratch;
use super::view::ViewPlace;

const STRIPES: usize = 32;
/// Parts kept in each stripe.
const KEPT: usize = 8;
/// A buffer that grew beyond this is not kept.
const KEPT_BUFFER_BYTES: usize = 64 << 10;

/// Numbers that a stripe takes at a time.
const NUMBER_BLOCK: u64 = 1 << 32;

/// Table locks that a transaction holds, so that asking again costs a look.
pub(super) type TablesHeld = SmallVec<[(TableId, TableMode); 4]>;

pub(super) struct TrxParts {
    pub locks: TrxLocks,
    pub interrupt: Arc<AtomicBool>,
    pub scratch: Scratch,
    /// If the transaction has read by a view.
    pub view_place: Option<ViewPlace>,
}

impl TrxParts {
    fn new(locks: &LockManager) -> TrxParts {
        TrxParts {
            locks: locks.owner(),
            interrupt: Arc::new(AtomicBool::new(false)),
            scratch: Scratch::default(),
            view_place: None,
        }
    }
}

/// Which transaction of all in the process it is; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrxNumber(u64);

impl TrxNumber {
    pub const NONE: TrxNumber = TrxNumber(0);

    pub fn get(self) -> u64 {
        self.0
    }
}

/// Parts that no transaction uses. Each stripe's mutex is held for a push or pop.
#[derive(Default)]
pub(super) struct SpareParts {
    stripes: [CachePadded<Mutex<Stripe>>; STRIPES],
}

#[derive(Default)]
struct Stripe {
    parts: Vec<TrxParts>,
    last_number: u64,
}

impl Stripe {
    /// PARTS-2.
    fn number(&mut self) -> TrxNumber {
        static BLOCKS: AtomicU64 = AtomicU64::new(0);
        self.last_number += 1;
        if self.last_number % NUMBER_BLOCK == 1 {
            // Relaxed: only that no two get the same block matters.
            self.last_number = BLOCKS.fetch_add(1, Ordering::Relaxed) * NUMBER_BLOCK + 1;
        }
        TrxNumber(self.last_number)
    }
}

impl SpareParts {
    fn stripe(&self) -> &Mutex<Stripe> {
        &self.stripes[thread_spot() % STRIPES]
    }

    pub fn take(&self, locks: &LockManager) -> (TrxParts, TrxNumber) {
        let (spare, number) = {
            let mut stripe = self.stripe().lock();
            (stripe.parts.pop(), stripe.number())
        };
        (spare.unwrap_or_else(|| TrxParts::new(locks)), number)
    }

    /// Takes back the parts of a transaction that has ended and released its locks.
    pub fn give(&self, mut parts: TrxParts) {
        // PARTS-1: a handle that somebody kept must not reach another transaction.
        let is_ours = Arc::get_mut(&mut parts.interrupt)
            .map(|flag| *flag.get_mut() = false)
            .is_some();
        if !is_ours || parts.scratch.largest() > KEPT_BUFFER_BYTES {
            return;
        }
        debug_assert_eq!(parts.locks.count(), 0, "PARTS-1");
        parts.locks.set_weight(0);
        parts.locks.set_spared(false);
        parts.locks.set_changes(0);
        let spare = &mut self.stripe().lock().parts;
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
        let (parts, _) = spare.take(&locks);
        let handle = parts.interrupt.clone();
        spare.give(parts);
        handle.store(true, Ordering::Relaxed);
        assert!(
            !spare.take(&locks).0.interrupt.load(Ordering::Relaxed),
            "PARTS-1"
        );

        let (parts, _) = spare.take(&locks);
        parts.interrupt.store(true, Ordering::Relaxed);
        spare.give(parts);
        assert!(
            !spare.take(&locks).0.interrupt.load(Ordering::Relaxed),
            "PARTS-1"
        );
    }

    #[test]
    fn no_two_transactions_have_one_number() {
        let (some, others, locks) = (
            SpareParts::default(),
            SpareParts::default(),
            LockManager::new(),
        );
        let mut numbers = vec![TrxNumber::NONE];
        for spare in [&some, &others, &some, &others] {
            let (parts, number) = spare.take(&locks);
            assert!(!numbers.contains(&number), "PARTS-2");
            numbers.push(number);
            spare.give(parts);
        }
        // At the end of a block, too.
        let last = (u64::from(u32::MAX) - 1) * NUMBER_BLOCK;
        let mut stripe = Stripe {
            parts: Vec::new(),
            last_number: last,
        };
        assert_ne!(stripe.number(), TrxNumber(last + 1), "PARTS-2");
    }
}

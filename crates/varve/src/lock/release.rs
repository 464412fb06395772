//! Giving up many locks at once: all when the transaction has ended, or those that need not last so long.

use std::sync::atomic::Ordering;

use super::manager::{DIVIDE_BYTES, LockManager, TrxLocks};
use super::mode::TableMode;
use super::shard::Target;
use crate::base::IndexId;

/// Room for so many locks stays with an owner after its locks were released.
const KEEP_LOCKS: usize = 1024;

impl LockManager {
    /// Releases everything, at the end of the transaction: after its state says Committed or Aborted.
    pub fn release_all(&self, locks: &TrxLocks) {
        locks.release_all();
    }

    /// Releases everything but what the transaction holds implicitly on what it wrote.
    pub fn release_explicit(&self, locks: &TrxLocks) {
        locks.release_explicit();
    }

    /// Releases the locks on gaps, those on records that are only shared, and the exclusive ones that `keeps`
    /// does not want. No latch may be held: `keeps` may take one.
    pub fn release_searches(
        &self,
        locks: &TrxLocks,
        mut keeps: impl FnMut(IndexId, &[u8]) -> bool,
    ) {
        // OWNER-3: what others have made explicit of a range is in the list, and nothing comes there later.
        let adopted = {
            let mut shared = locks.owner.shared.lock();
            shared.life += 1;
            std::mem::take(&mut shared.adopted)
        };
        locks.release_gaps();
        locks.shown().set_implied(locks.written.get());
        let owner = locks.owner.key;
        let held = std::mem::take(&mut *locks.locks.borrow_mut());
        let mut key = Vec::new();
        let (kept, given_up): (Vec<_>, Vec<_>) = adopted.into_iter().chain(held).partition(|at| {
            let index = {
                let shard = self.inner.shards[at.shard as usize].lock();
                let Target::Record(index, of) = shard.target(at.slot) else {
                    return true;
                };
                if !shard
                    .queue(at.slot)
                    .held_by(owner)
                    .has(TableMode::Exclusive)
                {
                    return false;
                }
                key.clear();
                key.extend_from_slice(of);
                index
            };
            keeps(index, &key)
        });
        *locks.locks.borrow_mut() = kept;
        for at in given_up {
            self.inner.release(owner, at);
        }
    }
}

impl TrxLocks {
    pub(super) fn release_all(&self) {
        if let Some(id) = self.owner.trx() {
            self.owner.shared.lock().trx = 0;
            self.owner.trx.store(0, Ordering::Relaxed);
            self.inner.trxs_of(id).lock().remove(&id);
        }
        self.release_explicit();
    }

    fn release_explicit(&self) {
        let adopted = {
            let mut shared = self.owner.shared.lock();
            shared.intents.clear();
            // OWNER-3
            shared.life += 1;
            std::mem::take(&mut shared.adopted)
        };
        self.written.set(0);
        self.shown().set_implied(0);
        let mut locks = self.locks.borrow_mut();
        if !(locks.is_empty() && adopted.is_empty()) {
            for at in adopted.into_iter().chain(locks.drain(..)) {
                self.inner.release(self.owner.key, at);
            }
            locks.shrink_to(KEEP_LOCKS);
        }
        drop(locks);
        self.release_gaps();
    }

    fn release_gaps(&self) {
        let mut gaps = self.gaps.borrow_mut();
        if gaps.is_empty() {
            return;
        }
        let before = self.inner.gaps.bytes();
        for index in gaps.drain(..) {
            self.inner.gaps.release(self.owner.key, index);
        }
        if before / DIVIDE_BYTES != self.inner.gaps.bytes() / DIVIDE_BYTES {
            self.inner.divide_memory();
        }
    }
}

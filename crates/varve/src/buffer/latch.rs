//! The page latch: shared or exclusive, without an owner, and no fairer than parking_lot's `RawRwLock`, which
//! it is.
//!
//! In a loom build it is made of a mutex and a condition variable that the model checker knows.

#[cfg(not(loom))]
mod imp {
    use std::time::Duration;

    use parking_lot::RawRwLock;
    use parking_lot::lock_api::{RawRwLock as _, RawRwLockDowngrade as _, RawRwLockTimed as _};

    pub struct Latch(RawRwLock);

    impl Latch {
        pub const fn new() -> Latch {
            Latch(RawRwLock::INIT)
        }

        #[inline]
        pub fn lock_shared(&self) {
            self.0.lock_shared();
        }

        #[inline]
        pub fn try_lock_shared(&self) -> bool {
            self.0.try_lock_shared()
        }

        pub fn try_lock_shared_for(&self, at_most: Duration) -> bool {
            self.0.try_lock_shared_for(at_most)
        }

        /// # Safety
        /// The caller has the latch shared.
        #[inline]
        pub unsafe fn unlock_shared(&self) {
            // SAFETY: the caller's promise.
            unsafe { self.0.unlock_shared() }
        }

        #[inline]
        pub fn lock_exclusive(&self) {
            self.0.lock_exclusive();
        }

        #[inline]
        pub fn try_lock_exclusive(&self) -> bool {
            self.0.try_lock_exclusive()
        }

        /// # Safety
        /// The caller has the latch exclusively.
        #[inline]
        pub unsafe fn unlock_exclusive(&self) {
            // SAFETY: the caller's promise.
            unsafe { self.0.unlock_exclusive() }
        }

        /// Somebody has it exclusively.
        pub fn is_exclusive(&self) -> bool {
            self.0.is_locked_exclusive()
        }

        /// Lets readers in, and no writer.
        ///
        /// # Safety
        /// The caller has the latch exclusively; it has it shared afterwards.
        #[inline]
        pub unsafe fn downgrade(&self) {
            // SAFETY: the caller's promise.
            unsafe { self.0.downgrade() }
        }
    }
}

#[cfg(loom)]
mod imp {
    use std::time::Duration;

    use crate::base::sync::{Condvar, Mutex};

    const WRITER: u32 = u32::MAX;

    pub struct Latch {
        /// Number of readers, or `WRITER`.
        holders: Mutex<u32>,
        changed: Condvar,
    }

    impl Latch {
        pub fn new() -> Latch {
            Latch {
                holders: Mutex::new(0),
                changed: Condvar::new(),
            }
        }

        pub fn lock_shared(&self) {
            let mut holders = self.holders.lock();
            while *holders == WRITER {
                self.changed.wait(&mut holders);
            }
            *holders += 1;
        }

        pub fn try_lock_shared(&self) -> bool {
            let mut holders = self.holders.lock();
            let free = *holders != WRITER;
            *holders = if free { *holders + 1 } else { WRITER };
            free
        }

        /// In a model no time passes.
        pub fn try_lock_shared_for(&self, _: Duration) -> bool {
            self.try_lock_shared()
        }

        pub unsafe fn unlock_shared(&self) {
            *self.holders.lock() -= 1;
            self.changed.notify_all();
        }

        pub fn lock_exclusive(&self) {
            let mut holders = self.holders.lock();
            while *holders != 0 {
                self.changed.wait(&mut holders);
            }
            *holders = WRITER;
        }

        pub fn try_lock_exclusive(&self) -> bool {
            let mut holders = self.holders.lock();
            let free = *holders == 0;
            if free {
                *holders = WRITER;
            }
            free
        }

        pub unsafe fn unlock_exclusive(&self) {
            *self.holders.lock() = 0;
            self.changed.notify_all();
        }

        pub fn is_exclusive(&self) -> bool {
            *self.holders.lock() == WRITER
        }

        pub unsafe fn downgrade(&self) {
            *self.holders.lock() = 1;
            self.changed.notify_all();
        }
    }
}

pub(super) use imp::Latch;

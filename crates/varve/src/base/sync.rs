//! The sync shim: atomics and locks that code with a lock-free protocol takes from here, so that the model checker
//! `loom` can take their place. Built normally these are the standard atomics, parking_lot's mutex and crossbeam's
//! sharded lock; built with `RUSTFLAGS="--cfg loom"` they are loom's, and every interleaving of a small test is tried.
//!
//! Code that no loom test runs may use the standard types directly: they are the same types in a normal build.

#[cfg(not(loom))]
mod imp {
    use std::sync::PoisonError;

    pub use parking_lot::{Mutex, MutexGuard};
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    pub use std::thread::yield_now;

    /// Stands between two SeqCst accesses of one thread whose order against another thread's two matters. loom takes
    /// SeqCst accesses for AcqRel ones, so in a model this is a fence; the accesses themselves suffice otherwise.
    #[inline(always)]
    pub fn between_seq_cst() {}

    /// A reader-writer lock for data that is read by every thread and hardly ever written: a reader touches only the
    /// shard that belongs to its thread, a writer takes all shards.
    pub struct ReadMostly<T>(crossbeam_utils::sync::ShardedLock<T>);

    pub use crossbeam_utils::sync::{
        ShardedLockReadGuard as ReadGuard, ShardedLockWriteGuard as WriteGuard,
    };

    impl<T> ReadMostly<T> {
        pub fn new(value: T) -> ReadMostly<T> {
            ReadMostly(crossbeam_utils::sync::ShardedLock::new(value))
        }

        pub fn read(&self) -> ReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        pub fn write(&self) -> WriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

#[cfg(loom)]
mod imp {
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    pub use loom::sync::{
        MutexGuard, RwLockReadGuard as ReadGuard, RwLockWriteGuard as WriteGuard,
    };
    pub use loom::thread::yield_now;

    pub fn between_seq_cst() {
        fence(Ordering::SeqCst);
    }

    /// loom's mutex with parking_lot's face.
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a thread panicked in the model")
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    pub struct ReadMostly<T>(loom::sync::RwLock<T>);

    impl<T> ReadMostly<T> {
        pub fn new(value: T) -> ReadMostly<T> {
            ReadMostly(loom::sync::RwLock::new(value))
        }

        pub fn read(&self) -> ReadGuard<'_, T> {
            self.0.read().expect("a thread panicked in the model")
        }

        pub fn write(&self) -> WriteGuard<'_, T> {
            self.0.write().expect("a thread panicked in the model")
        }
    }
}

pub use imp::*;

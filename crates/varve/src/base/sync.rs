//! The sync shim: atomics and locks that code with a lock-free protocol takes from here, so that the model
//! checker `loom` can take their place. Built normally these are the standard atomics, parking_lot's mutex
//! and crossbeam's sharded lock; built with `RUSTFLAGS="--cfg loom"` they are loom's, and every interleaving
//! of a small test is tried.
//!
//! Code that no loom test runs may use the standard types directly: they are the same types in a normal
//! build.

#[cfg(not(loom))]
mod imp {
    use std::sync::PoisonError;

    pub use parking_lot::{Condvar, Mutex, MutexGuard};
    /// The atomic of a model that must stay small; see the other build.
    pub use std::sync::atomic::AtomicU64 as BareAtomicU64;
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    pub use std::thread::yield_now;

    /// Stands between two SeqCst accesses of one thread whose order against another thread's two matters.
    /// loom takes SeqCst accesses for AcqRel ones, so in a model this is a fence; the accesses themselves
    /// suffice otherwise.
    #[inline(always)]
    pub fn between_seq_cst() {}

    /// A reader-writer lock for data that is read by every thread and hardly ever written: a reader touches
    /// only the shard that belongs to its thread, a writer takes all shards.
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
    use std::ops::{Deref, DerefMut};
    use std::time::Instant;

    use loom::sync::atomic as model;

    /// loom's atomic without the companion described below: for the words of the log buffer, each of which
    /// has one thread that writes it at a time and none that loads it before it changes it. With companions
    /// those models do not end.
    pub use loom::sync::atomic::AtomicU64 as BareAtomicU64;
    pub use loom::sync::atomic::{Ordering, fence};
    pub use loom::sync::{RwLockReadGuard as ReadGuard, RwLockWriteGuard as WriteGuard};
    pub use loom::thread::yield_now;

    pub fn between_seq_cst() {
        fence(Ordering::SeqCst);
    }

    /// loom's atomic, with a companion that every access changes first. To find out which interleavings
    /// differ, loom remembers only the last access to an object: a thread that loads a word before it changes
    /// it would hide another thread's load, and interleavings would be missed. Changes of the companion
    /// conflict pairwise, so none is. They are relaxed, and order nothing else.
    macro_rules! atomic {
        ($name:ident, $value:ty) => {
            pub struct $name {
                value: model::$name,
                accesses: model::AtomicBool,
            }

            impl $name {
                pub fn new(value: $value) -> $name {
                    $name {
                        value: model::$name::new(value),
                        accesses: model::AtomicBool::new(false),
                    }
                }

                fn touch(&self) -> &model::$name {
                    self.accesses.swap(true, Ordering::Relaxed);
                    &self.value
                }

                pub fn load(&self, order: Ordering) -> $value {
                    self.touch().load(order)
                }

                pub fn store(&self, value: $value, order: Ordering) {
                    self.touch().store(value, order);
                }

                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    self.touch().swap(value, order)
                }

                pub fn compare_exchange(
                    &self,
                    from: $value,
                    to: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.touch().compare_exchange(from, to, success, failure)
                }
            }
        };
    }

    macro_rules! arithmetic {
        ($name:ident, $value:ty) => {
            impl $name {
                pub fn fetch_add(&self, n: $value, order: Ordering) -> $value {
                    self.touch().fetch_add(n, order)
                }

                pub fn fetch_sub(&self, n: $value, order: Ordering) -> $value {
                    self.touch().fetch_sub(n, order)
                }

                pub fn fetch_max(&self, n: $value, order: Ordering) -> $value {
                    self.touch().fetch_max(n, order)
                }

                pub fn fetch_or(&self, n: $value, order: Ordering) -> $value {
                    self.touch().fetch_or(n, order)
                }

                pub fn fetch_and(&self, n: $value, order: Ordering) -> $value {
                    self.touch().fetch_and(n, order)
                }
            }
        };
    }

    atomic!(AtomicBool, bool);
    atomic!(AtomicU32, u32);
    atomic!(AtomicU64, u64);
    atomic!(AtomicUsize, usize);
    arithmetic!(AtomicU32, u32);
    arithmetic!(AtomicU64, u64);
    arithmetic!(AtomicUsize, usize);

    /// loom's mutex with parking_lot's face.
    #[derive(Default)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    /// Empty only while its owner waits in a `Condvar`.
    pub struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    const HELD: &str = "the mutex is held but while waiting";
    const PANICKED: &str = "a thread panicked in the model";

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect(HELD)
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect(HELD)
        }
    }

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect(PANICKED)))
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
        }
    }

    /// loom's condition variable with parking_lot's face.
    #[derive(Default)]
    pub struct Condvar(loom::sync::Condvar);

    /// Whether the time was up, which it never is: in a model no time passes.
    pub struct WaitTimeoutResult;

    impl WaitTimeoutResult {
        pub fn timed_out(&self) -> bool {
            false
        }
    }

    impl Condvar {
        pub fn new() -> Condvar {
            Condvar::default()
        }

        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect(HELD);
            guard.0 = Some(self.0.wait(held).expect(PANICKED));
        }

        pub fn wait_until<T>(
            &self,
            guard: &mut MutexGuard<'_, T>,
            _: Instant,
        ) -> WaitTimeoutResult {
            self.wait(guard);
            WaitTimeoutResult
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    pub struct ReadMostly<T>(loom::sync::RwLock<T>);

    impl<T> ReadMostly<T> {
        pub fn new(value: T) -> ReadMostly<T> {
            ReadMostly(loom::sync::RwLock::new(value))
        }

        pub fn read(&self) -> ReadGuard<'_, T> {
            self.0.read().expect(PANICKED)
        }

        pub fn write(&self) -> WriteGuard<'_, T> {
            self.0.write().expect(PANICKED)
        }
    }
}

pub use imp::*;

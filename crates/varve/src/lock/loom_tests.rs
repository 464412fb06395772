//! Grants, cancellations and deadlocks: every interleaving, up to a bound on preemptions, of two or three
//! transactions.
//!
//! Modelled: all mutexes of the lock manager, the condition variable that an owner sleeps on, the counts of
//! strong table requests. No time passes, so nobody's wait times out: a wake-up that is lost is a deadlock of
//! the model, which loom reports. The waits-for graph is searched as always.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use loom::thread;

use super::{Acquired, LastRow, LockManager, Mode, TableMode, TrxLocks, Wait};
use crate::base::{Error, IndexId, Result, TableId, model};

const INDEX: IndexId = IndexId(1);
const TABLE: TableId = TableId(1);

static NEVER: AtomicBool = AtomicBool::new(false);

fn patiently(interrupt: &AtomicBool) -> Wait<'_> {
    let timeout = Duration::from_secs(3600);
    Wait::For { timeout, interrupt }
}

fn lock(manager: &LockManager, locks: &TrxLocks, key: &[u8]) -> Result<Acquired> {
    manager.lock_record(locks, INDEX, key, Mode::Exclusive, patiently(&NEVER))
}

/// Nobody holds or awaits anything: another owner gets the lock at once.
fn assert_free(manager: &LockManager, key: &[u8]) {
    let other = manager.owner();
    let now = manager.lock_record(&other, INDEX, key, Mode::Exclusive, Wait::No);
    assert_eq!(now.unwrap(), Acquired::New);
}

/// LOCK-1 and LOCK-2: each gets the lock, one at a time.
#[test]
fn loom_everybody_is_granted_in_turn() {
    model::check(4, || {
        let manager = LockManager::new();
        let holders = Arc::new(AtomicU32::new(0));
        let critical_section = |manager: &LockManager, holders: &AtomicU32| {
            let locks = manager.owner();
            lock(manager, &locks, b"k").unwrap();
            assert_eq!(holders.fetch_add(1, Ordering::Relaxed), 0, "LOCK-1");
            thread::yield_now();
            holders.fetch_sub(1, Ordering::Relaxed);
            manager.release_all(&locks);
        };
        let other = thread::spawn({
            let (manager, holders) = (manager.clone(), holders.clone());
            move || critical_section(&manager, &holders)
        });
        critical_section(&manager, &holders);
        other.join().unwrap();
        assert_free(&manager, b"k");
    });
}

/// DEAD-1, DEAD-2, DEAD-4: of two that wait for each other exactly one is told, and the other one goes on; if
/// they missed each other, none is.
#[test]
fn loom_a_deadlock_has_one_victim() {
    model::check(4, || {
        let manager = LockManager::new();
        let cross = |manager: &LockManager, first: &[u8], second: &[u8]| {
            let locks = manager.owner();
            lock(manager, &locks, first).unwrap();
            let result = lock(manager, &locks, second);
            manager.release_all(&locks);
            match result {
                Ok(_) => false,
                Err(Error::Deadlock) => true,
                Err(e) => panic!("{e}"),
            }
        };
        let other = thread::spawn({
            let manager = manager.clone();
            move || cross(&manager, b"a", b"b")
        });
        let own = cross(&manager, b"b", b"a");
        let other = other.join().unwrap();
        assert!(!(own && other), "DEAD-2: two victims of one cycle");
        assert_free(&manager, b"a");
        assert_free(&manager, b"b");
    });
}

/// LOCK-1: a writer waits for two readers, which go in any order.
#[test]
fn loom_a_writer_waits_for_all_readers() {
    model::check_long(4, || {
        let manager = LockManager::new();
        let readers = Arc::new(AtomicU32::new(0));
        let read = |manager: &LockManager, readers: &AtomicU32| {
            let locks = manager.owner();
            manager
                .lock_record(&locks, INDEX, b"k", Mode::Shared, patiently(&NEVER))
                .unwrap();
            readers.fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
            readers.fetch_sub(1, Ordering::Relaxed);
            manager.release_all(&locks);
        };
        let threads = [(); 2].map(|()| {
            let (manager, readers) = (manager.clone(), readers.clone());
            thread::spawn(move || read(&manager, &readers))
        });
        let locks = manager.owner();
        lock(&manager, &locks, b"k").unwrap();
        assert_eq!(readers.load(Ordering::Relaxed), 0, "LOCK-1");
        manager.release_all(&locks);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_free(&manager, b"k");
    });
}

/// DEAD-1, DEAD-2: of three that wait in a circle at most one is told, and the others go on.
#[test]
fn loom_a_circle_of_three_has_one_victim() {
    model::check_long(4, || {
        let manager = LockManager::new();
        let cross = |manager: &LockManager, first: &[u8], second: &[u8]| {
            let locks = manager.owner();
            lock(manager, &locks, first).unwrap();
            let is_victim = match lock(manager, &locks, second) {
                Ok(_) => false,
                Err(Error::Deadlock) => true,
                Err(e) => panic!("{e}"),
            };
            manager.release_all(&locks);
            is_victim
        };
        let threads = [(b"a", b"b"), (b"b", b"c")].map(|(first, second)| {
            let manager = manager.clone();
            thread::spawn(move || cross(&manager, first, second))
        });
        let own = cross(&manager, b"c", b"a");
        let others = threads.map(|thread| thread.join().unwrap());
        let victims = u32::from(own) + others.map(u32::from).iter().sum::<u32>();
        assert!(victims <= 1, "DEAD-2: {victims} victims of one cycle");
        for key in [b"a", b"b", b"c"] {
            assert_free(&manager, key);
        }
    });
}

/// A wait is interrupted while it is granted: it ends one way or the other, and leaves nothing behind.
#[test]
fn loom_an_interrupt_meets_a_grant() {
    model::check(4, || {
        let manager = LockManager::new();
        let holder = manager.owner();
        lock(&manager, &holder, b"k").unwrap();
        let interrupt = Arc::new(AtomicBool::new(false));
        let waiter = thread::spawn({
            let (manager, interrupt) = (manager.clone(), interrupt.clone());
            move || {
                let locks = manager.owner();
                let wait = patiently(&interrupt);
                let result = manager.lock_record(&locks, INDEX, b"k", Mode::Exclusive, wait);
                let holds = manager.holds_record(&locks, INDEX, b"k", Mode::Exclusive);
                match result {
                    Ok(_) => assert!(holds),
                    Err(Error::Interrupted) => assert!(!holds),
                    Err(e) => panic!("{e}"),
                }
            }
        });
        interrupt.store(true, Ordering::Release);
        manager.wake_interrupted();
        manager.release_all(&holder);
        waiter.join().unwrap();
        assert_free(&manager, b"k");
    });
}

/// LOCK-3: an intent that is only noted and a lock on the whole table exclude each other.
#[test]
fn loom_intents_meet_a_table_lock() {
    model::check(4, || {
        let manager = LockManager::new();
        let inside = Arc::new(AtomicU32::new(0));
        let critical_section = |manager: &LockManager, inside: &AtomicU32, mode| {
            let locks = manager.owner();
            manager
                .lock_table(&locks, TABLE, mode, patiently(&NEVER))
                .unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "LOCK-3");
            thread::yield_now();
            inside.fetch_sub(1, Ordering::Relaxed);
            manager.release_all(&locks);
        };
        let other = thread::spawn({
            let (manager, inside) = (manager.clone(), inside.clone());
            move || critical_section(&manager, &inside, TableMode::IntentionExclusive)
        });
        critical_section(&manager, &inside, TableMode::Exclusive);
        other.join().unwrap();
        let locks = manager.owner();
        let now = manager.lock_table(&locks, TABLE, TableMode::Exclusive, Wait::No);
        assert_eq!(now.unwrap(), Acquired::New);
    });
}

/// GAP-4: a waiting insert goes on when the last gap lock in its way is released.
#[test]
fn loom_an_insert_waits_for_gaps() {
    model::check(4, || {
        let manager = LockManager::new();
        let holders = [(b"a", b"c"), (b"b", b"d")].map(|(low, high)| {
            let holder = manager.owner();
            manager.lock_gap(&holder, INDEX, low, Some(high)).unwrap();
            holder
        });
        let inserter = thread::spawn({
            let manager = manager.clone();
            move || {
                let locks = manager.owner();
                manager
                    .wait_to_insert(&locks, INDEX, b"b", patiently(&NEVER))
                    .unwrap();
                assert!(!manager.keeps_out(&locks, INDEX, b"b"));
            }
        });
        let [first, second] = holders;
        let other = thread::spawn({
            let manager = manager.clone();
            move || manager.release_all(&first)
        });
        manager.release_all(&second);
        inserter.join().unwrap();
        other.join().unwrap();
    });
}

/// RANGE-1, RANGE-2: of a scan that locks a record by its range and an owner that asks for the record one at
/// a time has it, and the second one goes on.
#[test]
fn loom_a_range_meets_a_request() {
    model::check(4, || {
        let manager = LockManager::new();
        let holders = Arc::new(AtomicU32::new(0));
        let critical_section = |holders: &AtomicU32| {
            assert_eq!(holders.fetch_add(1, Ordering::Relaxed), 0, "RANGE-1");
            thread::yield_now();
            holders.fetch_sub(1, Ordering::Relaxed);
        };
        let other = thread::spawn({
            let (manager, holders) = (manager.clone(), holders.clone());
            move || {
                let locks = manager.owner();
                lock(&manager, &locks, b"k").unwrap();
                critical_section(&holders);
                manager.release_all(&locks);
            }
        });
        let locks = manager.owner();
        let is_new = lock(&manager, &locks, b"k").unwrap() == Acquired::New;
        let row = Some(LastRow { key: b"k", is_new });
        let interval = (&b"a"[..], Some(&b"l"[..]));
        manager
            .lock_range(&locks, INDEX, interval, Mode::Exclusive, row)
            .unwrap();
        critical_section(&holders);
        manager.release_all(&locks);
        other.join().unwrap();
        assert_free(&manager, b"k");
    });
}
